//! Guesses of the slots in which hot entries are (CHIME §4.3). After a right guess, a client need not read all slots in
//! which the entry may be.
//!
//! ```text
//!            hash of leaf and key
//!      ┌────────────┴───────────┐
//!   set number                 tag 32
//!      │
//!      ▼      one line: 8 entries of 8 bytes
//!   ┌──────┬──────┬─ … ─┬──────┐      entry:  tag 32 · slot 16 · count 16
//!   └──────┴──────┴─────┴──────┘      count 0: nothing here
//! ```
//!
//! In the paper, an entry contains its leaf's address in 8 bytes, and a lookup checks 8 entries for the 8
//! slots of a neighbourhood. Here, a client looks up a hotspot when it has located the leaf and knows the
//! key. So leaf and key together select the set, and the rest of their hash is the fingerprint. An entry
//! therefore takes half the bytes, a guess reads one cache line, and there are no pointers.

use core::mem::size_of;

#[cfg(feature = "study")]
use crate::study::HotspotFlaws;
use dm_sync::atomic::{AtomicU64, Ordering};
use dm_sync::{Fingerprint, count_section, fingerprint_of};
use dm_verbs::RemotePtr;

/// Entries of a set: a line of 64 bytes.
const WAYS: usize = dm_sync::scaled(8, 2);
/// If an entry with this count is found again, all counts of its set are halved, so that an entry does not stay hot for
/// ever.
const COUNT_MAX: u64 = dm_sync::scaled(0xffff, 3) as u64;

/// One entry of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Hotspot {
    tag: u32,
    slot: u16,
    count: u64,
}

impl Hotspot {
    const fn of(word: u64) -> Self {
        Self {
            tag: (word >> 32) as u32,
            slot: (word >> 16) as u16,
            count: word & 0xffff,
        }
    }

    const fn word(self) -> u64 {
        (self.tag as u64) << 32 | (self.slot as u64) << 16 | self.count
    }
}

#[derive(Debug)]
#[repr(align(64))]
struct Set([AtomicU64; WAYS]);

impl Set {
    fn empty() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Returns for each entry its place in memory, the word that was read there, and the decoded word.
    #[inline]
    fn seen(&self) -> impl Iterator<Item = (&AtomicU64, u64, Hotspot)> {
        self.0.iter().map(|place| {
            // Relaxed: all the information is in this word, which publishes nothing else.
            let word = place.load(Ordering::Relaxed);
            (place, word, Hotspot::of(word))
        })
    }
}

/// A table of fixed size that guesses the slots of hot entries. The threads of a compute node share it. A new entry
/// replaces the least frequently used entry of its set.
///
/// # Invariants
/// * **I1** A guess is only a hint. A client must check it by reading the entry.
/// * **I2** [`Hotspots::bytes`] is the requested size, rounded down to whole sets, and never changes.
/// * **I3** An entry is one word, and is changed only by a compare-and-swap from the value that was read. If two
///   threads change it at the same time, one of the two swaps fails, so no thread restores an entry that another
///   removed.
#[derive(Debug)]
pub struct Hotspots {
    sets: Box<[Set]>,
    #[cfg(feature = "study")]
    pub(crate) flaws: HotspotFlaws,
}

impl Hotspots {
    /// Makes a table of at most `bytes` bytes, including this handle. Returns `None` if there is not enough
    /// room for one set.
    #[must_use]
    pub fn new(bytes: u64) -> Option<Self> {
        let room = bytes.checked_sub(size_of::<Self>() as u64)?;
        let sets = usize::try_from(room).ok()? / size_of::<Set>();
        (sets > 0).then(|| Self {
            sets: (0..sets).map(|_| Set::empty()).collect(),
            #[cfg(feature = "study")]
            flaws: HotspotFlaws::default(),
        })
    }

    /// Returns the bytes of the table and its handle.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (size_of_val(&*self.sets) + size_of::<Self>()) as u64
    }

    /// Returns the number of entries for which there is room.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.sets.len() * WAYS
    }

    /// Returns the number of gets of a skewed workload after which the table should hold the hottest entries. It is
    /// four times the table's capacity.
    pub fn gets_to_learn(&self) -> usize {
        self.capacity() * 4
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        let words = self.sets.iter().flat_map(Set::seen);
        words.filter(|(.., hot)| hot.count > 0).count()
    }

    /// Returns whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the entries of another compute node's table into the places that are empty here, because that table's
    /// guesses are useful here too. The two tables must have the same size.
    pub fn adopt(&self, other: &Self) {
        count_section();
        for (mine, theirs) in self.sets.iter().zip(&other.sets) {
            for ((place, seen, hot), (_, word, _)) in mine.seen().zip(theirs.seen()) {
                // A place that another thread fills meanwhile keeps that thread's entry.
                if hot.count == 0 {
                    self.change(place, seen, word);
                }
            }
        }
    }

    #[inline]
    fn find(&self, leaf: RemotePtr, key_hash: u64) -> (&Set, u32) {
        // A key's hash is uniform, but a leaf's address is not, because its low bits are zero and leaves are close
        // together. So the address is mixed first.
        let mixed =
            (leaf.raw().wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ key_hash).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let mixed = mixed ^ (mixed >> 32);
        let tag = mixed as u32;
        let spread = (mixed.wrapping_mul(0xBF58_476D_1CE4_E5B9)) >> 32;
        // A multiplication is faster than a remainder.
        let number = (spread * self.sets.len() as u64) >> 32;
        (&self.sets[number as usize], tag)
    }

    /// Returns the slot of `leaf` in which the key of this hash was found most often, if it is a hotspot.
    #[inline]
    #[must_use]
    pub fn guess(&self, leaf: RemotePtr, key_hash: u64) -> Option<u16> {
        count_section();
        let (set, tag) = self.find(leaf, key_hash);
        set.seen()
            .filter(|(.., hot)| hot.tag == tag && hot.count > 0)
            .max_by_key(|(.., hot)| hot.count)
            .map(|(.., hot)| hot.slot)
    }

    /// Records that the key of this hash was found in `slot` of `leaf`. This counts one more access, or adds
    /// a hotspot in place of the least frequently used one.
    pub fn found(&self, leaf: RemotePtr, key_hash: u64, slot: u16) {
        count_section();
        let (set, tag) = self.find(leaf, key_hash);
        // Each failed CAS means that another thread succeeded. After a few failures, this gives up and does
        // not count the access.
        for _ in 0..=WAYS {
            let same = set
                .seen()
                .find(|(.., hot)| (hot.tag, hot.slot) == (tag, slot) && hot.count > 0);
            let Some((place, word, hot)) = same.or_else(|| set.seen().min_by_key(|(.., hot)| hot.count))
            else {
                return;
            };
            if same.is_some() && hot.count >= COUNT_MAX {
                self.age(set);
                continue;
            }
            let count = if same.is_some() { hot.count + 1 } else { 1 };
            if self.change(place, word, Hotspot { tag, slot, count }.word()) {
                return;
            }
        }
    }

    /// Records that the key of this hash was not found in `slot` of `leaf`. Removes the entry that guesses this slot.
    pub fn wrong(&self, leaf: RemotePtr, key_hash: u64, slot: u16) {
        count_section();
        let (set, tag) = self.find(leaf, key_hash);
        for (place, mut word, mut hot) in set.seen() {
            while (hot.tag, hot.slot) == (tag, slot) && !self.change(place, word, 0) {
                let count = hot.count;
                // Relaxed: as for loads.
                word = place.load(Ordering::Relaxed);
                hot = Hotspot::of(word);
                // If the count has not shrunk, another client has found the key in this slot again, so the entry stays.
                // If the count is smaller, it was only halved, and this tries again to remove the entry.
                if hot.count >= count {
                    break;
                }
            }
        }
    }

    fn age(&self, set: &Set) {
        for (place, word, hot) in set.seen() {
            // If another thread has changed an entry meanwhile, this leaves the entry as it is.
            let count = hot.count / 2;
            let word_after = if count == 0 {
                0
            } else {
                Hotspot { count, ..hot }.word()
            };
            self.change(place, word, word_after);
        }
    }

    #[inline]
    fn change(&self, place: &AtomicU64, seen: u64, after: u64) -> bool {
        if self.flaws().blind_stores {
            // Relaxed: the flaw is that nothing is compared.
            place.store(after, Ordering::Relaxed);
            return true;
        }
        // Relaxed: as for loads.
        place
            .compare_exchange(seen, after, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

/// The fingerprint covers all entries and their places, because guesses and replacements depend on them.
impl Fingerprint for Hotspots {
    fn fingerprint(&self) -> u64 {
        let words: Vec<u64> = self
            .sets
            .iter()
            .flat_map(Set::seen)
            .map(|(_, word, _)| word)
            .collect();
        fingerprint_of(&words)
    }
}

#[cfg(all(test, not(dm_loom)))]
mod tests {
    use super::*;
    use dm_verbs::NodeId;

    fn leaf(n: u64) -> RemotePtr {
        RemotePtr::new(NodeId(0), n * 1472).expect("a small offset")
    }

    /// Hashes a number as keys are hashed.
    fn hash(n: u64) -> u64 {
        fingerprint_of(&n)
    }

    #[test]
    fn bytes_are_those_asked_for() {
        let set = size_of::<Set>() as u64;
        let handle = size_of::<Hotspots>() as u64;
        assert!(Hotspots::new(0).is_none());
        assert!(Hotspots::new(handle + set - 1).is_none());
        for bytes in [handle + set, 10_000, 1 << 20] {
            let hot = Hotspots::new(bytes).expect("room");
            assert!(hot.bytes() <= bytes && hot.bytes() + set > bytes);
            assert_eq!(hot.bytes(), handle + hot.capacity() as u64 * 8);
            for n in 0..5_000 {
                hot.found(leaf(n % 40), hash(n), (n % 64) as u16);
            }
            assert!(hot.len() <= hot.capacity());
        }
    }

    #[test]
    fn a_slot_is_guessed_until_it_is_reported_wrong() {
        let hot = Hotspots::new(1 << 16).expect("room");
        assert_eq!(hot.guess(leaf(1), hash(1)), None);
        hot.found(leaf(1), hash(1), 0);
        assert_eq!(hot.guess(leaf(1), hash(1)), Some(0));
        assert_eq!(hot.guess(leaf(2), hash(1)), None);
        assert_eq!(hot.guess(leaf(1), hash(2)), None);
        // The key has moved to another slot. The guess stays the slot in which the key was found more often, until this
        // slot is reported wrong.
        hot.found(leaf(1), hash(1), 0);
        hot.found(leaf(1), hash(1), 5);
        assert_eq!(hot.guess(leaf(1), hash(1)), Some(0));
        hot.wrong(leaf(1), hash(1), 0);
        assert_eq!(hot.guess(leaf(1), hash(1)), Some(5));
    }

    /// A set gets more keys than it has room for. The most frequently used keys stay.
    #[test]
    fn the_least_frequent_gives_way() {
        let bytes = size_of::<Set>() + size_of::<Hotspots>();
        let hot = Hotspots::new(bytes as u64).expect("one set");
        let often = WAYS as u64 - 1;
        for round in 0..2 * COUNT_MAX {
            for key in 0..often {
                hot.found(leaf(1), hash(key), key as u16);
            }
            // Each round finds another key.
            hot.found(leaf(1), hash(1_000 + round), 9);
        }
        for key in 0..often {
            assert_eq!(hot.guess(leaf(1), hash(key)), Some(key as u16));
        }
        assert!(hot.len() <= WAYS);
    }
}
