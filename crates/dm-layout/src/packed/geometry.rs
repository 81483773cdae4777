//! The positions of all parts of a packed node. They are computed once from the sizes of node, key and value.

use core::fmt;

use crate::error::GeometryError;
use crate::header::{HeaderPlace, LowPlace, header_bytes, mask_of, takes_keys};
use crate::key::Rise;
use crate::{LINE_BYTES, LINE_PAYLOAD};

/// The kind byte of a packed node.
pub(crate) const KIND: u8 = 0xd8;
const NODE_BYTES_MAX: usize = 65_536;
/// Position in a line of the control byte, which selects the line's shape and marks its present entries.
pub(crate) const CONTROL: usize = 1;
/// Position in a line of its first key. The values follow all keys.
pub(crate) const KEYS: usize = 2;
/// Number of bytes for the entries of a line.
const ROOM: usize = LINE_PAYLOAD - 1;
/// Maximum number of entries of a line, because its control byte has one bit for each.
pub(crate) const PRESENCE_BITS: usize = 6;
/// Maximum number of shapes of lines, because the control byte has two bits for the shape.
pub(crate) const SHAPES: usize = 4;
/// The number of parts into which a line's room is divided. It is a multiple of every possible number of entries, so
/// that an entry takes a whole number of parts.
pub(crate) const LINE_PARTS: usize = 60;
const _: () = {
    let mut count = 1;
    while count <= PRESENCE_BITS {
        assert!(LINE_PARTS % count == 0);
        count += 1;
    }
};

/// The *shape* of a line: the sizes and positions of its entries.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    width: usize,
    value_len: usize,
    count: usize,
}

impl Shape {
    /// Makes the shape for keys of `width` bytes. It has as many entries as fit.
    #[inline(always)]
    pub(crate) const fn of(width: usize, value_len: usize) -> Self {
        let fit = ROOM / (width + value_len);
        Self {
            width,
            value_len,
            count: if fit < PRESENCE_BITS { fit } else { PRESENCE_BITS },
        }
    }

    /// Returns the number of bytes that store the difference of a key and the low fence key.
    #[inline(always)]
    #[must_use]
    pub const fn width(self) -> usize {
        self.width
    }

    /// Returns the size in bytes of an entry: the difference that stores its key, and its value.
    #[must_use]
    pub const fn entry_bytes(self) -> usize {
        self.width + self.value_len
    }

    /// Returns the number of entries of a line.
    #[inline(always)]
    #[must_use]
    pub const fn count(self) -> usize {
        self.count
    }

    /// Returns the presence bits of a full line.
    #[inline(always)]
    pub(crate) const fn full(self) -> u8 {
        (1 << self.count) - 1
    }

    /// Returns the position in its line of key number `nth`.
    #[inline(always)]
    pub(crate) const fn key_at(self, nth: usize) -> usize {
        KEYS + nth * self.width
    }

    /// Returns the position in its line of value number `nth`.
    #[inline(always)]
    pub(crate) const fn value_at(self, nth: usize) -> usize {
        KEYS + self.count * self.width + nth * self.value_len
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x({}+{})", self.count, self.width, self.value_len)
    }
}

/// The geometry of a packed node. It is a runtime value that is checked when it is made.
///
/// Line 0 holds the header and, for keys of up to 22 bytes, the low fence key. A longer low fence key takes the whole
/// second line. Every other line is a version byte, a control byte (a shape in its upper two bits, and a bit for each
/// of six entries), then the keys, and then the values. Each key is stored as its difference from the low fence key, a
/// little-endian number of the shape's width. The keys of a line are next to each other, so that all of them can be
/// compared at once.
///
/// A node has up to four shapes of lines. The width of a shape is the largest one with which the shape's number of
/// entries fits into a line. If this gives more than four shapes, the narrowest one and the three widest ones are used.
/// The widest one is wide enough for any key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PackedGeometry {
    pub(crate) node_bytes: usize,
    pub(crate) key_len: usize,
    pub(crate) value_len: usize,
    /// The first line of entries.
    pub(crate) first_line: usize,
    /// The shapes, from the narrowest to the widest. The last of the `kinds` shapes is repeated to fill the array.
    shapes: [Shape; SHAPES],
    kinds: usize,
    pub(crate) place: HeaderPlace,
}

impl PackedGeometry {
    /// Makes the geometry of a node of `node_bytes`, for keys of `key_len` bytes and values of `value_len` bytes.
    ///
    /// # Errors
    /// Returns [`GeometryError`] if there is no such node; the error names the reason. A key and a value together must
    /// have at most 62 bytes, so that they fit into a line.
    pub const fn with_node_bytes(
        node_bytes: usize,
        key_len: usize,
        value_len: usize,
    ) -> Result<Self, GeometryError> {
        if node_bytes % LINE_BYTES != 0 || node_bytes < 2 * LINE_BYTES || node_bytes > NODE_BYTES_MAX {
            return Err(GeometryError::NodeBytes(node_bytes));
        }
        if !takes_keys(key_len) {
            return Err(GeometryError::KeyBytes(key_len));
        }
        if key_len.saturating_add(value_len) > ROOM {
            return Err(GeometryError::Packed(value_len));
        }
        let (shapes, kinds) = shapes(key_len, value_len);
        let head = header_bytes(key_len);
        let (low, first_line) = match head + key_len <= LINE_BYTES {
            true => (LowPlace::whole(head, key_len), 1),
            false => (LowPlace::whole(LINE_BYTES + 1, key_len), 2),
        };
        let geometry = Self {
            node_bytes,
            key_len,
            value_len,
            first_line,
            shapes,
            kinds,
            place: HeaderPlace {
                base: 0,
                kind: KIND,
                low,
                version_mask: mask_of(8),
            },
        };
        // Any two keys must fit into a node, because otherwise the node could not be split.
        let least = geometry.capacity_of(kinds - 1);
        if least < 2 {
            return Err(GeometryError::TooFewEntries { capacity: least });
        }
        Ok(geometry)
    }

    /// Returns the size of a node in bytes.
    #[must_use]
    pub const fn node_bytes(&self) -> usize {
        self.node_bytes
    }

    /// Returns the size of a key in bytes.
    #[must_use]
    pub const fn key_len(&self) -> usize {
        self.key_len
    }

    /// Returns the size of a value in bytes.
    #[must_use]
    pub const fn value_len(&self) -> usize {
        self.value_len
    }

    /// Returns the possible shapes of a line, from the narrowest to the widest.
    #[must_use]
    pub fn shapes(&self) -> &[Shape] {
        &self.shapes[..self.kinds]
    }

    /// Returns the number of lines of entries.
    #[must_use]
    pub const fn lines(&self) -> usize {
        (self.node_bytes / LINE_BYTES).saturating_sub(self.first_line)
    }

    /// Returns the number of the first line of entries.
    #[must_use]
    pub const fn first_line(&self) -> usize {
        self.first_line
    }

    /// Returns the number of entries of a node in which all lines have this shape.
    #[must_use]
    pub const fn capacity_of(&self, shape: usize) -> usize {
        self.lines() * self.shapes[shape].count
    }

    /// Returns the maximum number of entries, which is reached if all keys are close to the low fence key.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity_of(0)
    }

    /// Returns the number of shapes.
    #[inline]
    pub(crate) const fn kinds(&self) -> usize {
        self.kinds
    }

    /// Returns the shape that the upper bits of a control byte select, or the widest one if there is no such shape.
    #[inline]
    pub(crate) const fn shape(&self, number: usize) -> Shape {
        self.shapes[number % SHAPES]
    }

    /// Returns the *class* of a key: the number of the narrowest shape that is wide enough for it.
    #[inline]
    pub(crate) fn class(&self, rise: Rise) -> usize {
        let bytes = rise.bytes();
        let narrower = |shape: &&Shape| shape.width < bytes;
        self.shapes[..self.kinds - 1].iter().take_while(narrower).count()
    }

    /// Returns how many of a line's [`LINE_PARTS`] an entry of this class takes.
    pub(crate) const fn parts(&self, class: usize) -> usize {
        LINE_PARTS / self.shapes[class].count
    }

    /// Returns how many lines these numbers of entries of each class need.
    pub(crate) fn lines_for(&self, mut of_class: [usize; SHAPES]) -> usize {
        let (mut lines, mut free) = (0, 0);
        // Narrower entries use the rest of a wide line.
        for class in (0..self.kinds).rev() {
            let left = of_class[class].saturating_sub(free);
            free -= of_class[class] - left;
            of_class[class] = left;
            let more = left.div_ceil(self.shapes[class].count);
            lines += more;
            free += more * self.shapes[class].count - left;
        }
        lines
    }
}

/// Returns the shapes of lines, and their number.
pub(super) const fn shapes(key_len: usize, value_len: usize) -> ([Shape; SHAPES], usize) {
    let widest = Shape::of(key_len, value_len);
    let (mut shapes, mut kinds) = ([widest; SHAPES], 0);
    let mut width = 1;
    while width <= key_len {
        let shape = Shape::of(width, value_len);
        if width == key_len || Shape::of(width + 1, value_len).count < shape.count {
            if kinds == SHAPES {
                // The second shape is dropped, because the narrowest and the three widest shapes are used.
                (shapes[1], shapes[2]) = (shapes[2], shapes[3]);
                kinds -= 1;
            }
            shapes[kinds] = shape;
            kinds += 1;
        }
        width += 1;
    }
    (shapes, kinds)
}

impl fmt::Debug for PackedGeometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "PackedGeometry({} B, {}+{}, {} lines of {:?})",
            self.node_bytes,
            self.key_len,
            self.value_len,
            self.lines(),
            self.shapes()
        )
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn shapes_of(key_len: usize, value_len: usize) -> Vec<(usize, usize)> {
        let geometry = PackedGeometry::with_node_bytes(1024, key_len, value_len).expect("it fits");
        geometry.shapes().iter().map(|s| (s.width, s.count)).collect()
    }

    #[test]
    fn shapes_are_as_wide_as_costs_no_entry() {
        assert_eq!(shapes_of(8, 8), [(2, 6), (4, 5), (7, 4), (8, 3)]);
        assert_eq!(shapes_of(8, 16), [(4, 3), (8, 2)]);
        assert_eq!(shapes_of(8, 0), [(8, 6)]);
        assert_eq!(shapes_of(8, 54), [(8, 1)]);
        assert_eq!(shapes_of(32, 8), [(2, 6), (12, 3), (23, 2), (32, 1)]);
        assert_eq!(
            PackedGeometry::with_node_bytes(1024, 8, 55),
            Err(GeometryError::Packed(55))
        );
        assert_eq!(
            PackedGeometry::with_node_bytes(128, 8, 54),
            Err(GeometryError::TooFewEntries { capacity: 1 })
        );
        assert_eq!(
            PackedGeometry::with_node_bytes(128, 32, 8),
            Err(GeometryError::TooFewEntries { capacity: 0 })
        );
    }

    #[test]
    fn narrow_entries_fill_what_wide_ones_leave() {
        let geometry = PackedGeometry::with_node_bytes(1024, 8, 8).expect("it fits");
        assert_eq!(geometry.lines_for([90, 0, 0, 0]), 15);
        assert_eq!(geometry.lines_for([0, 0, 0, 45]), 15);
        assert_eq!(geometry.lines_for([0, 0, 0, 46]), 16);
        // One line with 8-byte keys has room for one key of 7 bytes and one of 2 bytes.
        assert_eq!(geometry.lines_for([1, 0, 1, 1]), 1);
        assert_eq!(geometry.lines_for([7, 0, 1, 1]), 2);
        assert_eq!(geometry.lines_for([8, 0, 1, 1]), 3);
    }
}
