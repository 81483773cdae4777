//! The positions of all parts of a hopscotch node. They are computed once from the numbers of entries of a node and of
//! a neighbourhood, and from the sizes of a key and a value.

use core::ops::Range;

use crate::LINE_BYTES;
use crate::error::GeometryError;
use crate::format::Slot;
use crate::header::{HeaderPlace, LowPlace, header_bytes, mask_of, takes_keys};
use crate::key::KEY_BYTES_MAX;

/// The kind byte of a hopscotch node.
pub(crate) const KIND: u8 = 0xd4;
const NODE_BYTES_MAX: usize = 65_536;
/// Maximum number of entries of a node. The limit exists because the tables for planning hops are on the stack.
pub(crate) const SPAN_MAX: usize = 512;
/// Maximum number of entries of a neighbourhood.
pub(crate) const NEIGHBOURHOOD_MAX: usize = 16;
/// Number of bytes of a mark before its piece of the fence keys: hop count, version and flags.
pub(crate) const MARK_HEAD: usize = 3;
/// Position of the node version in a mark. A mark begins with the hop count of the boundary to the next group, so that
/// this count directly follows the entries.
pub(crate) const MARK_VERSION: usize = 1;
/// Maximum number of bytes of both fence keys together.
pub(crate) const FENCES_MAX: usize = 2 * KEY_BYTES_MAX;
/// Number of bits of a node version. The version shares its byte with two flags of an entry: present and young.
const VERSION_BITS: u8 = 6;

/// The geometry of a hopscotch node. It is a runtime value that is checked when it is made.
///
/// Line 0 holds the header. *Groups* of whole lines follow. Each group contains as many entries as fit (the last groups
/// may have fewer or none), and then a *mark* (hop count, node version, flags, a piece of the fence keys). The fence
/// keys are divided into two or four pieces, and successive groups contain successive pieces. An entry is a byte with
/// node version and flags, the key, and the value. If an entry and a mark do not fit into one line, each entry has its
/// own group, and each line of an entry begins with two bytes of versions.
///
/// A *boundary* lies between two successive groups of entries, and between the last one and the first. If an entry fits
/// into a line with a mark, entries hop, and each boundary has a count of the hops across it. The mark before the
/// boundary contains the count, and the first byte of the group after the boundary contains a copy of the count. So a
/// READ from any slot to any later slot contains both copies for all boundaries between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HopGeometry {
    pub(crate) node_bytes: usize,
    pub(crate) key_len: usize,
    pub(crate) value_len: usize,
    pub(crate) span: usize,
    pub(crate) neighbourhood: usize,
    /// Number of bytes before a group's first entry: the hop count of the boundary before the group, if entries hop.
    pub(crate) front: usize,
    /// The bits of a hop count that are used.
    pub(crate) hops_mask: u8,
    /// Number of bytes of versions and flags before a key.
    pub(crate) prefix: usize,
    /// Number of bytes from the first to the last byte of an entry, including the versions of its lines.
    pub(crate) stride: usize,
    /// Number of lines that an entry takes.
    pub(crate) entry_lines: usize,
    pub(crate) per_group: usize,
    pub(crate) group_lines: usize,
    pub(crate) groups: usize,
    /// Number of groups that contain entries.
    entry_groups: usize,
    /// Number of groups whose mark is at `mark_behind`.
    full_groups: usize,
    pub(crate) pieces: usize,
    pub(crate) piece: usize,
    /// Position of the mark in a group that is full of entries.
    mark_behind: usize,
    pub(crate) place: HeaderPlace,
}

/// The bytes of one neighbourhood, with the marks that a reader needs to check them. They are one range of the node,
/// or two ranges if the neighbourhood wraps around at the node's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The home of this neighbourhood.
    pub(crate) home: usize,
    /// The range that contains the home. It begins at the home, or at an earlier mark if the later marks lack a piece
    /// of the fence keys.
    pub first: Range<usize>,
    /// The range that begins at the first group, if the neighbourhood wraps around at the node's end.
    pub second: Option<Range<usize>>,
    /// The groups whose marks are in one of the ranges.
    pub(crate) marks: [Range<usize>; 2],
}

/// Successive slots whose bytes a client has read. They may wrap around at the node's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    pub(crate) first: usize,
    pub(crate) count: usize,
}

impl Known {
    #[inline]
    pub(crate) const fn contains(&self, geometry: &HopGeometry, slot: usize) -> bool {
        let distance = if slot >= self.first {
            slot - self.first
        } else {
            slot + geometry.span - self.first
        };
        distance < self.count
    }
}

impl Reach {
    /// Returns the number of bytes to read.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.first.len() + self.second.as_ref().map_or(0, ExactSizeIterator::len)
    }
}

impl HopGeometry {
    /// Makes the geometry of a node of `span` entries. Each entry lies in the neighbourhood of its home, which has
    /// `neighbourhood` slots.
    ///
    /// # Errors
    /// Returns [`GeometryError`] if there is no such node; the error names the reason.
    pub const fn new(
        span: usize,
        neighbourhood: usize,
        key_len: usize,
        value_len: usize,
    ) -> Result<Self, GeometryError> {
        if span < 2 || span > SPAN_MAX {
            return Err(GeometryError::Span(span));
        }
        if neighbourhood < 2 || neighbourhood > NEIGHBOURHOOD_MAX || neighbourhood > span {
            return Err(GeometryError::Neighbourhood(neighbourhood));
        }
        if !takes_keys(key_len) {
            return Err(GeometryError::KeyBytes(key_len));
        }
        // Such a value fits into no node, and the sums below could overflow.
        if value_len > NODE_BYTES_MAX {
            return Err(GeometryError::ValueBytes(value_len));
        }
        // If a fence key of an odd length is divided, it is padded, so that it has two equal halves.
        let half = key_len.div_ceil(2);
        let half_mark = MARK_HEAD + half;
        let mut geometry = Self {
            node_bytes: 0,
            key_len,
            value_len,
            span,
            neighbourhood,
            front: 1,
            hops_mask: u8::MAX,
            prefix: 1,
            stride: 1 + key_len + value_len,
            entry_lines: 1,
            per_group: 0,
            group_lines: 1,
            groups: 0,
            entry_groups: 0,
            full_groups: 0,
            pieces: 2,
            piece: key_len,
            mark_behind: 0,
            place: HeaderPlace {
                base: 0,
                kind: KIND,
                low: LowPlace::whole(0, key_len),
                version_mask: mask_of(VERSION_BITS),
            },
        };
        geometry.per_group = (LINE_BYTES - geometry.front - half_mark) / geometry.stride;
        let used = if geometry.per_group > 0 {
            geometry.mark_behind = geometry.front + geometry.per_group * geometry.stride;
            geometry.mark_behind
        } else {
            // If an entry has its own lines, each line begins with two bytes of versions.
            geometry.per_group = 1;
            geometry.front = 0;
            geometry.prefix = 2;
            let payload = LINE_BYTES - geometry.prefix;
            geometry.entry_lines = (key_len + value_len).div_ceil(payload);
            geometry.stride = geometry.entry_lines * geometry.prefix + key_len + value_len;
            let tail = geometry.stride - (geometry.entry_lines - 1) * LINE_BYTES;
            geometry.group_lines = geometry.entry_lines;
            geometry.mark_behind = geometry.stride;
            if tail + half_mark > LINE_BYTES {
                geometry.group_lines += 1;
                geometry.mark_behind = geometry.entry_lines * LINE_BYTES + geometry.prefix;
            }
            geometry.mark_behind % LINE_BYTES
        };
        if used + MARK_HEAD + key_len > LINE_BYTES {
            geometry.piece = half;
            geometry.pieces = 4;
        }
        geometry.entry_groups = span.div_ceil(geometry.per_group);
        geometry.groups = geometry.entry_groups;
        if geometry.groups < geometry.pieces {
            geometry.groups = geometry.pieces;
        }
        geometry.full_groups = if geometry.is_in_line() {
            span / geometry.per_group
        } else {
            geometry.groups
        };
        geometry.node_bytes = (1 + geometry.groups * geometry.group_lines) * LINE_BYTES;
        if geometry.node_bytes > NODE_BYTES_MAX {
            // The smallest node has one group for each piece of the fence keys.
            return Err(
                match geometry.pieces * geometry.group_lines >= NODE_BYTES_MAX / LINE_BYTES {
                    true => GeometryError::ValueBytes(value_len),
                    false => GeometryError::Span(span),
                },
            );
        }
        geometry.place.low = LowPlace {
            first_at: geometry.mark_at(0) + MARK_HEAD,
            first_len: geometry.piece,
            second_at: geometry.mark_at(1) + MARK_HEAD,
        };
        Ok(geometry)
    }

    /// Returns the same geometry with node versions of `bits` bits. With narrow versions, a model checker can find
    /// errors that occur only if a version wraps. The default is 6.
    ///
    /// # Errors
    /// Returns [`GeometryError::VersionBits`] if `bits` is less than 2 or more than 6.
    pub const fn with_version_bits(mut self, bits: u8) -> Result<Self, GeometryError> {
        if bits < 2 || bits > VERSION_BITS {
            return Err(GeometryError::VersionBits(bits));
        }
        self.place.version_mask = mask_of(bits);
        Ok(self)
    }

    /// Returns the same geometry with hop counts of `bits` bits, for a model checker. The default is 8.
    ///
    /// # Errors
    /// Returns [`GeometryError::HopBits`] if `bits` is 0 or more than 8.
    pub const fn with_hop_bits(mut self, bits: u8) -> Result<Self, GeometryError> {
        if bits < 1 || bits > 8 {
            return Err(GeometryError::HopBits(bits));
        }
        self.hops_mask = u8::MAX >> (8 - bits);
        Ok(self)
    }

    /// Returns the size of a node in bytes.
    #[must_use]
    pub const fn node_bytes(&self) -> usize {
        self.node_bytes
    }

    /// Returns the number of entries of a node.
    #[must_use]
    pub const fn span(&self) -> usize {
        self.span
    }

    /// Returns the number of entries of a neighbourhood.
    #[must_use]
    pub const fn neighbourhood(&self) -> usize {
        self.neighbourhood
    }

    /// Returns whether an entry fits into one line together with a mark.
    #[must_use]
    pub const fn is_in_line(&self) -> bool {
        self.prefix == 1
    }

    /// Returns the range of entry number `number` in the node. If an entry takes several lines, the range extends to
    /// the end of the last one.
    ///
    /// Panics if there is no such entry.
    #[must_use]
    pub const fn entry(&self, number: usize) -> Range<usize> {
        assert!(number < self.span, "an entry of the node");
        let at = self.slot_at(number);
        at..at + self.entry_lines_bytes()
    }

    /// Returns the number of the entry in a slot of this format. It is less than the span.
    #[must_use]
    pub const fn number_of(&self, slot: Slot) -> usize {
        self.slot_of(slot.offset())
    }

    /// Returns the number of bytes from an entry's first byte to its last.
    #[cfg(feature = "testing")]
    pub(crate) const fn entry_bytes(&self) -> usize {
        self.stride
    }

    /// Returns the number of bytes to read for the value of an entry. If an entry takes several lines, these are whole
    /// lines.
    pub(crate) const fn entry_lines_bytes(&self) -> usize {
        if self.entry_lines == 1 {
            self.stride
        } else {
            self.entry_lines * LINE_BYTES
        }
    }

    /// Returns the size in bytes of the header without the low fence key, which is in the marks.
    #[must_use]
    pub const fn header_bytes(&self) -> usize {
        header_bytes(self.key_len)
    }

    /// Returns the number of groups that contain entries.
    #[inline]
    pub(crate) const fn entry_groups(&self) -> usize {
        self.entry_groups
    }

    /// Returns the group after `group`, among those that contain entries.
    #[inline]
    pub(crate) const fn group_after(&self, group: usize) -> usize {
        if group + 1 < self.entry_groups() {
            group + 1
        } else {
            0
        }
    }

    /// Returns the offsets of both copies of the hop count of the boundary after `group`, which contains entries.
    #[inline]
    pub(crate) const fn boundary(&self, group: usize) -> (usize, usize) {
        (self.mark_at(group), self.group_at(self.group_after(group)))
    }

    /// Returns the number of bytes of a fence key in the marks. If each fence key is divided into two halves (four
    /// pieces together), a key of an odd length takes one byte more, so that the halves are equal.
    pub(crate) const fn fence_bytes(&self) -> usize {
        self.piece * self.pieces / 2
    }

    pub(crate) const fn group_at(&self, group: usize) -> usize {
        (1 + group * self.group_lines) * LINE_BYTES
    }

    /// Returns the offset of entry number `slot`.
    #[inline]
    pub(crate) const fn slot_at(&self, slot: usize) -> usize {
        self.group_at(slot / self.per_group) + self.front + slot % self.per_group * self.stride
    }

    /// Returns the number of the entry at an offset that [`slot_at`](Self::slot_at) has returned.
    #[inline]
    pub(crate) const fn slot_of(&self, at: usize) -> usize {
        let group = (at / LINE_BYTES - 1) / self.group_lines;
        group * self.per_group + (at - self.group_at(group) - self.front) / self.stride
    }

    /// Returns the offset of a group's mark, which follows its last entry.
    #[inline]
    pub(crate) const fn mark_at(&self, group: usize) -> usize {
        if group < self.full_groups {
            return self.group_at(group) + self.mark_behind;
        }
        let entries = self.span.saturating_sub(group * self.per_group);
        self.group_at(group) + self.front + entries * self.stride
    }

    const fn mark_end(&self, group: usize) -> usize {
        self.mark_at(group) + MARK_HEAD + self.piece
    }

    /// Returns the groups whose marks lie completely in `range`.
    pub(crate) fn marks_in(&self, range: &Range<usize>) -> Range<usize> {
        if range.is_empty() {
            return 0..0;
        }
        let bytes = self.group_lines * LINE_BYTES;
        let (from, to) = (range.start.max(LINE_BYTES), range.end.max(LINE_BYTES));
        let mut first = (from - LINE_BYTES) / bytes;
        if self.mark_at(first) < range.start {
            first += 1;
        }
        let mut end = ((to - LINE_BYTES) / bytes).min(self.groups);
        if end < self.groups && self.mark_end(end) <= range.end {
            end += 1;
        }
        first..end.max(first)
    }

    /// Returns the bytes to read for the keys with this home.
    #[must_use]
    pub fn reach(&self, home: usize) -> Reach {
        let last = home + self.neighbourhood - 1;
        let end_of = |slot| self.slot_at(slot) + self.entry_lines_bytes();
        if last < self.span && self.is_in_line() {
            // A mark follows the entries of its group, so the range contains the marks of all its groups except the
            // last one. Usually these marks are enough.
            let (from, to) = (home / self.per_group, last / self.per_group);
            if to - from >= self.pieces {
                return Reach {
                    home,
                    first: self.slot_at(home)..end_of(last),
                    second: None,
                    marks: [from..to, 0..0],
                };
            }
        }
        let (mut first, mut second) = match last < self.span {
            true => (self.slot_at(home)..end_of(last), 0..0),
            // The first range ends with a copy of the hop count of the boundary, and the second one begins with the
            // other copy.
            false => (
                self.slot_at(home)..end_of(self.span - 1) + self.front,
                LINE_BYTES..end_of(last - self.span),
            ),
        };
        // This loop rarely repeats, because the entries of a neighbourhood usually are in several groups.
        let marks = loop {
            let (a, b) = (self.marks_in(&first), self.marks_in(&second));
            if self.has_all_pieces(&a, &b) {
                break [a, b];
            }
            // Add the next mark after the first range, or after the second range, or before the first range.
            let behind = |marks: &Range<usize>, range: &Range<usize>| {
                let next = marks
                    .end
                    .max((range.end - LINE_BYTES) / (self.group_lines * LINE_BYTES));
                (next < self.groups && self.mark_end(next) > range.end).then(|| self.mark_end(next))
            };
            if let Some(end) = behind(&a, &first) {
                first.end = end;
            } else if !second.is_empty() {
                second.end = behind(&b, &second).unwrap_or(first.start);
            } else {
                let before = if a.is_empty() { self.groups } else { a.start };
                first.start = self.mark_at(before.saturating_sub(1));
            }
        };
        Reach {
            home,
            first,
            second: (!second.is_empty()).then_some(second),
            marks,
        }
    }

    /// Returns all slots of a node.
    #[must_use]
    pub const fn all(&self) -> Known {
        Known {
            first: 0,
            count: self.span,
        }
    }

    /// Extends a neighbourhood by `more` slots. Returns all these slots, and the bytes to read in addition: those of
    /// the additional slots and of the boundaries before them. They are one range, or two ranges if they wrap around at
    /// the node's end.
    ///
    /// Returns `None` if fewer slots than those of a neighbourhood remain outside, because an entry could then hop from
    /// one end of the read slots to the other end, across boundaries that are outside.
    #[must_use]
    pub fn beyond(&self, reach: &Reach, more: usize) -> Option<(Known, Range<usize>, Option<Range<usize>>)> {
        let count = self.neighbourhood + more;
        if count + self.neighbourhood > self.span {
            return None;
        }
        let first = reach.home;
        let last = first + count - 1;
        let end_of = |slot| self.slot_at(slot) + self.entry_lines_bytes();
        let (rest, wrapped) = match &reach.second {
            Some(second) => (second.end..end_of(last - self.span), None),
            None if last < self.span => (reach.first.end..end_of(last), None),
            None => {
                let wrapped = LINE_BYTES..end_of(last - self.span);
                (reach.first.end..end_of(self.span - 1) + self.front, Some(wrapped))
            }
        };
        // The neighbourhood's READ may have ended behind the last of these slots, to contain a mark.
        let rest = rest.start..rest.end.max(rest.start);
        Some((Known { first, count }, rest, wrapped))
    }

    fn has_all_pieces(&self, a: &Range<usize>, b: &Range<usize>) -> bool {
        if a.len() >= self.pieces || b.len() >= self.pieces {
            return true;
        }
        let mut found = 0_u32;
        for group in a.clone().chain(b.clone()) {
            found |= 1 << (group % self.pieces);
        }
        found == (1 << self.pieces) - 1
    }
}
