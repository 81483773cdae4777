//! The roster: a compute node's record of the members of its pool. It has the compute node's own number, and the
//! members that are gone.
//!
//! A lock word contains the number of the member that holds the lock. Before a client frees a lock of a dead member, no
//! request of that member may take effect any more. The client asks the roster whether the member is gone in this
//! sense, which needs no communication. The compute node answers the question when it next reads the pool's slots,
//! which the protocol of the allocator makes it do regularly.
//!
//! ```
//! use dm_sync::roster::Roster;
//!
//! let roster = Roster::default();
//! // A client finds a lock of member 7. Nothing is known about this member yet.
//! assert!(!roster.is_gone(7));
//! roster.ask(7);
//! // The compute node reads the slots. Member 7 has none, and the next number is 9. A client must ask a second time.
//! let asked = roster.questions();
//! assert_eq!(roster.answer(&asked, 9, [(3, true), (5, true)].into_iter()), []);
//! roster.ask(7);
//! let asked = roster.questions();
//! assert_eq!(roster.answer(&asked, 9, [(3, true), (5, true)].into_iter()), [7]);
//! // The caller fences member 7. From then on its locks can be freed.
//! roster.bury(7);
//! assert!(roster.is_gone(7));
//! ```

use core::fmt;

use crate::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use crate::gate::Gate;
use crate::{Fingerprint, count_section, fingerprint_of};

/// Number of different member numbers. 0 stands for a compute node that is not a member.
pub const MEMBERS_MAX: u16 = 1 << 11;
/// Number of different client ids.
pub const CLIENTS_MAX: u16 = 1 << 12;

/// A number that will be drawn within this many joins does not count as gone, because it will soon belong to a new
/// member. There are always fewer joins between two times at which a compute node reads the slots.
const SOON: u16 = MEMBERS_MAX / 2;

const WORDS: usize = MEMBERS_MAX as usize / 64;

/// A set of member numbers.
struct Members([AtomicU64; WORDS]);

impl Default for Members {
    fn default() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Members {
    fn bit(&self, member: u16) -> (&AtomicU64, u64) {
        let member = usize::from(member % MEMBERS_MAX);
        (&self.0[member / 64], 1 << (member % 64))
    }

    fn has(&self, member: u16) -> bool {
        let (word, bit) = self.bit(member);
        // Acquire: pairs with Release in `add`. Everything that the other thread awaited before it added the member
        // happens before everything that this thread posts next.
        word.load(Ordering::Acquire) & bit != 0
    }

    fn add(&self, member: u16) {
        let (word, bit) = self.bit(member);
        // Release: as `has` says.
        word.fetch_or(bit, Ordering::Release);
    }

    fn remove(&self, member: u16) {
        let (word, bit) = self.bit(member);
        // Relaxed: as `clear` says. The load avoids a write to a line that all clients read.
        if word.load(Ordering::Relaxed) & bit != 0 {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    fn clear(&self) {
        for word in &self.0 {
            // Relaxed: nothing is published, and a number is drawn again only after all other numbers.
            word.store(0, Ordering::Relaxed);
        }
    }

    fn list(&self) -> Vec<u16> {
        // Acquire: as in `has`. The question happens before the READ of the slots that the caller posts next.
        let words = self.0.iter().map(|word| word.load(Ordering::Acquire));
        let mut members = Vec::new();
        for (i, mut word) in words.enumerate() {
            while word != 0 {
                members.push(64 * i as u16 + word.trailing_zeros() as u16);
                word &= word - 1;
            }
        }
        members
    }
}

/// The questions that clients have asked before a READ of the slots. `first` has the members of first questions, and
/// `again` has the members of second questions.
#[derive(Debug)]
pub struct Questions {
    first: Vec<u16>,
    again: Vec<u16>,
}

/// One compute node's record of the members of its pool. Its clients and all their locks share it.
///
/// A dead member passes through these states: a client asks about it (`asked`); a READ of the slots does not find it
/// (`absent`); a client asks again (`asked_again`); another READ of the slots does not find it, so the compute node
/// fences it; then it is `gone`. If a READ of the slots finds the member active, the member leaves all of these sets.
pub struct Roster {
    own: AtomicU16,
    /// The number of the membership in which each client enlisted last, by client id.
    enlisted: Box<[AtomicU16]>,
    /// A hash of `enlisted`.
    enlisted_hash: AtomicU64,
    /// Members about which a client has asked.
    asked: Members,
    /// Members that had no slot when the slots were read after a client had asked.
    absent: Members,
    /// Absent members about which a client has asked again.
    asked_again: Members,
    /// Members whose requests have no effect any more.
    gone: Members,
    /// Whether the locks of the pool can be shared.
    shares: AtomicBool,
    gate: Gate,
}

impl Default for Roster {
    fn default() -> Self {
        Self {
            own: AtomicU16::new(0),
            enlisted: (0..CLIENTS_MAX).map(|_| AtomicU16::new(0)).collect(),
            enlisted_hash: AtomicU64::new(0),
            asked: Members::default(),
            absent: Members::default(),
            asked_again: Members::default(),
            gone: Members::default(),
            shares: AtomicBool::new(false),
            gate: Gate::new(CLIENTS_MAX),
        }
    }
}

impl fmt::Debug for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roster")
            .field("own", &self.own)
            .field("gone", &self.gone.list())
            .finish_non_exhaustive()
    }
}

impl Roster {
    /// Returns the size of this roster in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.enlisted) + self.gate.heap_bytes()
    }

    /// Returns the number of this compute node's membership; 0 before it joins.
    #[inline]
    pub fn own(&self) -> u16 {
        count_section();
        // Relaxed: a client begins its operation after a section in which it saw that the compute node had joined.
        self.own.load(Ordering::Relaxed)
    }

    /// Returns the number of the membership to which `client`, a client of this compute node, belongs; 0 if it has
    /// never enlisted. Its compute node may belong to a later membership by now.
    #[inline]
    pub fn number_of(&self, client: u16) -> u16 {
        count_section();
        // Relaxed: only the client's own thread changes its number, between two operations.
        self.enlisted[usize::from(client % CLIENTS_MAX)].load(Ordering::Relaxed)
    }

    /// Records that `client` is fenced together with member `number` from now on.
    pub fn enlist(&self, client: u16, number: u16) {
        count_section();
        // Relaxed: as `number_of` says.
        let before = self.enlisted[usize::from(client % CLIENTS_MAX)].swap(number, Ordering::Relaxed);
        let change = fingerprint_of(&(client, before)) ^ fingerprint_of(&(client, number));
        // Relaxed: only checkers read it.
        self.enlisted_hash.fetch_xor(change, Ordering::Relaxed);
    }

    /// Records that this compute node is member `number` from now on. Drops everything that was recorded about other
    /// members before, because numbers are reused, and only a member that reads the slots regularly detects this.
    pub fn join(&self, number: u16) {
        count_section();
        for members in self.sets() {
            members.clear();
        }
        // Relaxed: as `own` says.
        self.own.store(number, Ordering::Relaxed);
    }

    /// Returns whether it is known that no request of `member` can take effect any more. This is never known of member
    /// 0.
    #[inline]
    pub fn is_gone(&self, member: u16) -> bool {
        member != 0 && {
            count_section();
            self.gone.has(member)
        }
    }

    /// Asks whether `member` is gone. The compute node answers when it next reads the slots. A question about member 0
    /// or about the own member is ignored.
    pub fn ask(&self, member: u16) {
        if member == 0 || member == self.own() {
            return;
        }
        let questions = match self.absent.has(member) {
            false => &self.asked,
            true => &self.asked_again,
        };
        if !questions.has(member) {
            questions.add(member);
        }
    }

    /// Returns the questions so far. Call this before you post the READ of the slots that answers them.
    pub fn questions(&self) -> Questions {
        count_section();
        Questions {
            first: self.asked.list(),
            again: self.asked_again.list(),
        }
    }

    /// Answers the questions with the result of a READ of the slots. `next` is the next number that will be drawn.
    /// `slots` has, for each slot that is not free, the member's number and whether the member is active. A member that
    /// is not active is marked as expelled, and is not gone yet. Returns the members that the caller must fence, and
    /// then pass to [`Roster::bury`]. A member whose number will be drawn soon does not count as gone any more.
    ///
    /// A member that left the pool by itself has no slot either, and some of its requests may still be in flight. So a
    /// member is fenced only if a client has asked again after a READ of the slots that did not find it.
    pub fn answer(
        &self,
        asked: &Questions,
        next: u16,
        slots: impl Iterator<Item = (u16, bool)> + Clone,
    ) -> Vec<u16> {
        count_section();
        let soon = |member: &u16| member.wrapping_sub(next) % MEMBERS_MAX < SOON;
        for member in self.gone.list().into_iter().filter(soon) {
            self.gone.remove(member);
        }
        for (member, _) in slots.clone().filter(|(_, active)| *active) {
            for members in self.sets() {
                members.remove(member);
            }
        }
        let absent = |member: &u16| !soon(member) && slots.clone().all(|(number, _)| number != *member);
        for &member in asked.first.iter().filter(|member| absent(member)) {
            self.asked.remove(member);
            self.absent.add(member);
        }
        asked.again.iter().copied().filter(absent).collect()
    }

    /// Records that `member` has been fenced at every memory node, and that its slot is marked or free.
    pub fn bury(&self, member: u16) {
        count_section();
        for members in [&self.asked, &self.absent, &self.asked_again] {
            members.remove(member);
        }
        self.gone.add(member);
    }

    /// Records that the locks of the pool can be shared.
    pub fn sharing(&self) {
        // Relaxed: the locks are made before the compute node joins.
        self.shares.store(true, Ordering::Relaxed);
    }

    /// Returns whether the locks of the pool can be shared.
    #[inline]
    pub fn shares(&self) -> bool {
        // Relaxed: as `sharing` says.
        self.shares.load(Ordering::Relaxed)
    }

    /// Returns the gate that the clients of this compute node pass before they share a lock.
    #[inline]
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Returns whether no client that is fenced with member `number` has a share in progress, or requests of a share
    /// that may still land. Clients that never enlisted count too.
    pub fn is_clear(&self, number: u16) -> bool {
        let belongs = |client| [0, number].contains(&self.number_of(client));
        (0..CLIENTS_MAX).all(|client| self.gate.is_clear(client) || !belongs(client))
    }

    fn sets(&self) -> [&Members; 4] {
        [&self.asked, &self.absent, &self.asked_again, &self.gone]
    }
}

impl Fingerprint for Roster {
    fn fingerprint(&self) -> u64 {
        // Relaxed: fingerprints are taken between steps, while no client runs.
        let own = self.own.load(Ordering::Relaxed);
        let enlisted = self.enlisted_hash.load(Ordering::Relaxed); // Relaxed: as above.
        let gate = self.gate.fingerprint();
        if (own, enlisted, gate) == (0, 0, 0) {
            return 0;
        }
        let lists = self.sets().map(Members::list);
        match (lists.iter().all(Vec::is_empty), gate) {
            (true, 0) => fingerprint_of(&(own, enlisted)),
            (true, _) => fingerprint_of(&(own, enlisted, gate)),
            (false, _) => fingerprint_of(&(own, enlisted, gate, lists)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(roster: &Roster, active: &[u16], marked: &[u16]) -> Vec<u16> {
        let active = active.iter().map(|&member| (member, true));
        let marked = marked.iter().map(|&member| (member, false));
        roster.answer(&roster.questions(), 100, active.chain(marked))
    }

    #[test]
    fn a_member_is_fenced_after_two_questions_and_the_looks_behind_them() {
        let roster = Roster::default();
        roster.ask(9);
        roster.ask(9);
        assert_eq!(look(&roster, &[], &[]), []);
        assert_eq!(look(&roster, &[], &[]), [], "nobody has asked again");
        roster.ask(9);
        assert!(!roster.is_gone(9));
        assert_eq!(look(&roster, &[1], &[]), [9]);
        assert_eq!(
            look(&roster, &[1], &[]),
            [9],
            "the caller may have failed to fence it"
        );
        roster.bury(9);
        assert!(roster.is_gone(9));
        assert_eq!(look(&roster, &[1], &[]), []);
    }

    #[test]
    fn a_look_does_not_answer_a_question_that_was_asked_after_it_was_posted() {
        let roster = Roster::default();
        let asked = roster.questions();
        roster.ask(9);
        assert_eq!(roster.answer(&asked, 100, [].into_iter()), []);
        roster.ask(9);
        assert_eq!(
            look(&roster, &[], &[]),
            [],
            "this is the first look behind a question"
        );
    }

    #[test]
    fn a_number_in_a_slot_is_a_living_member() {
        let roster = Roster::default();
        roster.ask(9);
        assert_eq!(look(&roster, &[], &[]), []);
        roster.ask(9);
        assert_eq!(look(&roster, &[9], &[]), []);
        roster.ask(9);
        assert_eq!(look(&roster, &[], &[]), [], "the questions begin again");
        roster.bury(9);
        assert_eq!(look(&roster, &[9], &[]), []);
        assert!(!roster.is_gone(9), "a new member has the number");
        roster.bury(9);
        roster.bury(8);
        roster.join(9);
        assert!(!roster.is_gone(9) && !roster.is_gone(8) && roster.own() == 9);
    }

    #[test]
    fn the_mark_of_an_expelled_member_answers_nothing() {
        let roster = Roster::default();
        roster.ask(9);
        assert_eq!(look(&roster, &[], &[9]), []);
        roster.ask(9);
        assert_eq!(look(&roster, &[], &[]), [], "the first answer");
        roster.ask(9);
        assert_eq!(look(&roster, &[], &[9]), []);
        assert_eq!(look(&roster, &[], &[]), [9]);
        roster.bury(9);
        assert_eq!(look(&roster, &[], &[9]), []);
        assert!(roster.is_gone(9), "this compute node expelled it");
    }

    #[test]
    fn questions_about_the_own_member_and_member_0_are_ignored() {
        let roster = Roster::default();
        roster.join(5);
        for _ in 0..3 {
            roster.ask(5);
            roster.ask(0);
            assert_eq!(look(&roster, &[], &[]), []);
        }
        roster.bury(0);
        assert!(!roster.is_gone(0));
        assert!(!roster.is_gone(MEMBERS_MAX - 1));
    }

    #[test]
    fn a_number_that_is_drawn_soon_is_of_nobody_who_is_gone() {
        let roster = Roster::default();
        roster.bury(9);
        assert_eq!(roster.answer(&roster.questions(), 10, [].into_iter()), []);
        assert!(roster.is_gone(9), "it was drawn last");
        assert_eq!(roster.answer(&roster.questions(), 9 + SOON, [].into_iter()), []);
        assert!(roster.is_gone(9));
        assert_eq!(
            roster.answer(&roster.questions(), 9 + SOON + 1, [].into_iter()),
            []
        );
        assert!(!roster.is_gone(9), "it will be drawn within 1023 joins");
        for _ in 0..3 {
            roster.ask(9);
            assert_eq!(roster.answer(&roster.questions(), 8, [].into_iter()), []);
        }
    }

    #[test]
    fn each_client_belongs_to_the_membership_in_which_it_enlisted() {
        let (roster, other) = (Roster::default(), Roster::default());
        assert_eq!(roster.number_of(4095), 0);
        roster.enlist(4095, 3);
        roster.enlist(7, 3);
        roster.enlist(7, 9);
        assert_eq!((roster.number_of(4095), roster.number_of(7)), (3, 9));
        assert_ne!(roster.fingerprint(), other.fingerprint());
        other.enlist(7, 9);
        other.enlist(4095, 3);
        assert_eq!(roster.fingerprint(), other.fingerprint());
    }

    #[test]
    fn equal_knowledge_has_equal_fingerprints() {
        let (a, b) = (Roster::default(), Roster::default());
        a.join(1);
        b.join(1);
        assert_eq!(a.fingerprint(), b.fingerprint());
        a.bury(70);
        assert_ne!(a.fingerprint(), b.fingerprint());
        b.bury(70);
        assert_eq!(a.fingerprint(), b.fingerprint());
        a.ask(3);
        assert_ne!(a.fingerprint(), b.fingerprint());
    }
}
