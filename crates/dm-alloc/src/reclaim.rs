//! Reclamation: retired blocks wait until every operation that may have seen them is over.
//!
//! The operations of a compute node run in [epochs](dm_sync::epoch), which it learns from one word of the pool.
//! Once per period, one of its clients does a *round*:
//! 1. It closes the list of blocks retired so far, and tags the list with the epoch word's value g (an FAA, so the
//!    word grows).
//! 2. It announces the compute node. If the epoch of the oldest running operation, or else the present epoch, is
//!    later than the epoch in the compute node's slot, this is a CAS on the slot; otherwise it is an FAA on the
//!    slot's beat.
//! 3. It reads all slots. The blocks whose tag is below every announced epoch are free.
//!
//! If one client stays in a round for long, the others do the second and third step, and look for silent members.
//!
//! An operation that is announced with an epoch above g began after the FAA, hence after the blocks of that list
//! were unlinked.

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
#[cfg_attr(
    not(feature = "study"),
    expect(unreachable_pub, reason = "public with the feature `study` alone")
)]
mod study;
mod visit;

pub use options::{DEFAULT_OPERATIONS, DEFAULT_PERIOD, ReclaimOptions};
#[cfg(feature = "study")]
pub use study::ReclaimFlaws;

/// The part of reclamation that the clients of a compute node share.
pub(crate) struct Reclaim {
    area: MemberArea,
    options: ReclaimOptions,
    epochs: Arc<Epochs>,
    /// Time at which the last announcement was posted. It is outside of the mutex, because every operation looks
    /// at it.
    last_round: AtomicU64,
    /// [`ReclaimOptions::period`], or less if the lease is short.
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
    /// Makes this allocator reclaim retired blocks, in a pool whose members announce themselves in `area`.
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

    /// Returns the epochs in which operations on this pool must run; `None` if nothing is reclaimed.
    pub fn epochs(&self) -> Option<&Arc<Epochs>> {
        self.reclaim.as_ref().map(|r| &r.epochs)
    }

    /// Retires a block that other clients may still be reading. Nothing may lead to it any more, and every line of
    /// it must say that its node is dead; the caller has awaited both. `block` has the incarnation and version for
    /// its next node.
    ///
    /// If the pool reclaims nothing, the block is lost.
    pub fn retire(&self, block: Block, class: Class) {
        let Some(reclaim) = &self.reclaim else { return };
        self.pool_of(block.at).with(|pool| pool.retire(class));
        let block = if reclaim.options.flaws().same_life {
            Block {
                incarnation: block.incarnation.wrapping_sub(1),
                version: block.version.wrapping_sub(2),
                ..block
            }
        } else {
            block
        };
        if reclaim.options.flaws().no_grace {
            self.pool_of(block.at)
                .with(|pool| pool.put_reclaimed(block, class));
            return;
        }
        reclaim.limbo.with(|limbo| limbo.retire(block, class));
    }

    /// Prepares `seat` for operations: joins the pool if necessary, enrols the seat, and does the compute node's
    /// round if it is due. Await this when the seat refuses to start an operation. Its verbs are metered as
    /// housekeeping.
    ///
    /// # Errors
    /// [`AllocError::NoSlot`] if all slots are taken by other compute nodes that announce themselves, and the
    /// errors of verbs and of the control plane. One of them is [`ControlError::Fenced`]: this compute node was
    /// silent for too long.
    pub async fn prepare<V: Verbs + Control>(&self, v: &V, seat: &Seat) -> Result<(), AllocError> {
        let _unmetered = v.meter().housekeeping();
        self.enrolled(v, seat).await?;
        self.round(v, false).await
    }

    /// Enrols `seat` while its client runs an operation in another seat that was enrolled as usual. It is meant
    /// for work inside of that operation which may have to stay announced when the operation is over.
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

    /// Does what [`Allocator::prepare`] does, without the round.
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

    /// Does the round if it is due, so that the compute node does not seem silent. Await this now and then in an
    /// operation that takes long. Its verbs are metered as housekeeping.
    ///
    /// # Errors
    /// [`ControlError::Fenced`] if the compute node did seem silent: what the operation reads is no longer
    /// protected.
    pub async fn keep_alive<V: Verbs + Control>(&self, v: &V, seat: &Seat) -> Result<(), AllocError> {
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

    /// Does a round now, even if none is due. If another client is in a round, this client only announces and
    /// looks at the others. It is meant for compute nodes that run no operations. Its verbs are metered as
    /// housekeeping.
    ///
    /// # Errors
    /// Those of [`Allocator::prepare`].
    pub async fn collect<V: Verbs + Control>(&self, v: &V, seat: &Seat) -> Result<(), AllocError> {
        let _unmetered = v.meter().housekeeping();
        self.enrolled(v, seat).await?;
        self.round(v, true).await
    }

    /// Ends this compute node's membership if none of its operations runs. Its retired blocks wait until it is a
    /// member again. The requests are posted, not awaited.
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
            // The last announcement that was awaited is undone first. If that succeeds, later announcements that
            // were posted on top of it fail.
            for word in words.into_iter().rev() {
                v.cas(reclaim.area.slot(slot), word.0, 0).detach();
            }
        }
    }

    /// Returns the epoch in which operations begin from the next turn on; 0 without reclamation.
    pub fn turned(&self) -> u64 {
        let turned = |r: &Reclaim| r.membership.with(|m| m.turned);
        self.reclaim.as_ref().map_or(0, turned)
    }

    /// Does a turn, as [`ReclaimOptions::remembers`] needs it. It calls `forget`, which must make the compute node
    /// forget what it had read before the last turn. From then on, operations begin in the epoch that was the
    /// latest at the last turn. Returns the epoch in which operations begin.
    ///
    /// If the epoch cannot advance, nothing is forgotten. Only one client at a time may call this.
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
            // Another client may have joined the pool anew meanwhile, in a later epoch.
            m.turned = m.turned.max(latest);
            reclaim.epochs.epoch()
        })
    }

    /// Returns whether this compute node's round is due. This costs a look at the clock.
    #[inline]
    pub fn is_due<E: Env>(&self, env: &E) -> bool {
        self.reclaim.as_ref().is_some_and(|reclaim| reclaim.is_due(env))
    }

    /// Does the round if it is due, so that the compute node does not seem silent. Await this when an operation
    /// waits for others and then retries. Its verbs are metered as housekeeping.
    ///
    /// # Errors
    /// Those of [`Allocator::prepare`].
    #[inline]
    pub async fn announce_if_due<V: Verbs + Control>(&self, v: &V) -> Result<(), AllocError> {
        if !self.is_due(v) {
            return Ok(());
        }
        let _unmetered = v.meter().housekeeping();
        // In a box: this is needed once per period only, and would make the future of every retry loop large.
        Box::pin(self.round(v, false)).await
    }

    /// Runs `work` that waits for others (for a lock, for instance). If nobody has done the round for long, it
    /// announces this compute node at the same time, because the other clients may be waiting as well. An
    /// announcement that has begun is completed even if `work` is done before, whatever `work` holds by then:
    /// otherwise works that are shorter than a round trip would give up one announcement after the other.
    pub async fn while_announcing<V: Verbs + Control, T>(&self, v: &V, work: impl Future<Output = T>) -> T {
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
            // Only during this poll, because the verbs of `work` are metered as its own.
            let _unmetered = v.meter().housekeeping();
            //= docs/protocol/reclaim.md R3a
            if announcement
                .as_mut()
                .is_some_and(|a| a.as_mut().poll(cx).is_ready())
            {
                // A cause of failure here makes `work` fail as well, so the error is dropped.
                announcement = None;
                return done.take().map_or(Poll::Pending, Poll::Ready);
            }
            Poll::Pending
        })
        .await
    }
}

impl Reclaim {
    /// Returns whether a round is due: a period has passed since the last announcement.
    #[inline]
    fn is_due<E: Env>(&self, env: &E) -> bool {
        self.has_passed(env, 1)
    }

    /// Returns whether a round has been due for a whole period without anybody doing it.
    #[inline]
    fn is_overdue<E: Env>(&self, env: &E) -> bool {
        self.has_passed(env, 2)
    }

    #[inline]
    fn has_passed<E: Env>(&self, env: &E, periods: u64) -> bool {
        // Relaxed: both are hints; a section decides which client alone does a whole round.
        let period = self.period.load(Ordering::Relaxed);
        period < u64::MAX && {
            // Relaxed: as above.
            let last = Nanos(self.last_round.load(Ordering::Relaxed));
            env.elapsed(last, Nanos(period.saturating_mul(periods)))
        }
    }

    /// Makes operations begin in this epoch. The compute node must remember nothing from before.
    fn advance(&self, epoch: u64) {
        // In one section with everything else that changes the view: `Epochs` allows only one change at a time.
        self.membership.with(|m| {
            m.latest = m.latest.max(epoch);
            m.turned = m.turned.max(epoch);
            self.epochs.advance(epoch);
        });
    }

    /// Records an epoch that was read.
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
