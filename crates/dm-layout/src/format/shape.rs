//! Sizes and properties of a format.

use core::fmt::Debug;
use core::ops::Range;

use crate::LINE_BYTES;
use crate::format::Part;
use crate::key::{KeyBytes, sealed};

/// The sizes and properties of a format. This trait is sealed.
pub trait NodeShape<K: KeyBytes>: Clone + Debug + Send + Sync + 'static + sealed::Sealed {
    /// The name of the format in tables.
    const NAME: &'static str;

    /// Whether an entry may be in any slot. If so, a node always has room for as many entries as it has slots.
    const ANYWHERE: bool = true;

    /// Whether several slots may contain the same key, with equal values. An unfinished hop leaves such duplicates.
    const DUPLICATES: bool = false;

    /// Returns the size of a node in bytes. It is a multiple of 64, except in bookend nodes whose span is given
    /// ([`crate::Bookend::with_span`]).
    fn node_bytes(&self) -> usize;

    /// Returns the maximum number of entries. Whether they fit may depend on the keys ([`takes`](Self::takes)).
    fn capacity(&self) -> usize;

    /// Returns the size of a value in bytes.
    fn value_len(&self) -> usize;

    /// Returns the bits that are set in the first byte of every value, if this byte also marks the entry as present.
    /// Otherwise returns 0.
    fn value_mark(&self) -> u8 {
        0
    }

    /// Returns whether a node with this low fence key has room for entries of all these keys, which must differ.
    fn takes(&self, _low: &K, keys: &mut dyn Iterator<Item = K>) -> bool {
        keys.count() <= self.capacity()
    }

    /// Returns whether an update writes only the value, within one line, and no hop can move the entry. Such an update
    /// requires only that the slot keeps its key, and the last of several concurrent updates wins.
    fn updates_in_line(&self) -> bool {
        false
    }

    /// Returns whether every value is an aligned word, which a CAS can change. Its first byte is also the entry's
    /// presence byte.
    fn holds_words(&self) -> bool {
        false
    }

    /// Returns the node version `steps` after `version`. It wraps at the width of a version.
    fn version_after(&self, version: u8, steps: u8) -> u8;

    /// Returns the offset of the aligned 8-byte word that contains version, level, state and incarnation, if a CAS may
    /// change the state. This is possible in formats in which a change of state changes no other bytes that a reader
    /// checks. Returns `None` in all other formats.
    fn state_word(&self) -> Option<usize> {
        None
    }

    /// Returns the offset of the header, which begins in the first line. [`Header`](crate::Header) has constants for
    /// the places of the version and the incarnation in the header.
    fn header_at(&self) -> usize {
        0
    }

    /// Returns the range of bytes that a step over `part` writes. The head is the first line, and the rest is all other
    /// lines. In formats that write whole nodes, the head is the whole node and the rest is empty.
    fn range(&self, part: Part) -> Range<usize> {
        match part {
            Part::Head => 0..LINE_BYTES,
            Part::Rest => LINE_BYTES..self.node_bytes(),
        }
    }
}
