//! A lock held: written back, released, handed over, or abandoned.

use core::future::Future;

use dm_verbs::{Chain, Effect, LocalStep, Many, Open, Place, Verbs};

use crate::cell::{Plan, Release};
use crate::local::{Handed, Turn};
use crate::locks::{LocalTurn, Target, unsettled};
use crate::{LockError, LockId, LockWord, Locks};

/// The word of a lock as its holder knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// As it stands in memory.
    pub(crate) raw: u64,
    /// The payload that a release now is to write.
    pub(crate) payload: u32,
}

/// A lock held.
///
/// Dropping it, or the future of one of its methods at any await, never leaves the lock held: the unlock is posted
/// unsignalled, behind whatever this client posted before, and the local turn is passed on. The protocol above has
/// then written what it had posted, and nothing else.
#[must_use = "dropping a guard abandons its lock"]
#[derive(Debug)]
pub struct Guard<'a, V: Verbs> {
    locks: &'a Locks,
    v: &'a V,
    target: Target,
    taken: Taken,
    /// The payload that becomes current when the write-back is posted.
    staged: u32,
    turn: LocalTurn<'a>,
    handed: bool,
    /// The lock is held and no unlock was posted.
    armed: bool,
}

impl<'a, V: Verbs> Guard<'a, V> {
    pub(crate) fn new(locks: &'a Locks, v: &'a V, target: Target, turn: LocalTurn<'a>, taken: Taken) -> Self {
        Self {
            locks,
            v,
            target,
            taken,
            staged: taken.payload,
            turn,
            handed: false,
            armed: true,
        }
    }

    pub(crate) fn handed(locks: &'a Locks, v: &'a V, target: Target, turn: Turn<'a>, handed: Handed) -> Self {
        let taken = Taken {
            raw: handed.raw,
            payload: handed.payload,
        };
        let mut guard = Self::new(locks, v, target, LocalTurn::Turn(turn), taken);
        guard.handed = true;
        guard
    }

    /// The word as it was taken. Its payload is the last holder's, also after a handover; its owner is then another
    /// client of this compute node.
    pub fn word(&self) -> LockWord {
        LockWord {
            payload: self.taken.payload,
            ..self.target.cell.word(self.taken.raw)
        }
    }

    /// Where the word lies.
    pub fn place(&self) -> Place {
        self.target.cell.place
    }

    /// Which lock it is.
    pub fn id(&self) -> LockId {
        self.target.id
    }

    /// Whether the lock came by handover: no verb was needed for it.
    pub fn handed_over(&self) -> bool {
        self.handed
    }

    /// The payload to be written with the unlock. It counts from the moment that [`Guard::write_back`] posts its
    /// chain, or [`Guard::release`] begins; a guard dropped before that leaves the old one.
    pub fn set_payload(&mut self, payload: u32) {
        self.staged = payload;
    }

    /// Posts `chain` with the unlock behind it, and awaits both; or, when the next client of this compute node is
    /// handed the lock, `chain` alone, and gives the lock on once it has completed. One round trip; two if the
    /// options or the world keep data and unlock apart.
    ///
    /// # Errors
    /// [`LockError::Verb`]: whether the data was written says the error; the unlock was tried again unsignalled, in
    /// a form that does nothing if the first came through. If the connection is gone the lock may stay held: its
    /// word names this client. [`LockError::Lost`]: somebody else released or took over the lock meanwhile.
    ///
    /// # Panics
    /// When `chain` goes to another memory node than the lock.
    #[expect(
        clippy::manual_async_fn,
        reason = "an async fn would move the guard once more, as many instructions as an unlock"
    )]
    #[inline]
    pub fn write_back(
        mut self,
        chain: Chain<'a, V, (), Open>,
    ) -> impl Future<Output = Result<(), LockError>> + use<'a, V> {
        async move {
            let hand_over = self.will_hand_over().await;
            self.taken.payload = self.staged;
            if hand_over {
                return self.write_and_hand_over(chain).await;
            }
            if self.target.plan.combine {
                return self.unlock_behind(chain).await;
            }
            chain.post().await?;
            let unlocked = self.unlock_behind(self.v.chain(self.place().node())).await;
            unlocked.map_err(LockError::after_effect)
        }
    }

    async fn write_and_hand_over(self, chain: Chain<'a, V, (), Open>) -> Result<(), LockError> {
        if self.locks.options.flaws.handover_before_write_back {
            return match self.hand_over() {
                Ok(()) => Ok(chain.post().await?),
                Err(mut guard) => guard.unlock_behind(chain).await,
            };
        }
        //= docs/protocol/lock.md L4
        chain.post().await?;
        let given = self.hand_over_or_unlock().await;
        given.map_err(LockError::after_effect)
    }

    /// Gives the lock back with nothing written: to the next client of this compute node without any verb, or else
    /// by an unlock alone (one round trip).
    ///
    /// # Errors
    /// As [`Guard::write_back`].
    pub async fn release(mut self) -> Result<(), LockError> {
        let hand_over = self.will_hand_over().await;
        self.taken.payload = self.staged;
        if hand_over {
            return self.hand_over_or_unlock().await;
        }
        self.unlock_behind(self.v.chain(self.place().node())).await
    }

    async fn will_hand_over(&self) -> bool {
        let LocalTurn::Turn(turn) = &self.turn else {
            return false;
        };
        self.v.local(LocalStep::Section).await;
        turn.can_hand_over()
    }

    async fn hand_over_or_unlock(self) -> Result<(), LockError> {
        self.v.local(LocalStep::Section).await;
        match self.hand_over() {
            Ok(()) => Ok(()),
            // Whoever waited has gone.
            Err(mut guard) => {
                let chain = guard.v.chain(guard.place().node());
                guard.unlock_behind(chain).await
            }
        }
    }

    fn hand_over(mut self) -> Result<(), Self> {
        let handed = Handed {
            raw: self.taken.raw,
            payload: self.taken.payload,
        };
        match core::mem::replace(&mut self.turn, LocalTurn::None) {
            LocalTurn::Turn(turn) => match turn.hand_over(handed) {
                Ok(()) => {
                    self.armed = false;
                    Ok(())
                }
                Err(turn) => {
                    self.turn = LocalTurn::Turn(turn);
                    Err(self)
                }
            },
            other => {
                self.turn = other;
                Err(self)
            }
        }
    }

    /// Appends the unlock to `chain`, posts and awaits it.
    async fn unlock_behind(&mut self, chain: Chain<'a, V, (), Open>) -> Result<(), LockError> {
        let (cell, Taken { raw, payload }) = (self.target.cell, self.taken);
        let answer = match self.target.plan.release {
            Release::Write => {
                let ticket = cell.write_release(chain, raw, payload).post();
                self.unlock_posted();
                ticket.await.map(|()| raw)
            }
            by => {
                let ticket = cell.atomic_release(chain, raw, payload, by).post();
                self.unlock_posted();
                ticket.await.map(|old| cell.own(old))
            }
        };
        let found = match answer {
            Ok(found) => found,
            Err(e) => {
                self.unlock_failed(e.rest != Effect::Done || e.effect != Effect::Done);
                return Err(e.into());
            }
        };
        self.unlock_done().await;
        self.check_found(found)
    }

    pub(crate) fn check_found(&self, found: u64) -> Result<(), LockError> {
        let held = self.taken.raw;
        if found == held {
            return Ok(());
        }
        Err(LockError::Lost {
            place: self.place(),
            held,
            found,
        })
    }

    /// From here on a drop must not unlock again; it passes the turn on only.
    pub(crate) fn unlock_posted(&mut self) {
        self.armed = false;
        self.note_unsettled();
    }

    /// Whoever is next must see our unlock first, if it is not under our name.
    fn note_unsettled(&mut self) {
        if let LocalTurn::Turn(turn) = &mut self.turn {
            turn.set_unsettled(unsettled(self.target.cell, self.taken.raw, self.v.client()));
        }
    }

    pub(crate) fn unlock_failed(&mut self, again: bool) {
        if again {
            self.target
                .cell
                .abandon(self.v, self.taken.raw, self.taken.payload);
        }
    }

    /// The unlock has completed: the turn goes on.
    pub(crate) async fn unlock_done(&mut self) {
        if let LocalTurn::Turn(turn) = &mut self.turn {
            turn.set_unsettled(None);
            self.v.local(LocalStep::Section).await;
        }
        self.turn = LocalTurn::None;
    }

    // ---- for sets --------------------------------------------------------------------------------------------

    pub(crate) fn plan(&self) -> Plan {
        self.target.plan
    }

    pub(crate) fn own(&self, word: u64) -> u64 {
        self.target.cell.own(word)
    }

    /// Appends the unlock, with the staged payload.
    pub(crate) fn append_unlock(&mut self, chain: Chain<'a, V, Many, Open>) -> Chain<'a, V, Many, Open> {
        self.taken.payload = self.staged;
        let Taken { raw, payload } = self.taken;
        match self.target.plan.release {
            Release::Write => self.target.cell.write_release(chain, raw, payload),
            by => self.target.cell.atomic_release(chain, raw, payload, by),
        }
    }
}

impl<V: Verbs> Drop for Guard<'_, V> {
    fn drop(&mut self) {
        if self.armed {
            self.armed = false;
            self.target
                .cell
                .abandon(self.v, self.taken.raw, self.taken.payload);
            self.note_unsettled();
        }
    }
}
