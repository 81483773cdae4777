//! Leaves with one of two formats. The format is chosen when the index is made.

use core::ops::Range;

use crate::error::{CheckFailure, GeometryError};
use crate::format::{Judged, Lookup, NodeEdit, NodeRead, NodeShape, NodeStructure, Part, Place, Slot};
use crate::fullness::Fullness;
use crate::header::{Header, NodeInit};
use crate::key::{KeyBytes, sealed};
use crate::packed::Packed;
use crate::slotted::Slotted;
use crate::split::{SplitPlan, SplitRequest};
use crate::value::ValueRef;

/// A [`Packed`] or a [`Slotted`] leaf. All leaves of an index have the same format. A client reads which one when it
/// opens the index.
///
/// ```
/// use dm_layout::{Key8, Leaf, NodeEdit, NodeFormat, NodeRead, NodeShape, NodeSteps, NodeStructure};
///
/// let packed = Leaf::<Key8>::with_node_bytes(1024, 8, true)?;
/// assert!(packed.is_packed() && packed.capacity() == 90);
/// // Values of this size need one line each, even with narrow keys.
/// let slotted = Leaf::<Key8>::with_node_bytes(1024, 40, true)?;
/// assert!(!slotted.is_packed());
/// # Ok::<(), dm_layout::GeometryError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Leaf<K> {
    /// Keys that are close together take fewer bytes than in the other format.
    Packed(Packed<K>),
    /// Keys are stored completely.
    Slotted(Slotted<K>),
}

impl<K: KeyBytes> Leaf<K> {
    /// Makes the format of a leaf of `node_bytes` bytes, with values of `value_len` bytes. The format is packed if
    /// `packed` is true and a packed leaf has a greater capacity.
    ///
    /// # Errors
    /// Returns [`GeometryError`] if there is no such node; the error names the reason.
    pub fn with_node_bytes(node_bytes: usize, value_len: usize, packed: bool) -> Result<Self, GeometryError> {
        let slotted = Slotted::with_node_bytes(node_bytes, value_len)?;
        match Packed::with_node_bytes(node_bytes, value_len) {
            Ok(leaf) if packed && leaf.capacity() > slotted.capacity() => Ok(Self::Packed(leaf)),
            _ => Ok(Self::Slotted(slotted)),
        }
    }

    /// Returns whether the leaf is packed.
    #[must_use]
    pub const fn is_packed(&self) -> bool {
        matches!(self, Self::Packed(_))
    }
}

impl<K> sealed::Sealed for Leaf<K> {}

/// Runs the same code for either format.
macro_rules! either {
    ($self:expr, $leaf:ident => $run:expr) => {
        match $self {
            Self::Packed($leaf) => $run,
            Self::Slotted($leaf) => $run,
        }
    };
}

// These methods call those of the leaf's format. All other methods are the provided ones, which are correct for both
// formats.
impl<K: KeyBytes> NodeShape<K> for Leaf<K> {
    const NAME: &'static str = "packed or slotted";

    const ANYWHERE: bool = false;

    #[inline]
    fn node_bytes(&self) -> usize {
        either!(self, leaf => leaf.node_bytes())
    }

    #[inline]
    fn capacity(&self) -> usize {
        either!(self, leaf => leaf.capacity())
    }

    #[inline]
    fn value_len(&self) -> usize {
        either!(self, leaf => leaf.value_len())
    }

    fn takes(&self, low: &K, keys: &mut dyn Iterator<Item = K>) -> bool {
        either!(self, leaf => leaf.takes(low, keys))
    }

    #[inline]
    fn updates_in_line(&self) -> bool {
        either!(self, leaf => NodeShape::<K>::updates_in_line(leaf))
    }

    fn version_after(&self, version: u8, steps: u8) -> u8 {
        either!(self, leaf => leaf.version_after(version, steps))
    }

    fn state_word(&self) -> Option<usize> {
        either!(self, leaf => leaf.state_word())
    }

    fn header_at(&self) -> usize {
        either!(self, leaf => leaf.header_at())
    }

    fn range(&self, part: Part) -> Range<usize> {
        either!(self, leaf => leaf.range(part))
    }
}

impl<K: KeyBytes> NodeRead<K> for Leaf<K> {
    fn header(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure> {
        either!(self, leaf => leaf.header(bytes))
    }

    fn accept(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure> {
        either!(self, leaf => leaf.accept(bytes))
    }

    #[inline]
    fn lookup<'a>(&self, bytes: &'a [u8], key: &K, level: u8) -> Result<Lookup<'a>, CheckFailure> {
        either!(self, leaf => leaf.lookup(bytes, key, level))
    }

    fn place(&self, bytes: &[u8], key: &K) -> Result<Place, CheckFailure> {
        either!(self, leaf => leaf.place(bytes, key))
    }

    #[inline]
    fn judge(&self, bytes: &[u8], key: &K, level: u8) -> Result<Judged, CheckFailure> {
        either!(self, leaf => leaf.judge(bytes, key, level))
    }

    fn torn_entry(&self, bytes: &[u8], key: &K) -> Option<Slot> {
        either!(self, leaf => leaf.torn_entry(bytes, key))
    }

    fn slots(&self, bytes: &[u8]) -> impl Iterator<Item = Slot> {
        let (packed, slotted) = match self {
            Self::Packed(leaf) => (Some(leaf.slots(bytes)), None),
            Self::Slotted(leaf) => (None, Some(leaf.slots(bytes))),
        };
        packed.into_iter().flatten().chain(slotted.into_iter().flatten())
    }

    fn entry<'a>(&self, bytes: &'a [u8], slot: Slot) -> Result<Option<(K, ValueRef<'a>)>, CheckFailure> {
        either!(self, leaf => leaf.entry(bytes, slot))
    }

    #[inline]
    fn visit<'a>(&self, bytes: &'a [u8], each: impl FnMut(K, ValueRef<'a>)) -> Result<(), CheckFailure> {
        either!(self, leaf => leaf.visit(bytes, each))
    }

    fn len(&self, bytes: &[u8]) -> Result<usize, CheckFailure> {
        either!(self, leaf => leaf.len(bytes))
    }

    #[inline]
    fn is_unborn(&self, bytes: &[u8]) -> bool {
        either!(self, leaf => leaf.is_unborn(bytes))
    }
}

impl<K: KeyBytes> NodeEdit<K> for Leaf<K> {
    fn build<'v>(
        &self,
        image: &mut [u8],
        init: &NodeInit<K>,
        entries: impl IntoIterator<Item = (K, ValueRef<'v>)>,
    ) {
        either!(self, leaf => leaf.build(image, init, entries));
    }

    fn build_from(
        &self,
        image: &mut [u8],
        init: &NodeInit<K>,
        from: &[u8],
        new: Option<(K, ValueRef<'_>)>,
    ) -> Result<(), CheckFailure> {
        either!(self, leaf => leaf.build_from(image, init, from, new))
    }

    #[inline]
    fn put(&self, image: &mut [u8], slot: Slot, key: &K, value: ValueRef<'_>) -> Range<usize> {
        either!(self, leaf => leaf.put(image, slot, key, value))
    }

    #[inline]
    fn update(&self, image: &mut [u8], slot: Slot, value: ValueRef<'_>) -> Range<usize> {
        either!(self, leaf => leaf.update(image, slot, value))
    }

    fn remove(&self, image: &mut [u8], slot: Slot) -> Range<usize> {
        either!(self, leaf => leaf.remove(image, slot))
    }

    fn evict(&self, image: &mut [u8], from: &K, part: Part) {
        either!(self, leaf => leaf.evict(image, from, part));
    }

    fn seal_head(&self, image: &mut [u8], header: &Header<K>) {
        either!(self, leaf => leaf.seal_head(image, header));
    }

    fn seal_rest(&self, image: &mut [u8], version: u8) {
        either!(self, leaf => leaf.seal_rest(image, version));
    }
}

impl<K: KeyBytes> NodeStructure<K> for Leaf<K> {
    fn share(&self, low: &K, key: &K) -> Fullness {
        either!(self, leaf => leaf.share(low, key))
    }

    fn fullness(&self, bytes: &[u8]) -> Result<Fullness, CheckFailure> {
        either!(self, leaf => leaf.fullness(bytes))
    }

    fn fullness_merged(&self, left: &[u8], right: &[u8]) -> Result<Fullness, CheckFailure> {
        either!(self, leaf => leaf.fullness_merged(left, right))
    }

    fn prepare_split<'v>(
        &self,
        left: &[u8],
        right: &mut [u8],
        request: &SplitRequest<'v, K>,
    ) -> Result<Option<SplitPlan<'v, K>>, CheckFailure> {
        either!(self, leaf => leaf.prepare_split(left, right, request))
    }

    fn merge_fits(&self, left: &[u8], right: &[u8]) -> Result<bool, CheckFailure> {
        either!(self, leaf => leaf.merge_fits(left, right))
    }

    fn repair(&self, image: &mut [u8]) -> Result<Option<Range<usize>>, CheckFailure> {
        either!(self, leaf => leaf.repair(image))
    }

    fn copy_merge(&self, left: &mut [u8], right: &[u8]) -> Result<Range<usize>, CheckFailure> {
        either!(self, leaf => leaf.copy_merge(left, right))
    }
}
