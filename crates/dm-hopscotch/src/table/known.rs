//! A compute node's copy of the directory.

use core::ops::Range;

use dm_index::{KeyBytes, Run};
use dm_verbs::{LINE, RemotePtr};

use super::scatter::{first_of, lead_of};

/// The bits of an address that are always zero because of the alignment of leaves.
const FREE: u64 = LINE as u64 - 1;
/// Maximum depth of a directory. It then has 2 GiB, the largest size of a block.
pub(super) const DEPTH_LIMIT: u8 = 28;
/// The bit that marks a slot which has led to a wrong leaf. A client reads the slot again before it uses it.
const SUSPECT: u64 = 1;
/// The lowest bit of a slot's remaining patience (see `PATIENCE`).
const PATIENCE_AT: u32 = 1;
/// Initial patience of a slot in whose range a leaf ends. Such a slot is right, although its last keys belong to a leaf
/// further right. Each operation that has to go further right lowers the patience by 1. If the patience is 0 already,
/// the operation marks the slot, so that a client reads it again.
const PATIENCE: u64 = 31;
/// The number of slots around a leaf that [`Known::is_dense`] counts. A sample is enough, because hashes have the same
/// density everywhere.
const SAMPLE: u64 = 1024;

/// The root word in unpacked form: the directory's address, and the number of key bits that select a slot.
///
/// ```text
///  63      node      48 47            offset / 64             6 5 depth 0
/// ┌────────────────────┬───────────────────────────────────────┬─────────┐   0: no leaf yet
/// └────────────────────┴───────────────────────────────────────┴─────────┘   depth 0: the first leaf itself
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(super) struct Root {
    pub(super) at: RemotePtr,
    pub(super) depth: u8,
}

impl Root {
    pub(super) fn pack(self) -> u64 {
        assert!(
            self.at.raw() & FREE == 0,
            "a directory or leaf must be 64-byte aligned, not at {}",
            self.at
        );
        self.at.raw() | u64::from(self.depth)
    }

    pub(super) fn unpack(word: u64) -> Option<Self> {
        let at = RemotePtr::from_raw(word & !FREE);
        (!at.is_null()).then_some(Self {
            at,
            depth: (word & FREE) as u8,
        })
    }

    /// Returns the number of slots.
    pub(super) const fn len(self) -> u64 {
        1 << self.depth
    }

    /// Returns the address of a slot.
    pub(super) fn slot(self, number: u64) -> RemotePtr {
        self.at.add(number * 8)
    }

    /// Returns the number of the slot for keys with these first bits.
    #[inline]
    pub(super) const fn number(self, lead: u64) -> u64 {
        match self.depth {
            0 => 0,
            depth => lead >> (64 - depth),
        }
    }

    /// Returns the smallest key of a slot.
    pub(super) fn first_key<K: KeyBytes>(self, number: u64) -> K {
        match self.depth {
            0 => K::MIN,
            depth => first_of(number << (64 - depth)),
        }
    }

    /// Returns the slots whose first keys are in `low..high`.
    pub(super) fn slots<K: KeyBytes>(self, low: &K, high: Option<&K>) -> Range<u64> {
        let up = |key: &K| {
            let number = self.number(lead_of(key));
            number + u64::from(self.first_key::<K>(number) < *key)
        };
        up(low)..high.map_or(self.len(), up)
    }
}

/// Returns the leaf's address in a slot's word, or `None` if the word is not a valid address.
pub(super) fn leaf_in(word: u64) -> Option<RemotePtr> {
    let at = RemotePtr::from_raw(word);
    (word & FREE == 0 && !at.is_null()).then_some(at)
}

/// A compute node's copy of the directory.
#[derive(Debug, Default, Hash)]
pub(super) struct Known {
    root: Option<Root>,
    /// The leaves' addresses. Their free bits hold [`SUSPECT`] and the remaining patience.
    slots: Vec<u64>,
    /// Whether a client of the compute node is making a deeper directory.
    pub(super) growing: bool,
}

impl Known {
    pub(super) fn root(&self) -> Option<Root> {
        self.root
    }

    /// Returns the leaf for keys with these first bits. Returns `None` if there is no copy, or if a client must read
    /// the slot first.
    #[inline]
    pub(super) fn leaf(&self, lead: u64) -> Option<RemotePtr> {
        let word = self.word(lead)?;
        (word & SUSPECT == 0).then(|| RemotePtr::from_raw(word & !FREE))
    }

    /// Returns the leaf as [`Known::leaf`] does, but also if the slot should be read first.
    pub(super) fn guess(&self, lead: u64) -> Option<RemotePtr> {
        Some(RemotePtr::from_raw(self.word(lead)? & !FREE))
    }

    #[inline]
    fn word(&self, lead: u64) -> Option<u64> {
        self.slots.get(self.root?.number(lead) as usize).copied()
    }

    /// Replaces the copy by a directory that was just read, if that directory is deeper.
    pub(super) fn adopt(&mut self, root: Root, slots: Vec<u64>) {
        if self.root.is_none_or(|known| known.depth < root.depth) {
            (self.root, self.slots) = (Some(root), slots);
        }
    }

    /// Records that the slot of these first bits led to the leaf at `at`, and that the key's leaf lies further to the
    /// right.
    pub(super) fn doubt(&mut self, lead: u64, at: RemotePtr) {
        let Some(root) = self.root else { return };
        let Some(word) = self.slots.get_mut(root.number(lead) as usize) else {
            return;
        };
        if *word & !FREE == at.raw() && *word & SUSPECT == 0 {
            match *word >> PATIENCE_AT & (FREE >> PATIENCE_AT) {
                0 => *word |= SUSPECT,
                _ => *word -= 1 << PATIENCE_AT,
            }
        }
    }

    /// Sets a slot to a leaf that a look-up found or a split made. Does nothing if the copy is of another directory.
    pub(super) fn correct(&mut self, root: Root, number: u64, leaf: RemotePtr) {
        self.set(root, number, leaf.raw());
    }

    /// Sets a slot to a leaf that holds the first keys of the slot's range, but may not hold the last ones. `PATIENCE`
    /// operations may find that their key is in a leaf further right. After one more, [`Known::leaf`] returns `None`.
    pub(super) fn accept(&mut self, root: Root, number: u64, leaf: RemotePtr) {
        self.set(root, number, leaf.raw() | PATIENCE << PATIENCE_AT);
    }

    fn set(&mut self, root: Root, number: u64, word: u64) {
        if self.root == Some(root)
            && let Some(slot) = self.slots.get_mut(number as usize)
        {
            *slot = word;
        }
    }

    /// Appends the leaf for these first bits and the leaves behind it to `run`, until it has `max` leaves. Appends
    /// nothing if the slot should be read first.
    pub(super) fn run<K: KeyBytes>(&self, lead: u64, max: usize, run: &mut Run<K>) {
        let Some(root) = self.root.filter(|_| self.leaf(lead).is_some()) else {
            return;
        };
        for word in self.slots.iter().skip(root.number(lead) as usize) {
            let leaf = RemotePtr::from_raw(*word & !FREE);
            if run.leaves().last() == Some(&leaf) {
                continue;
            }
            // The directory does not know the fence keys of leaves.
            if run.leaves().len() == max || !run.push_alone(leaf) {
                return;
            }
        }
    }

    /// Returns whether the `SAMPLE` slots around the slot of these first bits have at most two slots per leaf. If so,
    /// the directory may double.
    pub(super) fn is_dense(&self, lead: u64) -> bool {
        let Some(root) = self.root else { return false };
        let from = root.number(lead) / SAMPLE * SAMPLE;
        let around = self.slots.iter().skip(from as usize).take(SAMPLE as usize);
        let (mut last, mut leaves, mut slots) = (0, 0, 0);
        for word in around.map(|word| word & !FREE) {
            leaves += usize::from(word != last);
            slots += 1;
            last = word;
        }
        leaves * 2 >= slots
    }

    /// Returns the number of bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dm_index::Key8;
    use dm_verbs::NodeId;

    fn leaf(number: u64) -> RemotePtr {
        RemotePtr::new(NodeId(1), number * 64).expect("in range")
    }

    fn root(depth: u8) -> Root {
        Root { at: leaf(9), depth }
    }

    #[test]
    fn the_word_is_the_address_and_the_depth_in_its_free_bits() {
        assert_eq!(Root::unpack(root(5).pack()), Some(root(5)));
        assert_eq!((Root::unpack(0), Root::unpack(7)), (None, None));
        assert_eq!(leaf_in(leaf(3).raw()), Some(leaf(3)));
        assert_eq!((leaf_in(0), leaf_in(leaf(3).raw() | 1)), (None, None));
    }

    #[test]
    fn a_slot_belongs_to_a_leaf_from_its_first_key_on() {
        let quarter = 1_u64 << 62;
        let of = |low, high: Option<u64>| root(2).slots(&Key8(low), high.map(Key8).as_ref());
        assert_eq!(of(0, None), 0..4);
        assert_eq!(of(quarter, Some(3 * quarter)), 1..3);
        // If a leaf begins or ends inside a slot's range, the slot belongs to the leaf on the left.
        assert_eq!(of(quarter + 1, Some(2 * quarter + 1)), 2..3);
        assert_eq!(of(quarter + 1, Some(quarter + 2)), 2..2);
        assert_eq!(root(0).slots(&Key8(1), None), 1..1);
    }

    #[test]
    fn a_slot_is_looked_up_once_it_led_astray_and_seldom_if_it_was_right() {
        let mut known = Known::default();
        known.adopt(root(1), vec![leaf(1).raw(), leaf(2).raw()]);
        let high = u64::MAX;
        known.doubt(high, leaf(1));
        assert_eq!(known.leaf(high), Some(leaf(2)), "another leaf's fault");
        known.doubt(high, leaf(2));
        assert_eq!((known.leaf(high), known.guess(high)), (None, Some(leaf(2))));
        known.accept(root(1), 1, leaf(2));
        for _ in 0..PATIENCE {
            known.doubt(high, leaf(2));
            assert_eq!(known.leaf(high), Some(leaf(2)));
        }
        known.doubt(high, leaf(2));
        assert_eq!(known.leaf(high), None);
        known.correct(root(0), 1, leaf(3));
        assert_eq!(
            known.guess(high),
            Some(leaf(2)),
            "of a directory that is outgrown"
        );
        known.correct(root(1), 1, leaf(3));
        assert_eq!(known.leaf(high), Some(leaf(3)));
    }

    #[test]
    fn runs_name_each_leaf_once_and_density_counts_them() {
        let mut known = Known::default();
        let words = [1, 1, 2, 2, 2, 3, 3, 3].map(|n| leaf(n).raw());
        known.adopt(root(3), words.to_vec());
        let mut run = Run::<Key8>::new();
        known.run(0, 2, &mut run);
        assert_eq!(run.leaves(), [leaf(1), leaf(2)]);
        run.clear();
        known.run(u64::MAX / 2, 8, &mut run);
        assert_eq!(run.leaves(), [leaf(2), leaf(3)]);
        assert!(!known.is_dense(0), "3 leaves, 8 slots");
        known.adopt(root(2), vec![leaf(7).raw(); 4]);
        assert_eq!(known.root(), Some(root(3)), "never back to one that is outgrown");
    }

    #[test]
    fn what_was_corrected_since_a_directory_was_read_stays() {
        let mut known = Known::default();
        known.adopt(root(1), vec![leaf(1).raw(); 2]);
        known.correct(root(1), 1, leaf(2));
        known.adopt(root(1), vec![leaf(1).raw(); 2]);
        assert_eq!(known.leaf(u64::MAX), Some(leaf(2)));
    }

    #[test]
    fn density_is_asked_of_the_slots_around_and_of_addresses_alone() {
        let of = |depth: u8, leaves: &[u64]| {
            let mut known = Known::default();
            known.adopt(root(depth), leaves.iter().map(|n| leaf(*n).raw()).collect());
            known
        };
        // At most two slots for each leaf.
        assert!(of(2, &[1, 1, 2, 2]).is_dense(0));
        assert!(!of(2, &[1, 1, 1, 1]).is_dense(0));
        assert!(!of(3, &[1, 1, 1, 2, 2, 2, 3, 3]).is_dense(0));
        assert!(of(3, &[1, 1, 2, 2, 3, 3, 4, 4]).is_dense(0));
        assert!(!of(4, &[1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 6, 7]).is_dense(0));
        // A slot that must be looked up again still counts as a slot of the same leaf.
        let mut doubted = of(2, &[1, 1, 1, 1]);
        doubted.accept(root(2), 1, leaf(1));
        doubted.accept(root(2), 2, leaf(1));
        doubted.doubt(3 << 62, leaf(1));
        assert!(!doubted.is_dense(0));
        // The first half of 2048 slots is dense.
        let halves: Vec<u64> = (0..2 * SAMPLE).map(|n| 1 + n.min(SAMPLE)).collect();
        let known = of(11, &halves);
        for (number, dense) in [(0, true), (1023, true), (1024, false), (2047, false)] {
            assert_eq!(known.is_dense(number << 53), dense, "slot {number}");
        }
    }
}
