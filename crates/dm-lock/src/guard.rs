//! A lock held: written back, released, handed over, or abandoned.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use dm_verbs::{Chain, LocalStep, Many, Old, Open, Place, Ticket, VerbError, Verbs};

use crate::cell::{Cell, Plan, Release};
use crate::local::Handed;
use crate::locks::{Seat, Target};
use crate::{LockError, LockId, LockWord, Locks};

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
    id: LockId,
    cell: Cell,
    /// The word as it stands in memory.
    raw: u64,
    /// The payload that a release now is to write.
    payload: u32,
    /// The payload that becomes current when the write-back is posted.
    staged: u32,
    plan: Plan,
    seat: Seat,
    handed: bool,
    /// The lock is held and no unlock was posted.
    armed: bool,
    /// The local turn must not go on without saying so: see [`Locks::unsettled`].
    unsettled: bool,
    /// An unlock that is not the ordinary one leaves [`DOUBT`].
    doubt_if_lost: bool,
}

/// The bit of a lock word's payload that says: a change of structure under this lock may have failed midway. (Set by
/// [`Guard::doubt_if_lost`], never cleared: who must know looks at nodes whole, from then on.)
pub const DOUBT: u32 = 1;

/// The answer to an unlock: the word that was found, where that is told.
enum Unlock<'a, V: Verbs> {
    Write(Ticket<'a, V, ()>),
    Atomic(Ticket<'a, V, (Old,)>),
}

impl<V: Verbs> Future for Unlock<'_, V> {
    type Output = Result<Option<u64>, VerbError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Write(ticket) => Pin::new(ticket).poll(cx).map(|done| done.map(|()| None)),
            Self::Atomic(ticket) => Pin::new(ticket).poll(cx).map(|done| done.map(Some)),
        }
    }
}

impl<'a, V: Verbs> Guard<'a, V> {
    #[inline]
    pub(crate) fn new(locks: &'a Locks, v: &'a V, target: Target, seat: Seat, raw: u64) -> Self {
        let payload = target.cell.word(raw).payload;
        Self {
            locks,
            v,
            id: target.id,
            cell: target.cell,
            raw,
            payload,
            staged: payload,
            plan: target.plan,
            seat,
            handed: false,
            armed: true,
            unsettled: false,
            doubt_if_lost: false,
        }
    }

    /// The turn that came with the lock must have been kept for it.
    pub(crate) fn handed(locks: &'a Locks, v: &'a V, target: Target, handed: Handed) -> Self {
        let mut guard = Self::new(locks, v, target, Seat::Turn, handed.raw);
        (guard.payload, guard.staged) = (handed.payload, handed.payload);
        guard.handed = true;
        guard
    }

    /// The remote side.
    pub(crate) fn cell(&self) -> Cell {
        self.cell
    }

    /// Attempts at a lock.
    pub(crate) fn budget(&self) -> u32 {
        self.locks.options.budget
    }

    /// The client's connection.
    pub(crate) fn verbs(&self) -> &'a V {
        self.v
    }

    /// The word as it was taken. Its payload is the last holder's, also after a handover; its owner is then another
    /// client of this compute node.
    pub fn word(&self) -> LockWord {
        LockWord {
            payload: self.payload,
            ..self.cell.word(self.raw)
        }
    }

    /// Where the word lies.
    pub fn place(&self) -> Place {
        self.cell.place
    }

    /// Which lock it is.
    pub fn id(&self) -> LockId {
        self.id
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

    /// From here on, should this guard be dropped, or the chain of its unlock fail, the lock word's payload gets
    /// [`DOUBT`]: what was to be written before the unlock may be there in part.
    pub fn doubt_if_lost(&mut self) {
        self.doubt_if_lost = true;
    }

    /// Whether a change of structure may have failed midway under this lock, at any time.
    #[inline]
    pub fn in_doubt(&self) -> bool {
        self.payload & DOUBT != 0
    }

    /// The payload of an unlock that is not the ordinary one.
    fn payload_if_lost(&self) -> u32 {
        match self.doubt_if_lost {
            true => self.payload | DOUBT,
            false => self.payload,
        }
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
    pub async fn write_back(mut self, chain: Chain<'a, V, (), Open>) -> Result<(), LockError> {
        let hand_over = self.will_hand_over().await;
        self.payload = self.staged;
        if hand_over {
            return self.write_and_hand_over(chain).await;
        }
        if self.plan.combine {
            return self.unlock_behind(chain).await;
        }
        chain.post().await?;
        let chain = self.v.chain(self.id.node);
        let unlocked = self.unlock_behind(chain).await;
        unlocked.map_err(LockError::after_effect)
    }

    async fn write_and_hand_over(&mut self, chain: Chain<'a, V, (), Open>) -> Result<(), LockError> {
        if self.locks.options.flaws().handover_before_write_back {
            if self.hand_over() {
                return Ok(chain.post().await?);
            }
            return self.unlock_behind(chain).await;
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
        self.payload = self.staged;
        if hand_over {
            return self.hand_over_or_unlock().await;
        }
        let chain = self.v.chain(self.id.node);
        self.unlock_behind(chain).await
    }

    #[inline]
    async fn will_hand_over(&self) -> bool {
        if self.seat != Seat::Turn {
            return false;
        }
        self.v.local(LocalStep::Section).await;
        self.locks.can_hand_over(self.id)
    }

    async fn hand_over_or_unlock(&mut self) -> Result<(), LockError> {
        self.v.local(LocalStep::Section).await;
        if self.hand_over() {
            return Ok(());
        }
        // Whoever waited has gone.
        let chain = self.v.chain(self.id.node);
        self.unlock_behind(chain).await
    }

    /// `false`: there is nobody to hand it to, and this still holds it.
    fn hand_over(&mut self) -> bool {
        let handed = Handed {
            raw: self.raw,
            payload: self.payload,
        };
        let given = self.seat == Seat::Turn && self.locks.hand_over(self.id, handed);
        if given {
            self.seat = Seat::None;
            self.armed = false;
        }
        given
    }

    /// Appends the unlock to `chain` and posts it.
    fn post_unlock(&mut self, chain: Chain<'a, V, (), Open>) -> Unlock<'a, V> {
        let (cell, raw, payload) = (self.cell, self.raw, self.payload);
        let unlock = match self.plan.release {
            Release::Write => Unlock::Write(cell.write_release(chain, raw, payload).post()),
            by => Unlock::Atomic(cell.atomic_release(chain, raw, payload, by).post()),
        };
        self.unlock_posted();
        unlock
    }

    /// Appends the unlock to `chain`, posts and awaits it.
    async fn unlock_behind(&mut self, chain: Chain<'a, V, (), Open>) -> Result<(), LockError> {
        let answer = self.post_unlock(chain).await;
        match answer {
            Ok(found) => {
                self.unlock_done().await;
                self.check_found(found)
            }
            Err(e) => Err(self.unlock_failed(e)),
        }
    }

    #[cold]
    fn unlock_failed(&mut self, e: VerbError) -> LockError {
        //= docs/protocol/lock.md L18
        self.unlock_again();
        e.into()
    }

    /// Whether the word that an atomic unlock found, if it was one, is the one that was held.
    #[inline]
    pub(crate) fn check_found(&self, found: Option<u64>) -> Result<(), LockError> {
        match found {
            Some(old) if self.cell.own(old) != self.raw => Err(self.lost(old)),
            _ => Ok(()),
        }
    }

    /// The word, whole, was not as it was held.
    #[cold]
    fn lost(&self, word: u64) -> LockError {
        if self.plan.release == Release::Faa {
            //= docs/protocol/lock.md L5
            // Adding knows no condition: what it made of another's word is undone, unless that changed again.
            let added = self.cell.difference(self.raw, self.payload);
            self.v.cas(self.place(), word.wrapping_add(added), word).detach();
        }
        LockError::Lost {
            place: self.place(),
            held: self.raw,
            found: self.cell.own(word),
        }
    }

    /// From here on a drop must not unlock again; it passes the turn on only.
    #[inline]
    pub(crate) fn unlock_posted(&mut self) {
        self.armed = false;
        // Whoever is next must see our unlock first, if it is not under our name.
        self.unsettled = self
            .locks
            .unsettled(self.cell, self.raw, self.v.client())
            .is_some();
    }

    /// Behind an error. It does nothing to a word that the first unlock has freed.
    #[cold]
    pub(crate) fn unlock_again(&mut self) {
        self.cell.abandon(self.v, self.raw, self.payload_if_lost());
    }

    /// The unlock has completed: the turn goes on.
    #[inline]
    pub(crate) async fn unlock_done(&mut self) {
        self.unsettled = false;
        if self.seat == Seat::Turn {
            self.v.local(LocalStep::Section).await;
        }
        self.note();
        self.leave();
    }

    /// What the word was left as, for whoever must guess it next; while the turn is this client's.
    #[inline]
    fn note(&self) {
        if !self.plan.masked && self.seat == Seat::Turn {
            let left = self.cell.released(self.raw, self.payload);
            self.locks.hints.note(self.id, left);
        }
    }

    /// Passes the local turn on.
    #[inline]
    fn leave(&mut self) {
        let seat = core::mem::replace(&mut self.seat, Seat::None);
        if seat != Seat::None {
            self.locks
                .leave(self.id, seat, self.unsettled.then_some(self.raw));
        }
    }

    // ---- for sets --------------------------------------------------------------------------------------------

    pub(crate) fn plan(&self) -> Plan {
        self.plan
    }

    /// Appends the unlock, with the staged payload.
    pub(crate) fn append_unlock(&mut self, chain: Chain<'a, V, Many, Open>) -> Chain<'a, V, Many, Open> {
        self.payload = self.staged;
        let (cell, raw, payload) = (self.cell, self.raw, self.payload);
        match self.plan.release {
            Release::Write => cell.write_release(chain, raw, payload),
            by => cell.atomic_release(chain, raw, payload, by),
        }
    }

    /// Posts an unlock that nobody waits for.
    #[cold]
    fn abandon(&mut self) {
        self.cell.abandon(self.v, self.raw, self.payload_if_lost());
        self.unlock_posted();
    }
}

impl<V: Verbs> Drop for Guard<'_, V> {
    #[inline]
    fn drop(&mut self) {
        if self.armed {
            self.abandon();
        }
        self.leave();
    }
}
