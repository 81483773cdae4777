//! A lock held: written back, released, handed over, or abandoned.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use dm_verbs::{
    Chain, Effect, LocalStep, Many, MaskedCas, Old, Open, Place, RemotePtr, Ticket, VerbError, Verbs,
};

use crate::cell::{Cell, Plan, Release};
use crate::local::Handed;
use crate::locks::{Seat, Target};
use crate::{LockError, LockId, LockWord, Locks};

/// A lock that is held, or being taken ([`Locks::approach`]).
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
    /// The word as it stands in memory. While the answer of a CAS is not known, the word that it expects; while an earlier
    /// holder's unlock may not have landed, the word that this unlock removes.
    raw: u64,
    /// The payload that a release now is to write.
    payload: u32,
    /// The payload that becomes current when the write-back is posted.
    staged: u32,
    plan: Plan,
    seat: Seat,
    hold: Hold,
    handed: bool,
    /// The local turn must not go on without saying so: see [`Locks::unsettled`].
    unsettled: bool,
    /// An unlock that is not the ordinary one leaves [`DOUBT`].
    doubt_if_lost: bool,
}

/// What the remote word may say of this client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    /// Nothing, or whatever it says was posted to be undone.
    Nothing,
    /// A CAS was posted, and its answer is not known.
    Asked,
    /// The lock is held and no unlock was posted.
    Held,
}

/// The bit of a lock word's payload that says: a change of structure under this lock may have failed midway. (Set by
/// [`Guard::doubt_if_lost`], never cleared: who must know looks at nodes whole, from then on.)
pub const DOUBT: u32 = 1;

impl Locks {
    /// Prepares to take the lock of `node`. Nothing is posted, and no turn is waited for, before [`Guard::attempt`].
    ///
    /// # Errors
    /// [`LockError`], where this client can't take the lock at all.
    #[inline(always)]
    pub fn approach<'a, V: Verbs>(&'a self, v: &'a V, node: RemotePtr) -> Result<Guard<'a, V>, LockError> {
        self.aim(v, self.lock_of(node)?)
    }

    #[inline(always)]
    pub(crate) fn aim<'a, V: Verbs>(&'a self, v: &'a V, id: LockId) -> Result<Guard<'a, V>, LockError> {
        let Target { cell, plan } = self.target(v, id)?;
        Ok(Guard {
            locks: self,
            v,
            id,
            cell,
            raw: 0,
            payload: 0,
            staged: 0,
            plan,
            seat: Seat::None,
            hold: Hold::Nothing,
            handed: false,
            unsettled: false,
            doubt_if_lost: false,
        })
    }
}

impl<'a, V: Verbs> Guard<'a, V> {
    // ---- while it is taken -----------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn locks(&self) -> &'a Locks {
        self.locks
    }

    /// Notes the local turn, and a word that it came with ([`crate::Turn::unsettled`]). The turn must have been kept.
    #[inline]
    pub(crate) fn seated(&mut self, seat: Seat, unsettled: Option<u64>) {
        self.seat = seat;
        if let Some(raw) = unsettled {
            (self.raw, self.unsettled) = (raw, true);
        }
    }

    /// The word of an earlier holder whose unlock may not have landed.
    pub(crate) fn unsettled_word(&self) -> Option<u64> {
        self.unsettled.then_some(self.raw)
    }

    /// That unlock has landed.
    pub(crate) fn settled(&mut self) {
        self.unsettled = false;
    }

    /// The lock came with the turn.
    pub(crate) fn handed(&mut self, handed: Handed) {
        self.raw = handed.raw;
        (self.payload, self.staged) = (handed.payload, handed.payload);
        (self.handed, self.unsettled, self.hold) = (true, false, Hold::Held);
    }

    /// The operands that take the lock.
    #[inline(always)]
    pub(crate) fn take(&self) -> MaskedCas {
        self.cell.take(self.v.client(), self.locks.options.epoch)
    }

    /// A CAS was posted that expects `expect`. From here on a drop undoes it.
    #[inline(always)]
    pub(crate) fn asked(&mut self, expect: u64) {
        (self.raw, self.hold) = (expect, Hold::Asked);
    }

    /// The word that the last CAS expected.
    pub(crate) fn expected(&self) -> u64 {
        self.raw
    }

    /// Whether the CAS, which found `old`, took the lock, and nobody shares it.
    #[inline(always)]
    pub(crate) fn is_taken_by(&mut self, old: u64) -> bool {
        //= docs/protocol/lock.md L2
        let take = self.take();
        let taken = take.matches(old) && (self.plan.masked() || old == self.raw);
        self.hold = Hold::Nothing;
        if taken {
            self.hold = Hold::Held;
            self.raw = self.cell.own(take.apply(old));
            self.payload = self.cell.word(self.raw).payload;
            self.staged = self.payload;
        }
        //= docs/protocol/lock.md L14
        taken && self.cell.sharers(old) == 0
    }

    pub(crate) fn is_held(&self) -> bool {
        self.hold == Hold::Held
    }

    /// The CAS, or what came behind it, ended in an error.
    #[cold]
    pub(crate) fn attempt_failed(&mut self, e: VerbError) -> LockError {
        // Else it is certain what the CAS did: nothing.
        if e.index != 0 || e.effect != Effect::None {
            self.undo();
        }
        self.hold = Hold::Nothing;
        e.into()
    }

    /// Undoes what the CAS may have done: behind it on the same queue pair, and naming this client, so that it does nothing
    /// if the CAS failed.
    #[cold]
    fn undo(&self) {
        //= docs/protocol/lock.md L7
        let take = self.take();
        match self.plan.masked() {
            true => self.cell.undo(self.v, take),
            false => self
                .v
                .cas(self.cell.place, take.apply(self.raw), self.raw)
                .detach(),
        }
    }

    // ---- while it is held ------------------------------------------------------------------------------------

    /// The remote side.
    #[inline]
    pub(crate) fn cell(&self) -> Cell {
        self.cell
    }

    /// Attempts at a lock.
    #[inline]
    pub(crate) fn budget(&self) -> u32 {
        self.locks.options.budget
    }

    /// The client's connection.
    #[inline]
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
        match self.is_wanted().await {
            true => self.hand_on(Some(chain)).await,
            false => self.unlock(Some(chain)).await,
        }
    }

    /// Gives the lock back with nothing written: to the next client of this compute node without any verb, or else
    /// by an unlock alone (one round trip).
    ///
    /// # Errors
    /// As [`Guard::write_back`].
    pub async fn release(mut self) -> Result<(), LockError> {
        match self.is_wanted().await {
            true => self.hand_on(None).await,
            false => self.unlock(None).await,
        }
    }

    /// Asks whether a client of this compute node waits for the lock, and may be handed it: then [`Guard::hand_on`] ends what
    /// this guard holds, otherwise [`Guard::unlock`]. (These three are [`Guard::write_back`] in parts, for a caller who keeps
    /// the guard where it is.)
    #[inline(always)]
    pub fn is_wanted(&self) -> Wanted<'_, 'a, V> {
        Wanted { guard: self, step: 0 }
    }

    /// Posts `chain`, if there is one, with the unlock behind it, or as [`Guard::write_back`] says, and awaits both.
    #[inline(always)]
    pub fn unlock(&mut self, chain: Option<Chain<'a, V, (), Open>>) -> Unlocking<'_, 'a, V> {
        self.payload = self.staged;
        let stage = match chain {
            Some(chain) if !self.plan.combine() => Stage::Data(chain.post()),
            Some(chain) => self.post_unlock(chain),
            None => self.post_unlock(self.v.chain(self.id.node)),
        };
        Unlocking {
            guard: self,
            stage,
            written: false,
        }
    }

    /// Posts `chain`, if there is one, awaits it, and gives the lock to the next client of this compute node.
    ///
    /// # Errors
    /// As [`Guard::write_back`].
    pub async fn hand_on(&mut self, chain: Option<Chain<'a, V, (), Open>>) -> Result<(), LockError> {
        self.payload = self.staged;
        let Some(chain) = chain else {
            return self.hand_over_or_unlock().await;
        };
        if self.locks.options.flaws().handover_before_write_back {
            if self.hand_over() {
                return Ok(chain.post().await?);
            }
            let stage = self.post_unlock(chain);
            return self.unlocking(stage).await;
        }
        //= docs/protocol/lock.md L4
        chain.post().await?;
        let given = self.hand_over_or_unlock().await;
        given.map_err(LockError::after_effect)
    }

    async fn hand_over_or_unlock(&mut self) -> Result<(), LockError> {
        self.v.local(LocalStep::Section).await;
        if self.hand_over() {
            return Ok(());
        }
        // Whoever waited has gone.
        self.unlock(None).await
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
            self.hold = Hold::Nothing;
        }
        given
    }

    /// Appends the unlock to `chain` and posts it.
    #[inline(always)]
    fn post_unlock(&mut self, chain: Chain<'a, V, (), Open>) -> Stage<'a, V> {
        let (cell, raw, payload) = (self.cell, self.raw, self.payload);
        let stage = match self.plan.release() {
            Release::Write => Stage::Write(cell.write_release(chain, raw, payload).post()),
            by => Stage::Atomic(cell.atomic_release(chain, raw, payload, by).post()),
        };
        self.unlock_posted();
        stage
    }

    #[inline(always)]
    fn unlocking(&mut self, stage: Stage<'a, V>) -> Unlocking<'_, 'a, V> {
        Unlocking {
            guard: self,
            stage,
            written: false,
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
        if self.plan.release() == Release::Faa {
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
        self.hold = Hold::Nothing;
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
    pub(crate) fn unlock_done(&mut self) -> Unlocking<'_, 'a, V> {
        self.unsettled = false;
        self.unlocking(Stage::Turn(0, None))
    }

    /// What the word was left as, for whoever must guess it next; while the turn is this client's.
    #[inline]
    fn note(&self) {
        if !self.plan.masked() && self.seat == Seat::Turn {
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
        match self.plan.release() {
            Release::Write => cell.write_release(chain, raw, payload),
            by => cell.atomic_release(chain, raw, payload, by),
        }
    }

    /// Posts what nobody waits for: an unlock, or the undo of a CAS whose answer is not known.
    #[cold]
    fn let_go(&mut self) {
        match self.hold {
            Hold::Nothing => {}
            Hold::Asked => self.undo(),
            Hold::Held => {
                self.cell.abandon(self.v, self.raw, self.payload_if_lost());
                self.unlock_posted();
            }
        }
    }
}

impl<V: Verbs> Drop for Guard<'_, V> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.hold != Hold::Nothing {
            self.let_go();
        }
        self.leave();
    }
}

/// See [`Guard::is_wanted`].
#[must_use = "a question is asked when it is awaited"]
#[derive(Debug)]
pub struct Wanted<'g, 'a, V: Verbs> {
    guard: &'g Guard<'a, V>,
    step: u64,
}

impl<V: Verbs> Future for Wanted<'_, '_, V> {
    type Output = bool;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let this = &mut *self;
        if this.guard.seat != Seat::Turn {
            return Poll::Ready(false);
        }
        let Guard { locks, v, id, .. } = this.guard;
        ready!(v.poll_local(LocalStep::Section, &mut this.step, cx));
        Poll::Ready(locks.can_hand_over(*id))
    }
}

/// An unlock that was posted, perhaps behind data. See [`Guard::unlock`].
#[must_use = "await it: the local turn goes on when the unlock has completed"]
pub struct Unlocking<'g, 'a, V: Verbs> {
    guard: &'g mut Guard<'a, V>,
    stage: Stage<'a, V>,
    /// Data was written before.
    written: bool,
}

enum Stage<'a, V: Verbs> {
    /// The data, where the unlock is not in its chain.
    Data(Ticket<'a, V, ()>),
    /// The unlock by WRITE.
    Write(Ticket<'a, V, ()>),
    /// The unlock by an atomic, which tells the word that it found.
    Atomic(Ticket<'a, V, (Old,)>),
    /// The local turn goes on next: with the state of that step, and the word that was found.
    Turn(u64, Option<u64>),
}

impl<V: Verbs> fmt::Debug for Unlocking<'_, '_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unlocking")
            .field("place", &self.guard.place())
            .finish_non_exhaustive()
    }
}

// Nothing points into it.
impl<V: Verbs> Unpin for Unlocking<'_, '_, V> {}

impl<V: Verbs> Future for Unlocking<'_, '_, V> {
    type Output = Result<(), LockError>;

    // Always: as with `Attempt`.
    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let answer = match &mut this.stage {
            Stage::Write(ticket) => ready!(Pin::new(ticket).poll(cx)).map(|()| None),
            Stage::Atomic(ticket) => ready!(Pin::new(ticket).poll(cx)).map(Some),
            Stage::Turn(..) => return this.poll_turn(cx),
            Stage::Data(_) => return this.poll_data(cx),
        };
        match answer {
            Ok(found) => {
                this.guard.unsettled = false;
                this.stage = Stage::Turn(0, found);
                this.poll_turn(cx)
            }
            Err(e) => this.failed(e),
        }
    }
}

impl<V: Verbs> Unlocking<'_, '_, V> {
    /// Passes the local turn on.
    #[inline(always)]
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LockError>> {
        let Stage::Turn(step, found) = &mut self.stage else {
            unreachable!("the turn goes on after the unlock")
        };
        if self.guard.seat == Seat::Turn {
            ready!(self.guard.v.poll_local(LocalStep::Section, step, cx));
        }
        self.guard.note();
        self.guard.leave();
        match self.guard.check_found(*found) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(e) => Poll::Ready(Err(self.told(e))),
        }
    }

    #[inline(never)]
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LockError>> {
        if let Stage::Data(ticket) = &mut self.stage {
            ready!(Pin::new(ticket).poll(cx))?;
            self.written = true;
            self.stage = self.guard.post_unlock(self.guard.v.chain(self.guard.id.node));
        }
        Pin::new(self).poll(cx)
    }

    #[cold]
    fn failed(&mut self, e: VerbError) -> Poll<Result<(), LockError>> {
        let e = self.guard.unlock_failed(e);
        Poll::Ready(Err(self.told(e)))
    }

    #[cold]
    fn told(&self, e: LockError) -> LockError {
        if self.written { e.after_effect() } else { e }
    }
}
