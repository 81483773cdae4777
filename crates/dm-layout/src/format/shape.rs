//! Sizes and properties of a format.

use core::fmt::Debug;
use core::ops::Range;

use crate::format::Part;
use crate::key::{KeyBytes, sealed};

/// The sizes and properties of a format. Sealed.
pub trait NodeShape<K: KeyBytes>: Clone + Debug + Send + Sync + 'static + sealed::Sealed {
    /// The format's name, as in tables.
    const NAME: &'static str;

    /// Whether an entry may be in any slot, so that a node takes as many entries as it has slots.
    const ANYWHERE: bool = true;

    /// Whether several slots may show one key, with equal values. An abandoned hop leaves such duplicates.
    const DUPLICATES: bool = false;

    /// Returns the bytes of a node: a multiple of 64.
    fn node_bytes(&self) -> usize;

    /// Returns the maximum number of entries. How many a node really [takes](Self::takes) may depend on their
    /// keys.
    fn capacity(&self) -> usize;

    /// Returns the bytes of a value.
    fn value_len(&self) -> usize;

    /// Returns the bits that the first byte of every value has, if this byte also marks the entry as present.
    fn value_mark(&self) -> u8 {
        0
    }

    /// Returns whether a node of this low fence has places for entries of all these keys, each there once.
    fn takes(&self, _low: &K, keys: &mut dyn Iterator<Item = K>) -> bool {
        keys.count() <= self.capacity()
    }

    /// Returns whether an update writes only the value, inside one line. Such an update requires only that
    /// the slot keeps its key, and of two concurrent updates one is the last.
    fn updates_in_line(&self) -> bool {
        false
    }

    /// Returns the node version `steps` after `version`; wraps at the format's width.
    fn version_after(&self, version: u8, steps: u8) -> u8;

    /// Returns the offset of the aligned 8-byte word that holds version, level, state and incarnation, in
    /// formats in which a change of state changes nothing else that a reader checks: then a CAS can change
    /// the state. `None` in the other formats.
    fn state_word(&self) -> Option<usize> {
        None
    }

    /// Returns the bytes that a step over `part` writes: the header's line and the rest, or everything and
    /// nothing.
    fn range(&self, part: Part) -> Range<usize>;
}
