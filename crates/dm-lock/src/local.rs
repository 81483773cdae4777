//! The local lock table. Clients of one compute node queue here before one of them tries the remote lock.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use dm_sync::atomic::{AtomicU32, Ordering};
use dm_sync::thread::unwinds_under_checker;
use dm_sync::{CachePadded, Fingerprint, Mutex, fingerprint_unordered, scaled};
use dm_verbs::ClientId;

use crate::LockId;
use crate::shard::{Entered, Grant, Shard, Waited};

const SHARDS: usize = scaled(64, 2);
const _: () = assert!(SHARDS.is_power_of_two());

/// A remote lock that one client of a compute node hands to the next without releasing it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handed {
    /// The word in memory. Its owner is the client that took the lock by a verb, which need not be the present holder.
    pub raw: u64,
    /// The payload that the next release writes.
    pub payload: u32,
}

/// The way in which a client got its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Whether another client had the turn before and passed it on.
    pub waited: bool,
    /// The remote lock, if it was handed over with the turn.
    pub handed: Option<Handed>,
}

impl Arrival {
    pub(crate) const FIRST: Self = Self {
        waited: false,
        handed: None,
    };
}

/// A handler that releases a lock which was handed over to a client, if the client is dropped before it is polled
/// again.
pub trait Orphan {
    /// Unlocks the remote lock. Returns the word as held if the unlock is not awaited and the word names another
    /// client; the next client gets this word as [`Turn::unsettled`].
    fn left(self, handed: Handed) -> Option<u64>;
}

impl<F: FnOnce(Handed) -> Option<u64>> Orphan for F {
    fn left(self, handed: Handed) -> Option<u64> {
        self(handed)
    }
}

/// The error of a client that asks for a local lock which it already has. If the client waited for the lock, the wait
/// would never end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AlreadyHeld;

impl fmt::Display for AlreadyHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client holds this lock already")
    }
}
impl core::error::Error for AlreadyHeld {}

/// The local locks of one compute node. Only locks that are held, waited for or unsettled use memory of their own.
///
/// A turn always goes to the client that has waited longest, and no client overtakes the queue. With handovers,
/// overtaking would be a deadlock (`docs/protocol/lock.md`, L11). The table takes about 8 KiB, or less if it was made
/// for few locks. In addition, it takes less than 100 bytes for each held lock and each waiting client, apart from
/// spare capacity, and keeps this memory for later ones.
///
/// ```
/// use dm_lock::LockId;
/// use dm_lock::local::{Acquire, AlreadyHeld, Arrival, Handed, LocalLockTable, Turn};
/// use dm_loopback::block_on;
/// use dm_verbs::{ClientId, NodeId};
///
/// let table = LocalLockTable::new(4);
/// let id = LockId { node: NodeId(0), high: 0, index: 7 };
/// let first: Turn<'_> = table.try_acquire(id, ClientId(1)).unwrap().expect("it is free");
/// assert_eq!(table.try_acquire(id, ClientId(1)).unwrap_err(), AlreadyHeld);
///
/// // Client 2 queues. If it is dropped before it notices its turn, there is no remote lock to unlock here.
/// let mut second: Acquire<'_, _> = table.acquire(id, ClientId(2), |_: Handed| None);
/// # let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
/// # assert!(std::future::Future::poll(std::pin::Pin::new(&mut second), &mut cx).is_pending());
/// first.hand_over(Handed { raw: 1, payload: 0 }).expect("somebody waits");
/// let (turn, arrival) = block_on(second).unwrap();
/// assert_eq!(arrival, Arrival { waited: true, handed: Some(Handed { raw: 1, payload: 0 }) });
/// turn.pass();
/// ```
#[derive(Debug)]
pub struct LocalLockTable {
    shards: Box<[CachePadded<Guarded>]>,
    handover_max: u32,
}

/// A shard, and the number of clients that waited in it at the end of the last section.
#[derive(Debug, Default)]
struct Guarded {
    waiting: AtomicU32,
    shard: Mutex<Shard>,
}

impl Guarded {
    #[inline(always)]
    fn with<R>(&self, section: impl FnOnce(&mut Shard) -> R) -> R {
        self.shard.with(section)
    }

    /// Updates the number of waiting clients at the end of a section.
    fn note(&self, shard: &Shard) {
        // Relaxed: this is a hint that is read outside the section; a client that acts on it enters the section.
        self.waiting.store(shard.waiting(), Ordering::Relaxed);
    }

    #[inline]
    fn enter(&self, id: LockId, client: ClientId, waker: &Waker) -> Entered {
        self.with(|s| {
            let entered = s.enter(id, client, waker);
            if let Entered::Queued(_) = entered {
                self.note(s);
            }
            entered
        })
    }

    #[inline(always)]
    fn pass(&self, id: LockId, unsettled: Option<u64>) -> Option<Waker> {
        self.with(|s| {
            let waker = s.pass(id, unsettled);
            if waker.is_some() {
                self.note(s);
            }
            waker
        })
    }

    fn hand_over(
        &self,
        id: LockId,
        handed: Handed,
        max: u32,
        may: impl FnOnce(ClientId) -> bool,
    ) -> Result<Waker, ()> {
        self.with(|s| {
            let waker = s.hand_over(id, handed, max, may);
            self.note(s);
            waker
        })
    }

    fn cancel(&self, id: LockId, waiter: u32) -> Option<Grant> {
        self.with(|s| {
            let grant = s.cancel(id, waiter);
            self.note(s);
            grant
        })
    }

    /// Returns whether all queues of the shard were empty a moment ago.
    #[inline]
    fn is_quiet(&self) -> bool {
        // This does not enter the section, but counts as a step for a model checker.
        dm_sync::count_section();
        // Relaxed: as above. A waiting client that this load misses gets the turn later, when it is passed on within
        // the section.
        self.waiting.load(Ordering::Relaxed) == 0
    }
}

impl LocalLockTable {
    /// Makes a table that allows at most `handover_max` handovers of one lock in a row.
    pub fn new(handover_max: u32) -> Self {
        Self::for_locks(handover_max, usize::MAX)
    }

    /// Makes a table sized for `locks` different locks. A small number takes less memory.
    pub fn for_locks(handover_max: u32, locks: usize) -> Self {
        let shards = locks.clamp(1, SHARDS).next_power_of_two();
        Self {
            shards: (0..shards)
                .map(|_| CachePadded::new(Guarded::default()))
                .collect(),
            handover_max,
        }
    }

    /// Queues for lock `id`; the first poll enters the queue. If a lock was handed over to the future and the future is
    /// dropped before its next poll, `orphan` unlocks the lock. The result of `orphan` goes to the next client as
    /// [`Turn::unsettled`].
    pub fn acquire<O: Orphan>(&self, id: LockId, client: ClientId, orphan: O) -> Acquire<'_, O> {
        Acquire {
            table: self,
            id,
            client,
            stage: Stage::Start,
            orphan: Some(orphan),
        }
    }

    /// Takes lock `id` if it is free, without queueing.
    ///
    /// # Errors
    /// Returns [`AlreadyHeld`] if this client has the lock.
    pub fn try_acquire(&self, id: LockId, client: ClientId) -> Result<Option<Turn<'_>>, AlreadyHeld> {
        match self.shard(id).with(|s| s.try_enter(id, client)) {
            Entered::Turn(unsettled) => Ok(Some(Turn::new(self, id, unsettled))),
            Entered::Queued(_) => Ok(None),
            Entered::AlreadyHeld => Err(AlreadyHeld),
        }
    }

    /// Returns the bytes that the table uses now, spare capacity included.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.shards) + self.shards.iter().map(|s| s.with(|s| s.bytes())).sum::<usize>()
    }

    #[inline(always)]
    fn shard(&self, id: LockId) -> &Guarded {
        // Locks with neighbouring indices are in different shards. The memory node's number is mixed in, so that equal
        // indices of several memory nodes do not share one shard. The number of shards is a power of two.
        &self.shards[(id.index as usize ^ usize::from(id.node.0) << 3) & (self.shards.len() - 1)]
    }

    // This is always inlined, because usually no client waits for the turn.
    #[inline(always)]
    pub(crate) fn pass(&self, id: LockId, unsettled: Option<u64>) {
        if !unwinds_under_checker() {
            wake(self.shard(id).pass(id, unsettled));
        }
    }

    #[inline(always)]
    pub(crate) fn can_hand_over(&self, id: LockId) -> bool {
        !self.shard(id).is_quiet() && self.may_hand_over(id)
    }

    #[cold]
    fn may_hand_over(&self, id: LockId) -> bool {
        self.shard(id).with(|s| s.can_hand_over(id, self.handover_max))
    }

    /// Recreates the turn of a client that has kept only the identity of its lock ([`Turn::keep`]).
    #[inline]
    pub(crate) fn turn(&self, id: LockId) -> Turn<'_> {
        Turn::new(self, id, None)
    }
}

/// Wakes a task, if there is one. Call this outside the section, because the woken task may enter the section.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Fingerprint for LocalLockTable {
    fn fingerprint(&self) -> u64 {
        // Idle shards have the fingerprint 0 and are left out, because most shards are idle and checkers compute
        // fingerprints often.
        let shards = self.shards.iter().map(|s| s.shard.fingerprint()).enumerate();
        fingerprint_unordered(shards.filter(|&(_, shard)| shard != 0))
    }
}

/// The right to try a remote lock. One client of the compute node has the turn, and the others wait for it. Dropping
/// the turn passes it to the next client in the queue, without the remote lock.
#[derive(Debug)]
#[must_use = "dropping a turn passes it on"]
pub struct Turn<'t> {
    table: &'t LocalLockTable,
    id: LockId,
    unsettled: Option<u64>,
    given: bool,
}

impl<'t> Turn<'t> {
    #[inline]
    fn new(table: &'t LocalLockTable, id: LockId, unsettled: Option<u64>) -> Self {
        Self {
            table,
            id,
            unsettled,
            given: false,
        }
    }

    /// Returns the remote word, as held, if an earlier holder did not await its unlock and the word names another
    /// client than that holder. No client of this compute node may post a CAS for this lock before a READ has returned
    /// another word (`docs/protocol/lock.md`, L9).
    #[inline]
    pub fn unsettled(&self) -> Option<u64> {
        self.unsettled
    }

    /// Sets the word that [`Turn::unsettled`] returns, or clears it with `None`. The word goes to the next client
    /// together with the turn.
    #[inline]
    pub fn set_unsettled(&mut self, raw: Option<u64>) {
        self.unsettled = raw;
    }

    /// Returns whether a client waits and the bound on handovers is not reached. The result may be outdated
    /// immediately.
    #[inline]
    pub fn can_hand_over(&self) -> bool {
        self.table.can_hand_over(self.id)
    }

    /// Gives the turn and the remote lock to the longest waiting client.
    ///
    /// # Errors
    /// Returns the turn itself if no client waits any more, or if the bound is reached.
    pub fn hand_over(self, handed: Handed) -> Result<(), Self> {
        self.hand_over_if(handed, |_| true)
    }

    /// Hands the lock over like [`Turn::hand_over`], if `may` returns `true` for the client that waits longest.
    pub(crate) fn hand_over_if(
        mut self,
        handed: Handed,
        may: impl FnOnce(ClientId) -> bool,
    ) -> Result<(), Self> {
        let max = self.table.handover_max;
        match self.table.shard(self.id).hand_over(self.id, handed, max, may) {
            Ok(waker) => {
                self.given = true;
                waker.wake();
                Ok(())
            }
            Err(()) => Err(self),
        }
    }

    /// Passes the turn to the next client without the remote lock, as dropping does.
    pub fn pass(self) {}

    /// Consumes this value without passing the turn on. [`LocalLockTable::turn`] recreates it from the lock's
    /// identity.
    #[inline]
    pub(crate) fn keep(self) {
        core::mem::forget(self);
    }
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.given {
            self.table.pass(self.id, self.unsettled);
        }
    }
}

/// The future of [`LocalLockTable::acquire`].
#[must_use = "nothing is queued for before the first poll"]
pub struct Acquire<'t, O: Orphan> {
    table: &'t LocalLockTable,
    id: LockId,
    client: ClientId,
    stage: Stage,
    orphan: Option<O>,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Start,
    Queued(u32),
    Over,
}

impl<O: Orphan> fmt::Debug for Acquire<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("id", &self.id)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

// No field is pinned: the queue refers to the future by a number.
impl<O: Orphan> Unpin for Acquire<'_, O> {}

impl<'t, O: Orphan> Future for Acquire<'t, O> {
    type Output = Result<(Turn<'t>, Arrival), AlreadyHeld>;

    // This is always inlined, because usually the turn is free, and the result then stays in registers.
    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Stage::Start = this.stage else {
            return this.poll_again(cx);
        };
        let shard = this.table.shard(this.id);
        match shard.enter(this.id, this.client, cx.waker()) {
            Entered::Turn(unsettled) => {
                this.stage = Stage::Over;
                Poll::Ready(Ok((Turn::new(this.table, this.id, unsettled), Arrival::FIRST)))
            }
            Entered::Queued(waiter) => {
                this.stage = Stage::Queued(waiter);
                Poll::Pending
            }
            Entered::AlreadyHeld => {
                this.stage = Stage::Over;
                Poll::Ready(Err(AlreadyHeld))
            }
        }
    }
}

impl<'t, O: Orphan> Acquire<'t, O> {
    #[cold]
    fn poll_again(&mut self, cx: &Context<'_>) -> Poll<Result<(Turn<'t>, Arrival), AlreadyHeld>> {
        let Stage::Queued(waiter) = self.stage else {
            unreachable!("an acquisition is polled no more once it was ready")
        };
        match self.table.shard(self.id).with(|s| s.poll(waiter, cx.waker())) {
            Waited::Still(stale) => {
                drop(stale);
                Poll::Pending
            }
            Waited::Granted(grant) => {
                self.stage = Stage::Over;
                let arrival = Arrival {
                    waited: true,
                    handed: grant.handed,
                };
                Poll::Ready(Ok((Turn::new(self.table, self.id, grant.unsettled), arrival)))
            }
        }
    }

    /// Leaves the queue. Passes the turn on if it was granted after the last poll.
    #[cold]
    fn leave_queue(&mut self, waiter: u32) {
        if unwinds_under_checker() {
            return;
        }
        let shard = self.table.shard(self.id);
        // If the remote lock came with the turn, it is unlocked before the turn is passed on.
        if let Some(grant) = shard.cancel(self.id, waiter) {
            let unsettled = match (grant.handed, self.orphan.take()) {
                (Some(handed), Some(orphan)) => orphan.left(handed),
                _ => grant.unsettled,
            };
            self.table.pass(self.id, unsettled);
        }
    }
}

impl<O: Orphan> Drop for Acquire<'_, O> {
    #[inline]
    fn drop(&mut self) {
        if let Stage::Queued(waiter) = self.stage {
            self.leave_queue(waiter);
        }
    }
}
