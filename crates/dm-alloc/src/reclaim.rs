//! Reclamation: retired blocks wait until every operation that may have seen them is over.
//!
//! Of a compute node: its operations run in [epochs](dm_sync::epoch) that it learns from one word of the pool. Once per
//! period one of its clients does a *round*:
//! 1. What was retired so far is closed, and gets the epoch word's value g as its tag (FAA: the word grows).
//! 2. It announces itself: by CAS on its slot if the epoch of its oldest running operation, or the present one, is a later
//!    one than that says, else by FAA on the slot's beat.
//! 3. It reads all slots. What has a tag below every announcement is free.
//!
//! While one client is in a round for long, the others do its second and third step, and look for silent members.
//!
//! An operation that is announced with an epoch above g began after the FAA, hence after the block was unlinked.

use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;

use dm_sync::atomic::{AtomicU64, Ordering};
use dm_sync::epoch::{Epochs, Seat};
use dm_sync::{Arc, Fingerprint, Mutex, fingerprint_of};
use dm_verbs::{ClientId, Control, ControlError, Env, Exhausted, LocalStep, Nanos, RemotePtr, Verbs, Why};

use crate::block::{Block, Class};
use crate::limbo::Limbo;
use crate::members::{MemberArea, Membership, Standing};
use crate::{AllocError, Allocator};

mod joining;
mod landing;
mod options;
mod round;
mod visit;

pub use options::{DEFAULT_OPERATIONS, DEFAULT_PERIOD, ReclaimFlaws, ReclaimOptions};

/// What the clients of a compute node share for reclamation.
pub(crate) struct Reclaim {
    area: MemberArea,
    options: ReclaimOptions,
    epochs: Arc<Epochs>,
    /// When the last announcement was posted; beside the section, for a look at every operation.
    last_round: AtomicU64,
    /// [`ReclaimOptions::period`], or what a short lease allows of it.
    period: AtomicU64,
    membership: Mutex<Membership>,
    limbo: Mutex<Limbo>,
    abandoned: Mutex<Vec<(ClientId, Seat)>>,
}

impl fmt::Debug for Reclaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reclaim")
            .field("area", &self.area)
            .finish_non_exhaustive()
    }
}

impl Fingerprint for Reclaim {
    fn fingerprint(&self) -> u64 {
        fingerprint_of(&(
            self.epochs.fingerprint(),
            self.membership.fingerprint(),
            self.limbo.fingerprint(),
        ))
    }
}

impl Reclaim {
    pub(crate) fn limbo_bytes(&self) -> u64 {
        self.limbo.with(|l| l.bytes())
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let limbo = self.limbo.with(|l| l.heap_bytes());
        limbo + self.epochs.heap_bytes()
    }

    fn place(&self) -> RemotePtr {
        self.area.at
    }
}

impl Allocator {
    /// This, reclaiming what is retired, for a pool whose members announce themselves in `area`.
    #[must_use]
    pub fn reclaiming(mut self, area: MemberArea, options: ReclaimOptions) -> Self {
        self.reclaim = Some(Reclaim {
            area,
            options,
            epochs: Arc::new(Epochs::new()),
            last_round: AtomicU64::new(0),
            period: AtomicU64::new(options.period.0),
            membership: Mutex::new(Membership::default()),
            limbo: Mutex::new(Limbo::default()),
            abandoned: Mutex::new(Vec::new()),
        });
        self
    }

    pub(crate) fn area(&self) -> Option<&MemberArea> {
        self.reclaim.as_ref().map(|r| &r.area)
    }

    /// The epochs that operations on this pool must run in; `None` if nothing is reclaimed.
    pub fn epochs(&self) -> Option<&Arc<Epochs>> {
        self.reclaim.as_ref().map(|r| &r.epochs)
    }

    /// Takes a block out of use that other clients may still be reading. Nothing leads to it any more, every line of it
    /// says that its node is dead, and all of that has been awaited. `block` is as it is to be handed out next.
    ///
    /// Where nothing is reclaimed, it is lost.
    pub fn retire(&self, block: Block, class: Class) {
        let Some(reclaim) = &self.reclaim else { return };
        self.pool_of(block.at).with(|pool| pool.retire(class));
        let block = if reclaim.options.flaws.same_life {
            Block {
                incarnation: block.incarnation.wrapping_sub(1),
                version: block.version.wrapping_sub(2),
                ..block
            }
        } else {
            block
        };
        if reclaim.options.flaws.no_grace {
            self.pool_of(block.at)
                .with(|pool| pool.put_reclaimed(block, class));
            return;
        }
        reclaim.limbo.with(|limbo| limbo.retire(block, class));
    }

    /// To be awaited by a client whose seat lets it in no more: joins the pool if need be, enrolls the seat, and does the
    /// compute node's round if it is due. Counted as housekeeping.
    ///
    /// # Errors
    /// [`AllocError::NoSlot`] when all slots are taken by others that announce themselves; verbs' and the control
    /// plane's own, [`ControlError::Fenced`] among them: this compute node was silent for too long.
    pub async fn attend<V: Verbs + Control>(&self, v: &V, seat: &Seat) -> Result<(), AllocError> {
        let _unmetered = v.meter().housekeeping();
        self.enrolled(v, seat).await?;
        self.round(v, false).await
    }

    /// Lets `seat` in as long as its client runs an operation in another seat, which was let in as usual: for what is done
    /// inside of it, and may have to stay announced when it is over.
    pub async fn enroll_within<V: Verbs>(&self, v: &V, seat: &Seat) {
        if let Some(reclaim) = &self.reclaim {
            let _unmetered = v.meter().housekeeping();
            v.local(LocalStep::Section).await;
            if reclaim.has_forgotten(v.client(), seat) {
                reclaim.end_forgotten(v, self.memory_nodes(), seat).await;
            }
            //= docs/protocol/reclaim.md R2
            seat.enroll(reclaim.epochs.generation(), reclaim.options.operations);
        }
    }

    /// [`Allocator::attend`] without the round.
    async fn enrolled<V: Verbs + Control>(&self, v: &V, seat: &Seat) -> Result<(), AllocError> {
        let Some(reclaim) = &self.reclaim else {
            return Ok(());
        };
        let mut retry = v.retry(reclaim.options.attempts);
        loop {
            v.local(LocalStep::Section).await;
            let forgotten = reclaim.has_forgotten(v.client(), seat);
            let generation = reclaim.epochs.generation();
            match reclaim.membership.with(Membership::stand) {
                Standing::Outside => reclaim.join(v).await?,
                Standing::Joining => retry.again(reclaim.place(), Why::Changing).await?,
                Standing::Member { slot, word } => {
                    if !seat.is_enrolled(generation) && !reclaim.enlist(v, slot, word).await? {
                        continue;
                    }
                    self.land(v).await?;
                    if forgotten {
                        reclaim.end_forgotten(v, self.memory_nodes(), seat).await;
                    }
                    seat.enroll(generation, reclaim.options.operations);
                    return Ok(());
                }
            }
        }
    }

    /// To be awaited now and then by an operation that takes long: does the round if it is due, so that its compute node
    /// does not seem silent. Counted as housekeeping.
    ///
    /// # Errors
    /// [`ControlError::Fenced`] if it seemed so already: what the operation reads is not protected any more.
    pub async fn beat<V: Verbs + Control>(&self, v: &V, seat: &Seat) -> Result<(), AllocError> {
        let Some(reclaim) = &self.reclaim else {
            return Ok(());
        };
        v.local(LocalStep::Section).await;
        if !seat.is_enrolled(reclaim.epochs.generation()) {
            return Err(ControlError::Fenced.into());
        }
        let _unmetered = v.meter().housekeeping();
        self.round(v, false).await
    }

    /// Does a round now, due or not. While another client is in a round, it announces and looks at the others only. For
    /// compute nodes that run no operations. Counted as housekeeping.
    ///
    /// # Errors
    /// As [`Allocator::attend`].
    pub async fn collect<V: Verbs + Control>(&self, v: &V, seat: &Seat) -> Result<(), AllocError> {
        let _unmetered = v.meter().housekeeping();
        self.enrolled(v, seat).await?;
        self.round(v, true).await
    }

    /// Gives this compute node's membership up if none of its operations runs; what it has retired waits until it is a
    /// member again. Posted, not awaited.
    pub fn leave<V: Verbs>(&self, v: &V) {
        let Some(reclaim) = &self.reclaim else { return };
        let left = reclaim.membership.with(|m| match m.standing {
            Standing::Member { slot, word } if m.announcing == 0 && reclaim.epochs.close() => {
                m.standing = Standing::Outside;
                let mut words = core::mem::take(&mut m.posted);
                words.push(word);
                Some((slot, words))
            }
            _ => None,
        });
        if let Some((slot, words)) = left {
            let _unmetered = v.meter().housekeeping();
            // The last announcement that was awaited goes first: what was posted upon it fails then.
            for word in words.into_iter().rev() {
                v.cas(reclaim.area.slot(slot), word.0, 0).detach();
            }
        }
    }

    /// The epoch in which operations begin from the next turn on; 0 without reclamation.
    pub fn turned(&self) -> u64 {
        let turned = |r: &Reclaim| r.membership.with(|m| m.turned);
        self.reclaim.as_ref().map_or(0, turned)
    }

    /// A turn of [`ReclaimOptions::remembers`]: once `forget` has made the compute node forget what it had read before
    /// the last turn, operations begin in the epoch that was the latest then. Answers the epoch in which they begin.
    ///
    /// Where there is nothing to gain, nothing is forgotten. One client at a time may call it.
    pub fn turn(&self, forget: impl FnOnce()) -> u64 {
        let Some(reclaim) = &self.reclaim else { return 0 };
        let (view, latest, turned) = reclaim
            .membership
            .with(|m| (reclaim.epochs.epoch(), m.latest, m.turned));
        if view >= latest {
            return view;
        }
        //= docs/protocol/reclaim.md R15
        forget();
        reclaim.membership.with(|m| {
            reclaim.epochs.advance(turned);
            // Another may have joined anew meanwhile, later than that.
            m.turned = m.turned.max(latest);
            reclaim.epochs.epoch()
        })
    }

    /// Whether this compute node's round is due: a look at the clock.
    #[inline]
    pub fn is_due<E: Env>(&self, env: &E) -> bool {
        self.reclaim.as_ref().is_some_and(|reclaim| reclaim.is_due(env))
    }

    /// To be awaited where an operation waits for others and tries again: does the round if it is due, so that its compute
    /// node does not seem silent. Counted as housekeeping.
    ///
    /// # Errors
    /// As [`Allocator::attend`].
    #[inline]
    pub async fn tend<V: Verbs + Control>(&self, v: &V) -> Result<(), AllocError> {
        if !self.is_due(v) {
            return Ok(());
        }
        let _unmetered = v.meter().housekeeping();
        // In a box: it is done once per period, and would make every loop's future large.
        Box::pin(self.round(v, false)).await
    }

    /// `work` that waits for others (for a lock, say), and this compute node's announcement beside it if nobody does the
    /// round for long: its other clients wait as well. An announcement that was begun is not given up when the work is
    /// done, whatever that holds by then: `work` may be over sooner than a round trip, time and again.
    pub async fn tending<V: Verbs + Control, T>(&self, v: &V, work: impl Future<Output = T>) -> T {
        let Some(reclaim) = &self.reclaim else {
            return work.await;
        };
        let mut work = pin!(work);
        let (mut done, mut announcement) = (None, None);
        poll_fn(|cx| {
            if done.is_none()
                && let Poll::Ready(over) = work.as_mut().poll(cx)
            {
                if announcement.is_none() {
                    return Poll::Ready(over);
                }
                done = Some(over);
            }
            if announcement.is_none() && reclaim.is_overdue(v) {
                announcement = Some(Box::pin(self.announcement(v)));
            }
            // For the time of the poll only: the work's verbs are metered.
            let _unmetered = v.meter().housekeeping();
            //= docs/protocol/reclaim.md R3a
            if announcement
                .as_mut()
                .is_some_and(|a| a.as_mut().poll(cx).is_ready())
            {
                // What failed here fails the work as well.
                announcement = None;
                return done.take().map_or(Poll::Pending, Poll::Ready);
            }
            Poll::Pending
        })
        .await
    }
}

impl Reclaim {
    /// Whether a round is due: a period has passed since the last announcement.
    #[inline]
    fn is_due<E: Env>(&self, env: &E) -> bool {
        self.has_passed(env, 1)
    }

    /// Whether it has been due for a period: nobody did it meanwhile.
    #[inline]
    fn is_overdue<E: Env>(&self, env: &E) -> bool {
        self.has_passed(env, 2)
    }

    #[inline]
    fn has_passed<E: Env>(&self, env: &E, periods: u64) -> bool {
        // Relaxed: hints, both; that one client alone does a whole round is decided in a section.
        let period = self.period.load(Ordering::Relaxed);
        period < u64::MAX && {
            // Relaxed: as above.
            let last = Nanos(self.last_round.load(Ordering::Relaxed));
            env.elapsed(last, Nanos(period.saturating_mul(periods)))
        }
    }

    /// Operations begin in this epoch: the compute node remembers nothing from before.
    fn advance(&self, epoch: u64) {
        // In a section with all others that change the view: `Epochs` wants one at a time.
        self.membership.with(|m| {
            m.latest = m.latest.max(epoch);
            m.turned = m.turned.max(epoch);
            self.epochs.advance(epoch);
        });
    }

    /// This was read as the epoch.
    fn learn(&self, epoch: u64) {
        if !self.options.remembers {
            return self.advance(epoch);
        }
        self.membership.with(|m| m.latest = m.latest.max(epoch));
    }
}

impl From<Exhausted> for AllocError {
    fn from(e: Exhausted) -> Self {
        Self::Contended(e)
    }
}
