//! The sorted, checksummed node of FG (Ziegler et al., SIGMOD'19) and FG+, which are baselines of Sherman's paper.
//! Every change writes the whole node back.

use core::marker::PhantomData;
use core::ops::Range;

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::LINE_BYTES;
use crate::bookend::beside;
use crate::error::{CheckFailure, GeometryError, Reason};
use crate::format::{Lookup, NodeEdit, NodeRead, NodeShape, NodeStructure, Part, Place, Slot};
use crate::guard::checksum_of;
use crate::header::{Header, HeaderPlace, LowPlace, NodeInit, header_bytes, mask_of};
use crate::key::{KeyBytes, sealed};
use crate::value::ValueRef;

/// The kind byte of a checksummed sorted node.
const KIND: u8 = 0xc3;
const NODE_BYTES_MAX: usize = 65_536;

/// The fields before the header.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Seal {
    checksum: U64,
    count: U16,
}

pub(crate) const SEAL_BYTES: usize = size_of::<Seal>();
pub(crate) const CHECKSUM_BYTES: usize = size_of::<U64>();
const _: () = assert!(SEAL_BYTES == 10);

/// The checksummed format. Entries are sorted and packed. The node begins with a 64-bit XXH3 hash of all bytes behind
/// the hash. Every change is a WRITE of the whole node.
///
/// Whatever the order of lines, a reader accepts a mixture of two WRITEs with a probability of about 2<sup>−64</sup>.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Checksummed<K> {
    node_bytes: usize,
    value_len: usize,
    capacity: usize,
    pub(crate) place: HeaderPlace,
    key: PhantomData<fn() -> K>,
}

impl<K: KeyBytes> Checksummed<K> {
    const ENTRIES_AT: usize = SEAL_BYTES + header_bytes(K::LEN) + K::LEN;

    /// Makes the format of a node with as many entries as fit into `node_bytes`, with values of `value_len` bytes.
    ///
    /// # Errors
    /// Returns [`GeometryError`] if there is no such node; the error names the reason.
    pub const fn with_node_bytes(node_bytes: usize, value_len: usize) -> Result<Self, GeometryError> {
        if node_bytes % LINE_BYTES != 0 || node_bytes < 2 * LINE_BYTES || node_bytes > NODE_BYTES_MAX {
            return Err(GeometryError::NodeBytes(node_bytes));
        }
        if let Err(error) = Self::check_value(value_len) {
            return Err(error);
        }
        let capacity = (node_bytes - Self::ENTRIES_AT) / (K::LEN + value_len);
        if capacity < 2 {
            return Err(GeometryError::TooFewEntries { capacity });
        }
        let low = LowPlace::whole(SEAL_BYTES + header_bytes(K::LEN), K::LEN);
        let place = HeaderPlace {
            base: SEAL_BYTES,
            kind: KIND,
            low,
            version_mask: mask_of(8),
        };
        Ok(Self {
            node_bytes,
            value_len,
            capacity,
            place,
            key: PhantomData,
        })
    }

    /// Makes the format of the smallest node of exactly `span` entries.
    ///
    /// # Errors
    /// Returns [`GeometryError::ValueBytes`] if no node has two values of this size, and [`GeometryError::Span`] if
    /// there is no node of so many entries.
    pub const fn with_span(span: usize, value_len: usize) -> Result<Self, GeometryError> {
        if let Err(error) = Self::check_value(value_len) {
            return Err(error);
        }
        // With larger spans, the sum of the sizes could overflow.
        if span < 2 || span > NODE_BYTES_MAX {
            return Err(GeometryError::Span(span));
        }
        let bytes = Self::bytes_of(span, value_len).next_multiple_of(LINE_BYTES);
        match Self::with_node_bytes(bytes, value_len) {
            Ok(mut format) => {
                format.capacity = span;
                Ok(format)
            }
            Err(_) => Err(GeometryError::Span(span)),
        }
    }

    /// Checks that a node of the maximum size has room for two values of this size.
    const fn check_value(value_len: usize) -> Result<(), GeometryError> {
        // With larger values than this, the sum of the sizes could overflow.
        if value_len > NODE_BYTES_MAX || Self::bytes_of(2, value_len) > NODE_BYTES_MAX {
            return Err(GeometryError::ValueBytes(value_len));
        }
        Ok(())
    }

    const fn bytes_of(span: usize, value_len: usize) -> usize {
        Self::ENTRIES_AT + span * (K::LEN + value_len)
    }

    /// Returns the size of an entry in bytes.
    #[must_use]
    pub const fn entry_bytes(&self) -> usize {
        K::LEN + self.value_len
    }

    /// Returns the offset of entry number `index` in key order. Panics if `index` is not less than the capacity.
    #[must_use]
    pub const fn slot_offset(&self, index: usize) -> usize {
        assert!(index < self.capacity, "slot index within the capacity");
        Self::ENTRIES_AT + index * self.entry_bytes()
    }

    fn count(&self, bytes: &[u8]) -> Result<usize, CheckFailure> {
        match Seal::ref_from_prefix(bytes) {
            Ok((seal, _)) if bytes.len() == self.node_bytes => {
                let count = usize::from(seal.count.get());
                if count > self.capacity {
                    return Err(CheckFailure::corrupt(CHECKSUM_BYTES, Reason::Count));
                }
                Ok(count)
            }
            _ => Err(CheckFailure::corrupt(bytes.len(), Reason::Length)),
        }
    }

    /// Returns the number of entries of an image that is about to be edited. Panics if the image is not as long as a
    /// node, or if its count is too large.
    fn accepted_count(&self, image: &[u8]) -> usize {
        match self.count(image) {
            Ok(count) => count,
            Err(_) => panic!("an edit needs an accepted image of one node"),
        }
    }

    fn set_count(image: &mut [u8], count: usize) {
        image[CHECKSUM_BYTES..SEAL_BYTES].copy_from_slice(&(count as u16).to_le_bytes());
    }

    fn reseal(&self, image: &mut [u8]) -> Range<usize> {
        let checksum = checksum_of(&image[CHECKSUM_BYTES..]);
        image[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
        0..self.node_bytes
    }

    /// Returns the offset of the first of `count` entries whose key is not less than `key`, and whether its key equals
    /// `key`.
    fn seek(&self, bytes: &[u8], count: usize, key: &K) -> (usize, bool) {
        let stride = self.entry_bytes();
        let (mut from, mut to) = (0, count);
        while from < to {
            let middle = usize::midpoint(from, to);
            if K::read_from(&bytes[Self::ENTRIES_AT + middle * stride..]) < *key {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        let at = Self::ENTRIES_AT + from * stride;
        (at, from < count && K::read_from(&bytes[at..]) == *key)
    }

    fn value_at<'a>(&self, bytes: &'a [u8], at: usize) -> ValueRef<'a> {
        ValueRef::from(&bytes[at + K::LEN..at + self.entry_bytes()])
    }
}

impl<K> sealed::Sealed for Checksummed<K> {}

impl<K: KeyBytes> NodeShape<K> for Checksummed<K> {
    const NAME: &'static str = "checksummed";

    fn node_bytes(&self) -> usize {
        self.node_bytes
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn value_len(&self) -> usize {
        self.value_len
    }

    fn version_after(&self, version: u8, steps: u8) -> u8 {
        self.place.version_after(version, steps)
    }

    fn header_at(&self) -> usize {
        SEAL_BYTES
    }

    fn range(&self, part: Part) -> Range<usize> {
        match part {
            Part::Head => 0..self.node_bytes,
            Part::Rest => self.node_bytes..self.node_bytes,
        }
    }
}

impl<K: KeyBytes> NodeRead<K> for Checksummed<K> {
    fn header(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure> {
        self.count(bytes)?;
        Ok(self.place.decode_sound(bytes)?)
    }

    fn accept(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure> {
        self.count(bytes)?;
        // Check the kind first: bytes that are not a node of this format are corrupt, not torn.
        let header = self.place.decode::<K>(bytes)?;
        if ValueRef::from(&bytes[..CHECKSUM_BYTES]).as_u64() != checksum_of(&bytes[CHECKSUM_BYTES..]) {
            return Err(CheckFailure::node_torn(0));
        }
        Ok(self.place.sound(header)?)
    }

    fn lookup<'a>(&self, bytes: &'a [u8], key: &K, level: u8) -> Result<Lookup<'a>, CheckFailure> {
        let header = self.accept(bytes)?;
        if let Some(answer) = beside(&header, key, level) {
            return Ok(answer);
        }
        let (at, found) = self.seek(bytes, self.count(bytes)?, key);
        if found {
            return Ok(Lookup::Found {
                slot: Slot::at(at),
                value: self.value_at(bytes, at),
            });
        }
        Ok(Lookup::Absent)
    }

    fn place(&self, bytes: &[u8], key: &K) -> Result<Place, CheckFailure> {
        let count = self.count(bytes)?;
        let (at, found) = self.seek(bytes, count, key);
        Ok(if found {
            Place::Present(Slot::at(at))
        } else if count < self.capacity {
            Place::Free(Slot::at(at))
        } else {
            Place::Full
        })
    }

    fn slots(&self, bytes: &[u8]) -> impl Iterator<Item = Slot> {
        let stride = self.entry_bytes();
        let count = self.count(bytes).unwrap_or(0);
        (0..count).map(move |index| Slot::at(Self::ENTRIES_AT + index * stride))
    }

    fn entry<'a>(&self, bytes: &'a [u8], slot: Slot) -> Result<Option<(K, ValueRef<'a>)>, CheckFailure> {
        let (at, count) = (slot.offset(), self.count(bytes)?);
        let here = at < Self::ENTRIES_AT + count * self.entry_bytes();
        Ok(here.then(|| (K::read_from(&bytes[at..]), self.value_at(bytes, at))))
    }
}

impl<K: KeyBytes> NodeEdit<K> for Checksummed<K> {
    fn build<'v>(
        &self,
        image: &mut [u8],
        init: &NodeInit<K>,
        entries: impl IntoIterator<Item = (K, ValueRef<'v>)>,
    ) {
        assert_eq!(image.len(), self.node_bytes, "an image of one node");
        image.fill(0);
        self.place.encode(&init.header(), image);
        for (key, value) in entries {
            match self.place(image, &key) {
                Ok(Place::Free(slot)) => self.insert(image, slot, &key, value),
                other => panic!("{} entries at most, each key once: {other:?}", self.capacity),
            }
        }
        self.reseal(image);
    }

    fn put(&self, image: &mut [u8], slot: Slot, key: &K, value: ValueRef<'_>) -> Range<usize> {
        self.insert(image, slot, key, value);
        self.reseal(image)
    }

    fn update(&self, image: &mut [u8], slot: Slot, value: ValueRef<'_>) -> Range<usize> {
        assert_eq!(value.len(), self.value_len, "a value of the geometry's length");
        value.copy_to(&mut image[slot.offset() + K::LEN..]);
        self.reseal(image)
    }

    fn remove(&self, image: &mut [u8], slot: Slot) -> Range<usize> {
        let count = self.accepted_count(image);
        let end = Self::ENTRIES_AT + count * self.entry_bytes();
        image.copy_within(slot.offset() + self.entry_bytes()..end, slot.offset());
        image[end - self.entry_bytes()..end].fill(0);
        Self::set_count(image, count - 1);
        self.reseal(image)
    }

    fn evict(&self, image: &mut [u8], from: &K, part: Part) {
        if part == Part::Rest {
            return;
        }
        let count = self.accepted_count(image);
        let (at, _) = self.seek(image, count, from);
        image[at..Self::ENTRIES_AT + count * self.entry_bytes()].fill(0);
        Self::set_count(image, (at - Self::ENTRIES_AT) / self.entry_bytes());
    }

    fn seal_head(&self, image: &mut [u8], header: &Header<K>) {
        self.place.encode(header, image);
        self.reseal(image);
    }

    fn seal_rest(&self, _image: &mut [u8], _version: u8) {}
}

impl<K: KeyBytes> NodeStructure<K> for Checksummed<K> {}

impl<K: KeyBytes> Checksummed<K> {
    /// Inserts the new entry at the slot. The entries from this slot on move to the next higher slots. The caller must
    /// then update the checksum.
    fn insert(&self, image: &mut [u8], slot: Slot, key: &K, value: ValueRef<'_>) {
        assert_eq!(value.len(), self.value_len, "a value of the geometry's length");
        let count = self.accepted_count(image);
        assert!(count < self.capacity, "room for one more entry");
        let (at, stride) = (slot.offset(), self.entry_bytes());
        image.copy_within(at..Self::ENTRIES_AT + count * stride, at + stride);
        key.write_to(&mut image[at..]);
        value.copy_to(&mut image[at + K::LEN..]);
        Self::set_count(image, count + 1);
    }
}
