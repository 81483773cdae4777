//! The guard of a lock: it writes back, releases, hands over or abandons the lock.

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
use crate::{DOUBT, LockError, LockId, LockWord, Locks};

/// A lock that is held, or that is being taken ([`Locks::approach`]).
///
/// The guard, or the future of one of its methods, may be dropped at any await. A method that borrows the guard leaves
/// it alive. When the guard is dropped, it posts what is still needed behind everything that this client has posted
/// before: the unlock, or a request that undoes a CAS in flight. It does not await this request. It also passes the
/// local turn on. Writes under the lock take effect only if they were already posted. If the connection is lost, the
/// lock may stay held.
#[must_use = "dropping a guard abandons its lock"]
#[derive(Debug)]
pub struct Guard<'a, V: Verbs> {
    locks: &'a Locks,
    v: &'a V,
    id: LockId,
    cell: Cell,
    /// The number of the client's membership.
    member: u16,
    /// The word in memory. While a CAS is in flight, this is the word that the CAS expects. While an earlier holder's
    /// unlock might not have landed, this is the word that the unlock replaces.
    raw: u64,
    /// The payload that a release writes now.
    payload: u32,
    /// The payload that becomes current when the write-back is posted.
    staged: u32,
    plan: Plan,
    seat: Seat,
    hold: Hold,
    handed: bool,
    /// Whether the next client that gets the local turn must receive the word: see [`Locks::unsettled`].
    unsettled: bool,
    /// Whether every unlock except the regular one sets [`DOUBT`].
    doubt_if_lost: bool,
    /// Whether this client lets others share the lock.
    beside: bool,
}

/// The state of the remote word, as far as this client knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    /// The lock is not held, or was handed over, or the request that unlocks it or undoes the CAS has been posted.
    Nothing,
    /// A CAS is in flight, so its result is unknown.
    Asked,
    /// The lock is held, and no unlock has been posted.
    Held,
}

impl Locks {
    /// Prepares a guard for the lock of `node`. It posts nothing and waits for nothing until [`Guard::attempt`].
    ///
    /// # Errors
    /// Returns a [`LockError`] if this client can never take the lock.
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
            // This number stays valid, because a client does not enlist again during an operation.
            member: self.roster.number_of(v.client().0),
            raw: 0,
            payload: 0,
            staged: 0,
            plan,
            seat: Seat::None,
            hold: Hold::Nothing,
            handed: false,
            unsettled: false,
            doubt_if_lost: false,
            beside: false,
        })
    }
}

impl<'a, V: Verbs> Guard<'a, V> {
    // ---- while it is taken -----------------------------------------------------------------------------------

    /// Makes this guard exclude only other holders of the lock. It then does not wait until clients stop sharing the
    /// lock, and others can share the lock meanwhile. If the lock is handed over to this client, sharers are excluded
    /// nevertheless. Call this before [`Guard::attempt`]. It changes nothing if the lock cannot be shared.
    #[inline]
    pub fn beside_sharers(mut self) -> Self {
        self.beside = self.locks.options.shared;
        self
    }

    /// Returns whether the lock is held, or is about to be taken, without excluding sharers.
    #[inline]
    pub(crate) fn is_beside(&self) -> bool {
        self.beside
    }

    #[inline]
    pub(crate) fn locks(&self) -> &'a Locks {
        self.locks
    }

    /// Records that this client has the local turn, and the word that came with it ([`crate::Turn::unsettled`]). The
    /// caller must have called [`crate::Turn::keep`].
    #[inline]
    pub(crate) fn seated(&mut self, seat: Seat, unsettled: Option<u64>) {
        self.seat = seat;
        if let Some(raw) = unsettled {
            (self.raw, self.unsettled) = (raw, true);
        }
    }

    /// Returns the word of an earlier holder whose unlock might not have landed.
    pub(crate) fn unsettled_word(&self) -> Option<u64> {
        self.unsettled.then_some(self.raw)
    }

    /// Records that the unlock of the earlier holder has landed.
    pub(crate) fn settled(&mut self) {
        self.unsettled = false;
    }

    /// Records that the lock was handed over with the turn.
    pub(crate) fn handed(&mut self, handed: Handed) {
        self.raw = handed.raw;
        (self.payload, self.staged) = (handed.payload, handed.payload);
        (self.handed, self.unsettled, self.hold) = (true, false, Hold::Held);
        self.beside = false;
    }

    /// Returns the operands of the CAS that takes the lock.
    #[inline(always)]
    pub(crate) fn take(&self) -> MaskedCas {
        self.cell.take(self.v.client(), self.member, self.beside)
    }

    /// Records that a CAS was posted which expects `expect`. From here on, dropping the guard undoes the CAS.
    #[inline(always)]
    pub(crate) fn asked(&mut self, expect: u64) {
        (self.raw, self.hold) = (expect, Hold::Asked);
    }

    /// Returns the word that the last CAS expected.
    pub(crate) fn expected(&self) -> u64 {
        self.raw
    }

    /// Records that the CAS found `old`. Returns whether the lock is held and no sharer is in the way: the CAS took the
    /// lock, and either no client shares it, or this guard is beside sharers.
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
        taken && (self.beside || self.cell.sharers(old) == 0)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.hold == Hold::Held
    }

    /// Undoes the CAS after its chain has ended in an error, unless the CAS certainly had no effect.
    #[cold]
    pub(crate) fn attempt_failed(&mut self, e: VerbError) -> LockError {
        // If the CAS is the failed request and had no effect, there is nothing to undo.
        if e.index != 0 || e.effect != Effect::None {
            self.undo();
        }
        self.hold = Hold::Nothing;
        e.into()
    }

    /// Posts the undo of the CAS on the same queue pair, behind the CAS. The undo compares the owner with this client,
    /// so it does nothing if the CAS failed.
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

    /// Returns the remote side of the lock.
    #[inline]
    pub(crate) fn cell(&self) -> Cell {
        self.cell
    }

    /// Returns the maximum number of attempts to take a lock.
    #[inline]
    pub(crate) fn budget(&self) -> u32 {
        self.locks.options.budget
    }

    /// Returns the client's connection.
    #[inline]
    pub(crate) fn verbs(&self) -> &'a V {
        self.v
    }

    /// Returns the word of the lock when it was taken. Its payload is that of the previous holder. After a handover,
    /// its owner can be another client of this compute node.
    pub fn word(&self) -> LockWord {
        LockWord {
            payload: self.payload,
            ..self.cell.word(self.raw)
        }
    }

    /// Returns the place of the word.
    pub fn place(&self) -> Place {
        self.cell.place
    }

    /// Returns the identity of the lock.
    pub fn id(&self) -> LockId {
        self.id
    }

    /// Returns whether the lock was handed over, so that taking it needed no verb.
    pub fn handed_over(&self) -> bool {
        self.handed
    }

    /// Sets the payload that the unlock writes. It takes effect when [`Guard::write_back`] posts its chain, or when
    /// [`Guard::release`] hands the lock over or posts the unlock. If the guard is dropped earlier, the old payload
    /// stays. [`DOUBT`] stays.
    pub fn set_payload(&mut self, payload: u32) {
        //= docs/protocol/recovery.md V8
        self.staged = payload | self.payload & DOUBT;
    }

    /// Lets this guard set [`DOUBT`] in the payload if the guard is dropped while it holds the lock, or if the chain of
    /// its unlock fails. The data that should precede the unlock may then be written only in part.
    pub fn doubt_if_lost(&mut self) {
        self.doubt_if_lost = true;
    }

    /// Returns whether the word has [`DOUBT`]: a structural change under this lock may have failed midway.
    #[inline]
    pub fn in_doubt(&self) -> bool {
        self.payload & DOUBT != 0
    }

    /// Returns the payload of an unlock that is not the regular one.
    fn payload_if_lost(&self) -> u32 {
        match self.doubt_if_lost {
            true => self.payload | DOUBT,
            false => self.payload,
        }
    }

    /// Posts `chain` with the unlock behind it, and awaits both. If the lock can be handed to the next client of this
    /// compute node, posts `chain` alone and hands the lock over when it has completed. This takes one round trip, or
    /// two if the options or the world do not allow data and unlock in one chain, or if the lock cannot be handed over
    /// any more.
    ///
    /// # Errors
    /// Returns [`LockError::Verb`] if a request fails; the error says whether the data was written. An unlock is then
    /// posted, and not awaited. It does nothing if an earlier unlock took effect. If the connection is lost, the lock
    /// may stay held.
    ///
    /// Returns [`LockError::Lost`] if the unlock was an atomic, and found that another client has released or taken
    /// over the lock meanwhile.
    ///
    /// # Panics
    /// Panics if `chain` goes to another memory node than the lock.
    pub async fn write_back(mut self, chain: Chain<'a, V, (), Open>) -> Result<(), LockError> {
        match self.is_wanted().await {
            true => self.hand_on(Some(chain)).await,
            false => self.unlock(Some(chain)).await,
        }
    }

    /// Releases the lock without writing: hands it to the next client of this compute node, without a verb, or posts
    /// the unlock alone (one round trip).
    ///
    /// # Errors
    /// Returns the same errors as [`Guard::write_back`].
    pub async fn release(mut self) -> Result<(), LockError> {
        match self.is_wanted().await {
            true => self.hand_on(None).await,
            false => self.unlock(None).await,
        }
    }

    /// Returns whether a client of this compute node waits for the lock and may get it by handover. If so, call
    /// [`Guard::hand_on`] next, otherwise [`Guard::unlock`]. The three are the parts of [`Guard::write_back`], for
    /// callers that do not move the guard.
    #[inline(always)]
    pub fn is_wanted(&self) -> Wanted<'_, 'a, V> {
        Wanted { guard: self, step: 0 }
    }

    /// Posts `chain`, if there is one, with the unlock behind it, and awaits both. If the options or the world do not
    /// allow both in one chain, the unlock follows when `chain` has completed.
    ///
    /// # Panics
    /// Panics if `chain` goes to another memory node than the lock.
    #[inline(always)]
    pub fn unlock(&mut self, chain: Option<Chain<'a, V, (), Open>>) -> Unlocking<'_, 'a, V> {
        // If this panics, the guard leaves the old payload.
        self.check_guarded(chain.as_ref());
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

    /// Posts and awaits `chain`, if there is one, and hands the lock to the next client of this compute node. If the
    /// lock cannot be handed over any more, unlocks it.
    ///
    /// # Errors
    /// Returns the same errors as [`Guard::write_back`]. If `chain` fails, the guard holds the lock until it is
    /// dropped.
    ///
    /// # Panics
    /// Panics if `chain` goes to another memory node than the lock.
    pub async fn hand_on(&mut self, chain: Option<Chain<'a, V, (), Open>>) -> Result<(), LockError> {
        self.check_guarded(chain.as_ref());
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
        // The client that waited was dropped in the meantime, or it does not belong to the member that the word names.
        self.unlock(None).await
    }

    /// Hands the lock to the client that waits longest. Returns `false` if this is not possible ([`Locks::hand_over`]);
    /// this guard then still holds the lock.
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

    /// Checks that `chain`, if there is one, goes to the lock's memory node: this lock does not guard data on another
    /// one (L1).
    #[inline]
    fn check_guarded(&self, chain: Option<&Chain<'a, V, (), Open>>) {
        assert!(
            chain.is_none_or(|chain| chain.node() == self.id.node),
            "a lock guards data on its own memory node"
        );
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

    /// If the unlock was an atomic, checks that it found the word that was held.
    #[inline]
    pub(crate) fn check_found(&self, found: Option<u64>) -> Result<(), LockError> {
        match found {
            Some(old) if self.cell.own(old) != self.raw => Err(self.lost(old)),
            _ => Ok(()),
        }
    }

    /// Reports that the unlock found another word than the one that was held.
    #[cold]
    fn lost(&self, word: u64) -> LockError {
        if self.plan.release() == Release::Faa {
            //= docs/protocol/lock.md L5
            // An FAA has no condition, so it has changed another client's word. Undo the change, unless the
            // word has changed again.
            let added = self.cell.difference(self.raw, self.payload);
            self.v.cas(self.place(), word.wrapping_add(added), word).detach();
        }
        LockError::Lost {
            place: self.place(),
            held: self.raw,
            found: self.cell.own(word),
        }
    }

    /// Records that the unlock was posted. From here on, dropping the guard only passes the turn on.
    #[inline]
    pub(crate) fn unlock_posted(&mut self) {
        self.hold = Hold::Nothing;
        // If the word does not name this client, the next client must wait until this unlock has landed.
        self.unsettled = self
            .locks
            .unsettled(self.cell, self.raw, self.v.client())
            .is_some();
    }

    /// Posts the unlock once more after an error. The request has no effect if the first unlock took effect.
    #[cold]
    pub(crate) fn unlock_again(&mut self) {
        self.cell.abandon(self.v, self.raw, self.payload_if_lost());
    }

    /// Passes the turn on after the unlock has completed.
    #[inline]
    pub(crate) fn unlock_done(&mut self) -> Unlocking<'_, 'a, V> {
        self.unsettled = false;
        self.unlocking(Stage::Turn(0, None))
    }

    /// Stores the released word as a hint for the next CAS. This client still has the turn.
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

    /// Posts, without awaiting it, the unlock, or the undo of a CAS whose result is unknown.
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

/// The future of [`Guard::is_wanted`].
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
        //= docs/protocol/lock.md L19
        if this.guard.seat != Seat::Turn || this.guard.beside {
            return Poll::Ready(false);
        }
        let Guard { locks, v, id, .. } = this.guard;
        ready!(v.poll_local(LocalStep::Section, &mut this.step, cx));
        Poll::Ready(locks.can_hand_over(*id))
    }
}

/// The future of [`Guard::unlock`]: an unlock in flight, perhaps behind data.
#[must_use = "await it: the local turn goes on when the unlock has completed"]
pub struct Unlocking<'g, 'a, V: Verbs> {
    guard: &'g mut Guard<'a, V>,
    stage: Stage<'a, V>,
    /// Whether data was written before the unlock.
    written: bool,
}

enum Stage<'a, V: Verbs> {
    /// The data, if the unlock is not in its chain.
    Data(Ticket<'a, V, ()>),
    /// The unlock by WRITE.
    Write(Ticket<'a, V, ()>),
    /// The unlock by an atomic, which returns the word that it found.
    Atomic(Ticket<'a, V, (Old,)>),
    /// The local turn is passed on next. Holds the state of that step, and the word that the unlock found.
    Turn(u64, Option<u64>),
}

impl<V: Verbs> fmt::Debug for Unlocking<'_, '_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unlocking")
            .field("place", &self.guard.place())
            .finish_non_exhaustive()
    }
}

// No field is pinned.
impl<V: Verbs> Unpin for Unlocking<'_, '_, V> {}

impl<V: Verbs> Future for Unlocking<'_, '_, V> {
    type Output = Result<(), LockError>;

    // This is always inlined, for the same reason as in `Attempt`.
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
