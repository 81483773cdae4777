//! Functions on one line of entries.

use crate::chunks::Chunks as _;
use core::marker::PhantomData;

use super::Packed;
use super::geometry::{CONTROL, KEYS, PRESENCE_BITS, SHAPES, Shape, shapes};
use crate::error::{CheckFailure, Reason};
use crate::key::{KeyBytes, Rise, low_word};
use crate::value::ValueRef;
use crate::{LINE_BYTES, Line};

/// The shapes of a geometry. If they are constants, loops over entries have constant strides.
pub(super) trait Shapes: Copy {
    fn shape(self, number: usize) -> Shape;
}

/// The shapes for keys `K` and values of `V` bytes, as constants.
#[derive(Clone, Copy)]
pub(super) struct Fixed<K, const V: usize>(pub(super) PhantomData<K>);

impl<K: KeyBytes, const V: usize> Fixed<K, V> {
    const SHAPES: [Shape; SHAPES] = shapes(K::LEN, V).0;
}

impl<K: KeyBytes, const V: usize> Shapes for Fixed<K, V> {
    #[inline(always)]
    fn shape(self, number: usize) -> Shape {
        Self::SHAPES[number % SHAPES]
    }
}

/// The shapes of any geometry, as runtime values.
#[derive(Clone, Copy)]
pub(super) struct Unusual<'g>(pub(super) &'g super::PackedGeometry);

impl Shapes for Unusual<'_> {
    #[inline]
    fn shape(self, number: usize) -> Shape {
        self.0.shape(number)
    }
}

/// Runs `$run` with the shapes of `$format`, which are constants for the common sizes of entries.
macro_rules! with_shapes {
    ($format:expr, |$shapes:ident| $run:expr) => {{
        let geometry = &$format.geometry;
        match geometry.value_len {
            8 => {
                let $shapes = $crate::packed::line::Fixed::<K, 8>(core::marker::PhantomData);
                $run
            }
            16 => {
                let $shapes = $crate::packed::line::Fixed::<K, 16>(core::marker::PhantomData);
                $run
            }
            _ => {
                let $shapes = $crate::packed::line::Unusual(geometry);
                $run
            }
        }
    }};
}
pub(super) use with_shapes;

/// Returns the number of a line's shape.
#[inline(always)]
pub(super) const fn shape_of(line: &Line) -> usize {
    (line[CONTROL] >> PRESENCE_BITS) as usize
}

/// Returns one bit for each entry of the line that is present.
#[inline(always)]
pub(super) const fn presence_of(line: &Line) -> u8 {
    line[CONTROL] & ((1 << PRESENCE_BITS) - 1)
}

#[inline(always)]
pub(super) const fn control(shape: usize, presence: u8) -> u8 {
    (shape as u8) << PRESENCE_BITS | presence
}

/// Returns the number of the entry whose key differs from the low fence key by `rise`.
#[inline(always)]
pub(super) fn seek_in<K: KeyBytes, S: Shapes>(shapes: S, line: &Line, rise: &Rise) -> Option<usize> {
    match shape_of(line) {
        0 => seek_as::<K>(shapes.shape(0), line, rise),
        1 => seek_as::<K>(shapes.shape(1), line, rise),
        2 => seek_as::<K>(shapes.shape(2), line, rise),
        _ => seek_as::<K>(shapes.shape(3), line, rise),
    }
}

#[inline(always)]
fn seek_as<K: KeyBytes>(shape: Shape, line: &Line, rise: &Rise) -> Option<usize> {
    // Compare the lowest words first, because neighbouring keys differ in them. The lowest words of all entries of a
    // line are compared at once.
    let number = rise.0[0];
    let perhaps = match shape.width() {
        2 => shows::<2>(shape, line, number),
        4 => shows::<4>(shape, line, number),
        8 => shows::<8>(shape, line, number),
        width => (0..shape.count()).fold(false, |found, nth| {
            found | (low_word(&line[shape.key_at(nth)..], width) == number)
        }),
    };
    if !perhaps {
        return None;
    }
    let same = |nth: usize| low_word(&line[shape.key_at(nth)..], shape.width()) == number;
    let mut found =
        (0..shape.count()).fold(0, |found, nth| found | u8::from(same(nth)) << nth) & line[CONTROL];
    while found != 0 {
        let nth = found.trailing_zeros() as usize;
        if K::LEN <= 8 || Rise::read(&line[shape.key_at(nth)..], shape.width()) == *rise {
            return Some(nth);
        }
        found &= found - 1;
    }
    None
}

/// Returns whether any place for a key in the line, used or not, contains `number` in `W` bytes.
#[inline(always)]
fn shows<const W: usize>(shape: Shape, line: &Line, number: u64) -> bool {
    let bytes = number.to_le_bytes();
    let wanted = bytes
        .first_chunk::<W>()
        .filter(|_| W == 8 || number >> (8 * W) == 0);
    let keys = line[KEYS..].in_chunks::<W>().0.get(..shape.count());
    match (wanted, keys) {
        (Some(wanted), Some(keys)) => keys.iter().fold(false, |found, key| found | (key == wanted)),
        _ => false,
    }
}

/// Passes every entry of a line to `each`, in order: the difference of its key from the low fence key, and its value.
#[inline(always)]
pub(super) fn visit_in<'a, S: Shapes>(shapes: S, line: &'a Line, each: &mut impl FnMut(Rise, ValueRef<'a>)) {
    match shape_of(line) {
        0 => visit_as(shapes.shape(0), line, each),
        1 => visit_as(shapes.shape(1), line, each),
        2 => visit_as(shapes.shape(2), line, each),
        _ => visit_as(shapes.shape(3), line, each),
    }
}

#[inline(always)]
fn visit_as<'a>(shape: Shape, line: &'a Line, each: &mut impl FnMut(Rise, ValueRef<'a>)) {
    for nth in 0..shape.count() {
        if line[CONTROL] >> nth & 1 != 0 {
            let rise = Rise::read(&line[shape.key_at(nth)..], shape.width());
            each(
                rise,
                ValueRef::from(&line[shape.value_at(nth)..shape.value_at(nth + 1)]),
            );
        }
    }
}

impl<K: KeyBytes> Packed<K> {
    /// Checks a line's control byte.
    #[inline]
    pub(super) fn check_line(&self, number: usize, line: &Line) -> Result<(), CheckFailure> {
        let shape = shape_of(line);
        let sound =
            shape < self.geometry.kinds() && presence_of(line) & !self.geometry.shape(shape).full() == 0;
        match sound {
            true => Ok(()),
            false => Err(CheckFailure::corrupt(number * LINE_BYTES + CONTROL, Reason::Line)),
        }
    }

    /// Returns how many entries of a line have a difference less than `limit` (all if there is no limit), and the
    /// widest class among these entries and `class`.
    pub(super) fn crowd(&self, line: &Line, limit: Option<Rise>, class: usize) -> (usize, usize) {
        let (mut count, mut widest) = (0, class);
        visit_in(Unusual(&self.geometry), line, &mut |rise: Rise, _| {
            if limit.is_none_or(|limit| rise.is_below(limit)) {
                count += 1;
                widest = widest.max(self.geometry.class(rise));
            }
        });
        (count, widest)
    }

    /// Returns whether a line has room for an entry of `class`, in any shape, after its entries from `limit` on are
    /// removed.
    pub(super) fn line_takes(&self, line: &Line, limit: Option<Rise>, class: usize) -> bool {
        let (count, widest) = self.crowd(line, limit, class);
        count < self.geometry.shape(widest).count()
    }
}
