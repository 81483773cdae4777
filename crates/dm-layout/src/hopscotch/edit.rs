//! Edits of a whole image. Each edit returns the bytes to WRITE.

use alloc::vec::Vec;
use core::ops::Range;

use super::dense::{self, Front};
use super::geometry::{FENCES_MAX, MARK_HEAD, MARK_VERSION};
use super::{Hopscotch, PRESENT, Reach, VERSION_AT, YOUNG_ENTRY, flag};
use crate::LINE_BYTES;
use crate::cut::unused_version;
use crate::error::CheckFailure;
use crate::format::{NodeRead, NodeShape, Slot};
use crate::key::{FenceKeys, KeyBytes};
use crate::value::ValueRef;

impl<K: KeyBytes> Hopscotch<K> {
    /// Encodes the bytes that [`put`](crate::NodeEdit::put) would write for an in-line entry, without an image. The slot
    /// is in the neighbourhood `reach`, whose bytes are `parts`. The node has this `version` and is not young. Returns
    /// the range of the node to write, whose bytes are at the beginning of `out`. Returns `None` if `parts` are not the
    /// bytes of `reach`.
    ///
    /// Panics if entries are not in-line, or if `out` is shorter than a line.
    pub fn encode_entry(
        &self,
        (reach, parts): (&Reach, (&[u8], &[u8])),
        (slot, version): (Slot, u8),
        (key, value): (&K, &[u8]),
        out: &mut [u8],
    ) -> Option<Range<usize>> {
        assert!(
            self.geometry.is_in_line(),
            "an entry larger than a line carries versions: edit an image"
        );
        assert_eq!(
            value.len(),
            self.geometry.value_len,
            "a value of the geometry's length"
        );
        let at = slot.offset();
        if self.geometry.dense {
            return Self::encode_dense(reach.getter(parts), at, (key, value), out);
        }
        out[0] = version << VERSION_AT | PRESENT;
        key.write_to(&mut out[1..]);
        out[1 + K::LEN..self.geometry.stride].copy_from_slice(value);
        Some(at..at + self.geometry.stride)
    }

    /// Returns the position and the byte that removes an entry from a neighbourhood, as in
    /// [`encode_entry`](Self::encode_entry).
    #[must_use]
    pub fn encode_removal(
        &self,
        (reach, parts): (&Reach, (&[u8], &[u8])),
        (slot, version): (Slot, u8),
    ) -> Option<(usize, u8)> {
        let at = self.presence_at(slot.offset());
        if self.geometry.dense {
            let byte = reach.getter(parts)(at, 1)?[0];
            return Some((at, Self::cleared_dense(byte, slot.offset())));
        }
        Some((at, version << VERSION_AT))
    }

    /// Returns the offset of the value of an in-line entry. An update WRITEs only the value.
    #[must_use]
    pub const fn value_offset(&self, slot: Slot) -> usize {
        slot.offset() + self.geometry.value_from
    }

    /// Returns the position of the byte that contains the presence bit of the entry at `at`.
    const fn presence_at(&self, at: usize) -> usize {
        if self.geometry.dense {
            return dense::line_of(at) + dense::PRESENCE_AT;
        }
        at
    }

    /// Returns whether the entry at `at` is present.
    #[inline]
    pub(super) fn is_present(&self, image: &[u8], at: usize) -> bool {
        if self.geometry.dense {
            return Self::is_present_dense(image, at);
        }
        image[at] & PRESENT != 0
    }

    fn set_present(&self, image: &mut [u8], at: usize, present: bool) {
        if self.geometry.dense {
            return Self::set_present_dense(image, at, present);
        }
        image[at] = image[at] & !PRESENT | if present { PRESENT } else { 0 };
    }

    /// Returns the key of the entry at `at`.
    #[inline]
    pub(super) fn key_at(&self, image: &[u8], at: usize) -> K {
        if self.geometry.dense {
            return Self::key_at_dense(image, at);
        }
        K::read_from(&image[at + self.geometry.prefix..])
    }

    /// Returns whether the entry at `at` is present and has this key.
    #[inline]
    pub(super) fn holds(&self, image: &[u8], at: usize, key: &K) -> bool {
        if self.geometry.dense {
            return Self::is_present_dense(image, at) && Self::key_at_dense(image, at) == *key;
        }
        image[at] & PRESENT != 0 && K::probe_at(&image[at + self.geometry.prefix..]) == key.probe()
    }

    /// Returns the node version with the entry at `at`, and whether the entry is young.
    #[inline]
    pub(super) fn version_at(&self, image: &[u8], at: usize) -> (u8, bool) {
        if self.geometry.dense {
            let front = Front::at(image, at);
            return (front.version(), front.is_young());
        }
        (image[at] >> VERSION_AT, image[at] & YOUNG_ENTRY != 0)
    }

    /// Copies an entry to another slot.
    pub(super) fn copy_entry(&self, image: &mut [u8], from: usize, to: usize) -> Range<usize> {
        image.copy_within(from..from + self.geometry.stride, to);
        self.set_present(image, to, true);
        self.presence_at(to)..to + self.geometry.stride
    }

    pub(super) fn put_entry(
        &self,
        image: &mut [u8],
        slot: Slot,
        key: &K,
        value: ValueRef<'_>,
    ) -> Range<usize> {
        let at = slot.offset();
        self.set_present(image, at, true);
        match self.geometry.dense {
            true => Self::write_key_dense(image, at, key),
            false => key.write_to(&mut image[at + self.geometry.prefix..]),
        }
        let written = self.put_value(image, slot, value);
        self.presence_at(at)..written.end
    }

    /// Writes the value after the key. An entry with its own lines is written as a whole, with the next entry
    /// version.
    fn put_value(&self, image: &mut [u8], slot: Slot, value: ValueRef<'_>) -> Range<usize> {
        assert_eq!(
            value.len(),
            self.geometry.value_len,
            "a value of the geometry's length"
        );
        let from = self.value_offset(slot);
        if self.geometry.is_in_line() {
            value.copy_to(&mut image[from..]);
            return from..from + value.len();
        }
        let start = slot.offset();
        let starts = (0..self.geometry.entry_lines).map(|line| start + line * LINE_BYTES + 1);
        let version = unused_version(image[start + 1], u8::MAX, starts.clone().map(|at| image[at]));
        for at in starts {
            image[at] = version;
        }
        let mut at = from;
        for mut piece in value.pieces() {
            while !piece.is_empty() {
                if at % LINE_BYTES == 0 {
                    at += self.geometry.prefix;
                }
                let take = piece.len().min(LINE_BYTES - at % LINE_BYTES);
                image[at..at + take].copy_from_slice(&piece[..take]);
                at += take;
                piece = &piece[take..];
            }
        }
        start..start + self.geometry.stride
    }

    /// Returns the offset of another slot with the same key as `slot`, if there is one. Such a slot exists if a client
    /// died during a hop, after it had copied the entry and before it had overwritten the old slot.
    fn twin(&self, image: &[u8], slot: Slot) -> Option<usize> {
        let key = self.key_at(image, slot.offset());
        let mut others = self.offsets_near(self.home(&key));
        others.find(|&at| at != slot.offset() && self.holds(image, at, &key))
    }

    pub(super) fn clear_twins(&self, image: &mut [u8], slot: Slot) -> Option<Range<usize>> {
        let mut parted: Option<Range<usize>> = None;
        while let Some(at) = self.twin(image, slot) {
            self.set_present(image, at, false);
            let at = self.presence_at(at);
            let all = parted.unwrap_or(at..at + 1);
            parted = Some(all.start.min(at)..all.end.max(at + 1));
        }
        parted
    }

    pub(super) fn update_entry(&self, image: &mut [u8], slot: Slot, value: ValueRef<'_>) -> Range<usize> {
        self.put_value(image, slot, value)
    }

    pub(super) fn remove_entry(&self, image: &mut [u8], slot: Slot) -> Range<usize> {
        self.set_present(image, slot.offset(), false);
        let at = self.presence_at(slot.offset());
        at..at + 1
    }

    pub(super) fn evict_entries(&self, image: &mut [u8], from: &K) {
        for slot in 0..self.geometry.span {
            let at = self.geometry.slot_at(slot);
            if self.is_present(image, at) && self.key_at(image, at) >= *from {
                self.set_present(image, at, false);
            }
        }
    }

    /// Writes the node version into every entry and mark, and the fence keys into the marks. The hop counts stay.
    pub(super) fn stamp(&self, image: &mut [u8], version: u8, fences: &FenceKeys<K>, flags: u8) {
        if self.geometry.dense {
            return self.stamp_dense(image, version, fences, flags);
        }
        let mut both = [0; FENCES_MAX];
        fences.low.write_to(&mut both);
        fences
            .high
            .unwrap_or(K::MIN)
            .write_to(&mut both[self.geometry.fence_bytes()..]);
        let geometry = &self.geometry;
        let young = if flags & flag::YOUNG != 0 { YOUNG_ENTRY } else { 0 };
        let version = (version & geometry.place.version_mask) << VERSION_AT;
        let has_high = if fences.high.is_some() { flag::HAS_HIGH } else { 0 };
        let flags = flags | flag::NODE | has_high;
        let step = geometry.group_lines * LINE_BYTES;
        let (mut left, mut piece) = (geometry.span, 0);
        for (number, group) in image[LINE_BYTES..].chunks_exact_mut(step).enumerate() {
            let entries = geometry.per_group.min(left);
            left -= entries;
            // An in-line entry has one byte with a version. If entries have their own lines, a group has at most one
            // entry.
            let (each, count, mark) = match geometry.is_in_line() {
                true => (
                    geometry.stride,
                    entries,
                    geometry.front + entries * geometry.stride,
                ),
                false => (
                    LINE_BYTES,
                    entries * geometry.group_lines,
                    geometry.mark_at(number) - (1 + number * geometry.group_lines) * LINE_BYTES,
                ),
            };
            let mut at = geometry.front;
            for _ in 0..count {
                group[at] = version | young | group[at] & PRESENT;
                at += each;
            }
            let mark = &mut group[mark..];
            mark[MARK_VERSION..MARK_HEAD].copy_from_slice(&[version, flags]);
            // Usually each piece is a whole key. A copy of constant length is faster.
            match geometry.piece == K::LEN {
                true => mark[MARK_HEAD..][..K::LEN].copy_from_slice(&both[piece..][..K::LEN]),
                false => {
                    mark[MARK_HEAD..][..geometry.piece].copy_from_slice(&both[piece..piece + geometry.piece])
                }
            }
            piece += geometry.piece;
            if piece == 2 * geometry.fence_bytes() {
                piece = 0;
            }
        }
    }

    /// Repairs an image in which only a part of a hop has taken effect. Sets all lines to one version that is newer
    /// than theirs. Sets both copies of each hop count to a value that is newer than both. Keeps one copy of each
    /// entry. Returns the bytes to WRITE, which are the whole node.
    ///
    /// No key is missing from the image: each of its lines is from one of the successive states of H4, and no key is
    /// lost in these.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] if the bytes are not a node.
    pub(super) fn end_hops(&self, image: &mut [u8]) -> Result<Range<usize>, CheckFailure> {
        //= docs/protocol/chime.md H9a
        let mut header = self.header(image)?;
        let geometry = self.geometry;
        let mask = geometry.place.version_mask;
        // A line may be older or newer than the header, so a distance of more than half the versions counts as
        // negative.
        let ahead = |version: u8| {
            let distance = version.wrapping_sub(header.version) & mask;
            if distance <= mask / 2 { distance } else { 0 }
        };
        let versions = (0..geometry.groups).map(|group| self.group_version(image, group));
        let newest = versions.map(ahead).max().unwrap_or(0);
        header.version = self.version_after(header.version, newest + 1);
        let slots: Vec<Slot> = self.slots(image).collect();
        for slot in slots {
            if self.is_present(image, slot.offset()) {
                // The copies of an entry are equal, so any of them may be removed.
                self.clear_twins(image, slot);
            }
        }
        for group in 0..geometry.entry_groups() {
            let (before, after) = self.hops(image, group);
            let lead = before.wrapping_sub(after) & geometry.hops_mask;
            let newer = if lead <= geometry.hops_mask / 2 {
                before
            } else {
                after
            };
            self.set_hops(image, group, newer.wrapping_add(1));
        }
        geometry.place.encode(&header, image);
        self.stamp(image, header.version, &header.fences, 0);
        Ok(0..geometry.node_bytes)
    }

    /// Writes both copies of the hop count of the boundary after `group`.
    pub(super) fn set_hops(&self, image: &mut [u8], group: usize, count: u8) {
        let count = count & self.geometry.hops_mask;
        if self.geometry.dense {
            return self.set_hops_dense(image, group, count);
        }
        let (before, after) = self.geometry.boundary(group);
        image[before] = count;
        image[after] = count;
    }

    /// Returns both copies of the hop count of the boundary after `group`.
    #[inline]
    pub(super) fn hops(&self, image: &[u8], group: usize) -> (u8, u8) {
        let (before, after) = self.geometry.boundary(group);
        if self.geometry.dense {
            return (
                Front::at(image, before).hops_after(),
                Front::at(image, after).hops_before(),
            );
        }
        (image[before], image[after])
    }

    /// Returns the node version in the mark of a group, or at the front of its line.
    #[inline]
    pub(super) fn group_version(&self, image: &[u8], group: usize) -> u8 {
        if self.geometry.dense {
            return Front::at(image, self.geometry.group_at(group)).version();
        }
        image[self.geometry.mark_at(group) + MARK_VERSION] >> VERSION_AT
    }
}
