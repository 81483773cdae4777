//! Edits of a whole image. Each edit returns the bytes to WRITE.

use alloc::vec::Vec;
use core::ops::Range;

use super::geometry::{FENCES_MAX, HOPS_BYTES, MARK_HEAD, MARK_HOPS};
use super::{Hopscotch, PRESENT, VERSION_AT, YOUNG_ENTRY, flag};
use crate::LINE_BYTES;
use crate::cut::unused_version;
use crate::error::CheckFailure;
use crate::format::{NodeRead, NodeShape, Slot};
use crate::key::{FenceKeys, KeyBytes};
use crate::value::ValueRef;

impl<K: KeyBytes> Hopscotch<K> {
    /// Encodes the bytes that [`put`](crate::NodeEdit::put) would write for an in-line entry, without an image. The
    /// node has this `version` and is not young. The caller writes the bytes at the slot's offset. Returns the number
    /// of bytes of `out` that were filled.
    ///
    /// Panics if entries are not in-line, or if `out` is shorter than an entry.
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
                if at.is_multiple_of(LINE_BYTES) {
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

    /// Returns the other slot with the same key as `slot`, if there is one. Such a slot exists if a client died during
    /// a hop, after it had copied the entry and before it had overwritten the old slot.
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
        for slot in 0..self.geometry.span {
            let at = self.geometry.slot_at(slot);
            if image[at] & PRESENT != 0 && K::read_from(&image[at + self.geometry.prefix..]) >= *from {
                image[at] &= !PRESENT;
            }
        }
    }

    /// Writes the node version into every entry and mark, and the fence keys and the header's hop count into every
    /// mark.
    pub(super) fn stamp(&self, image: &mut [u8], version: u8, fences: &FenceKeys<K>, flags: u8) {
        let mut both = [0; FENCES_MAX];
        fences.low.write_to(&mut both);
        fences
            .high
            .unwrap_or(K::MIN)
            .write_to(&mut both[self.geometry.fence_bytes()..]);
        self.stamp_lines(image, version, fences.high.is_some(), flags, Some(&both));
    }

    /// Implements [`stamp`](Self::stamp). Without `fences`, the marks keep their pieces of the fence keys.
    #[inline]
    fn stamp_lines(
        &self,
        image: &mut [u8],
        version: u8,
        has_high: bool,
        flags: u8,
        fences: Option<&[u8; FENCES_MAX]>,
    ) {
        let geometry = &self.geometry;
        let young = if flags & flag::YOUNG != 0 { YOUNG_ENTRY } else { 0 };
        let version = (version & geometry.place.version_mask) << VERSION_AT;
        let hops = geometry.hops_at();
        let flags = flags | flag::NODE | if has_high { flag::HAS_HIGH } else { 0 };
        let mut head = [version, flags, 0, 0];
        head[MARK_HOPS..].copy_from_slice(&image[hops..hops + HOPS_BYTES]);
        let step = geometry.group_lines * LINE_BYTES;
        let (mut left, mut piece) = (geometry.span, 0);
        for (number, group) in image[LINE_BYTES..].chunks_exact_mut(step).enumerate() {
            let entries = geometry.per_group.min(left);
            left -= entries;
            // An in-line entry has one byte with a version. If entries have their own lines, a group has at most one
            // entry.
            let (each, count, mark) = match geometry.is_in_line() {
                true => (geometry.stride, entries, entries * geometry.stride),
                false => (
                    LINE_BYTES,
                    entries * geometry.group_lines,
                    geometry.mark_at(number) - (1 + number * geometry.group_lines) * LINE_BYTES,
                ),
            };
            let mut at = 0;
            for _ in 0..count {
                group[at] = version | young | group[at] & PRESENT;
                at += each;
            }
            let mark = &mut group[mark..];
            mark[..MARK_HEAD].copy_from_slice(&head);
            let Some(fences) = fences else { continue };
            // Usually each piece is a whole key. A copy of constant length is faster.
            match geometry.piece == K::LEN {
                true => mark[MARK_HEAD..][..K::LEN].copy_from_slice(&fences[piece..][..K::LEN]),
                false => mark[MARK_HEAD..][..geometry.piece]
                    .copy_from_slice(&fences[piece..piece + geometry.piece]),
            }
            piece += geometry.piece;
            if piece == 2 * geometry.fence_bytes() {
                piece = 0;
            }
        }
    }

    /// Repairs an image in which only a part of a hop has taken effect. Gives every line one version and one hop
    /// count, which are newer than those of all lines, and removes all copies of an entry but one. Returns the bytes to
    /// WRITE, which are the whole node.
    ///
    /// Every line belongs to one of two successive states of H4, and no key is lost between these two states.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] if the bytes are not a node.
    pub(super) fn end_hops(&self, image: &mut [u8]) -> Result<Range<usize>, CheckFailure> {
        //= docs/protocol/chime.md H9a
        let mut header = self.header(image)?;
        let mask = self.geometry.place.version_mask;
        // A line may be older or newer than the header, so a distance of more than half the versions counts as
        // negative.
        let ahead = |byte: u8| {
            let distance = (byte >> VERSION_AT).wrapping_sub(header.version) & mask;
            if distance <= mask / 2 { distance } else { 0 }
        };
        let marks = (0..self.geometry.groups).map(|group| self.geometry.mark_at(group));
        let newest = marks.clone().map(|at| ahead(image[at])).max().unwrap_or(0);
        header.version = self.version_after(header.version, newest + 1);
        let hops_at = self.geometry.hops_at();
        let hops = |at: usize| u16::from_le_bytes([image[at], image[at + 1]]);
        let first = hops(hops_at);
        let more = marks
            .map(|at| hops(at + MARK_HOPS).wrapping_sub(first))
            .filter(|more| *more <= u16::MAX / 2);
        let hops = first.wrapping_add(more.max().unwrap_or(0)).wrapping_add(1);
        let slots: Vec<Slot> = self.slots(image).collect();
        for slot in slots {
            if image[slot.offset()] & PRESENT != 0 {
                // The copies of an entry are equal, so any of them may be removed.
                self.clear_twins(image, slot);
            }
        }
        self.geometry.place.encode(&header, image);
        image[hops_at..hops_at + HOPS_BYTES].copy_from_slice(&hops.to_le_bytes());
        self.stamp(image, header.version, &header.fences, 0);
        Ok(0..self.geometry.node_bytes)
    }

    /// Makes one hop of a plan: copies the entry, and puts the next node version on every line. Returns the bytes to
    /// WRITE, which are the whole node. A later step, which must be a separate WRITE, overwrites the old slot of the
    /// entry. If `versioned` is not set (a flaw, for study), only copies the entry, and returns its new bytes.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] if the bytes are not a node.
    pub fn hop(
        &self,
        image: &mut [u8],
        (from, to): (Slot, Slot),
        versioned: bool,
    ) -> Result<Range<usize>, CheckFailure> {
        let mut header = self.header(image)?;
        let (from, to) = (from.offset(), to.offset());
        // Only in-line entries hop.
        image.copy_within(from..from + self.geometry.stride, to);
        if !versioned {
            return Ok(to..to + self.geometry.stride);
        }
        header.version = self.version_after(header.version, 1);
        self.geometry.place.encode(&header, image);
        if let Some(hops) = image[self.geometry.hops_at()..].first_chunk_mut() {
            *hops = u16::from_le_bytes(*hops).wrapping_add(1).to_le_bytes();
        }
        self.stamp_lines(image, header.version, header.fences.high.is_some(), 0, None);
        Ok(0..self.geometry.node_bytes)
    }
}
