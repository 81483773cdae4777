//! The packed leaf with line versions. It stores keys as differences from the low fence key, so that close keys take
//! few bytes.

mod geometry;
mod line;
mod read;
mod share;
mod write;

use crate::chunks::Chunks as _;
use core::marker::PhantomData;
use core::ops::Range;

pub(crate) use self::geometry::{KIND, PRESENCE_BITS};
pub use self::geometry::{PackedGeometry, Shape};

use crate::cut::accept;
use crate::error::{CheckFailure, GeometryError, Reason};
use crate::format::{Judged, Lookup, NodeEdit, NodeRead, NodeShape, NodeStructure, Part, Place, Slot};
use crate::fullness::Fullness;
use crate::header::{Header, NodeInit};
use crate::key::{KeyBytes, sealed};
use crate::split::{SplitPlan, SplitRequest};
use crate::value::ValueRef;
use crate::{LINE_BYTES, Line};

/// The packed, line-versioned format for keys `K`: a [`PackedGeometry`] with a key type.
///
/// The second byte of every line of entries shows how wide its keys are (its *shape*) and which of its entries are
/// present. A key is stored as its difference from the node's low fence key, which never changes. Lines are accepted as
/// in a [`Slotted`](crate::Slotted) node, with 8-bit versions.
///
/// An entry stays in its line until it is removed, or until a split or merge moves it. But a writer may rewrite a line
/// in another shape, with the same entries and one more. This is one WRITE of one line, so a reader sees one shape or
/// the other one, and every entry that it finds is valid.
///
/// The keys determine how many entries fit into a node. [`capacity`](crate::NodeShape::capacity) is the maximum, which
/// is reached if all keys are close to the low fence key.
///
/// ```
/// use dm_layout::{FenceKeys, Key8, Lookup, NodeEdit, NodeInit, NodeRead, NodeShape, Packed, Place};
///
/// let format = Packed::<Key8>::with_node_bytes(1024, 8)?;
/// assert_eq!(format.capacity(), 90); // of 2 + 8 bytes; a slotted node has 47, of 1 + 8 + 8 bytes
/// let mut image = vec![0; 1024];
/// format.build(&mut image, &NodeInit::live(0, FenceKeys::ALL), [(Key8(7), (&[1; 8]).into())]);
/// // A key that is far from the others needs its own line.
/// let Place::Free(slot) = format.place(&image, &Key8(u64::MAX))? else { unreachable!("one is there") };
/// assert_eq!(format.put(&mut image, slot, &Key8(u64::MAX), (&[2; 8]).into()), 129..162);
/// assert!(matches!(format.lookup(&image, &Key8(7), 0)?, Lookup::Found { .. }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packed<K> {
    geometry: PackedGeometry,
    key: PhantomData<fn() -> K>,
}

impl<K: KeyBytes> Packed<K> {
    /// Makes the format of a node of `node_bytes`, with values of `value_len` bytes.
    ///
    /// # Errors
    /// Returns [`GeometryError`] if there is no such node; the error names the reason.
    pub const fn with_node_bytes(node_bytes: usize, value_len: usize) -> Result<Self, GeometryError> {
        match PackedGeometry::with_node_bytes(node_bytes, K::LEN, value_len) {
            Ok(geometry) => Ok(Self {
                geometry,
                key: PhantomData,
            }),
            Err(error) => Err(error),
        }
    }

    /// Returns the geometry.
    #[must_use]
    pub const fn geometry(&self) -> &PackedGeometry {
        &self.geometry
    }

    /// Returns the node as lines, if it has the right length.
    #[inline]
    fn lines<'a>(&self, bytes: &'a [u8]) -> Result<&'a [Line], CheckFailure> {
        if bytes.len() != self.geometry.node_bytes {
            return Err(CheckFailure::corrupt(bytes.len(), Reason::Length));
        }
        Ok(bytes.in_chunks::<LINE_BYTES>().0)
    }
}

/// The content of a [`Slot`] of a packed node: a line, and the number of an entry in the line.
struct Mark {
    line: usize,
    nth: usize,
}

impl Mark {
    /// The value of `nth` if the line must first change to a shape that is wide enough for the new entry.
    const RESHAPE: usize = PRESENCE_BITS;

    #[inline(always)]
    const fn of(slot: Slot) -> Self {
        Self {
            line: slot.offset() / LINE_BYTES,
            nth: slot.offset() % LINE_BYTES,
        }
    }
}

impl<K> sealed::Sealed for Packed<K> {}

impl<K: KeyBytes> NodeShape<K> for Packed<K> {
    const NAME: &'static str = "packed";

    const ANYWHERE: bool = false;

    #[inline]
    fn node_bytes(&self) -> usize {
        self.geometry.node_bytes
    }

    #[inline]
    fn capacity(&self) -> usize {
        self.geometry.capacity()
    }

    #[inline]
    fn value_len(&self) -> usize {
        self.geometry.value_len
    }

    fn takes(&self, low: &K, keys: &mut dyn Iterator<Item = K>) -> bool {
        self.has_places(low, keys)
    }

    #[inline]
    fn updates_in_line(&self) -> bool {
        true
    }

    fn version_after(&self, version: u8, steps: u8) -> u8 {
        self.geometry.place.version_after(version, steps)
    }

    fn state_word(&self) -> Option<usize> {
        Some(self.geometry.place.base)
    }
}

impl<K: KeyBytes> NodeRead<K> for Packed<K> {
    fn header(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure> {
        self.lines(bytes)?;
        Ok(self.geometry.place.decode_sound(bytes)?)
    }

    #[inline]
    fn accept(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure> {
        accept(&self.geometry.place, bytes, self.lines(bytes)?)
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

    fn slots(&self, bytes: &[u8]) -> impl Iterator<Item = Slot> {
        let lines = match bytes.len() == self.geometry.node_bytes {
            true => self.geometry.first_line..self.geometry.first_line + self.geometry.lines(),
            false => 0..0,
        };
        lines.flat_map(|line| (0..PRESENCE_BITS).map(move |nth| Slot::at(line * LINE_BYTES + nth)))
    }

    fn entry<'a>(&self, bytes: &'a [u8], slot: Slot) -> Result<Option<(K, ValueRef<'a>)>, CheckFailure> {
        self.entry_at(bytes, slot)
    }

    #[inline]
    fn visit<'a>(&self, bytes: &'a [u8], each: impl FnMut(K, ValueRef<'a>)) -> Result<(), CheckFailure> {
        self.visit_entries(bytes, each)
    }

    fn len(&self, bytes: &[u8]) -> Result<usize, CheckFailure> {
        self.count(bytes)
    }

    #[inline]
    fn is_unborn(&self, bytes: &[u8]) -> bool {
        self.geometry.place.is_unborn(bytes)
    }
}

impl<K: KeyBytes> NodeEdit<K> for Packed<K> {
    fn build<'v>(
        &self,
        image: &mut [u8],
        init: &NodeInit<K>,
        entries: impl IntoIterator<Item = (K, ValueRef<'v>)>,
    ) {
        self.lay_out(image, init, entries.into_iter().collect());
    }

    fn put(&self, image: &mut [u8], slot: Slot, key: &K, value: ValueRef<'_>) -> Range<usize> {
        self.put_entry(image, slot, key, value)
    }

    #[inline]
    fn update(&self, image: &mut [u8], slot: Slot, value: ValueRef<'_>) -> Range<usize> {
        self.update_value(image, slot, value)
    }

    fn remove(&self, image: &mut [u8], slot: Slot) -> Range<usize> {
        self.remove_entry(image, slot)
    }

    fn evict(&self, image: &mut [u8], from: &K, part: Part) {
        if part == Part::Rest {
            self.evict_entries(image, from);
        }
    }

    fn seal_head(&self, image: &mut [u8], header: &Header<K>) {
        self.geometry.place.encode(header, image);
    }

    fn seal_rest(&self, image: &mut [u8], version: u8) {
        self.stamp_lines(image, version);
    }
}

impl<K: KeyBytes> NodeStructure<K> for Packed<K> {
    fn share(&self, low: &K, key: &K) -> Fullness {
        self.share_of(low, key)
    }

    fn fullness(&self, bytes: &[u8]) -> Result<Fullness, CheckFailure> {
        self.fullness_of(&self.header(bytes)?.fences.low, &[bytes])
    }

    fn fullness_merged(&self, left: &[u8], right: &[u8]) -> Result<Fullness, CheckFailure> {
        self.fullness_of(&self.header(left)?.fences.low, &[left, right])
    }

    fn prepare_split<'v>(
        &self,
        left: &[u8],
        right: &mut [u8],
        request: &SplitRequest<'v, K>,
    ) -> Result<Option<SplitPlan<'v, K>>, CheckFailure> {
        self.split_in_two(left, right, request)
    }

    fn merge_fits(&self, left: &[u8], right: &[u8]) -> Result<bool, CheckFailure> {
        self.take_over(&mut left.to_vec(), right)
    }

    fn copy_merge(&self, left: &mut [u8], right: &[u8]) -> Result<Range<usize>, CheckFailure> {
        let version = self.version_after(self.header(left)?.version, 1);
        assert!(
            self.take_over(left, right)?,
            "a merge needs room for all of the right node's entries"
        );
        self.stamp_lines(left, version);
        Ok(self.range(Part::Rest))
    }
}
