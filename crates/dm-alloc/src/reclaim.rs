//! Reclamation: retired blocks are not reused until every operation that may have seen them has ended.
//!
//! The operations of a compute node run in [epochs](dm_sync::epoch). The compute node reads the current epoch from one
//! word of the pool. Once per period, one of its clients does a *round*:
//! 1. The client closes the list of blocks retired so far. If the list is not empty, the client adds 1 to the epoch
//!    word by an FAA, and tags the list with the value g that the FAA returns.
//! 2. The client announces its compute node. The announced epoch is that of the oldest running operation. If no
//!    operation runs, it is the epoch in which the next one would begin. If this epoch is in the compute node's slot
//!    already, the announcement is an FAA on the slot's beat. Otherwise it is a CAS on the slot, after an FAA on the
//!    beat if an earlier announcement was abandoned or is still in flight.
//! 3. The client reads all slots. The blocks whose tag is below every announced epoch are free.
//!
//! If one client takes long for a round, the other clients of its compute node do the second and third step meanwhile,
//! and look for silent members.
//!
//! An operation that is announced with an epoch above g began after the FAA, and therefore after the blocks of that
//! list were unlinked.

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
use crate::members::{MemberArea, Membership, SlotWord, Standing};
use crate::pool::{Held, NodePool};
use crate::{AllocError, Allocator};

mod census;
mod joining;
mod landing;
mod options;
mod round;
mod shares;
#[cfg_attr(
    not(feature = "study"),
    expect(unreachable_pub, reason = "public with the feature `study` alone")
)]
mod study;
mod visit;
mod watch;

pub use options::{DEFAULT_OPERATIONS, DEFAULT_PERIOD, ReclaimOptions};
#[cfg(feature = "study")]
pub use study::ReclaimFlaws;
pub use watch::{Members, PoolBytes, rest};

/// The part of reclamation that the clients of a compute node share.
pub(crate) struct Reclaim {
    area: MemberArea,
    options: ReclaimOptions,
    epochs: Arc<Epochs>,
    /// Time at which the last announcement was posted. It is outside the mutex, because every operation reads it.
    last_round: AtomicU64,
    /// [`ReclaimOptions::period`], or less, as [`Reclaim::pace`] says.
    period: AtomicU64,
    membership: Mutex<Membership>,
    limbo: Mutex<Limbo>,
    abandoned: Mutex<Vec<Abandoned>>,
    /// An epoch, or 0. While operations run that began before this epoch, blocks that come back are forgotten.
    forgets: AtomicU64,
}

/// A seat with forgotten operations, which a client of this connection has left.
struct Abandoned {
    client: ClientId,
    seat: Seat,
}

impl Fingerprint for Abandoned {
    fn fingerprint(&self) -> u64 {
        fingerprint_of(&(self.client, self.seat.fingerprint()))
    }
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
            self.abandoned.fingerprint(),
            // Relaxed: fingerprints are taken between steps, while no client runs.
            self.forgets.load(Ordering::Relaxed),
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

    pub(crate) fn area(&self) -> &MemberArea {
        &self.area
    }

    pub(crate) fn membership(&self) -> &Mutex<Membership> {
        &self.membership
    }

    pub(crate) fn epochs(&self) -> &Arc<Epochs> {
        &self.epochs
    }

    fn place(&self) -> RemotePtr {
        self.area.at
    }
}

impl Allocator {
    /// Returns this allocator with reclamation of retired blocks, in a pool whose members announce themselves
    /// in `area`.
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
            forgets: AtomicU64::new(0),
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

    /// Retires a block that other clients may still be reading. Nothing may point to the block any more. A node with a
    /// header must also be marked as dead in every line (R1); radix nodes, blocks of items and pages of tables have no
    /// such mark. The caller must have awaited the requests of these changes. `block` has the incarnation and version
    /// for its next node.
    ///
    /// If the pool reclaims nothing, the block is lost, and counts no longer in [`AllocStats::in_use_bytes`].
    ///
    /// [`AllocStats::in_use_bytes`]: crate::AllocStats::in_use_bytes
    ///
    /// # Panics
    /// Panics if the pool reclaims memory, and the block's address is not 64-byte aligned or is on a memory node that
    /// the allocator does not have.
    pub fn retire(&self, block: Block, class: Class) {
        self.retire_if(block, class, |pool| {
            pool.retire(class);
            !self.forgets_blocks()
        });
    }

    /// Keeps a block that an operation of this client has taken or unlinked, beyond the end of this operation. While
    /// the hold lasts and the compute node stays a member, no census gives the block to others. Call
    /// [`Allocator::retire_held`] or [`Allocator::release`] later.
    ///
    /// Call this before the operation ends.
    ///
    /// # Panics
    /// Panics if `block` is not 64-byte aligned, or is on a memory node that the allocator does not have.
    pub fn hold(&self, block: RemotePtr) -> Held {
        let unheld = self
            .reclaim
            .as_ref()
            .is_some_and(|reclaim| reclaim.options.flaws().unheld);
        self.pool_of(block)
            .with(|pool| pool.hold(block, unheld || self.forgets_blocks()))
    }

    /// Ends a hold. The caller must be in an operation. Returns `false` if the compute node has lost its membership
    /// and has forgotten its memory because a census began meanwhile. This may have happened since the hold began, or
    /// before, while operations of the lost membership still ran. The block may then belong to others, so the caller
    /// must forget it. Otherwise the caller should [retire](Allocator::retire) the block in its operation. If it does
    /// not, the block is lost until the next census.
    pub fn release(&self, held: Held) -> bool {
        self.pool_of(held.at).with(|pool| pool.release(&held))
    }

    /// Ends a hold and retires the block, like [`Allocator::retire`]. If the compute node has forgotten its memory
    /// since the hold began, this only forgets the block. The caller need not be in an operation.
    pub fn retire_held(&self, held: Held, block: Block, class: Class) {
        debug_assert_eq!(held.at, block.at, "another block is held");
        self.retire_if(block, class, |pool| {
            pool.retire(class);
            pool.release(&held)
        });
    }

    /// Retires a block if `stays` returns `true`, which means that the block still belongs to this compute node.
    fn retire_if(&self, block: Block, class: Class, stays: impl FnOnce(&mut NodePool) -> bool) {
        let Some(reclaim) = &self.reclaim else {
            // Nothing is reused, so only the counts and the holds of the pool change.
            if let Some(pool) = self.pools.get(usize::from(block.at.node().0)) {
                pool.with(stays);
            }
            return;
        };
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
            self.pool_of(block.at).with(|pool| {
                if stays(pool) {
                    pool.put_reclaimed(block, class);
                }
            });
            return;
        }
        reclaim.limbo.with(|limbo| {
            // A compute node forgets its memory within a section of the limbo too. So the block cannot get into the
            // limbo after that.
            if self.pool_of(block.at).with(stays) {
                limbo.retire(block, class);
            }
        });
    }

    /// Prepares `seat` for operations: joins the pool if necessary, enrols the seat, and does the compute node's
    /// round if it is due. Await this when the seat refuses to start an operation. Its verbs are metered as
    /// housekeeping.
    ///
    /// # Errors
    /// Returns [`AllocError::NoSlot`] if all slots are taken by other compute nodes that announce themselves, and
    /// [`AllocError::Contended`] if a retry limit is reached, or if requests that this client posted in an earlier
    /// membership may still land. Also returns the errors of verbs and of the control plane. [`ControlError::Fenced`]
    /// means that this compute node was silent for too long.
    pub async fn prepare<V: Verbs + Control>(&self, v: &V, seat: &Seat) -> Result<(), AllocError> {
        let _unmetered = v.meter().housekeeping();
        self.enrolled(v, seat).await?;
        self.round(v, false).await
    }

    /// Enrols `seat` while its client runs an operation in another seat that [`Allocator::prepare`] has enrolled. Use
    /// this for work within that operation that may have to stay announced after the operation has ended.
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

    /// Joins the pool if necessary, and enrols `seat`, like [`Allocator::prepare`], but does no round.
    async fn enrolled<V: Verbs + Control>(&self, v: &V, seat: &Seat) -> Result<(), AllocError> {
        let Some(reclaim) = &self.reclaim else {
            return Ok(());
        };
        // Time alone limits the wait for another client's join.
        let mut retry = v.retry(1);
        loop {
            v.local(LocalStep::Section).await;
            let forgotten = reclaim.has_forgotten(v.client(), seat);
            let generation = reclaim.epochs.generation();
            let (standing, lease) = reclaim.membership.with(|m| (m.stand(), m.lease));
            match standing {
                // Boxed, because it is rare and would make the futures of operations large.
                Standing::Outside => Box::pin(self.join(v, reclaim)).await?,
                Standing::Joining => {
                    let limit = joining::patience(lease);
                    retry.again_within(limit, reclaim.place(), Why::Changing).await?;
                }
                Standing::Member { slot, word } => {
                    let around = (&*self.roster, self.memory_nodes());
                    if !seat.is_enrolled(generation) && !reclaim.enlist(v, slot, word, around).await? {
                        continue;
                    }
                    self.land(v).await?;
                    if self.is_to_settle(v) {
                        // Boxed, because it is rare and would make the futures of operations large.
                        Box::pin(self.settle(v, reclaim)).await;
                    }
                    if forgotten {
                        reclaim.end_forgotten(v, self.memory_nodes(), seat).await;
                    }
                    seat.enroll(generation, reclaim.options.operations);
                    return Ok(());
                }
            }
        }
    }

    /// Does the round if it is due, so that the other members do not fence this compute node. Await this regularly
    /// during a long operation. Its verbs are metered as housekeeping.
    ///
    /// # Errors
    /// Returns [`ControlError::Fenced`] if `seat` is not enrolled, or if the membership in which it was enrolled has
    /// ended. The memory that the operation reads is then not protected. Also returns [`AllocError::Contended`] if a
    /// retry limit is reached, and the errors of verbs and of the control plane.
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

    /// Does a round now, even if none is due. If another client is doing a round, this client only announces the
    /// compute node and looks at the other members. Call this on compute nodes that run no operations. The verbs are
    /// metered as housekeeping.
    ///
    /// # Errors
    /// Returns the errors of [`Allocator::prepare`].
    pub async fn collect<V: Verbs + Control>(&self, v: &V, seat: &Seat) -> Result<(), AllocError> {
        let _unmetered = v.meter().housekeeping();
        self.enrolled(v, seat).await?;
        self.round(v, true).await
    }

    /// Ends this compute node's membership if none of its operations runs and none of its clients is announcing it.
    /// Its retired blocks are kept until it is a member again, and are then forgotten if a census began meanwhile.
    /// The requests are posted, not awaited.
    pub fn leave<V: Verbs>(&self, v: &V) {
        let Some(reclaim) = &self.reclaim else { return };
        //= docs/protocol/recovery.md V15
        let marks = |word: SlotWord| {
            self.roster.shares() && reclaim.can_fence() && !self.roster.is_clear(word.number())
        };
        let left = reclaim.membership.with(|m| match m.standing {
            Standing::Member { slot, word } if m.announcing == 0 && reclaim.epochs.close() => {
                m.standing = Standing::Outside;
                let mut words = core::mem::take(&mut m.posted);
                words.push(word);
                Some((slot, words, word, m.census))
            }
            _ => None,
        });
        if let Some((slot, words, last, census)) = left {
            let _unmetered = v.meter().housekeeping();
            self.quit_census(v, reclaim, census);
            // The slot may hold the last value that this compute node has awaited, or a value that it posted later. The
            // CAS from the awaited value comes first. If it frees the slot, all announcements that were posted later
            // fail.
            let marks = marks(last);
            for word in words.into_iter().rev() {
                let left = if marks { word.expelled().0 } else { 0 };
                v.cas(reclaim.area.slot(slot), word.0, left).detach();
            }
        }
    }

    /// Returns the epoch in which operations will begin after the next [`Allocator::turn`]; 0 if the pool reclaims
    /// nothing.
    pub fn turned(&self) -> u64 {
        let turned = |r: &Reclaim| r.membership.with(|m| m.turned);
        self.reclaim.as_ref().map_or(0, turned)
    }

    /// Begins the next turn of the compute node's cache (R15; this has nothing to do with the turns of a lock). A
    /// compute node with [`ReclaimOptions::remembers`] must call this regularly. This calls `forget`, which must drop
    /// all addresses that the compute node read before the previous turn. After that, operations begin in the epoch
    /// that was the latest known one at the previous turn. Returns the epoch in which operations begin.
    ///
    /// If this compute node knows no epoch later than that in which operations begin already, this does not call
    /// `forget`. If the pool reclaims nothing, it does not either, and returns 0. Only one client at a time may call
    /// this.
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
            // Another client may have joined the pool again meanwhile, in a later epoch.
            m.turned = m.turned.max(latest);
            reclaim.epochs.epoch()
        })
    }

    /// Returns whether a member takes a census, as far as this compute node knows. The census waits until this compute
    /// node's operations begin in a later epoch, so [`Allocator::turn`] should be called more often meanwhile.
    pub fn is_in_census(&self) -> bool {
        let open = |r: &Reclaim| r.membership.with(|m| !m.census.is_closed());
        self.reclaim.as_ref().is_some_and(open)
    }

    /// Returns whether this compute node's round is due. This reads the clock.
    #[inline]
    pub fn is_due<E: Env>(&self, env: &E) -> bool {
        self.reclaim.as_ref().is_some_and(|reclaim| reclaim.is_due(env))
    }

    /// Does the round if it is due, so that the other members do not fence this compute node. Await this when
    /// an operation has waited for other clients and retries. Its verbs are metered as housekeeping.
    ///
    /// # Errors
    /// Returns the errors of [`Allocator::prepare`].
    #[inline]
    pub async fn announce_if_due<V: Verbs + Control>(&self, v: &V) -> Result<(), AllocError> {
        if !self.is_due(v) {
            return Ok(());
        }
        let _unmetered = v.meter().housekeeping();
        // Boxed, because it is rare and would make the future of every retry loop large.
        Box::pin(self.round(v, false)).await
    }

    /// Runs `work`, a future that waits for other clients (for a lock, for example). If a round is overdue, this
    /// announces the compute node at the same time, because its other clients may all be waiting too. If `work` ends
    /// while an announcement is in flight, this returns only after the announcement, even if `work` has taken a lock.
    /// Otherwise a series of futures that are shorter than a round trip would abandon one announcement after another.
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
            if announcement.is_none() && !reclaim.is_overdue(v) {
                return Poll::Pending;
            }
            let announcing = announcement.get_or_insert_with(|| Box::pin(self.announcement(v)));
            // The guard is dropped after this poll, because the verbs of `work` are not housekeeping.
            let _unmetered = v.meter().housekeeping();
            //= docs/protocol/reclaim.md R3a
            if announcing.as_mut().poll(cx).is_ready() {
                // The error is ignored here. If its cause persists, a request of `work` or the next round fails too.
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

    /// Returns whether a round has been overdue for a whole period.
    #[inline]
    fn is_overdue<E: Env>(&self, env: &E) -> bool {
        self.has_passed(env, 2)
    }

    #[inline]
    fn has_passed<E: Env>(&self, env: &E, periods: u64) -> bool {
        // Relaxed: both values are hints. The client that does a whole round is chosen within a section.
        let period = self.period.load(Ordering::Relaxed);
        period < u64::MAX && {
            // Relaxed: as above.
            let last = Nanos(self.last_round.load(Ordering::Relaxed));
            env.elapsed(last, Nanos(period.saturating_mul(periods)))
        }
    }

    /// Sets the time between two announcements. It is short while a member may soon be expelled. It is also short with
    /// `recovers`, while the counts of sharers are being reset, because each look does one step of the reset.
    fn pace(&self, m: &Membership, recovers: bool) {
        let period = self.options.period_within(m.lease, m.suspects || recovers);
        // Relaxed: as `Reclaim::has_passed` says.
        self.period.store(period.0, Ordering::Relaxed);
    }

    /// Lets operations begin in this epoch. The compute node must not remember any address that it read before it knew
    /// this epoch.
    fn advance(&self, epoch: u64) {
        // All changes of the epoch are made in this section, because `Epochs` allows only one change at a
        // time.
        self.membership.with(|m| {
            m.latest = m.latest.max(epoch);
            m.turned = m.turned.max(epoch);
            self.epochs.advance(epoch);
        });
    }

    /// Records an epoch that was read. Unless the compute node remembers addresses, lets operations begin in it.
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
