//! How a lock is taken: without a pause where nobody else wants it and the answer is there at once, else step by step.
//!
//! The first part is a plain function, [`Locks::begin_lock_and_read`]: what it knows stays in registers. It stops at the
//! first thing that makes it wait, and an async function, [`Locking::resume`], goes on from there.

use core::fmt;
use core::task::{Context, Poll};

use dm_verbs::{Bytes, Event, Exhausted, LocalStep, Old, RemotePtr, Retry, Step, Ticket, Verbs, Why};

use crate::cell::{Attempt, Cell, How};
use crate::guard::Guard;
use crate::local::{Acquire, AlreadyHeld, Arrival, Handed, LocalLockTable, Orphan, Turn};
use crate::locks::{LocalTable, Seat, Target};
use crate::packed::PackedTurn;
use crate::shard::Entered;
use crate::{LockError, LockId, Locks};

/// The right to go for the remote lock, as the local table gave it.
#[derive(Debug)]
enum LocalTurn<'a> {
    None,
    Turn(Turn<'a>),
    Packed(PackedTurn<'a>),
}

impl LocalTurn<'_> {
    /// To be remembered by the lock alone, until [`Locks::leave`].
    #[inline]
    fn seat(self) -> Seat {
        match self {
            Self::None => Seat::None,
            Self::Turn(turn) => {
                turn.keep();
                Seat::Turn
            }
            Self::Packed(turn) => {
                turn.keep();
                Seat::Packed
            }
        }
    }
}

/// What a lock and a READ under it came to.
pub type Locked<'a, V> = Result<(Guard<'a, V>, <V as Verbs>::Lease), LockError>;

/// A READ under the lock.
#[derive(Clone, Copy, Debug)]
struct ReadTo {
    at: RemotePtr,
    len: u32,
}

/// An acquisition that has to wait. Dropping it leads to the lock being free, as with every future of this crate.
pub struct Locking<'a, V: Verbs> {
    locks: &'a Locks,
    v: &'a V,
    id: LockId,
    read: Option<ReadTo>,
    stage: Stage<'a, V>,
}

/// How far an acquisition came.
enum Stage<'a, V: Verbs> {
    /// Nowhere yet.
    Fresh,
    /// To the local step before the table.
    Step(Step<'a, V>),
    /// Into the local queue.
    Queued(Acquire<'a, Unlocks<'a, V>>),
    /// To its turn.
    Turn(Turn<'a>),
    /// To a chain that is in flight. The chain first: what undoes it must be posted before the turn goes on.
    Posted(Attempt<'a, V, (Old, Bytes)>, u64, Retry<'a, V>, Turn<'a>),
    /// To an answer: others hold the lock, or the guess of a plain CAS (the second word) was wrong.
    Answered(u64, u64, Retry<'a, V>, Turn<'a>),
    /// To the lock, while others share it.
    Shared(Guard<'a, V>),
}

impl<V: Verbs> fmt::Debug for Locking<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locking")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// A lock that arrived by handover while nobody noticed is released here, for there is nobody else.
struct Unlocks<'a, V: Verbs> {
    locks: &'a Locks,
    v: &'a V,
    id: LockId,
}

impl<V: Verbs> Orphan for Unlocks<'_, V> {
    fn left(self, handed: Handed) -> Option<u64> {
        let cell = self.locks.cell(self.id);
        cell.abandon(self.v, handed.raw, handed.payload);
        self.locks.unsettled(cell, handed.raw, self.v.client())
    }
}

impl Locks {
    /// [`Locks::lock_and_read`], as far as it goes without waiting. `Pending`: not to its end; what is left to do is in
    /// `later` then, for [`Locking::resume`].
    ///
    /// For callers to whom the layers of async around an uncontended lock are dear; `cx` is the task's.
    ///
    /// # Errors
    /// As [`Locks::lock_and_read`].
    ///
    /// # Panics
    /// When `read_at` is on another memory node than `node`.
    // Always: guard and lease then need no memory on their way to the caller.
    #[inline(always)]
    pub fn begin_lock_and_read<'a, V: Verbs>(
        &'a self,
        v: &'a V,
        (node, read_at, len): (RemotePtr, RemotePtr, u32),
        cx: &mut Context<'_>,
        later: &mut Option<Locking<'a, V>>,
    ) -> Poll<Locked<'a, V>> {
        assert_eq!(
            node.node(),
            read_at.node(),
            "a lock lies on the memory node of what it guards"
        );
        let read = ReadTo { at: read_at, len };
        let id = self.table().place_of(node, self.options.lanes());
        let mut wait = |stage| {
            *later = Some(Locking::new(self, v, id, Some(read), stage));
            Poll::Pending
        };
        let LocalTable::Queue(table) = self.local() else {
            return wait(Stage::Fresh);
        };
        let target = match self.target(v, id) {
            Ok(target) if target.plan.read_in_order => target,
            _ => return wait(Stage::Fresh),
        };
        let mut step = v.local(LocalStep::Section);
        if core::pin::Pin::new(&mut step).poll(cx).is_pending() {
            return wait(Stage::Step(step));
        }
        match table.enter(id, v.client(), cx.waker()) {
            Entered::Turn(None) => {}
            Entered::Turn(unsettled) => return wait(Stage::Turn(table.turn(id, unsettled))),
            Entered::Queued(waiter) => {
                let unlocks = Unlocks { locks: self, v, id };
                let queued = table.queued(id, v.client(), waiter, unlocks);
                return wait(Stage::Queued(queued));
            }
            Entered::AlreadyHeld => return Poll::Ready(Err(self.already_held(id))),
        }
        // Our turn from here on: each way out keeps it or passes it on.
        let guess = self.guess(&target);
        let retry = v.retry(self.options.budget);
        let (ticket, how) = self.post_with_read(v, &target, guess, read);
        match ticket.now(cx) {
            Ok(Ok((old, lease))) => match self.taken(v, &target, old, guess) {
                Some(raw) => {
                    let guard = Guard::new(self, v, target, Seat::Turn, raw);
                    if target.cell.sharers(old) > 0 {
                        return wait(Stage::Shared(guard));
                    }
                    Poll::Ready(Ok((guard, lease)))
                }
                None => wait(Stage::Answered(old, guess, retry, table.turn(id, None))),
            },
            Ok(Err(e)) => {
                let turn = table.turn(id, None);
                how.failed(v, target.cell, &e);
                turn.pass();
                Poll::Ready(Err(e.into()))
            }
            Err(ticket) => {
                let attempt = Attempt::new(v, ticket, target.cell, how);
                wait(Stage::Posted(attempt, guess, retry, table.turn(id, None)))
            }
        }
    }

    /// What the whole word of a free lock probably is, where that must be known.
    #[inline]
    fn guess(&self, target: &Target) -> u64 {
        // Remembered within local turns, as what else the clients of a compute node share.
        match self.local() {
            LocalTable::Queue(_) | LocalTable::Spin(_) if !target.plan.masked => self.hints.guess(target.id),
            _ => 0,
        }
    }

    /// The word as it is now, if an attempt that expected `expect` and found `old` took the lock.
    #[inline]
    fn taken<V: Verbs>(&self, v: &V, target: &Target, old: u64, expect: u64) -> Option<u64> {
        let Target { cell, plan, .. } = target;
        let take = cell.take(v.client(), self.options.epoch);
        let taken = take.matches(old) && (plan.masked || old == expect);
        taken.then(|| cell.own(take.apply(old)))
    }

    /// Posts an attempt at the lock with a READ behind it. `expect` is what the whole word is thought to be, where
    /// masked atomics are missing.
    #[inline(always)]
    fn post_with_read<'a, V: Verbs>(
        &self,
        v: &'a V,
        target: &Target,
        expect: u64,
        ReadTo { at, len }: ReadTo,
    ) -> (Ticket<'a, V, (Old, Bytes)>, How) {
        let (place, how) = (target.cell.place, self.how(v, target, expect));
        let chain = v.chain(place.node());
        //= docs/protocol/lock.md L3
        let ticket = match how {
            How::Masked(take) => chain.masked_cas(place, take).read(at, len).post(),
            How::Plain { taken, before } => chain.cas(place, before, taken).read(at, len).post(),
        };
        (ticket, how)
    }

    #[inline(always)]
    fn how<V: Verbs>(&self, v: &V, target: &Target, expect: u64) -> How {
        let take = target.cell.take(v.client(), self.options.epoch);
        match target.plan.masked {
            true => How::Masked(take),
            false => How::Plain {
                taken: take.apply(expect),
                before: expect,
            },
        }
    }

    #[cold]
    fn already_held(&self, id: LockId) -> LockError {
        LockError::AlreadyHeld {
            place: self.cell(id).place,
        }
    }

    /// Takes a lock, without a READ.
    pub(crate) fn locking<'a, V: Verbs>(&'a self, v: &'a V, id: LockId) -> Locking<'a, V> {
        Locking::new(self, v, id, None, Stage::Fresh)
    }
}

impl<'a, V: Verbs> Locking<'a, V> {
    #[inline]
    fn new(locks: &'a Locks, v: &'a V, id: LockId, read: Option<ReadTo>, stage: Stage<'a, V>) -> Self {
        Self {
            locks,
            v,
            id,
            read,
            stage,
        }
    }

    /// To its end, of an acquisition with a READ that was left in `later`.
    ///
    /// # Errors
    /// As [`Locks::lock_and_read`].
    ///
    /// # Panics
    /// When there is none.
    pub async fn resume(later: Option<Self>) -> Result<(Guard<'a, V>, V::Lease), LockError> {
        let left = later.expect("what was begun and not finished is left to do");
        let (guard, lease) = left.go_on().await?;
        Ok((guard, lease.expect("an acquisition with a READ gives bytes")))
    }

    /// To its end: the guard, and the bytes if some were to be read.
    ///
    /// # Errors
    /// As [`Locks::lock_and_read`].
    pub(crate) async fn go_on(self) -> Result<(Guard<'a, V>, Option<V::Lease>), LockError> {
        let Self {
            locks,
            v,
            id,
            read,
            stage,
        } = self;
        let target = locks.target(v, id)?;
        let Target { cell, plan, .. } = target;
        let (mut posted, mut answered, mut known) = (None, None, None);
        let turn = match stage {
            Stage::Posted(attempt, guess, retry, turn) => {
                (posted, known) = (Some(attempt), Some((guess, retry)));
                LocalTurn::Turn(turn)
            }
            Stage::Answered(old, guess, retry, turn) => {
                (answered, known) = (Some(old), Some((guess, retry)));
                LocalTurn::Turn(turn)
            }
            Stage::Shared(guard) => {
                guard.alone().await?;
                return guard.with_read(read).await;
            }
            stage => match locks.local_turn(v, target, stage).await? {
                Arrived::Turn(turn) => turn,
                Arrived::Locked(guard) => return guard.with_read(read).await,
            },
        };
        let (guess, mut retry) =
            known.unwrap_or_else(|| (locks.guess(&target), v.retry(locks.options.budget)));
        // Without masked atomics: plain CASes of the whole word, each expecting what the one before it saw. A new
        // attempt starts from the same guess: what the last one saw may not survive it (`Retry`'s promise).
        let (mut expect, mut raced) = (guess, 0);
        // A lock that is held now is held by the next CAS as well more often than not, and a READ behind that would be for
        // nothing: so none goes along any more. Whoever comes first to a free lock still saves the round trip.
        let mut along = read.filter(|_| plan.read_in_order);
        loop {
            let (old, lease) = match (answered.take(), along) {
                (Some(old), _) => (old, None),
                (None, Some(read)) => {
                    let attempt = posted.take().unwrap_or_else(|| {
                        let (ticket, how) = locks.post_with_read(v, &target, expect, read);
                        Attempt::new(v, ticket, cell, how)
                    });
                    let (old, lease) = attempt.await?;
                    (old, Some(lease))
                }
                (None, None) => (locks.attempt(v, &target, expect).await?, None),
            };
            //= docs/protocol/lock.md L2
            if let Some(raw) = locks.taken(v, &target, old, expect) {
                let guard = Guard::new(locks, v, target, turn.seat(), raw);
                //= docs/protocol/lock.md L14
                if cell.sharers(old) > 0 {
                    drop(lease);
                    guard.alone().await?;
                    return guard.with_read(read).await;
                }
                return match lease {
                    Some(lease) => Ok((guard, Some(lease))),
                    None => guard.with_read(read).await,
                };
            }
            drop(lease);
            let word = cell.word(old);
            if word.locked {
                (expect, raced) = (guess, 0);
                let held = Why::LockHeld { word: word.pack() };
                match along.take() {
                    // The attempts from here on are of another kind than this one, and count anew.
                    Some(_) => {
                        retry.again_wiser(cell.place, held).await?;
                        retry = v.retry(locks.options.budget);
                    }
                    None => retry.again(cell.place, held).await?,
                }
                continue;
            }
            raced += 1;
            if raced >= v.budget(locks.options.budget) {
                return Err(LockError::Held(Exhausted {
                    at: cell.place,
                    why: Why::Raced,
                    attempts: raced,
                }));
            }
            expect = old;
        }
    }
}

impl<'a, V: Verbs> Guard<'a, V> {
    /// Waits until nobody shares the lock any more: nobody new comes while it is held.
    #[cold]
    async fn alone(&self) -> Result<(), LockError> {
        let (v, cell) = (self.verbs(), self.cell());
        let mut retry = v.retry(self.budget());
        loop {
            let sharers = cell.sharers(v.word(cell.place).await?);
            if sharers == 0 {
                return Ok(());
            }
            let why = Why::LockHeld { word: sharers };
            retry
                .again(cell.place, why)
                .await
                .map_err(|e| LockError::Shared {
                    place: e.at,
                    sharers,
                    attempts: e.attempts,
                })?;
        }
    }

    /// Reads what was to be read under the lock. If that fails the guard unlocks.
    async fn with_read(self, read: Option<ReadTo>) -> Result<(Self, Option<V::Lease>), LockError> {
        let lease = match read {
            Some(ReadTo { at, len }) => Some(self.verbs().read(at, len).await?),
            None => None,
        };
        Ok((self, lease))
    }
}

/// What came of going for the local turn.
enum Arrived<'a, V: Verbs> {
    /// The lock itself, by handover.
    Locked(Guard<'a, V>),
    /// The right to go for it.
    Turn(LocalTurn<'a>),
}

impl Locks {
    /// Posts an attempt without a READ.
    fn attempt<'a, V: Verbs>(&self, v: &'a V, target: &Target, expect: u64) -> Attempt<'a, V, (Old,)> {
        let (place, how) = (target.cell.place, self.how(v, target, expect));
        let chain = v.chain(place.node());
        let ticket = match how {
            How::Masked(take) => chain.masked_cas(place, take).post(),
            How::Plain { taken, before } => chain.cas(place, before, taken).post(),
        };
        Attempt::new(v, ticket, target.cell, how)
    }

    /// The local turn, from wherever it was left.
    async fn local_turn<'a, V: Verbs>(
        &'a self,
        v: &'a V,
        target: Target,
        stage: Stage<'a, V>,
    ) -> Result<Arrived<'a, V>, LockError> {
        let LocalTable::Queue(table) = self.local() else {
            return Ok(Arrived::Turn(self.turn_without_queue(v, target).await?));
        };
        let entered = match stage {
            Stage::Turn(turn) => Ok((turn, Arrival::FIRST)),
            Stage::Queued(queued) => queued.await,
            stage => {
                match stage {
                    Stage::Step(step) => step.await,
                    _ => v.local(LocalStep::Section).await,
                }
                self.entering(v, table, target.id).await
            }
        };
        let (mut turn, arrival) = entered.map_err(|AlreadyHeld| self.already_held(target.id))?;
        if arrival.waited {
            if let Some(handed) = arrival.handed {
                v.meter().note(Event::Handover);
                turn.keep();
                let guard = Guard::handed(self, v, target, handed);
                v.local(LocalStep::HandOff).await;
                return Ok(Arrived::Locked(guard));
            }
            v.local(LocalStep::HandOff).await;
        }
        self.settle(v, target.cell, &mut turn).await?;
        Ok(Arrived::Turn(LocalTurn::Turn(turn)))
    }

    /// Queueing for the local turn.
    fn entering<'a, V: Verbs>(
        &'a self,
        v: &'a V,
        table: &'a LocalLockTable,
        id: LockId,
    ) -> Acquire<'a, Unlocks<'a, V>> {
        table.acquire(id, v.client(), Unlocks { locks: self, v, id })
    }

    /// The local turn as tables without a queue give it.
    async fn turn_without_queue<'a, V: Verbs>(
        &'a self,
        v: &'a V,
        target: Target,
    ) -> Result<LocalTurn<'a>, LockError> {
        let Target { id, cell, .. } = target;
        Ok(match self.local() {
            LocalTable::Off | LocalTable::Queue(_) => LocalTurn::None,
            LocalTable::Spin(table) => {
                let mut retry = v.retry(self.options.budget);
                let mut turn = loop {
                    v.local(LocalStep::Section).await;
                    if let Some(turn) = table
                        .try_acquire(id, v.client())
                        .map_err(|_| self.already_held(id))?
                    {
                        break turn;
                    }
                    retry.again(cell.place, Why::Raced).await?;
                };
                self.settle(v, cell, &mut turn).await?;
                LocalTurn::Turn(turn)
            }
            LocalTable::Packed(table) => {
                v.local(LocalStep::Section).await;
                let (ticket, served) = table.draw(id);
                let mut retry = v.retry(self.options.budget);
                while !served && !table.served(id, ticket) {
                    retry.again(cell.place, Why::Raced).await?;
                    v.local(LocalStep::Section).await;
                }
                LocalTurn::Packed(PackedTurn::new(table, id))
            }
        })
    }

    /// Waits until the unlock of a holder that went away has landed, before any CAS is posted for the lock.
    async fn settle<V: Verbs>(&self, v: &V, cell: Cell, turn: &mut Turn<'_>) -> Result<(), LockError> {
        //= docs/protocol/lock.md L9
        if let Some(raw) = turn.unsettled().filter(|_| !self.options.flaws.unsettled_ignored) {
            let mut retry = v.retry(self.options.budget);
            loop {
                let word = v.word(cell.place).await?;
                if cell.own(word) != raw {
                    break;
                }
                retry
                    .again(
                        cell.place,
                        Why::LockHeld {
                            word: cell.word(word).pack(),
                        },
                    )
                    .await?;
            }
            turn.set_unsettled(None);
        }
        Ok(())
    }
}
