//! How a lock is taken: the local turn first, then the remote word.

use dm_verbs::{Bytes, Event, Exhausted, LocalStep, Old, RemotePtr, Verbs, Why};

use crate::cell::{Attempt, Cell, How};
use crate::guard::Guard;
use crate::local::{AlreadyHeld, Handed, Orphan, Turn};
use crate::locks::{LocalTable, Seat, Target};
use crate::packed::PackedTurn;
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

/// A READ under the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadTo {
    pub(crate) at: RemotePtr,
    pub(crate) len: u32,
}

/// How the local turn came.
enum Arrived<'a, V: Verbs> {
    /// With the lock itself, by handover.
    Locked(Guard<'a, V>),
    /// As the right to go for it.
    Turn(LocalTurn<'a>),
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
    /// Takes lock `id`, and READs `read` under it: then there are bytes.
    ///
    /// # Errors
    /// As [`Locks::lock_and_read`].
    pub(crate) async fn take<'a, V: Verbs>(
        &'a self,
        v: &'a V,
        id: LockId,
        read: Option<ReadTo>,
    ) -> Result<(Guard<'a, V>, Option<V::Lease>), LockError> {
        let target = self.target(v, id)?;
        let Target { cell, plan, .. } = target;
        //= docs/protocol/lock.md L7
        //= docs/protocol/lock.md L9
        // Declared before any attempt: when this is dropped, the attempt goes first and posts what undoes it, and only then
        // is the turn passed on.
        let turn = match self.local_turn(v, target).await? {
            Arrived::Turn(turn) => turn,
            Arrived::Locked(guard) => return guard.with_read(read).await,
        };
        let guess = self.guess(&target);
        let mut retry = v.retry(self.options.budget);
        // Without masked atomics: plain CASes of the whole word, each expecting what the one before it saw. A new
        // attempt starts from the same guess: what the last one saw may not survive it (`Retry`'s promise).
        let (mut expect, mut raced) = (guess, 0);
        // A lock that is held now is held by the next CAS as well more often than not, and a READ behind that would be for
        // nothing: so none goes along any more. Whoever comes first to a free lock still saves the round trip.
        let mut along = read.filter(|_| plan.read_in_order);
        loop {
            let (old, lease) = match along {
                Some(read) => {
                    let (old, lease) = self.attempt_with_read(v, &target, expect, read).await?;
                    (old, Some(lease))
                }
                None => (self.attempt(v, &target, expect).await?, None),
            };
            //= docs/protocol/lock.md L2
            if let Some(raw) = self.taken(v, &target, old, expect) {
                let guard = Guard::new(self, v, target, turn.seat(), raw);
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
                        retry = v.retry(self.options.budget);
                    }
                    None => retry.again(cell.place, held).await?,
                }
                continue;
            }
            raced += 1;
            if raced >= v.budget(self.options.budget) {
                return Err(LockError::Held(Exhausted {
                    at: cell.place,
                    why: Why::Raced,
                    attempts: raced,
                }));
            }
            expect = old;
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
    fn attempt_with_read<'a, V: Verbs>(
        &self,
        v: &'a V,
        target: &Target,
        expect: u64,
        ReadTo { at, len }: ReadTo,
    ) -> Attempt<'a, V, (Old, Bytes)> {
        let (place, how) = (target.cell.place, self.how(v, target, expect));
        let chain = v.chain(place.node());
        //= docs/protocol/lock.md L3
        let ticket = match how {
            How::Masked(take) => chain.masked_cas(place, take).read(at, len).post(),
            How::Plain { taken, before } => chain.cas(place, before, taken).read(at, len).post(),
        };
        Attempt::new(v, ticket, target.cell, how)
    }

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

    /// Waits for the local turn, if there is a local table.
    async fn local_turn<'a, V: Verbs>(
        &'a self,
        v: &'a V,
        target: Target,
    ) -> Result<Arrived<'a, V>, LockError> {
        let LocalTable::Queue(table) = self.local() else {
            return Ok(Arrived::Turn(self.turn_without_queue(v, target).await?));
        };
        let id = target.id;
        v.local(LocalStep::Section).await;
        let entered = table
            .acquire(id, v.client(), Unlocks { locks: self, v, id })
            .await;
        let (mut turn, arrival) = entered.map_err(|AlreadyHeld| self.already_held(id))?;
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
        if let Some(raw) = turn
            .unsettled()
            .filter(|_| !self.options.flaws().unsettled_ignored)
        {
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
