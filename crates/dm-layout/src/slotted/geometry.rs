//! The positions of all parts of a slotted node. They are computed once from the sizes of node, key and value.

use core::fmt;
use core::marker::PhantomData;

use super::{EMPTY, PRESENT};
use crate::error::GeometryError;
use crate::header::{HeaderPlace, LowPlace, header_bytes, mask_of, takes_keys};
use crate::key::KeyBytes;
use crate::{LINE_BYTES, LINE_PAYLOAD};

/// The kind byte of a slotted node whose entries fit into a line.
const KIND: u8 = 0xd1;
/// The kind byte of a slotted node whose entries have their own lines.
const KIND_LINES: u8 = 0xd2;
const NODE_BYTES_MAX: usize = 65_536;
/// Position of the entry version in a line that belongs to one entry. It follows the line version.
pub(super) const ENTRY_VERSION_AT: usize = 1;
/// Number of bytes of versions at the start of a line that belongs to one entry.
pub(crate) const VERSIONS: usize = ENTRY_VERSION_AT + size_of::<u16>();
/// A flag in [`SlotGeometry::values`] for marked values. It differs from every number of bytes, because no value has so
/// many.
const MARKED: usize = 1 << 31;
/// A flag in [`SlotGeometry::values`] for aligned values.
const ALIGNED: usize = 1 << 30;
/// The result of [`SlotGeometry::values`] for marked children of four bytes.
pub(super) const MARKED_4: usize = MARKED | 4;
/// The result of [`SlotGeometry::values`] for words.
pub(super) const WORDS: usize = MARKED | ALIGNED | WORD_BYTES;
/// Bytes of a word, which is a value that a CAS can change.
const WORD_BYTES: usize = 8;

/// The geometry of a slotted node with line versions. It is a runtime value that is checked when it is made.
///
/// Every line begins with its version byte, and 63 bytes of payload follow. Line 0 holds the header, and entries in the
/// rest of the line. The low fence key is in bytes that the entries of lines 0 and 1 leave free. If there are too few,
/// it takes the place of entries in line 0, or the whole of line 1. An entry is a presence byte, the key, and the
/// value. If an entry fits into a line, it never crosses the end of a line. Otherwise it has its own whole lines, and
/// two bytes with the entry version follow the version byte of each of these lines, so that 61 bytes of payload remain.
/// *Marked* values, whose first byte is odd, need no presence byte: such an entry is the value, then the key. *Words*
/// are marked values of 8 bytes at aligned offsets, so that a CAS can change them.
///
/// A key has at most 44 bytes, so that the header fits into a line.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlotGeometry {
    pub(crate) node_bytes: usize,
    pub(crate) key_len: usize,
    pub(crate) value_len: usize,
    pub(crate) entry_bytes: usize,
    /// Whether values are marked.
    pub(crate) marked: bool,
    /// Whether values are words.
    pub(crate) words: bool,
    /// Distance of two successive entries in a line.
    pub(crate) stride: usize,
    /// Position of the first entry in the header's line. The next field is this position in every other line.
    pub(crate) head_at: usize,
    pub(crate) line_at: usize,
    /// Position of the key in an entry.
    pub(crate) key_at: usize,
    /// Number of lines of an entry; 1 if it is in-line.
    pub(crate) entry_lines: usize,
    /// The bits of an entry version that are used, if entries have their own lines.
    pub(crate) entry_version_mask: u16,
    pub(crate) head_slots: usize,
    /// Number of entries per line; 0 if an entry is larger than a line.
    pub(crate) per_line: usize,
    /// The first line that holds only entries. The low fence key may be in its spare bytes.
    pub(crate) first_line: usize,
    pub(crate) capacity: usize,
    /// All slots begin before this offset.
    pub(crate) slots_end: usize,
    pub(crate) place: HeaderPlace,
}

impl SlotGeometry {
    /// Makes the geometry of a node of `node_bytes` bytes, with as many entries as fit.
    ///
    /// # Errors
    /// Returns [`GeometryError`] if there is no such node; the error names the reason.
    pub const fn with_node_bytes(
        node_bytes: usize,
        key_len: usize,
        value_len: usize,
    ) -> Result<Self, GeometryError> {
        if node_bytes % LINE_BYTES != 0 || node_bytes < 2 * LINE_BYTES || node_bytes > NODE_BYTES_MAX {
            return Err(GeometryError::NodeBytes(node_bytes));
        }
        if let Err(error) = Self::check_entry(key_len, value_len, Values::Plain) {
            return Err(error);
        }
        let geometry = Self::fill(node_bytes, key_len, value_len, Values::Plain);
        if geometry.capacity < 2 {
            return Err(GeometryError::TooFewEntries {
                capacity: geometry.capacity,
            });
        }
        Ok(geometry)
    }

    /// Makes the geometry of a node of `node_bytes` bytes, with as many entries as fit, and with marked values: the
    /// first byte of each value is odd.
    ///
    /// # Errors
    /// Returns [`GeometryError`] if there is no such node; the error names the reason.
    pub const fn marked_with_node_bytes(
        node_bytes: usize,
        key_len: usize,
        value_len: usize,
    ) -> Result<Self, GeometryError> {
        // A mark needs a byte, and it does not protect the other lines of an entry with several lines.
        if value_len == 0 || key_len.saturating_add(value_len) > LINE_PAYLOAD {
            return Err(GeometryError::Marked(value_len));
        }
        match Self::with_node_bytes(node_bytes, key_len, value_len) {
            Ok(_) => Ok(Self::fill(node_bytes, key_len, value_len, Values::Marked)),
            Err(error) => Err(error),
        }
    }

    /// Makes the geometry of a node of `node_bytes` bytes, with as many words as fit: values of 8 bytes at aligned
    /// offsets, whose first byte is odd.
    ///
    /// # Errors
    /// Returns [`GeometryError`] if there is no such node; the error names the reason.
    pub const fn words_with_node_bytes(node_bytes: usize, key_len: usize) -> Result<Self, GeometryError> {
        if key_len.saturating_add(2 * WORD_BYTES) > LINE_BYTES {
            return Err(GeometryError::Marked(WORD_BYTES));
        }
        match Self::with_node_bytes(node_bytes, key_len, WORD_BYTES) {
            Ok(_) => {
                let geometry = Self::fill(node_bytes, key_len, WORD_BYTES, Values::Words);
                match geometry.capacity {
                    capacity @ (0 | 1) => Err(GeometryError::TooFewEntries { capacity }),
                    _ => Ok(geometry),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Makes the geometry of the smallest node that has room for `span` words. The node holds exactly that many.
    ///
    /// # Errors
    /// Returns [`GeometryError::Marked`] if a key and a word do not fit into a line, [`GeometryError::KeyBytes`] if no
    /// node has keys of this size, and [`GeometryError::Span`] if there is no such node.
    pub const fn words_with_span(span: usize, key_len: usize) -> Result<Self, GeometryError> {
        if key_len.saturating_add(2 * WORD_BYTES) > LINE_BYTES {
            return Err(GeometryError::Marked(WORD_BYTES));
        }
        Self::spanning(span, key_len, WORD_BYTES, Values::Words)
    }

    /// Makes the geometry of the smallest node that has room for `span` entries. The node holds exactly that many.
    ///
    /// # Errors
    /// Returns [`GeometryError::KeyBytes`] if no node has keys of this size, [`GeometryError::ValueBytes`] if no node
    /// has two values of this size, and [`GeometryError::Span`] if there is no node of so many entries.
    pub const fn with_span(span: usize, key_len: usize, value_len: usize) -> Result<Self, GeometryError> {
        Self::spanning(span, key_len, value_len, Values::Plain)
    }

    const fn spanning(
        span: usize,
        key_len: usize,
        value_len: usize,
        values: Values,
    ) -> Result<Self, GeometryError> {
        if let Err(error) = Self::check_entry(key_len, value_len, values) {
            return Err(error);
        }
        let mut node_bytes = 2 * LINE_BYTES;
        while span >= 2 && node_bytes <= NODE_BYTES_MAX {
            let mut geometry = Self::fill(node_bytes, key_len, value_len, values);
            if geometry.capacity >= span {
                geometry.capacity = span;
                return Ok(geometry.ending());
            }
            node_bytes += LINE_BYTES;
        }
        Err(GeometryError::Span(span))
    }

    /// Checks that a node of the maximum size has room for two entries.
    const fn check_entry(key_len: usize, value_len: usize, values: Values) -> Result<(), GeometryError> {
        if !takes_keys(key_len) {
            return Err(GeometryError::KeyBytes(key_len));
        }
        // The sums in `fill` could overflow with larger values than this.
        if value_len > NODE_BYTES_MAX || Self::fill(NODE_BYTES_MAX, key_len, value_len, values).capacity < 2 {
            return Err(GeometryError::ValueBytes(value_len));
        }
        Ok(())
    }

    /// Returns the same geometry with node versions of `bits` bits, and entry versions too if entries have them. With
    /// narrow versions, a model checker can find errors that occur only if a version wraps. The default is 8 for nodes,
    /// and 16 for entries.
    ///
    /// # Errors
    /// Returns [`GeometryError::VersionBits`] if `bits` is less than 2 or more than 8.
    pub const fn with_version_bits(mut self, bits: u8) -> Result<Self, GeometryError> {
        if bits < 2 || bits > 8 {
            return Err(GeometryError::VersionBits(bits));
        }
        self.place.version_mask = mask_of(bits);
        self.entry_version_mask = mask_of(bits) as u16;
        Ok(self)
    }

    /// Computes the geometry. The callers have checked that [`takes_keys`] accepts `key_len`, and that a value is not
    /// larger than a node.
    const fn fill(node_bytes: usize, key_len: usize, value_len: usize, values: Values) -> Self {
        let lines = node_bytes / LINE_BYTES;
        let (marked, words) = (!matches!(values, Values::Plain), matches!(values, Values::Words));
        let align = if words { WORD_BYTES } else { 1 };
        let key_at = if marked { value_len } else { 1 };
        let entry_bytes = key_len + value_len + if marked { 0 } else { 1 };
        let stride = entry_bytes.next_multiple_of(align);
        // The version is the first byte of every line.
        let per_line = (LINE_BYTES - align) / stride;
        let (kind, line_at, entry_lines) = match per_line {
            0 => (KIND_LINES, VERSIONS, entry_bytes.div_ceil(LINE_BYTES - VERSIONS)),
            _ => (KIND, align, 1),
        };
        let head_end = header_bytes(key_len);
        let head_at = head_end.next_multiple_of(align);
        let line_spare = if per_line > 0 {
            LINE_BYTES - line_at - per_line * stride
        } else {
            0
        };
        let mut head_slots = (LINE_BYTES - head_at) / stride;
        let mut first_line = 1;
        // The low fence key is put into spare bytes if there are enough. Otherwise it takes the place of slots in the
        // header's line, or the whole of line 1.
        let low = loop {
            let slots_end = match head_slots {
                0 => head_end,
                slots => head_at + slots * stride,
            };
            let head_spare = LINE_BYTES - slots_end;
            let line_low = 2 * LINE_BYTES - line_spare;
            if key_len <= head_spare {
                break LowPlace::whole(slots_end, key_len);
            } else if key_len <= line_spare {
                break LowPlace::whole(line_low, key_len);
            } else if key_len <= head_spare + line_spare {
                break LowPlace {
                    first_at: slots_end,
                    first_len: head_spare,
                    second_at: line_low,
                };
            } else if head_slots == 0 {
                first_line = 2;
                break LowPlace::whole(LINE_BYTES + 1, key_len);
            }
            head_slots -= 1;
        };
        let in_lines = if per_line > 0 {
            (lines - first_line) * per_line
        } else {
            (lines - first_line) / entry_lines
        };
        let geometry = Self {
            node_bytes,
            key_len,
            value_len,
            entry_bytes,
            marked,
            words,
            stride,
            head_at,
            line_at,
            key_at,
            entry_lines,
            entry_version_mask: u16::MAX,
            head_slots,
            per_line,
            first_line,
            capacity: head_slots + in_lines,
            slots_end: 0,
            place: HeaderPlace {
                base: 0,
                kind,
                low,
                version_mask: mask_of(8),
            },
        };
        geometry.ending()
    }

    /// Returns this geometry with `slots_end` computed from the other fields.
    const fn ending(mut self) -> Self {
        self.slots_end = match self.capacity {
            0 => 0,
            slots => self.slot_offset(slots - 1) + 1,
        };
        self
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

    /// Returns the size in bytes of an entry without line versions: the key, the value, and a presence byte unless
    /// values are marked.
    #[must_use]
    pub const fn entry_bytes(&self) -> usize {
        self.entry_bytes
    }

    /// Returns whether the first byte of every value is odd, so that an entry has no separate presence byte.
    #[must_use]
    pub const fn is_marked(&self) -> bool {
        self.marked
    }

    /// Returns whether values are words, which a CAS can change.
    #[inline]
    pub(crate) const fn holds_words(&self) -> bool {
        self.words
    }

    /// Returns the position of the value in an entry.
    pub(crate) const fn value_at(&self) -> usize {
        if self.marked { 0 } else { 1 + self.key_len }
    }

    /// Decodes the first byte of an entry. Returns `None` if it is invalid.
    #[inline]
    pub(crate) const fn presence(&self, byte: u8) -> Option<bool> {
        match byte {
            EMPTY => Some(false),
            PRESENT => Some(true),
            _ if self.marked && byte & PRESENT != 0 => Some(true),
            _ => None,
        }
    }

    /// Returns the number of bytes of a value, plus [`MARKED`] for marked values and [`ALIGNED`] for words. The result
    /// selects the functions with constant strides.
    #[inline]
    pub(crate) const fn values(&self) -> usize {
        if self.words {
            WORDS
        } else if self.marked {
            MARKED | self.value_len
        } else {
            self.value_len
        }
    }

    /// Returns whether an entry fits into one line, so that it has no version of its own.
    #[must_use]
    pub const fn is_in_line(&self) -> bool {
        self.per_line > 0
    }

    /// Returns the number of entries of a node.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of bits of a node version. If a node changes its structure 2^bits − 1 times during one READ,
    /// the reader might not detect this.
    #[must_use]
    pub const fn version_bits(&self) -> u8 {
        self.place.version_bits()
    }

    /// Returns the number of bits of an entry version; `None` for in-line entries, which have no version. If an entry
    /// is written 2^bits times during one READ, the reader might not detect this.
    #[must_use]
    pub const fn entry_version_bits(&self) -> Option<u8> {
        if self.is_in_line() {
            None
        } else {
            Some(self.entry_version_mask.count_ones() as u8)
        }
    }

    /// Returns the offset of the first byte of slot number `index`. Panics if there are not so many slots.
    #[must_use]
    pub const fn slot_offset(&self, index: usize) -> usize {
        assert!(index < self.capacity, "slot index within the capacity");
        if index < self.head_slots {
            return self.head_at + index * self.stride;
        }
        let index = index - self.head_slots;
        if self.per_line == 0 {
            return (self.first_line + index * self.entry_lines) * LINE_BYTES + self.line_at;
        }
        let line = self.first_line + index / self.per_line;
        line * LINE_BYTES + self.line_at + index % self.per_line * self.stride
    }
}

/// The kinds of values.
#[derive(Clone, Copy)]
enum Values {
    /// Any bytes, behind a presence byte.
    Plain,
    /// The first byte is odd.
    Marked,
    /// Marked values of 8 bytes at aligned offsets.
    Words,
}

/// The positions in an in-line entry as constants, so that the compiler can unroll loops over the usual kinds of
/// entries.
pub(super) trait Entry {
    /// Whether values are marked.
    const MARKED: bool;
    const KEY_AT: usize;
    const VALUE_AT: usize;
    const VALUE_LEN: usize;
    /// Distance of two successive entries in a line.
    const STRIDE: usize;
    /// Position of the first entry in the header's line. The next constant is this position in every other line.
    const HEAD_AT: usize;
    const LINE_AT: usize = 1;
    /// Entries per line.
    const PER_LINE: usize = {
        assert!(
            Self::LINE_AT + Self::STRIDE <= LINE_BYTES,
            "the entry fits in a line"
        );
        (LINE_BYTES - Self::LINE_AT) / Self::STRIDE
    };
}

/// An entry with a presence byte, a key `K`, and a value of `V` bytes.
pub(super) struct Plain<K, const V: usize>(PhantomData<K>);

impl<K: KeyBytes, const V: usize> Entry for Plain<K, V> {
    const MARKED: bool = false;
    const KEY_AT: usize = 1;
    const VALUE_AT: usize = 1 + K::LEN;
    const VALUE_LEN: usize = V;
    const STRIDE: usize = 1 + K::LEN + V;
    const HEAD_AT: usize = header_bytes(K::LEN);
}

/// An entry with a marked child of four bytes, and a key `K`.
pub(super) struct MarkedChild<K>(PhantomData<K>);

impl<K: KeyBytes> Entry for MarkedChild<K> {
    const MARKED: bool = true;
    const KEY_AT: usize = 4;
    const VALUE_AT: usize = 0;
    const VALUE_LEN: usize = 4;
    const STRIDE: usize = 4 + K::LEN;
    const HEAD_AT: usize = header_bytes(K::LEN);
}

/// An entry with a word, and a key `K`.
pub(super) struct Word<K>(PhantomData<K>);

impl<K: KeyBytes> Entry for Word<K> {
    const MARKED: bool = true;
    const KEY_AT: usize = WORD_BYTES;
    const VALUE_AT: usize = 0;
    const VALUE_LEN: usize = WORD_BYTES;
    const STRIDE: usize = (WORD_BYTES + K::LEN).next_multiple_of(WORD_BYTES);
    const HEAD_AT: usize = header_bytes(K::LEN).next_multiple_of(WORD_BYTES);
    const LINE_AT: usize = WORD_BYTES;
}

/// An iterator over the offsets of all slots in byte order. It needs no division per slot.
#[derive(Clone, Debug)]
pub(super) struct SlotOffsets {
    geometry: SlotGeometry,
    left: usize,
    left_in_line: usize,
    at: usize,
    next_line: usize,
}

impl SlotGeometry {
    #[inline]
    pub(super) const fn offsets(&self) -> SlotOffsets {
        SlotOffsets {
            geometry: *self,
            left: self.capacity,
            left_in_line: self.head_slots,
            at: self.head_at,
            next_line: self.first_line,
        }
    }
}

impl Iterator for SlotOffsets {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        if self.left_in_line == 0 {
            self.left_in_line = self.geometry.per_line.max(1);
            self.at = self.next_line * LINE_BYTES + self.geometry.line_at;
            self.next_line += self.geometry.entry_lines;
        }
        self.left_in_line -= 1;
        let at = self.at;
        self.at += self.geometry.stride;
        Some(at)
    }

    /// Passes all remaining offsets to `f`, without a check at each slot whether its line ends.
    #[inline]
    fn fold<B, F: FnMut(B, usize) -> B>(mut self, init: B, mut f: F) -> B {
        let mut folded = init;
        while self.left > 0 {
            if self.left_in_line == 0 {
                self.left_in_line = self.geometry.per_line.max(1);
                self.at = self.next_line * LINE_BYTES + self.geometry.line_at;
                self.next_line += self.geometry.entry_lines;
            }
            let here = self.left_in_line.min(self.left);
            for _ in 0..here {
                folded = f(folded, self.at);
                self.at += self.geometry.stride;
            }
            self.left -= here;
            self.left_in_line = 0;
        }
        folded
    }
}

impl fmt::Debug for SlotGeometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SlotGeometry({} B, {}+{}{}, {} slots)",
            self.node_bytes,
            self.key_len,
            self.value_len,
            match (self.words, self.marked) {
                (true, _) => " word",
                (false, true) => " marked",
                (false, false) => "",
            },
            self.capacity
        )
    }
}
