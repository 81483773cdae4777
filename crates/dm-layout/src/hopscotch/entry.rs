//! Reading a single entry, for a reader that expects a key at a certain place (CHIME §4.3).
//!
//! The bytes of one entry do not contain the fence keys of its node, so they prove less than the bytes of a
//! neighbourhood. But they suffice: a present entry in a leaf that is or was linked holds its key's value, or a copy
//! of it. A moved entry is removed from its old slot before any client can write its new slot, and a dead node is
//! cleared before its memory is reused. A node in reused memory is the only exception, because it may never have been
//! linked. Its entries are marked as *young*.

use super::study::EntryFlaws;
use super::{Hopscotch, PRESENT, VERSION_AT, YOUNG_ENTRY};
use crate::LINE_BYTES;
use crate::key::KeyBytes;
use crate::value::ValueRef;

impl<K: KeyBytes> Hopscotch<K> {
    /// Returns the value of `key` if these bytes ([`HopGeometry::entry`](super::HopGeometry::entry)) are a valid entry
    /// of the key. If this returns `None`, the key may still be present.
    #[must_use]
    pub fn alone<'a>(&self, entry: &'a [u8], key: &K) -> Option<ValueRef<'a>> {
        self.judge_alone(entry, key, EntryFlaws::default())
    }

    #[inline]
    pub(super) fn judge_alone<'a>(
        &self,
        entry: &'a [u8],
        key: &K,
        flaws: EntryFlaws,
    ) -> Option<ValueRef<'a>> {
        let geometry = &self.geometry;
        let entry = entry.get(..geometry.entry_lines_bytes())?;
        let state = entry[0] & (PRESENT | YOUNG_ENTRY);
        let absent = state & PRESENT == 0 && !flaws.takes_absent;
        let young = state & YOUNG_ENTRY != 0 && !flaws.takes_young;
        if absent || young || K::probe_at(&entry[geometry.prefix..]) != key.probe() {
            return None;
        }
        // If an entry has its own lines, all lines must belong to one WRITE, in one version of the node.
        let same = |line: usize| {
            let at = line * LINE_BYTES;
            entry[at] >> VERSION_AT == entry[0] >> VERSION_AT && entry[at + 1] == entry[1]
        };
        (1..geometry.entry_lines).all(same).then(|| self.value_in(entry))
    }
}
