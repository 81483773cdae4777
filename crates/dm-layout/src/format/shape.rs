//! Sizes and properties of a format.

use core::fmt::Debug;
use core::ops::Range;

use crate::format::Part;
use crate::key::{KeyBytes, sealed};

/// The sizes and properties of a format. This trait is sealed.
pub trait NodeShape<K: KeyBytes>: Clone + Debug + Send + Sync + 'static + sealed::Sealed {
    /// The format's name, as in tables.
    const NAME: &'static str;

    /// Whether an entry may be in any slot, so that a node always has room for as many entries as it has
    /// slots.
    const ANYWHERE: bool = true;

    /// Whether several slots may contain the same key, with equal values. An abandoned hop leaves such
    /// duplicates.
    const DUPLICATES: bool = false;

    /// Returns the bytes of a node: a multiple of 64.
    fn node_bytes(&self) -> usize;

    /// Returns the maximum number of entries. The number that really fits may depend on the keys
    /// ([`takes`](Self::takes)).
    fn capacity(&self) -> usize;

    /// Returns the bytes of a value.
    fn value_len(&self) -> usize;

    /// Returns the bits that are set in the first byte of every value, if this byte also marks the entry as
    /// present.
    fn value_mark(&self) -> u8 {
        0
    }

    /// Returns whether entries of all these keys, which are different, fit into a node with this low fence
    /// key.
    fn takes(&self, _low: &K, keys: &mut dyn Iterator<Item = K>) -> bool {
        keys.count() <= self.capacity()
    }

    /// Returns whether an update writes only the value, inside one line. Such an update requires only that
    /// the slot keeps its key. If two updates are concurrent, the later one wins.
    fn updates_in_line(&self) -> bool {
        false
    }

    /// Returns the node version `steps` after `version`; wraps at the format's width.
    fn version_after(&self, version: u8, steps: u8) -> u8;

    /// Returns the offset of the aligned 8-byte word that holds version, level, state and incarnation, if the
    /// state can be changed by a CAS. This needs a format in which a change of state changes no other bytes
    /// that a reader checks. Returns `None` in the other formats.
    fn state_word(&self) -> Option<usize> {
        None
    }

    /// Returns the bytes that a step over `part` writes: the header's line or all other lines. In formats
    /// that write whole nodes, the head is the whole node and the rest is empty.
    fn range(&self, part: Part) -> Range<usize>;
}
