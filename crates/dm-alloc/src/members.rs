//! Members: the compute nodes of a pool. Each announces the epoch of its oldest running operation in a slot.
//!
//! ```text
//!    0  epoch: grows with each collection of retired blocks · next member number · gate ·
//!       census · lists of the census                                                      one line
//!   64  slot of a member: epoch 46 · number 16 · state 2, low bits last · beat 64 ·
//!       answered: the last round of the gate that the member has answered ·
//!       told: the last phase of a census that the member has answered                     one line each
//!      depot · chunks, for each memory node: its free blocks, and its last recorded chunk         one word each
//! ```
//! The area is on memory node 0. Most of its words change by CAS and FAA. Members WRITE only their answers, and a
//! census WRITEs the pointer to its lists. If neither the word nor the beat of a member's slot changes for a lease,
//! another member fences that member (`ReclaimOptions::looks`) and frees its slot. A member's epoch and beat only grow,
//! and no pool lives long enough for them to wrap. So if two READs return the same word and beat of a slot, the slot
//! has not changed in between. (This requires that fewer than 2047 members have joined between the two READs, because
//! member numbers wrap.)

use dm_sync::roster::MEMBERS_MAX;
use dm_sync::{Fingerprint, fingerprint_of};
use dm_verbs::{LINE, Nanos, NodeId, RemotePtr};

use crate::lists::ListPtr;

/// The area of a pool in which its members announce themselves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemberArea {
    /// Address of the area, on memory node 0.
    pub at: RemotePtr,
    /// Maximum number of members at one time.
    pub slots: u16,
}

/// Returns the size in bytes of the first line and the slots.
fn slots_bytes(slots: u16) -> u64 {
    (1 + u64::from(slots)) * LINE as u64
}

pub(crate) fn area_bytes(slots: u16, memory_nodes: u16) -> u64 {
    slots_bytes(slots) + 16 * u64::from(memory_nodes)
}

/// Returns the word at offset `at` of an image, or 0 if the image ends before.
fn word_at(image: &[u8], at: usize) -> u64 {
    let word = image.get(at..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u64::from_le_bytes(*word))
}

impl MemberArea {
    pub(crate) fn epoch(&self) -> RemotePtr {
        self.at
    }
    pub(crate) fn next_number(&self) -> RemotePtr {
        self.at.add(8)
    }
    /// Returns the number of the next member in an image of the area. This accepts any bytes.
    pub(crate) fn next_of(&self, image: &[u8]) -> u16 {
        (word_at(image, 8) % u64::from(MEMBERS_MAX)) as u16
    }
    pub(crate) fn gate(&self) -> RemotePtr {
        self.at.add(16)
    }
    /// Returns the gate's word in an image of the area, or of its first line. This accepts any bytes.
    pub(crate) fn gate_of(&self, image: &[u8]) -> GateWord {
        GateWord(word_at(image, 16))
    }
    pub(crate) fn census(&self) -> RemotePtr {
        self.at.add(24)
    }
    /// Returns the word of the census in an image of the area, or of its first line. This accepts any bytes.
    pub(crate) fn census_of(&self, image: &[u8]) -> CensusWord {
        CensusWord(word_at(image, 24))
    }
    /// Returns the address of the word that leads to the lists of the census.
    pub(crate) fn lists(&self) -> RemotePtr {
        self.at.add(32)
    }
    /// Returns the address of the word in which the member of slot `i` answers the census.
    pub(crate) fn told(&self, i: u16) -> RemotePtr {
        self.slot(i).add(24)
    }
    /// Returns the phase of the census that slot `i` has answered, in an image of the area. This accepts any bytes.
    pub(crate) fn told_of(&self, image: &[u8], i: u16) -> u64 {
        word_at(image, (1 + usize::from(i)) * LINE + 24)
    }
    /// Returns the address of the word in which the member of slot `i` answers a round of the gate.
    pub(crate) fn answered(&self, i: u16) -> RemotePtr {
        self.slot(i).add(16)
    }
    /// Returns the round of the gate that slot `i` has answered, in an image of the area. This accepts any bytes.
    pub(crate) fn answered_of(&self, image: &[u8], i: u16) -> u64 {
        word_at(image, (1 + usize::from(i)) * LINE + 16)
    }
    pub(crate) fn slot(&self, i: u16) -> RemotePtr {
        self.at.add((1 + u64::from(i)) * LINE as u64)
    }
    /// Returns the address of the beat of slot `i`. The beat grows with every announcement that does not change the
    /// slot's word, whichever member has the slot.
    pub(crate) fn beat(&self, i: u16) -> RemotePtr {
        self.slot(i).add(8)
    }
    pub(crate) fn bytes(&self) -> u32 {
        // The cast loses nothing: there are at most 2^16 lines.
        slots_bytes(self.slots) as u32
    }
    pub(crate) fn depot(&self, node: NodeId) -> RemotePtr {
        self.at.add(slots_bytes(self.slots) + 16 * u64::from(node.0))
    }
    /// Returns the address of the word that holds the head of the list of a memory node's chunks.
    pub(crate) fn chunks(&self, node: NodeId) -> RemotePtr {
        self.depot(node).add(8)
    }
    /// Returns the slots in an image of the area. This accepts any bytes.
    pub(crate) fn looks<'a>(&self, image: &'a [u8]) -> impl Iterator<Item = (u16, Look)> + 'a {
        let lines = image.chunks_exact(LINE).skip(1).take(usize::from(self.slots));
        let word = |line: &[u8], at| u64::from_le_bytes(*line[at..].first_chunk().unwrap_or(&[0; 8]));
        let looks = lines.map(move |line| Look {
            word: SlotWord(word(line, 0)),
            beat: word(line, 8),
        });
        (0..).zip(looks)
    }
}

/// The two words of a slot, as one READ returned them. They may be from different moments of the READ. This
/// is harmless, because a changed word never returns to its old value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Look {
    pub(crate) word: SlotWord,
    pub(crate) beat: u64,
}

/// The word of the gate. It contains the number of its round in the upper 48 bits. The lower 16 bits are the number of
/// the member that resets the counts of sharers, or 0 if the gate is open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct GateWord(pub(crate) u64);

const ROUND_SHIFT: u32 = 16;

impl GateWord {
    pub(crate) fn round(self) -> u64 {
        self.0 >> ROUND_SHIFT
    }
    /// Returns the member that resets the counts; 0 if the gate is open.
    pub(crate) fn owner(self) -> u16 {
        self.0 as u16
    }
    pub(crate) fn is_open(self) -> bool {
        self.owner() == 0
    }
    /// Returns the word of the next round, in which `member` resets the counts.
    pub(crate) fn shut_by(self, member: u16) -> Self {
        Self((self.round() + 1) << ROUND_SHIFT | u64::from(member))
    }
    /// Returns the word of the same round after `member` has taken it over.
    pub(crate) fn taken_by(self, member: u16) -> Self {
        Self(self.round() << ROUND_SHIFT | u64::from(member))
    }
    pub(crate) fn opened(self) -> Self {
        self.taken_by(0)
    }
    /// Returns a number that is larger for a later word of the gate. A takeover does not change the number.
    pub(crate) fn order(self) -> u64 {
        2 * self.round() + u64::from(self.is_open())
    }
}

/// The word of the census: its round, its phase, and the member that takes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct CensusWord(pub(crate) u64);

/// The phase of a census.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// No census is taken.
    Closed,
    /// Members record the blocks that leave their free memory.
    Recording,
    /// Members mark the listed blocks that they hold or have recorded.
    Asking,
}

impl CensusWord {
    const RECORDING: u64 = 1;
    const ASKING: u64 = 2;
    const ROUND_SHIFT: u32 = 18;

    pub(crate) fn round(self) -> u64 {
        self.0 >> Self::ROUND_SHIFT
    }
    pub(crate) fn phase(self) -> Phase {
        match self.0 >> ROUND_SHIFT & 3 {
            Self::RECORDING => Phase::Recording,
            Self::ASKING => Phase::Asking,
            _ => Phase::Closed,
        }
    }
    /// Returns whether `member` takes this census.
    pub(crate) fn is_by(self, member: u16) -> bool {
        !self.is_closed() && self.0 as u16 == member
    }
    pub(crate) fn is_closed(self) -> bool {
        self.phase() == Phase::Closed
    }
    fn with(round: u64, phase: u64, member: u16) -> Self {
        Self(round << Self::ROUND_SHIFT | phase << ROUND_SHIFT | u64::from(member))
    }
    /// Returns the word of the next round, in which `member` takes a census.
    pub(crate) fn opened_by(self, member: u16) -> Self {
        Self::with(self.round() + 1, Self::RECORDING, member)
    }
    /// Returns the word of the same census while members mark the blocks that they hold.
    pub(crate) fn asking(self) -> Self {
        Self::with(self.round(), Self::ASKING, self.0 as u16)
    }
    /// Returns the word of the same census while members record.
    pub(crate) fn recording(self) -> Self {
        Self::with(self.round(), Self::RECORDING, self.0 as u16)
    }
    pub(crate) fn closed(self) -> Self {
        Self::with(self.round(), 0, 0)
    }
    /// Returns a number that is larger for a later word of the census. A member writes this number to its slot to
    /// answer the word.
    pub(crate) fn order(self) -> u64 {
        let phase = match self.phase() {
            Phase::Recording => 0,
            Phase::Asking => 1,
            Phase::Closed => 2,
        };
        4 * self.round() + phase
    }
}

/// The word of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct SlotWord(pub(crate) u64);

const FREE: u64 = 0;
const ACTIVE: u64 = 1;
const EXPELLED: u64 = 2;
const STATE_MASK: u64 = 3;
const NUMBER_SHIFT: u32 = 2;
const EPOCH_SHIFT: u32 = 18;
const EPOCH_MASK: u64 = (1 << (64 - EPOCH_SHIFT)) - 1;

impl SlotWord {
    /// Returns the word of member `number`, whose oldest operation began in `epoch`.
    pub(crate) fn active(number: u16, epoch: u64) -> Self {
        Self((epoch & EPOCH_MASK) << EPOCH_SHIFT | u64::from(number) << NUMBER_SHIFT | ACTIVE)
    }
    pub(crate) fn is_free(self) -> bool {
        self.0 & STATE_MASK == FREE
    }
    pub(crate) fn is_expelled(self) -> bool {
        self.0 & STATE_MASK == EXPELLED
    }
    pub(crate) fn number(self) -> u16 {
        (self.0 >> NUMBER_SHIFT) as u16
    }
    pub(crate) fn epoch(self) -> u64 {
        self.0 >> EPOCH_SHIFT
    }
    /// Returns the announcement of the same member when its oldest operation began in `epoch`. The announced epoch
    /// never decreases.
    pub(crate) fn announcing(self, epoch: u64) -> Self {
        Self::active(self.number(), epoch.max(self.epoch()))
    }
    pub(crate) fn expelled(self) -> Self {
        Self(self.0 & !STATE_MASK | EXPELLED)
    }
    /// Returns whether this is an announcement of the same member as `mine`.
    pub(crate) fn is_of(self, mine: Self) -> bool {
        self.0 & STATE_MASK == ACTIVE && self.number() == mine.number()
    }
}

/// A slot, as the last look found it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Seen {
    pub(crate) look: Look,
    /// Number of consecutive counted looks since `look` that found the slot unchanged. Each was posted at least a part
    /// of a lease after the answer to the previous one.
    pub(crate) again: u32,
}

/// The state of this compute node's membership.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Standing {
    /// Not a member.
    #[default]
    Outside,
    /// A client of this compute node is joining on behalf of all its clients.
    Joining,
    /// A member with a slot and the slot's last known word.
    Member { slot: u16, word: SlotWord },
}

/// The part of a compute node's membership that its clients share.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    pub(crate) standing: Standing,
    /// Announcements that were posted, and whose results are not known. Any of them may have landed or may still land.
    pub(crate) posted: Vec<SlotWord>,
    /// The time for which a member may be silent before it is fenced.
    pub(crate) lease: Nanos,
    /// Time at which the last announcement was posted.
    pub(crate) last_round: Nanos,
    /// Set if the world's control plane has no groups, so that it cannot fence a member.
    pub(crate) fences_nobody: bool,
    /// Whether a client is doing a whole round.
    pub(crate) in_round: bool,
    /// Number of clients that are announcing this compute node now.
    pub(crate) announcing: u32,
    /// Time at which the last counted look ended.
    pub(crate) looked: Nanos,
    /// Number of counted looks. It identifies the last counted look. A time could not, because the clock might not
    /// advance between two looks.
    pub(crate) counted: u64,
    /// The latest epoch that was read.
    pub(crate) latest: u64,
    pub(crate) turned: u64,
    /// The slots as the last looks found them, by slot number.
    pub(crate) seen: Vec<Option<Seen>>,
    /// Whether the last counted look found a member that may soon be expelled.
    pub(crate) suspects: bool,
    /// The latest word of the gate that was read.
    pub(crate) gate: GateWord,
    /// The gate's word of the last look, if the member that it names has no slot.
    pub(crate) orphan: Option<GateWord>,
    /// The latest word of the census that was read.
    pub(crate) census: CensusWord,
    /// Whether a client is answering a census on behalf of this compute node.
    pub(crate) telling: bool,
    /// Whether a client of this compute node takes a census.
    pub(crate) taking: bool,
    /// The next list of a census in which blocks are to be marked, and its number, if some lists are done.
    pub(crate) marked: Option<(CensusWord, ListPtr, u64)>,
}

impl Membership {
    /// Returns the state of the membership. If it is [`Standing::Outside`], sets it to [`Standing::Joining`], so that
    /// only one caller gets `Outside`. That caller must join on behalf of all clients.
    pub(crate) fn stand(&mut self) -> Standing {
        let standing = self.standing;
        if standing == Standing::Outside {
            self.standing = Standing::Joining;
            // The stored looks belong to an earlier membership.
            self.seen.clear();
            self.orphan = None;
        }
        standing
    }

    /// Records a word that the slot is known to have had. The slot's epochs only grow, so no pending announcement of
    /// this or an earlier epoch can change the slot any more.
    pub(crate) fn settle(&mut self, slot: u16, word: SlotWord) {
        if matches!(self.standing, Standing::Member { word: known, .. } if known.epoch() > word.epoch()) {
            // Another client has already seen a later epoch.
            return;
        }
        self.standing = Standing::Member { slot, word };
        self.posted
            .retain(|posted| posted.is_of(word) && posted.epoch() > word.epoch());
    }

    /// Returns the number of this compute node's membership, or `None` if it is not a member.
    pub(crate) fn number(&self) -> Option<u16> {
        match self.standing {
            Standing::Member { word, .. } => Some(word.number()),
            Standing::Outside | Standing::Joining => None,
        }
    }

    /// Returns whether this compute node is the member that announced `mine`.
    pub(crate) fn is(&self, mine: SlotWord) -> bool {
        self.number() == Some(mine.number())
    }

    /// Records a counted look at a slot. Returns the number of consecutive counted looks directly before it that found
    /// the same content, at most `most`.
    pub(crate) fn see(&mut self, slot: u16, look: Look, most: u32) -> u32 {
        let slot = usize::from(slot);
        if self.seen.len() <= slot {
            self.seen.resize(slot + 1, None);
        }
        let again = match self.seen[slot] {
            Some(seen) if seen.look == look => (seen.again + 1).min(most),
            _ => 0,
        };
        self.seen[slot] = Some(Seen { look, again });
        again
    }
}

impl Fingerprint for Membership {
    fn fingerprint(&self) -> u64 {
        // The fingerprint omits times, because the explorer itself adds the times that a client has observed.
        // `suspects` decides only when a round is due, so it is omitted too.
        let rounds = (self.in_round, self.announcing, self.counted);
        let epochs = (self.latest, self.turned);
        let gate = (self.gate, self.orphan);
        let census = (self.census, self.telling, self.taking, self.marked);
        fingerprint_of(&(
            self.standing,
            &self.posted,
            rounds,
            epochs,
            &self.seen,
            gate,
            census,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_area_is_as_pictured() {
        let at = |offset| RemotePtr::new(NodeId(0), offset).expect("a small offset");
        let area = MemberArea {
            at: at(0x3000),
            slots: 5,
        };
        assert_eq!((area.epoch(), area.next_number()), (at(0x3000), at(0x3008)));
        assert_eq!((area.slot(0), area.slot(4)), (at(0x3040), at(0x3140)));
        assert_eq!(area.beat(4), at(0x3148));
        assert_eq!(
            (area.census(), area.lists(), area.told(4)),
            (at(0x3018), at(0x3020), at(0x3158))
        );
        assert_eq!(area.bytes(), 0x180);
        assert_eq!(
            (area.depot(NodeId(0)), area.depot(NodeId(3))),
            (at(0x3180), at(0x31B0))
        );
        assert_eq!(area.chunks(NodeId(3)), at(0x31B8));
        assert_eq!(area_bytes(5, 4), 0x1C0, "with the last list of chunks");

        let mut image = [0; 0x180];
        image[0x140..0x148].copy_from_slice(&SlotWord::active(3, 9).0.to_le_bytes());
        image[0x148] = 77;
        let looks: Vec<_> = area.looks(&image).collect();
        let (word, beat) = (SlotWord::active(3, 9), 77);
        assert_eq!((looks.len(), looks[4]), (5, (4, Look { word, beat })));
        image[24] = 5;
        image[0x158] = 9;
        assert_eq!(
            (area.census_of(&image), area.told_of(&image, 4)),
            (CensusWord(5), 9)
        );
        assert_eq!(area.told_of(&image, 5), 0, "there is no such slot");
        image[8..16].copy_from_slice(&(3 * u64::from(MEMBERS_MAX) + 7).to_le_bytes());
        assert_eq!((area.next_of(&image), area.next_of(&[])), (7, 0));
        assert!(
            looks[..4]
                .iter()
                .all(|(_, look)| look.word.is_free() && look.beat == 0)
        );
    }

    #[test]
    fn the_words_of_a_census_come_in_order() {
        let closed = CensusWord::default();
        let recording = closed.opened_by(2047);
        let asking = recording.asking();
        assert_eq!(asking.recording(), recording);
        let words = [
            closed,
            recording,
            asking,
            asking.closed(),
            asking.closed().opened_by(3),
        ];
        assert!(words.is_sorted_by(|a, b| a.order() < b.order()));
        assert_eq!(recording.closed(), asking.closed());
        let phases = [closed, recording, asking].map(CensusWord::phase);
        assert_eq!(phases, [Phase::Closed, Phase::Recording, Phase::Asking]);
        assert_eq!(words.map(CensusWord::round), [0, 1, 1, 1, 2]);
        assert_eq!(CensusWord(3 << 16).phase(), Phase::Closed, "any word is a word");
    }

    #[test]
    fn a_slot_says_who_and_since_when() {
        assert_eq!(SlotWord::active(3, 9).0, 9 << 18 | 3 << 2 | 1);
        let word = SlotWord::active(0xABCD, 0x2345_6789_ABCD);
        assert_eq!((word.number(), word.epoch()), (0xABCD, 0x2345_6789_ABCD));
        assert!(!word.is_free() && !word.is_expelled() && word.is_of(word));
        let next = word.announcing(word.epoch() + 1);
        assert!(next.is_of(word) && next.epoch() == word.epoch() + 1);
        assert_eq!(next.announcing(7), next, "epochs never go back");
        assert!(next.expelled().is_expelled() && !next.expelled().is_of(word));
        assert_eq!(next.expelled().number(), word.number());
        assert!(SlotWord(0).is_free());
    }

    #[test]
    fn what_is_settled_leaves_posted_only_what_may_still_land() {
        let mut m = Membership::default();
        let [five, six, seven, eight] = [5, 6, 7, 8].map(|epoch| SlotWord::active(1, epoch));
        m.settle(0, five);
        m.posted = vec![seven, six, eight, SlotWord::active(9, 9)];
        m.settle(0, seven);
        assert_eq!(
            m.posted,
            [eight],
            "two can't land any more, and one is another member's"
        );
        // A client reports an older word late.
        m.settle(0, six);
        assert_eq!(m.standing, Standing::Member { slot: 0, word: seven });
        assert_eq!(m.posted, [eight]);
    }

    #[test]
    fn looks_that_find_the_same_are_counted_and_any_change_begins_anew() {
        let mut m = Membership::default();
        let mut look = Look {
            word: SlotWord::active(1, 5),
            beat: 0,
        };
        assert_eq!([0; 4].map(|_| m.see(3, look, 2)), [0, 1, 2, 2]);
        look.beat += 1;
        assert_eq!([0; 2].map(|_| m.see(3, look, 2)), [0, 1]);
        look.word = look.word.expelled();
        assert_eq!(m.see(3, look, 2), 0);
    }
}
