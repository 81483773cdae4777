//! Members: compute nodes that announce, in a slot each, since when their oldest operation runs.
//!
//! ```text
//!    0  epoch: grows with each collection of retired blocks · next member number        one line
//!   64  slot of a member: epoch 40 · beat 6 · number 16 · state 2, low bits last        one line each
//!      depots: the free blocks of each memory node                                       one word each
//! ```
//! All of it lies on memory node 0, as words that change by CAS and FAA alone. A member that does
//! not beat for its lease is fenced by those who look (`ReclaimOptions::looks`), and the slot is free then.

use dm_sync::{Fingerprint, fingerprint_of};
use dm_verbs::{LINE, Nanos, NodeId, RemotePtr};

/// Where a pool's members announce themselves.
///
/// No example: it is read from the [`Superblock`](crate::Superblock), for [`crate::Allocator::reclaiming`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemberArea {
    /// On memory node 0.
    pub at: RemotePtr,
    /// Members that there can be at once.
    pub slots: u16,
}

/// Bytes of the epoch's line and the slots.
fn slots_bytes(slots: u16) -> u64 {
    (1 + u64::from(slots)) * LINE as u64
}

pub(crate) fn area_bytes(slots: u16, memory_nodes: u16) -> u64 {
    slots_bytes(slots) + 8 * u64::from(memory_nodes)
}

impl MemberArea {
    pub(crate) fn epoch(&self) -> RemotePtr {
        self.at
    }
    pub(crate) fn next_number(&self) -> RemotePtr {
        self.at.add(8)
    }
    pub(crate) fn slot(&self, i: u16) -> RemotePtr {
        self.at.add((1 + u64::from(i)) * LINE as u64)
    }
    pub(crate) fn bytes(&self) -> u32 {
        // At most 2^16 lines.
        slots_bytes(self.slots) as u32
    }
    pub(crate) fn depot(&self, node: NodeId) -> RemotePtr {
        self.at.add(slots_bytes(self.slots) + 8 * u64::from(node.0))
    }
    /// The words of the slots in an image of the area; whatever the bytes are.
    pub(crate) fn words<'a>(&self, image: &'a [u8]) -> impl Iterator<Item = (u16, SlotWord)> + 'a {
        let lines = image.chunks_exact(LINE).skip(1).take(usize::from(self.slots));
        let words = lines.map(|line| SlotWord(u64::from_le_bytes(*line.first_chunk().unwrap_or(&[0; 8]))));
        (0..).zip(words)
    }
}

/// What a slot says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct SlotWord(pub(crate) u64);

const FREE: u64 = 0;
const ACTIVE: u64 = 1;
const EXPELLED: u64 = 2;
const STATE_MASK: u64 = 3;
const NUMBER_SHIFT: u32 = 2;
const BEAT_SHIFT: u32 = 18;
const BEAT_MASK: u64 = 63;
const EPOCH_SHIFT: u32 = 24;
const EPOCH_MASK: u64 = (1 << (64 - EPOCH_SHIFT)) - 1;

impl SlotWord {
    /// Of member `number`, whose oldest operation began in `epoch`.
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
    /// The next announcement: another word even if the epoch is the same.
    pub(crate) fn announcing(self, epoch: u64) -> Self {
        let beat = (self.0 >> BEAT_SHIFT).wrapping_add(1) & BEAT_MASK;
        Self(Self::active(self.number(), epoch).0 | beat << BEAT_SHIFT)
    }
    pub(crate) fn expelled(self) -> Self {
        Self(self.0 & !STATE_MASK | EXPELLED)
    }
    /// Whether it is an announcement of the very member that `mine` is one of.
    pub(crate) fn is_of(self, mine: Self) -> bool {
        self.0 & STATE_MASK == ACTIVE && self.number() == mine.number()
    }
}

/// What was seen of a slot: since when its word is what it is, by this compute node's clock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Seen {
    pub(crate) word: SlotWord,
    pub(crate) since: Nanos,
    /// How often: a member's words repeat, if rarely.
    pub(crate) looks: u32,
}

/// This compute node's membership.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Standing {
    /// None.
    #[default]
    Outside,
    /// A client of this compute node is about to join for all.
    Joining,
    /// A slot, and what it says as far as is known.
    Member { slot: u16, word: SlotWord },
}

/// What the clients of a compute node share of its membership.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    pub(crate) standing: Standing,
    /// Announcements that were given up before their CASes were known to have failed or not. One of them may have landed,
    /// or may yet.
    pub(crate) posted: Vec<SlotWord>,
    /// How long a member may be silent before it is fenced.
    pub(crate) lease: Nanos,
    /// When the last round began.
    pub(crate) last_round: Nanos,
    /// The world's control plane knows no groups.
    pub(crate) fences_nobody: bool,
    /// A round is under way.
    pub(crate) in_round: bool,
    /// The latest epoch that was read, and the latest at the last turn.
    pub(crate) latest: u64,
    pub(crate) turned: u64,
    /// By slot.
    pub(crate) seen: Vec<Option<Seen>>,
}

impl Membership {
    /// How it stands; who finds it outside is to join for all.
    pub(crate) fn stand(&mut self) -> Standing {
        let standing = self.standing;
        if standing == Standing::Outside {
            self.standing = Standing::Joining;
            // What was seen before is of another time.
            self.seen.clear();
        }
        standing
    }

    /// The slot says this for certain, and nothing that is under way changes it.
    pub(crate) fn settle(&mut self, slot: u16, word: SlotWord) {
        self.standing = Standing::Member { slot, word };
        self.posted.clear();
    }

    /// Whether this compute node is the member that `mine` is an announcement of.
    pub(crate) fn is(&self, mine: SlotWord) -> bool {
        matches!(self.standing, Standing::Member { word, .. } if word.number() == mine.number())
    }

    /// Notes what a slot says at `now`; what is known of it then. Looks are counted up to `most`.
    pub(crate) fn see(&mut self, slot: u16, word: SlotWord, now: Nanos, most: u32) -> Seen {
        let slot = usize::from(slot);
        if self.seen.len() <= slot {
            self.seen.resize(slot + 1, None);
        }
        let seen = match self.seen[slot] {
            Some(seen) if seen.word == word => Seen {
                looks: (seen.looks + 1).min(most),
                ..seen
            },
            _ => Seen {
                word,
                since: now,
                looks: 1,
            },
        };
        self.seen[slot] = Some(seen);
        seen
    }
}

impl Fingerprint for Membership {
    fn fingerprint(&self) -> u64 {
        // Times are observations, which an explorer folds in itself.
        let seen: Vec<_> = self.seen.iter().map(|s| s.map(|s| (s.word, s.looks))).collect();
        let epochs = (self.latest, self.turned);
        fingerprint_of(&(self.standing, &self.posted, self.in_round, epochs, seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_says_who_and_since_when() {
        let word = SlotWord::active(0xABCD, 0x12_3456_789A);
        assert_eq!((word.number(), word.epoch()), (0xABCD, 0x12_3456_789A));
        assert!(!word.is_free() && !word.is_expelled() && word.is_of(word));
        let next = word.announcing(word.epoch());
        assert_ne!(next, word, "a beat shows");
        assert!(next.is_of(word) && next.epoch() == word.epoch());
        let beats = (0..64).fold(word, |w, _| w.announcing(7));
        assert_eq!(
            (beats.number(), beats.epoch()),
            (0xABCD, 7),
            "beats stay in their place"
        );
        assert!(next.expelled().is_expelled() && !next.expelled().is_of(word));
        assert_eq!(next.expelled().number(), word.number());
        assert!(SlotWord(0).is_free());
    }
}
