//! The directory as a compute node knows it.

use core::ops::Range;

use dm_index::KeyBytes;
use dm_verbs::{LINE, RemotePtr};

use super::scatter::{first_of, lead_of};

/// Bits that the alignment of leaves leaves free in an address.
const FREE: u64 = LINE as u64 - 1;
/// The deepest directory: 2 GiB, as much as a block can be asked for.
pub(super) const DEPTH_LIMIT: u8 = 28;
/// A slot that led astray, and is to be looked up before it is used again.
const SUSPECT: u64 = 1;
/// What is left of a slot's patience lies above that.
const PATIENCE_AT: u32 = 1;
/// So often may a slot lead to the left of its keys before it is looked up again, if that found it to be right: a leaf
/// ends inside.
const PATIENCE: u64 = 31;
/// Slots around a leaf that are asked how many leaves they name: hashes are everywhere alike.
const SAMPLE: u64 = 1024;

/// The root word: where the directory lies and how many bits of a key it goes by.
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
        assert!(self.at.raw() & FREE == 0, "whole lines begin at {}", self.at);
        self.at.raw() | u64::from(self.depth)
    }

    pub(super) fn unpack(word: u64) -> Option<Self> {
        let at = RemotePtr::from_raw(word & !FREE);
        (!at.is_null()).then_some(Self {
            at,
            depth: (word & FREE) as u8,
        })
    }

    /// How many slots it has.
    pub(super) const fn len(self) -> u64 {
        1 << self.depth
    }

    /// Where a slot lies.
    pub(super) fn slot(self, number: u64) -> RemotePtr {
        self.at.add(number * 8)
    }

    /// The slot of a key with these first bits.
    #[inline]
    pub(super) const fn number(self, lead: u64) -> u64 {
        match self.depth {
            0 => 0,
            depth => lead >> (64 - depth),
        }
    }

    /// The smallest key of a slot.
    pub(super) fn first_key<K: KeyBytes>(self, number: u64) -> K {
        match self.depth {
            0 => K::MIN,
            depth => first_of(number << (64 - depth)),
        }
    }

    /// The slots whose first keys lie from `low` on and below `high`.
    pub(super) fn slots<K: KeyBytes>(self, low: &K, high: Option<&K>) -> Range<u64> {
        let up = |key: &K| {
            let number = self.number(lead_of(key));
            number + u64::from(self.first_key::<K>(number) < *key)
        };
        up(low)..high.map_or(self.len(), up)
    }
}

/// A leaf's address in a slot, if it is one.
pub(super) fn leaf_in(word: u64) -> Option<RemotePtr> {
    let at = RemotePtr::from_raw(word);
    (word & FREE == 0 && !at.is_null()).then_some(at)
}

/// What a compute node remembers.
#[derive(Debug, Default, Hash)]
pub(super) struct Known {
    root: Option<Root>,
    /// Leaves' addresses; in the bits that are free there what is thought of them.
    slots: Vec<u64>,
    /// One of the compute node's clients makes a deeper directory.
    pub(super) growing: bool,
}

impl Known {
    pub(super) fn root(&self) -> Option<Root> {
        self.root
    }

    /// The leaf of a key with these first bits, unless its slot is to be looked up.
    #[inline]
    pub(super) fn leaf(&self, lead: u64) -> Option<RemotePtr> {
        let word = self.word(lead)?;
        (word & SUSPECT == 0).then(|| RemotePtr::from_raw(word & !FREE))
    }

    /// The same, whatever is thought of it.
    pub(super) fn guess(&self, lead: u64) -> Option<RemotePtr> {
        Some(RemotePtr::from_raw(self.word(lead)? & !FREE))
    }

    #[inline]
    fn word(&self, lead: u64) -> Option<u64> {
        self.slots.get(self.root?.number(lead) as usize).copied()
    }

    /// Takes over a directory that was read, unless a deeper one is known.
    pub(super) fn adopt(&mut self, root: Root, slots: Vec<u64>) {
        if self.root.is_none_or(|known| known.depth < root.depth) {
            (self.root, self.slots) = (Some(root), slots);
        }
    }

    /// The leaf at `at`, to which the slot of these first bits led, lies left of the key that was looked for.
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

    /// A slot as it was looked up.
    pub(super) fn correct(&mut self, root: Root, number: u64, leaf: RemotePtr) {
        self.set(root, number, leaf.raw());
    }

    /// The same, where a leaf ends inside of what the slot is for.
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

    /// Up to `max` leaves one behind the other, from that of these first bits on.
    pub(super) fn run(&self, lead: u64, max: usize, run: &mut Vec<RemotePtr>) {
        let Some(root) = self.root.filter(|_| self.leaf(lead).is_some()) else {
            return;
        };
        for word in self.slots.iter().skip(root.number(lead) as usize) {
            let leaf = RemotePtr::from_raw(*word & !FREE);
            if run.last() == Some(&leaf) {
                continue;
            }
            if run.len() == max {
                return;
            }
            run.push(leaf);
        }
    }

    /// Whether the directory has at most twice as many slots as leaves, so that it may have twice as many slots.
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

    /// Bytes on the heap.
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
        // One that begins or ends inside of a slot: the slot is the left one's.
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
        let mut run = Vec::new();
        known.run(0, 2, &mut run);
        assert_eq!(run, [leaf(1), leaf(2)]);
        run.clear();
        known.run(u64::MAX / 2, 8, &mut run);
        assert_eq!(run, [leaf(2), leaf(3)]);
        assert!(!known.is_dense(0), "3 leaves, 8 slots");
        known.adopt(root(2), vec![leaf(7).raw(); 4]);
        assert_eq!(known.root(), Some(root(3)), "never back to one that is outgrown");
    }
}
