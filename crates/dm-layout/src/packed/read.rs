//! Acceptance and search over the bytes of one READ.

use super::geometry::SHAPES;
use super::line::{Shapes, presence_of, seek_in, shape_of, visit_in, with_shapes};
use super::{KIND, Mark, Packed};
use crate::cut::{Cut, from_head, is_at_rest};
use crate::error::CheckFailure;
use crate::format::{Judged, Lookup, Place, Slot, Stale, judge};
use crate::header::LineLag;
use crate::key::{KeyBytes, Rise};
use crate::value::ValueRef;
use crate::{LINE_BYTES, Line};

/// Stands for an entry's number in the result of `seek` if the line has another version than expected.
const OTHER: usize = LINE_BYTES - 1;

impl<K: KeyBytes> Packed<K> {
    /// Looks up a key. If it is found, only the header's line, the line of the low fence key and the key's line are
    /// checked. If it is absent, all lines are checked.
    #[inline]
    pub(super) fn lookup_node<'a>(
        &self,
        bytes: &'a [u8],
        key: &K,
        level: u8,
    ) -> Result<Lookup<'a>, CheckFailure> {
        let lines = self.lines(bytes)?;
        let lag = match from_head(&lines[0], KIND, key, level)? {
            Ok(lag) => lag,
            Err(elsewhere) => return Ok(elsewhere),
        };
        let cut = Cut::of(&self.geometry.place, &lines[0], lag);
        //= docs/protocol/dolphin.md D14
        let low = self.low(bytes, lines, cut)?;
        if *key < low {
            return Ok(Lookup::Stale(Stale::Below));
        }
        Ok(match self.hit(lines, &key.above(&low), cut)? {
            Some(slot) => Lookup::Found {
                slot,
                value: self.value_at(lines, slot),
            },
            None => Lookup::Absent,
        })
    }

    /// Returns the low fence key, from a line that `cut` accepts.
    #[inline(always)]
    fn low(&self, bytes: &[u8], lines: &[Line], cut: Cut) -> Result<K, CheckFailure> {
        // The low fence key is in the header's line, or alone in the next line.
        if self.geometry.first_line > 1 && !cut.accepts(&lines[1]) {
            return Err(CheckFailure::node_torn(LINE_BYTES));
        }
        Ok(self.geometry.place.low.read(bytes))
    }

    /// Returns the slot of the key with this difference from the low fence key, or `None` if the key is absent. Fails
    /// if `cut` does not accept the lines on which this depends.
    #[inline(always)]
    fn hit(&self, lines: &[Line], rise: &Rise, cut: Cut) -> Result<Option<Slot>, CheckFailure> {
        with_shapes!(self, |shapes| self.scan(shapes, lines, rise, cut))
    }

    #[inline(always)]
    fn scan<S: Shapes>(
        &self,
        shapes: S,
        lines: &[Line],
        rise: &Rise,
        cut: Cut,
    ) -> Result<Option<Slot>, CheckFailure> {
        let first = self.geometry.first_line;
        let rest = lines.get(first..).unwrap_or_default();
        match Self::seek(shapes, rest, rise, cut.from) {
            Some(at) if at % LINE_BYTES == OTHER => self.scan_mixed(shapes, lines, rise, cut),
            Some(at) => Ok(Some(Slot::at(first * LINE_BYTES + at))),
            None => Ok(None),
        }
    }

    /// Finds the first line that contains the entry or whose version is not `version`. Returns the line's offset in
    /// `lines` plus the entry's number in the line, or plus [`OTHER`] if the line has another version.
    #[inline(never)]
    fn seek<S: Shapes>(shapes: S, lines: &[Line], rise: &Rise, version: u8) -> Option<usize> {
        for (number, line) in lines.iter().enumerate() {
            if line[0] != version {
                return Some(number * LINE_BYTES + OTHER);
            }
            if let Some(nth) = seek_in::<K, S>(shapes, line, rise) {
                return Some(number * LINE_BYTES + nth);
            }
        }
        None
    }

    /// Implements [`scan`](Self::scan) for lines of several versions.
    #[cold]
    #[inline(never)]
    fn scan_mixed<S: Shapes>(
        &self,
        shapes: S,
        lines: &[Line],
        rise: &Rise,
        cut: Cut,
    ) -> Result<Option<Slot>, CheckFailure> {
        for (number, line) in lines.iter().enumerate().skip(self.geometry.first_line) {
            if let Some(nth) = seek_in::<K, S>(shapes, line, rise) {
                return match cut.accepts(line) {
                    true => Ok(Some(Slot::at(number * LINE_BYTES + nth))),
                    false => Err(CheckFailure::node_torn(number * LINE_BYTES)),
                };
            }
        }
        cut.whole(lines)?;
        Ok(None)
    }

    /// Looks up a key for a writer, with at least the checks of [`lookup_node`](Self::lookup_node).
    #[inline]
    pub(super) fn judge_node(&self, bytes: &[u8], key: &K, level: u8) -> Result<Judged, CheckFailure> {
        let lines = self.lines(bytes)?;
        if is_at_rest(&lines[0], KIND, key, level) {
            let cut = Cut::of(&self.geometry.place, &lines[0], LineLag::Equal);
            let low = self.low(bytes, lines, cut)?;
            if *key >= low {
                return Ok(Judged::Here(self.find_or_room(lines, &key.above(&low), cut)?));
            }
        }
        judge(self, bytes, key, level)
    }

    /// Returns the slot for a key. The image was accepted before, so line versions need no check here.
    pub(super) fn place_key(&self, bytes: &[u8], key: &K) -> Result<Place, CheckFailure> {
        let lines = self.lines(bytes)?;
        let low: K = self.geometry.place.low.read(bytes);
        self.find_or_room(lines, &key.above(&low), Cut::ANY)
    }

    #[inline(always)]
    fn find_or_room(&self, lines: &[Line], rise: &Rise, cut: Cut) -> Result<Place, CheckFailure> {
        if let Some(slot) = self.hit(lines, rise, cut)? {
            return Ok(Place::Present(slot));
        }
        Ok(self.room(lines, *rise).map_or(Place::Full, Place::Free))
    }

    /// Returns a slot for an absent key. The first choice is a line whose shape is wide enough, the second choice is an
    /// empty line, and the last choice is a line that has room for the key in another shape.
    #[inline(always)]
    pub(super) fn room(&self, lines: &[Line], rise: Rise) -> Option<Slot> {
        self.room_in(lines, rise, |_| true)
    }

    /// Returns a slot for an absent key as [`room`](Self::room) does, but only in lines for which `may` returns true.
    #[inline(always)]
    pub(super) fn room_in(&self, lines: &[Line], rise: Rise, may: impl Fn(&Line) -> bool) -> Option<Slot> {
        //= docs/protocol/dolphin.md D17
        let class = self.geometry.class(rise);
        // The slots of a line of each shape, or none if the shape is too narrow.
        let slots: [u8; SHAPES] = core::array::from_fn(|shape| match shape >= class {
            true => self.geometry.shape(shape).full(),
            false => 0,
        });
        let mut empty = None;
        let numbered = || {
            let all = lines.iter().enumerate().skip(self.geometry.first_line);
            all.filter(|(_, line)| may(line))
        };
        for (number, line) in numbered() {
            let presence = presence_of(line);
            if presence == 0 {
                empty = empty.or(Some(number));
                continue;
            }
            let free = !presence & slots[shape_of(line) % SHAPES];
            if free != 0 {
                let nth = free.trailing_zeros() as usize;
                return Some(Slot::at(number * LINE_BYTES + nth));
            }
        }
        let other = empty.or_else(|| {
            let takes = |(number, line): (usize, &Line)| self.line_takes(line, None, class).then_some(number);
            numbered().find_map(takes)
        });
        other.map(|number| Slot::at(number * LINE_BYTES + Mark::RESHAPE))
    }

    pub(super) fn entry_at<'a>(
        &self,
        bytes: &'a [u8],
        slot: Slot,
    ) -> Result<Option<(K, ValueRef<'a>)>, CheckFailure> {
        let lines = self.lines(bytes)?;
        let Mark { line, nth } = Mark::of(slot);
        self.check_line(line, &lines[line])?;
        if presence_of(&lines[line]) >> nth & 1 == 0 {
            return Ok(None);
        }
        let shape = self.geometry.shape(shape_of(&lines[line]));
        let rise = Rise::read(&lines[line][shape.key_at(nth)..], shape.width());
        let low: K = self.geometry.place.low.read(bytes);
        Ok(Some((low.raised(rise), self.value_at(lines, slot))))
    }

    #[inline]
    fn value_at<'a>(&self, lines: &'a [Line], slot: Slot) -> ValueRef<'a> {
        let Mark { line, nth } = Mark::of(slot);
        let line = &lines[line];
        let shape = self.geometry.shape(shape_of(line));
        ValueRef::from(&line[shape.value_at(nth)..shape.value_at(nth + 1)])
    }

    #[inline]
    pub(super) fn visit_entries<'a>(
        &self,
        bytes: &'a [u8],
        each: impl FnMut(K, ValueRef<'a>),
    ) -> Result<(), CheckFailure> {
        with_shapes!(self, |shapes| self.visit_as(shapes, bytes, each))
    }

    #[inline(always)]
    fn visit_as<'a, S: Shapes>(
        &self,
        shapes: S,
        bytes: &'a [u8],
        mut each: impl FnMut(K, ValueRef<'a>),
    ) -> Result<(), CheckFailure> {
        let lines = self.lines(bytes)?;
        let low: K = self.geometry.place.low.read(bytes);
        for (number, line) in lines.iter().enumerate().skip(self.geometry.first_line) {
            self.check_line(number, line)?;
            visit_in(shapes, line, &mut |rise: Rise, value| {
                each(low.raised(rise), value)
            });
        }
        Ok(())
    }

    pub(super) fn count(&self, bytes: &[u8]) -> Result<usize, CheckFailure> {
        let mut count = 0;
        for (number, line) in self
            .lines(bytes)?
            .iter()
            .enumerate()
            .skip(self.geometry.first_line)
        {
            self.check_line(number, line)?;
            count += presence_of(line).count_ones() as usize;
        }
        Ok(count)
    }
}
