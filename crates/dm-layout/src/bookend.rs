//! Sherman's node with two-level bookend versions, as it was published (SIGMOD'22 §4.4, figure 8). It is here for
//! study.

use core::marker::PhantomData;
use core::ops::Range;

use crate::LINE_BYTES;
use crate::error::{CheckFailure, GeometryError, Reason};
use crate::format::{Lookup, NodeEdit, NodeRead, NodeShape, NodeStructure, Part, Place, Slot, Stale};
use crate::header::{Header, HeaderPlace, LowPlace, NodeInit, NodeState, header_bytes, mask_of};
use crate::key::{KeyBytes, sealed};
use crate::value::ValueRef;

/// The kind byte of a bookend node.
const KIND: u8 = 0xb2;
const NODE_BYTES_MAX: usize = 65_536;
/// Marks an entry as present, in its front byte. The low nibble of this byte is the version. The published layout
/// instead reserves a value that means "absent"; with this bit no value is reserved, and the sizes stay the published
/// ones.
const PRESENT: u8 = 0x80;
const ENTRY_VERSION: u8 = 0x0f;

/// The bookend format: a node version at both ends of the node, an entry version at both ends of each entry, and
/// entries that are packed across lines.
///
/// Its acceptance rule, *front equals rear*, is **unsound** on RNICs, even if the lines of READs and WRITEs are served
/// in increasing order. A READ may begin before a WRITE, fall behind it, and overtake it again. It then sees the old
/// front and the old rear, with new bytes between them.
///
/// The published reader treats a torn entry as an absent key. This format instead reports it as
/// [`CheckFailure::Torn`] with [`TornPart::Entry`](crate::TornPart::Entry), and the caller decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bookend<K> {
    node_bytes: usize,
    value_len: usize,
    capacity: usize,
    pub(crate) place: HeaderPlace,
    entry_version_mask: u8,
    key: PhantomData<fn() -> K>,
}

impl<K: KeyBytes> Bookend<K> {
    const ENTRIES_AT: usize = header_bytes(K::LEN) + K::LEN;

    /// Makes the format of a node with as many entries as fit into `node_bytes`, with values of `value_len` bytes and
    /// 4-bit versions.
    ///
    /// # Errors
    /// Returns [`GeometryError`] if there is no such node; the error names the reason.
    pub const fn with_node_bytes(node_bytes: usize, value_len: usize) -> Result<Self, GeometryError> {
        if node_bytes % LINE_BYTES != 0 {
            return Err(GeometryError::NodeBytes(node_bytes));
        }
        Self::with_bytes(node_bytes, value_len)
    }

    const fn with_bytes(node_bytes: usize, value_len: usize) -> Result<Self, GeometryError> {
        if node_bytes < 2 * LINE_BYTES || node_bytes > NODE_BYTES_MAX {
            return Err(GeometryError::NodeBytes(node_bytes));
        }
        if let Err(error) = Self::check_value(value_len) {
            return Err(error);
        }
        let capacity = (node_bytes - 1 - Self::ENTRIES_AT) / (2 + K::LEN + value_len);
        if capacity < 2 {
            return Err(GeometryError::TooFewEntries { capacity });
        }
        let low = LowPlace::whole(header_bytes(K::LEN), K::LEN);
        let place = HeaderPlace {
            base: 0,
            kind: KIND,
            low,
            version_mask: mask_of(4),
        };
        Ok(Self {
            node_bytes,
            value_len,
            capacity,
            place,
            entry_version_mask: ENTRY_VERSION,
            key: PhantomData,
        })
    }

    /// Makes the format of the smallest node of exactly `span` entries. The node has at least 128 bytes. As in the
    /// paper, it is not rounded up to whole lines.
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
        let (bytes, least) = (Self::bytes_of(span, value_len), 2 * LINE_BYTES);
        match Self::with_bytes(if bytes < least { least } else { bytes }, value_len) {
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
        Self::ENTRIES_AT + span * (2 + K::LEN + value_len) + 1
    }

    /// Returns the same format with node and entry versions of `bits` bits (2 to 4).
    ///
    /// # Errors
    /// Returns [`GeometryError::VersionBits`] if `bits` is less than 2 or more than 4.
    pub const fn with_version_bits(mut self, bits: u8) -> Result<Self, GeometryError> {
        if bits < 2 || bits > 4 {
            return Err(GeometryError::VersionBits(bits));
        }
        self.place.version_mask = mask_of(bits);
        self.entry_version_mask = self.place.version_mask;
        Ok(self)
    }

    /// Returns the size in bytes of an entry with its two versions.
    #[must_use]
    pub const fn entry_bytes(&self) -> usize {
        2 + K::LEN + self.value_len
    }

    /// Returns the offset of the front version of entry number `index`. Panics if `index` is not less than the
    /// capacity.
    #[must_use]
    pub const fn slot_offset(&self, index: usize) -> usize {
        assert!(index < self.capacity, "slot index within the capacity");
        Self::ENTRIES_AT + index * self.entry_bytes()
    }

    fn length(&self, bytes: &[u8]) -> Result<(), CheckFailure> {
        if bytes.len() != self.node_bytes {
            return Err(CheckFailure::corrupt(bytes.len(), Reason::Length));
        }
        Ok(())
    }

    fn rear_at(&self, slot: Slot) -> usize {
        slot.offset() + self.entry_bytes() - 1
    }

    fn is_torn(&self, bytes: &[u8], slot: Slot) -> bool {
        (bytes[slot.offset()] ^ bytes[self.rear_at(slot)]) & ENTRY_VERSION != 0
    }

    /// Returns the slot of an intact entry with this key. If there is none and an entry is torn, returns the first torn
    /// entry as an error, because that entry might have the key.
    fn search(&self, bytes: &[u8], key: &K) -> Result<Option<Slot>, CheckFailure> {
        let probe = key.probe();
        let mut torn = None;
        for slot in self.slots(bytes) {
            if self.is_torn(bytes, slot) {
                torn = torn.or(Some(slot));
            } else if bytes[slot.offset()] & PRESENT != 0 && K::probe_at(&bytes[slot.offset() + 1..]) == probe
            {
                return Ok(Some(slot));
            }
        }
        match torn {
            Some(slot) => Err(CheckFailure::entry_torn(slot.offset())),
            None => Ok(None),
        }
    }

    fn write(
        &self,
        image: &mut [u8],
        slot: Slot,
        entry: Option<(&K, ValueRef<'_>)>,
        present: bool,
    ) -> Range<usize> {
        let (at, rear) = (slot.offset(), self.rear_at(slot));
        let version = (image[at] & ENTRY_VERSION).wrapping_add(1) & self.entry_version_mask;
        image[at] = version | if present { PRESENT } else { 0 };
        image[rear] = version;
        if let Some((key, value)) = entry {
            assert_eq!(value.len(), self.value_len, "a value of the geometry's length");
            key.write_to(&mut image[at + 1..]);
            value.copy_to(&mut image[at + 1 + K::LEN..]);
        }
        at..rear + 1
    }

    /// Returns the same slots as [`NodeRead::slots`] for bytes of this length. The iterator borrows nothing, so the
    /// caller can edit the image during the iteration.
    fn all_slots(&self, node_bytes: usize) -> impl Iterator<Item = Slot> + use<K> {
        let count = if node_bytes == self.node_bytes {
            self.capacity
        } else {
            0
        };
        let stride = self.entry_bytes();
        (0..count).map(move |index| Slot::at(Self::ENTRIES_AT + index * stride))
    }
}

impl<K> sealed::Sealed for Bookend<K> {}

impl<K: KeyBytes> NodeShape<K> for Bookend<K> {
    const NAME: &'static str = "bookend";

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

    fn range(&self, part: Part) -> Range<usize> {
        match part {
            Part::Head => 0..self.node_bytes,
            Part::Rest => self.node_bytes..self.node_bytes,
        }
    }
}

impl<K: KeyBytes> NodeRead<K> for Bookend<K> {
    fn header(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure> {
        self.length(bytes)?;
        Ok(self.place.decode_sound(bytes)?)
    }

    fn accept(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure> {
        self.length(bytes)?;
        let header = self.place.decode::<K>(bytes)?;
        let rear = self.node_bytes - 1;
        if bytes[rear] & self.place.version_mask != header.version {
            return Err(CheckFailure::node_torn(rear));
        }
        Ok(self.place.sound(header)?)
    }

    fn lookup<'a>(&self, bytes: &'a [u8], key: &K, level: u8) -> Result<Lookup<'a>, CheckFailure> {
        let header = self.accept(bytes)?;
        if let Some(answer) = beside(&header, key, level) {
            return Ok(answer);
        }
        Ok(match self.search(bytes, key)? {
            Some(slot) => {
                let from = slot.offset() + 1 + K::LEN;
                Lookup::Found {
                    slot,
                    value: ValueRef::from(&bytes[from..from + self.value_len]),
                }
            }
            None => Lookup::Absent,
        })
    }

    fn place(&self, bytes: &[u8], key: &K) -> Result<Place, CheckFailure> {
        self.length(bytes)?;
        if let Some(slot) = self.search(bytes, key)? {
            return Ok(Place::Present(slot));
        }
        let free = self.slots(bytes).find(|slot| bytes[slot.offset()] & PRESENT == 0);
        Ok(free.map_or(Place::Full, Place::Free))
    }

    fn slots(&self, bytes: &[u8]) -> impl Iterator<Item = Slot> {
        self.all_slots(bytes.len())
    }

    fn entry<'a>(&self, bytes: &'a [u8], slot: Slot) -> Result<Option<(K, ValueRef<'a>)>, CheckFailure> {
        self.length(bytes)?;
        let at = slot.offset();
        if self.is_torn(bytes, slot) {
            return Err(CheckFailure::entry_torn(at));
        }
        let from = at + 1 + K::LEN;
        let present = bytes[at] & PRESENT != 0;
        Ok(present.then(|| {
            (
                K::read_from(&bytes[at + 1..]),
                (&bytes[from..from + self.value_len]).into(),
            )
        }))
    }
}

impl<K: KeyBytes> NodeEdit<K> for Bookend<K> {
    fn build<'v>(
        &self,
        image: &mut [u8],
        init: &NodeInit<K>,
        entries: impl IntoIterator<Item = (K, ValueRef<'v>)>,
    ) {
        assert_eq!(image.len(), self.node_bytes, "an image of one node");
        image.fill(0);
        let mut slots = self.all_slots(image.len());
        for (key, value) in entries {
            let Some(slot) = slots.next() else {
                panic!("{} entries at most", self.capacity)
            };
            self.write(image, slot, Some((&key, value)), true);
        }
        self.seal_head(image, &init.header());
    }

    fn put(&self, image: &mut [u8], slot: Slot, key: &K, value: ValueRef<'_>) -> Range<usize> {
        self.write(image, slot, Some((key, value)), true)
    }

    fn update(&self, image: &mut [u8], slot: Slot, value: ValueRef<'_>) -> Range<usize> {
        let key = K::read_from(&image[slot.offset() + 1..]);
        self.write(image, slot, Some((&key, value)), true)
    }

    fn remove(&self, image: &mut [u8], slot: Slot) -> Range<usize> {
        self.write(image, slot, None, false)
    }

    fn evict(&self, image: &mut [u8], from: &K, part: Part) {
        if part == Part::Rest {
            return;
        }
        for slot in self.all_slots(image.len()) {
            let at = slot.offset();
            if image[at] & PRESENT != 0 && K::read_from(&image[at + 1..]) >= *from {
                self.write(image, slot, None, false);
            }
        }
    }

    fn seal_head(&self, image: &mut [u8], header: &Header<K>) {
        self.place.encode(header, image);
        image[self.node_bytes - 1] = header.version & self.place.version_mask;
    }

    fn seal_rest(&self, _image: &mut [u8], _version: u8) {}
}

impl<K: KeyBytes> NodeStructure<K> for Bookend<K> {}

/// Returns the result of a lookup, if it follows from the header alone.
pub(crate) fn beside<'a, K: KeyBytes>(header: &Header<K>, key: &K, level: u8) -> Option<Lookup<'a>> {
    if header.state == NodeState::Dead {
        return Some(Lookup::Stale(Stale::Dead {
            forward: header.sibling,
        }));
    }
    if header.level != level {
        return Some(Lookup::Stale(Stale::Level(header.level)));
    }
    if header.fences.is_below(key) {
        return Some(Lookup::GoRight {
            sibling: header.sibling,
        });
    }
    (*key < header.fences.low).then_some(Lookup::Stale(Stale::Below))
}
