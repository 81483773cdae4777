//! Reading one entry alone: what a reader does who believes to know where a key lies (CHIME §4.3).
//!
//! The bytes of one entry name no range and no node, so they prove less than a neighbourhood does, and just enough: a
//! present entry in a leaf that is, or was, linked holds its key's value, or a copy equal to it. What changes hands
//! is cleared before the new owner can be written to; what dies is cleared before it is given away. Only a node
//! in used memory can show an entry of which that is not so: it was never linked. Its entries say that they are *young*.

use super::{Hopscotch, PRESENT, VERSION_AT, YOUNG_ENTRY};
use crate::LINE_BYTES;
use crate::key::KeyBytes;
use crate::value::ValueRef;

/// Flaws of judging one entry, off by default; for study, each with its counterexample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EntryFlaws {
    /// The key's bytes are enough, whether the entry is there or was taken away.
    pub takes_absent: bool,
    /// T-C6: an entry of a node in used memory is taken, whether the node was ever linked or not.
    pub takes_young: bool,
}

impl<K: KeyBytes> Hopscotch<K> {
    /// The value of `key`, if these are the bytes of its entry ([`HopGeometry::entry`](super::HopGeometry::entry)) and
    /// prove it. `None` says nothing about the key.
    #[must_use]
    pub fn alone<'a>(&self, entry: &'a [u8], key: &K, flaws: EntryFlaws) -> Option<ValueRef<'a>> {
        let geometry = &self.geometry;
        let entry = entry.get(..geometry.entry_lines_bytes())?;
        let state = entry[0] & (PRESENT | YOUNG_ENTRY);
        let absent = state & PRESENT == 0 && !flaws.takes_absent;
        let young = state & YOUNG_ENTRY != 0 && !flaws.takes_young;
        if absent || young || K::probe_at(&entry[geometry.prefix..]) != key.probe() {
            return None;
        }
        // One that has lines of its own: all of one write, in one version of the node.
        let same = |line: usize| {
            let at = line * LINE_BYTES;
            entry[at] >> VERSION_AT == entry[0] >> VERSION_AT && entry[at + 1] == entry[1]
        };
        (1..geometry.entry_lines).all(same).then(|| self.value_in(entry))
    }
}
