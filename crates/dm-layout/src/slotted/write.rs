//! Edits of an image. Each edit returns the range of bytes to WRITE.

use crate::chunks::Chunks as _;
use core::ops::Range;

use super::geometry::{ENTRY_VERSION_AT, Entry, MARKED_4, MarkedChild, Plain, VERSIONS, WORDS, Word};
use super::{EMPTY, PRESENT, Slotted, entry_version};
use crate::LINE_BYTES;
use crate::cut::next_entry_version;
use crate::error::{CheckFailure, Reason};
use crate::format::{NodeShape, Part, Slot};
use crate::key::{FenceKeys, KeyBytes};
use crate::value::ValueRef;

impl<K: KeyBytes> Slotted<K> {
    /// Writes an entry. An in-line entry is written without its line's version byte: one line is never torn, so readers
    /// need no new version to accept the change.
    #[inline(always)]
    pub(super) fn put_entry(
        &self,
        image: &mut [u8],
        slot: Slot,
        key: &K,
        value: ValueRef<'_>,
    ) -> Range<usize> {
        assert_eq!(
            value.len(),
            self.geometry.value_len,
            "a value of the geometry's length"
        );
        let at = slot.offset();
        // A marked value overwrites this byte with its own first byte.
        image[at] = PRESENT;
        key.write_to(&mut image[at + self.geometry.key_at..]);
        if self.geometry.is_in_line() {
            value.copy_to(&mut image[at + self.geometry.value_at()..]);
            debug_assert!(image[at] & PRESENT != 0, "a marked value's first byte is odd");
            return at..at + self.geometry.entry_bytes;
        }
        self.put_striped(image, slot, value)
    }

    #[inline]
    pub(super) fn update_value(&self, image: &mut [u8], slot: Slot, value: ValueRef<'_>) -> Range<usize> {
        assert_eq!(
            value.len(),
            self.geometry.value_len,
            "a value of the geometry's length"
        );
        let from = slot.offset() + self.geometry.value_at();
        if self.geometry.is_in_line() {
            value.copy_to(&mut image[from..]);
            return from..from + value.len();
        }
        self.put_striped(image, slot, value)
    }

    /// Writes a value over several lines, and gives all of them the next entry version. Returns the range of the one
    /// WRITE, from the first line's version to the value's last byte.
    fn put_striped(&self, image: &mut [u8], slot: Slot, value: ValueRef<'_>) -> Range<usize> {
        let start = slot.offset() - VERSIONS;
        let lines = &mut image[start..].in_chunks_mut::<LINE_BYTES>()[..self.geometry.entry_lines];
        let versions = lines.iter().map(entry_version);
        let version = next_entry_version(self.geometry.entry_version_mask, versions);
        for line in lines {
            line[ENTRY_VERSION_AT..VERSIONS].copy_from_slice(&version.to_le_bytes());
        }
        // The payload is written between the versions of the lines.
        let mut at = slot.offset() + self.geometry.value_at();
        for mut piece in value.pieces() {
            while !piece.is_empty() {
                if at % LINE_BYTES == 0 {
                    at += VERSIONS;
                }
                let take = piece.len().min(LINE_BYTES - at % LINE_BYTES);
                image[at..at + take].copy_from_slice(&piece[..take]);
                at += take;
                piece = &piece[take..];
            }
        }
        start..at
    }

    /// Copies those entries of `from` that are within `fences` to the first slots of `image`, and returns their
    /// number.
    pub(super) fn take_entries(
        &self,
        image: &mut [u8],
        from: &[u8],
        fences: &FenceKeys<K>,
    ) -> Result<usize, CheckFailure> {
        match self.geometry.values() {
            8 => return self.take_in_line::<Plain<K, 8>>(image, from, fences),
            16 => return self.take_in_line::<Plain<K, 16>>(image, from, fences),
            6 => return self.take_in_line::<Plain<K, 6>>(image, from, fences),
            MARKED_4 => return self.take_in_line::<MarkedChild<K>>(image, from, fences),
            WORDS => return self.take_in_line::<Word<K>>(image, from, fences),
            _ => {}
        }
        let (mut slots, mut taken, mut room) = (self.all_slots(image.len()), 0, true);
        self.visit_entries(from, |key, value| {
            if !fences.contains(&key) {
                return;
            }
            match slots.next() {
                Some(slot) => drop(self.put_entry(image, slot, &key, value)),
                None => room = false,
            }
            taken += 1;
        })?;
        match room {
            true => Ok(taken),
            false => Err(CheckFailure::corrupt(0, Reason::Room)),
        }
    }

    /// Implements `take_entries` for entries within one line, whose bytes are the same in any slot.
    #[inline(always)]
    fn take_in_line<E: Entry>(
        &self,
        image: &mut [u8],
        from: &[u8],
        fences: &FenceKeys<K>,
    ) -> Result<usize, CheckFailure> {
        let (mut taken, mut room) = (0, true);
        // The offset of the next slot, and the end of the slots in its line.
        let mut at = E::HEAD_AT;
        let mut end = at + self.geometry.head_slots * E::STRIDE;
        let mut next_line = self.geometry.first_line * LINE_BYTES;
        self.present_in_line::<E>(self.lines(from)?, |entry| {
            if fences.contains(&K::read_from(&entry[E::KEY_AT..])) {
                if at == end {
                    at = next_line + E::LINE_AT;
                    end = at + E::PER_LINE * E::STRIDE;
                    next_line += LINE_BYTES;
                }
                match image.get_mut(at..at + E::STRIDE) {
                    Some(slot) => slot.copy_from_slice(entry),
                    None => room = false,
                }
                at += E::STRIDE;
                taken += 1;
            }
        })?;
        match room && taken <= self.geometry.capacity {
            true => Ok(taken),
            false => Err(CheckFailure::corrupt(0, Reason::Room)),
        }
    }

    /// Removes the entries of `part` whose keys are not less than `from`.
    pub(super) fn evict_entries(&self, image: &mut [u8], from: &K, part: Part) {
        match self.geometry.values() {
            8 => self.evict_in_line::<Plain<K, 8>>(image, from, part),
            16 => self.evict_in_line::<Plain<K, 16>>(image, from, part),
            6 => self.evict_in_line::<Plain<K, 6>>(image, from, part),
            MARKED_4 => self.evict_in_line::<MarkedChild<K>>(image, from, part),
            WORDS => self.evict_in_line::<Word<K>>(image, from, part),
            _ => {
                let range = self.range(part);
                for at in self.geometry.offsets().filter(|at| range.contains(at)) {
                    Self::evict_entry(&mut image[at..], self.geometry.key_at, from);
                }
            }
        }
    }

    #[inline(always)]
    fn evict_in_line<E: Entry>(&self, image: &mut [u8], from: &K, part: Part) {
        let lines = image.in_chunks_mut::<LINE_BYTES>();
        if part == Part::Head {
            for index in 0..self.geometry.head_slots {
                let entry = &mut lines[0][E::HEAD_AT + index * E::STRIDE..];
                Self::evict_entry(entry, E::KEY_AT, from);
            }
            return;
        }
        let mut left = self.geometry.capacity - self.geometry.head_slots;
        for line in lines.iter_mut().skip(self.geometry.first_line) {
            for nth in 0..E::PER_LINE.min(left) {
                Self::evict_entry(&mut line[E::LINE_AT + nth * E::STRIDE..], E::KEY_AT, from);
                left -= 1;
            }
        }
    }

    #[inline(always)]
    fn evict_entry(entry: &mut [u8], key_at: usize, from: &K) {
        if entry[0] != EMPTY && K::read_from(&entry[key_at..]) >= *from {
            entry[0] = EMPTY;
        }
    }

    /// Sets the version of every line except the header's. Entry versions do not change.
    pub(super) fn stamp_lines(&self, image: &mut [u8], version: u8) {
        let version = version & self.geometry.place.version_mask;
        for line in image.in_chunks_mut::<LINE_BYTES>().iter_mut().skip(1) {
            line[0] = version;
        }
    }
}
