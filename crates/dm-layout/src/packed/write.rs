//! Edits of an image. Each edit returns the range of bytes to WRITE.

use crate::chunks::Chunks as _;
use alloc::vec::Vec;
use core::ops::Range;

use super::geometry::CONTROL;
use super::line::{Unusual, control, presence_of, shape_of, visit_in};
use super::{Mark, Packed};
use crate::format::Slot;
use crate::header::NodeInit;
use crate::key::{KeyBytes, Rise};
use crate::value::ValueRef;
use crate::{LINE_BYTES, Line};

impl<K: KeyBytes> Packed<K> {
    /// Writes an entry, and returns the range from the line's control byte to the value's end. The bytes in between are
    /// unchanged, or are rewritten in the new shape. The line keeps its version: one line is never torn, so readers
    /// need no new version to accept the change.
    pub(super) fn put_entry(
        &self,
        image: &mut [u8],
        slot: Slot,
        key: &K,
        value: ValueRef<'_>,
    ) -> Range<usize> {
        let low: K = self.geometry.place.low.read(image);
        let rise = key.above(&low);
        let mark = Mark::of(slot);
        let line = self.line_mut(image, mark.line);
        let nth = match mark.nth {
            Mark::RESHAPE => self.reshape(line, rise),
            nth => nth,
        };
        self.write_entry(line, nth, rise, value);
        let end = self.geometry.shape(shape_of(line)).value_at(nth + 1);
        mark.line * LINE_BYTES + CONTROL..mark.line * LINE_BYTES + end
    }

    fn line_mut<'i>(&self, image: &'i mut [u8], number: usize) -> &'i mut Line {
        assert_eq!(image.len(), self.geometry.node_bytes, "an image of one node");
        &mut image.in_chunks_mut()[number]
    }

    fn write_entry(&self, line: &mut Line, nth: usize, rise: Rise, value: ValueRef<'_>) {
        assert_eq!(
            value.len(),
            self.geometry.value_len,
            "a value of the geometry's length"
        );
        let shape = self.geometry.shape(shape_of(line));
        assert!(nth < shape.count(), "a line of {} entries", shape.count());
        rise.write_to(&mut line[shape.key_at(nth)..], shape.width());
        value.copy_to(&mut line[shape.value_at(nth)..]);
        line[CONTROL] |= 1 << nth;
    }

    /// Changes a line to the narrowest shape that has room for its entries and one more at `rise`. Returns the number
    /// of the new entry.
    fn reshape(&self, line: &mut Line, rise: Rise) -> usize {
        //= docs/protocol/dolphin.md D15
        let before = *line;
        let (count, widest) = self.crowd(&before, None, self.geometry.class(rise));
        line[CONTROL] = control(widest, 0);
        let mut nth = 0;
        visit_in(Unusual(&self.geometry), &before, &mut |rise, value| {
            self.write_entry(line, nth, rise, value);
            nth += 1;
        });
        count
    }

    pub(super) fn update_value(&self, image: &mut [u8], slot: Slot, value: ValueRef<'_>) -> Range<usize> {
        assert_eq!(
            value.len(),
            self.geometry.value_len,
            "a value of the geometry's length"
        );
        let Mark { line, nth } = Mark::of(slot);
        let shape = self.geometry.shape(shape_of(self.line_mut(image, line)));
        let from = line * LINE_BYTES + shape.value_at(nth);
        value.copy_to(&mut image[from..]);
        from..from + value.len()
    }

    /// Removes an entry by a WRITE of one byte. An empty line keeps its shape until it is reused.
    pub(super) fn remove_entry(&self, image: &mut [u8], slot: Slot) -> Range<usize> {
        let Mark { line, nth } = Mark::of(slot);
        self.line_mut(image, line)[CONTROL] &= !(1 << nth);
        let at = line * LINE_BYTES + CONTROL;
        at..at + 1
    }

    /// Removes the entries whose keys are not less than `from`.
    pub(super) fn evict_entries(&self, image: &mut [u8], from: &K) {
        let low: K = self.geometry.place.low.read(image);
        // No key is less than the low fence key. So if `from` is not greater than the low fence key, all entries are
        // removed.
        let limit = match *from > low {
            true => from.above(&low),
            false => Rise([0; 4]),
        };
        let lines = image.in_chunks_mut::<LINE_BYTES>();
        for line in lines.iter_mut().skip(self.geometry.first_line) {
            let shape = self.geometry.shape(shape_of(line));
            let mut presence = presence_of(line);
            for nth in 0..shape.count() {
                if !Rise::read(&line[shape.key_at(nth)..], shape.width()).is_below(limit) {
                    presence &= !(1 << nth);
                }
            }
            line[CONTROL] = control(shape_of(line), presence);
        }
    }

    /// Builds a node from these entries. Each line gets the narrowest shape that is wide enough for the remaining
    /// entries. Keys are taken in descending order, so that narrower entries use the rest of a wide line. Lines that
    /// are not needed stay empty.
    pub(super) fn lay_out(&self, image: &mut [u8], init: &NodeInit<K>, mut entries: Vec<(K, ValueRef<'_>)>) {
        assert_eq!(image.len(), self.geometry.node_bytes, "an image of one node");
        entries.sort_unstable_by_key(|(key, _)| core::cmp::Reverse(*key));
        image.fill(0);
        self.stamp_lines(image, init.version);
        self.geometry.place.encode(&init.header(), image);
        let mut lines = image.in_chunks_mut().iter_mut().skip(self.geometry.first_line);
        let mut left = &entries[..];
        while let Some((widest, _)) = left.first() {
            let Some(line) = lines.next() else {
                panic!("{} entries that find no places", entries.len())
            };
            let class = self.geometry.class(widest.above(&init.fences.low));
            let (here, rest) = left.split_at(left.len().min(self.geometry.shape(class).count()));
            line[CONTROL] = control(class, 0);
            for (nth, (key, value)) in here.iter().enumerate() {
                self.write_entry(line, nth, key.above(&init.fences.low), *value);
            }
            left = rest;
        }
    }

    /// Sets the node version of every line except the header's.
    pub(super) fn stamp_lines(&self, image: &mut [u8], version: u8) {
        for line in image.in_chunks_mut::<LINE_BYTES>().iter_mut().skip(1) {
            line[0] = version;
        }
    }
}
