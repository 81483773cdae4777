//! The slotted node with line versions, for leaves and inner nodes. The values of an inner node are pointers to its
//! children.

mod geometry;
mod read;
mod write;

use crate::chunks::Chunks as _;
use core::marker::PhantomData;
use core::ops::Range;

use alloc::vec::Vec;

use self::geometry::ENTRY_VERSION_AT;
pub use self::geometry::SlotGeometry;
#[cfg(feature = "testing")]
pub(crate) use self::geometry::VERSIONS;

use crate::error::{CheckFailure, GeometryError, Reason};
use crate::format::{
    Judged, Lookup, NodeEdit, NodeRead, NodeShape, NodeStructure, Part, Place, Slot, sort_distinct,
};
use crate::header::{Header, NodeInit};
use crate::key::{KeyBytes, sealed};
use crate::value::ValueRef;
use crate::{LINE_BYTES, Line};

pub(crate) const EMPTY: u8 = 0;
pub(crate) const PRESENT: u8 = 1;

/// Returns the version of the entry to which a line belongs.
const fn entry_version(line: &Line) -> u16 {
    u16::from_le_bytes([line[ENTRY_VERSION_AT], line[ENTRY_VERSION_AT + 1]])
}

/// The slotted, line-versioned format for keys `K`: a [`SlotGeometry`] with a key type.
///
/// A reader accepts a *node cut*: the version of every line on which the result depends equals the header's version.
/// While the header's lag is [`Behind`](crate::LineLag::Behind) (during a split), a line may also have the
/// previous version. While it is [`Ahead`](crate::LineLag::Ahead) (during a merge), a line may have the next version.
/// Lines may be read and written in any order, but each line must be atomic. The rule is sound if a node changes its
/// structure fewer than 2<sup>version bits</sup> − 1 times during one READ. An entry that is larger than a line must
/// also be written fewer than 2<sup>entry version bits</sup> times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slotted<K> {
    geometry: SlotGeometry,
    key: PhantomData<fn() -> K>,
}

impl<K: KeyBytes> Slotted<K> {
    /// Makes the format of a node with as many entries as fit into `node_bytes`, with values of `value_len` bytes.
    ///
    /// # Errors
    /// Returns [`GeometryError`] if there is no such node; the error names the reason.
    pub const fn with_node_bytes(node_bytes: usize, value_len: usize) -> Result<Self, GeometryError> {
        Self::keyed(SlotGeometry::with_node_bytes(node_bytes, K::LEN, value_len))
    }

    /// Makes the format of a node with as many entries as fit into `node_bytes`, with *marked* values of `value_len`
    /// bytes. The first byte of each value MUST be odd, because it is also the presence byte of the entry.
    ///
    /// # Errors
    /// Returns [`GeometryError`] if there is no such node; the error names the reason.
    pub const fn marked_with_node_bytes(node_bytes: usize, value_len: usize) -> Result<Self, GeometryError> {
        Self::keyed(SlotGeometry::marked_with_node_bytes(
            node_bytes,
            K::LEN,
            value_len,
        ))
    }

    /// Makes the format of a node with as many entries as fit into `node_bytes`, whose values are *words*: 8 bytes at
    /// an aligned offset, which a CAS can change ([`NodeShape::holds_words`]). The first byte of each value MUST be
    /// odd, because it is also the presence byte of the entry.
    ///
    /// # Errors
    /// Returns [`GeometryError`] if there is no such node; the error names the reason.
    pub const fn words_with_node_bytes(node_bytes: usize) -> Result<Self, GeometryError> {
        Self::keyed(SlotGeometry::words_with_node_bytes(node_bytes, K::LEN))
    }

    /// Makes the format of the smallest node of exactly `span` entries, whose values are words.
    ///
    /// # Errors
    /// Returns [`GeometryError`] if there is no such node; the error names the reason.
    pub const fn words_with_span(span: usize) -> Result<Self, GeometryError> {
        Self::keyed(SlotGeometry::words_with_span(span, K::LEN))
    }

    /// Makes the format of the smallest node of exactly `span` entries.
    ///
    /// # Errors
    /// Returns [`GeometryError::ValueBytes`] if no node has two values of this size, and [`GeometryError::Span`] if
    /// there is no node of so many entries.
    pub const fn with_span(span: usize, value_len: usize) -> Result<Self, GeometryError> {
        Self::keyed(SlotGeometry::with_span(span, K::LEN, value_len))
    }

    /// Returns the same format with narrower versions: see [`SlotGeometry::with_version_bits`].
    ///
    /// # Errors
    /// Returns [`GeometryError::VersionBits`] if `bits` is less than 2 or more than 8.
    pub const fn with_version_bits(self, bits: u8) -> Result<Self, GeometryError> {
        Self::keyed(self.geometry.with_version_bits(bits))
    }

    /// Makes the format for models, with 3 entries. If keys and values have 8 bytes, a node has 2 lines, and the
    /// header's line contains two of the entries.
    ///
    /// # Errors
    /// Returns the errors of [`with_span`](Self::with_span) if no node has room for 3 entries of this size.
    pub const fn tiny(value_len: usize) -> Result<Self, GeometryError> {
        Self::with_span(3, value_len)
    }

    /// Adds the type of keys to a geometry.
    const fn keyed(made: Result<SlotGeometry, GeometryError>) -> Result<Self, GeometryError> {
        match made {
            Ok(geometry) => Ok(Self {
                geometry,
                key: PhantomData,
            }),
            Err(error) => Err(error),
        }
    }

    /// Returns the geometry.
    #[must_use]
    pub const fn geometry(&self) -> &SlotGeometry {
        &self.geometry
    }

    /// Encodes the bytes that [`put`](crate::NodeEdit::put) would write for an in-line entry, without an image. The
    /// caller writes the bytes at the slot's offset. Returns the number of bytes of `out` that were filled.
    ///
    /// Panics if entries are not in-line, if `value` does not have the geometry's length, or if `out` is shorter than
    /// an entry.
    #[inline]
    pub fn encode_entry(&self, key: &K, value: &[u8], out: &mut [u8]) -> usize {
        assert!(
            self.geometry.is_in_line(),
            "an entry larger than a line carries versions: edit an image"
        );
        assert_eq!(
            value.len(),
            self.geometry.value_len,
            "a value of the geometry's length"
        );
        let value_at = self.geometry.value_at();
        out[0] = PRESENT;
        key.write_to(&mut out[self.geometry.key_at..]);
        out[value_at..value_at + value.len()].copy_from_slice(value);
        self.geometry.entry_bytes
    }

    /// Returns the offset of the value of an in-line entry. An update WRITEs only the value. Returns `None` if entries
    /// are larger than a line.
    #[inline]
    #[must_use]
    pub const fn value_offset(&self, slot: Slot) -> Option<usize> {
        if self.geometry.is_in_line() {
            Some(slot.offset() + self.geometry.value_at())
        } else {
            None
        }
    }

    /// Returns the node as lines, if it has the right length.
    #[inline]
    fn lines<'a>(&self, bytes: &'a [u8]) -> Result<&'a [Line], CheckFailure> {
        if bytes.len() != self.geometry.node_bytes {
            return Err(CheckFailure::corrupt(bytes.len(), Reason::Length));
        }
        Ok(bytes.in_chunks::<LINE_BYTES>().0)
    }

    /// Returns the same slots as [`NodeRead::slots`] for bytes of this length. The iterator borrows nothing, so the
    /// caller can edit the image during the iteration.
    fn all_slots(&self, node_bytes: usize) -> impl Iterator<Item = Slot> + use<K> {
        let count = if node_bytes == self.geometry.node_bytes {
            self.geometry.capacity
        } else {
            0
        };
        self.geometry.offsets().take(count).map(Slot::at)
    }
}

impl<K> sealed::Sealed for Slotted<K> {}

impl<K: KeyBytes> NodeShape<K> for Slotted<K> {
    const NAME: &'static str = "slotted";

    #[inline]
    fn node_bytes(&self) -> usize {
        self.geometry.node_bytes
    }

    #[inline]
    fn capacity(&self) -> usize {
        self.geometry.capacity
    }

    #[inline]
    fn value_len(&self) -> usize {
        self.geometry.value_len
    }

    fn value_mark(&self) -> u8 {
        if self.geometry.marked { PRESENT } else { 0 }
    }

    #[inline]
    fn updates_in_line(&self) -> bool {
        self.geometry.is_in_line()
    }

    #[inline]
    fn holds_words(&self) -> bool {
        self.geometry.holds_words()
    }

    fn version_after(&self, version: u8, steps: u8) -> u8 {
        self.geometry.place.version_after(version, steps)
    }

    fn state_word(&self) -> Option<usize> {
        Some(self.geometry.place.base)
    }
}

impl<K: KeyBytes> NodeRead<K> for Slotted<K> {
    fn header(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure> {
        self.lines(bytes)?;
        Ok(self.geometry.place.decode_sound(bytes)?)
    }

    #[inline]
    fn accept(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure> {
        self.accept_node(bytes)
    }

    #[inline]
    fn lookup<'a>(&self, bytes: &'a [u8], key: &K, level: u8) -> Result<Lookup<'a>, CheckFailure> {
        self.lookup_node(bytes, key, level)
    }

    #[inline]
    fn place(&self, bytes: &[u8], key: &K) -> Result<Place, CheckFailure> {
        self.place_key(bytes, key)
    }

    #[inline]
    fn judge(&self, bytes: &[u8], key: &K, level: u8) -> Result<Judged, CheckFailure> {
        self.judge_node(bytes, key, level)
    }

    fn torn_entry(&self, bytes: &[u8], key: &K) -> Option<Slot> {
        self.torn_slot(bytes, key)
    }

    fn floor<'a>(&self, bytes: &'a [u8], key: &K) -> Result<Option<(Slot, K, ValueRef<'a>)>, CheckFailure> {
        self.floor_key(bytes, key)
    }

    fn slots(&self, bytes: &[u8]) -> impl Iterator<Item = Slot> {
        self.all_slots(bytes.len())
    }

    fn entry<'a>(&self, bytes: &'a [u8], slot: Slot) -> Result<Option<(K, ValueRef<'a>)>, CheckFailure> {
        self.entry_at(bytes, slot)
    }

    #[inline]
    fn visit<'a>(&self, bytes: &'a [u8], each: impl FnMut(K, ValueRef<'a>)) -> Result<(), CheckFailure> {
        self.visit_entries(bytes, each)
    }

    fn len(&self, bytes: &[u8]) -> Result<usize, CheckFailure> {
        let mut count = 0;
        self.visit_entries(bytes, |_, _| count += 1)?;
        Ok(count)
    }

    #[inline]
    fn is_unborn(&self, bytes: &[u8]) -> bool {
        self.geometry.place.is_unborn(bytes)
    }
}

impl<K: KeyBytes> NodeEdit<K> for Slotted<K> {
    fn build<'v>(
        &self,
        image: &mut [u8],
        init: &NodeInit<K>,
        entries: impl IntoIterator<Item = (K, ValueRef<'v>)>,
    ) {
        assert_eq!(image.len(), self.geometry.node_bytes, "an image of one node");
        image.fill(0);
        let mut slots = self.all_slots(image.len());
        for (key, value) in entries {
            let Some(slot) = slots.next() else {
                panic!("{} entries at most", self.geometry.capacity)
            };
            self.put_entry(image, slot, &key, value);
        }
        self.stamp_lines(image, init.version);
        self.geometry.place.encode(&init.header(), image);
    }

    fn build_from(
        &self,
        image: &mut [u8],
        init: &NodeInit<K>,
        from: &[u8],
        new: Option<(K, ValueRef<'_>)>,
    ) -> Result<(), CheckFailure> {
        assert_eq!(image.len(), self.geometry.node_bytes, "an image of one node");
        let mut keys = Vec::with_capacity(self.geometry.capacity + 1);
        self.visit_entries(from, |key, _| {
            if init.fences.contains(&key) {
                keys.push(key);
            }
        })?;
        keys.extend(new.map(|(key, _)| key));
        sort_distinct(&mut keys)?;
        image.fill(0);
        let taken = self.take_entries(image, from, &init.fences)?;
        if let Some((key, value)) = new {
            if taken == self.geometry.capacity {
                return Err(CheckFailure::corrupt(0, Reason::Room));
            }
            self.put_entry(image, Slot::at(self.geometry.slot_offset(taken)), &key, value);
        }
        self.stamp_lines(image, init.version);
        self.geometry.place.encode(&init.header(), image);
        Ok(())
    }

    // Inlined into every caller, because it is only a bounds check and three stores.
    #[inline(always)]
    fn put(&self, image: &mut [u8], slot: Slot, key: &K, value: ValueRef<'_>) -> Range<usize> {
        self.put_entry(image, slot, key, value)
    }

    #[inline]
    fn update(&self, image: &mut [u8], slot: Slot, value: ValueRef<'_>) -> Range<usize> {
        self.update_value(image, slot, value)
    }

    fn remove(&self, image: &mut [u8], slot: Slot) -> Range<usize> {
        // This changes one byte, so a reader sees the entry or not, even if the value takes several lines.
        image[slot.offset()] = EMPTY;
        slot.offset()..slot.offset() + 1
    }

    fn evict(&self, image: &mut [u8], from: &K, part: Part) {
        self.evict_entries(image, from, part);
    }

    fn seal_head(&self, image: &mut [u8], header: &Header<K>) {
        self.geometry.place.encode(header, image);
    }

    fn seal_rest(&self, image: &mut [u8], version: u8) {
        self.stamp_lines(image, version);
    }
}

impl<K: KeyBytes> NodeStructure<K> for Slotted<K> {}
