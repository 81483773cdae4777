//! Edits of a whole image. Each edit returns the bytes to WRITE.

use alloc::vec::Vec;
use core::ops::Range;

use super::geometry::{FENCES_MAX, MARK_HEAD, MARK_VERSION};
use super::{Hopscotch, PRESENT, VERSION_AT, YOUNG_ENTRY, flag};
use crate::LINE_BYTES;
use crate::cut::next_entry_version;
use crate::error::CheckFailure;
use crate::format::{NodeRead, NodeShape, Slot};
use crate::key::{FenceKeys, KeyBytes};
use crate::value::ValueRef;

impl<K: KeyBytes> Hopscotch<K> {
    /// Encodes the bytes that [`put`](crate::NodeEdit::put) would write for an in-line entry, without an image.
    /// `version` must be the node's version, and the node must not be young. The caller writes the bytes at the slot's
    /// offset. Returns the number of bytes of `out` that were filled.
    ///
    /// Panics if entries are not in-line, if `value` does not have the geometry's length, or if `out` is shorter than
    /// an entry.
    pub fn encode_entry(&self, version: u8, key: &K, value: &[u8], out: &mut [u8]) -> usize {
        assert!(
            self.geometry.is_in_line(),
            "an entry larger than a line carries versions: edit an image"
        );
        assert_eq!(
            value.len(),
            self.geometry.value_len,
            "a value of the geometry's length"
        );
        out[0] = version << VERSION_AT | PRESENT;
        key.write_to(&mut out[1..]);
        out[1 + K::LEN..self.geometry.stride].copy_from_slice(value);
        self.geometry.stride
    }

    /// Returns the byte that removes an entry from a node of this `version` that is not young. The caller writes the
    /// byte at the slot's offset.
    #[must_use]
    pub const fn removed_byte(version: u8) -> u8 {
        version << VERSION_AT
    }

    /// Returns the offset of the value of an in-line entry. An update WRITEs only the value.
    #[must_use]
    pub const fn value_offset(&self, slot: Slot) -> usize {
        slot.offset() + self.geometry.prefix + K::LEN
    }

    pub(super) fn put_entry(
        &self,
        image: &mut [u8],
        slot: Slot,
        key: &K,
        value: ValueRef<'_>,
    ) -> Range<usize> {
        let at = slot.offset();
        image[at] |= PRESENT;
        key.write_to(&mut image[at + self.geometry.prefix..]);
        let written = self.put_value(image, slot, value);
        at..written.end
    }

    /// Writes the value after the key. An entry with its own lines is written as a whole, with a new entry version in
    /// each line.
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
        let versions = starts.clone().map(|at| u16::from(image[at]));
        // The cast loses nothing, because the mask has 8 bits.
        let version = next_entry_version(u8::MAX.into(), versions) as u8;
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
        let geometry = &self.geometry;
        let key = K::read_from(&image[slot.offset() + geometry.prefix..]);
        let mut others = self.offsets_near(self.home(&key));
        others.find(|&at| {
            at != slot.offset()
                && image[at] & PRESENT != 0
                && K::probe_at(&image[at + geometry.prefix..]) == key.probe()
        })
    }

    pub(super) fn clear_twins(&self, image: &mut [u8], slot: Slot) -> Option<Range<usize>> {
        let mut parted: Option<Range<usize>> = None;
        while let Some(at) = self.twin(image, slot) {
            image[at] &= !PRESENT;
            let all = parted.unwrap_or(at..at + 1);
            parted = Some(all.start.min(at)..all.end.max(at + 1));
        }
        parted
    }

    pub(super) fn update_entry(&self, image: &mut [u8], slot: Slot, value: ValueRef<'_>) -> Range<usize> {
        self.put_value(image, slot, value)
    }

    pub(super) fn remove_entry(&self, image: &mut [u8], slot: Slot) -> Range<usize> {
        let at = slot.offset();
        image[at] &= !PRESENT;
        at..at + 1
    }

    pub(super) fn evict_entries(&self, image: &mut [u8], from: &K) {
        for at in self.offsets(0, self.geometry.span) {
            if image[at] & PRESENT != 0 && K::read_from(&image[at + self.geometry.prefix..]) >= *from {
                image[at] &= !PRESENT;
            }
        }
    }

    /// Writes the node version into every entry and mark, and the fence keys into the marks. The hop counts stay.
    pub(super) fn stamp(&self, image: &mut [u8], version: u8, fences: &FenceKeys<K>, flags: u8) {
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
    /// No key is missing from the image: each of its lines is from one of the successive states of a hop, and by rule
    /// H4 (docs/protocol/chime.md) each of these states contains all keys.
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
        let ahead = |byte: u8| {
            let distance = (byte >> VERSION_AT).wrapping_sub(header.version) & mask;
            if distance <= mask / 2 { distance } else { 0 }
        };
        let versions = (0..geometry.groups).map(|group| geometry.mark_at(group) + MARK_VERSION);
        let newest = versions.map(|at| ahead(image[at])).max().unwrap_or(0);
        header.version = self.version_after(header.version, newest + 1);
        let slots: Vec<Slot> = self.slots(image).collect();
        for slot in slots {
            if image[slot.offset()] & PRESENT != 0 {
                // The copies of an entry are equal, so any of them may be removed.
                self.clear_twins(image, slot);
            }
        }
        for group in 0..geometry.entry_groups() {
            let (before, after) = geometry.boundary(group);
            let lead = image[before].wrapping_sub(image[after]) & geometry.hops_mask;
            let newer = if lead <= geometry.hops_mask / 2 {
                before
            } else {
                after
            };
            self.set_hops(image, group, image[newer].wrapping_add(1));
        }
        geometry.place.encode(&header, image);
        self.stamp(image, header.version, &header.fences, 0);
        Ok(0..geometry.node_bytes)
    }

    /// Writes both copies of the hop count of the boundary after `group`.
    pub(super) fn set_hops(&self, image: &mut [u8], group: usize, count: u8) {
        let (before, after) = self.geometry.boundary(group);
        image[before] = count & self.geometry.hops_mask;
        image[after] = count & self.geometry.hops_mask;
    }
}
