//! The hopscotch node (CHIME, SOSP 2024, §4.1): every entry lies in the neighbourhood of its home.
//!
//! A reader needs only one neighbourhood. Each entry has the node version, and each group of entries has a *mark* with
//! the node version and a piece of the fence keys. So the bytes of a neighbourhood show whether they belong to one
//! state of the right node; see [`near`].

mod edit;
mod entry;
mod geometry;
mod hop;
mod near;
mod plan;
mod split;
mod spread;
#[cfg_attr(
    not(feature = "study"),
    expect(unreachable_pub, reason = "public only with the feature `study`")
)]
mod study;
mod whole;

use core::marker::PhantomData;
use core::ops::Range;

use alloc::vec::Vec;

pub use self::geometry::{HopGeometry, Known, Reach};
#[cfg(feature = "testing")]
pub(crate) use self::geometry::{MARK_HEAD, MARK_VERSION};
pub use self::near::Near;
pub use self::plan::HopPlan;
#[cfg(feature = "study")]
pub use self::study::{EntryFlaws, NearFlaws};

use crate::error::{CheckFailure, GeometryError, Reason};
use crate::format::{Lookup, NodeEdit, NodeRead, NodeShape, NodeStructure, Part, Place, Slot};
use crate::header::{Header, LineLag, NodeInit, NodeState};
use crate::key::{KeyBytes, sealed};
use crate::split::{SplitPlan, SplitRequest};
use crate::value::ValueRef;
use crate::{FIRST_INCARNATION, LINE_BYTES};

/// The bit of an entry's first byte that marks it as present.
pub(crate) const PRESENT: u8 = 1;
/// The bit of an entry's first byte that marks it as *young*: its node is in reused memory, and no structural change of
/// the node has followed since the node was built. See [`flag::YOUNG`].
pub(crate) const YOUNG_ENTRY: u8 = 2;
/// The lowest bit of the node version in an entry's first byte, above the two flags.
pub(crate) const VERSION_AT: u32 = 2;

/// Flags of a mark.
pub(crate) mod flag {
    /// The bytes are a mark.
    pub(crate) const NODE: u8 = 1;
    /// The node was built in reused memory. It might not be linked yet, and the marks do not show whether it is.
    pub(crate) const YOUNG: u8 = 2;
    /// The node is dead.
    pub(crate) const DEAD: u8 = 4;
    /// The node has a high fence key.
    pub(crate) const HAS_HIGH: u8 = 8;
}

/// The hopscotch format for keys `K`: a [`HopGeometry`] with a key type.
///
/// A reader of a whole node accepts a *node cut*, by the same rule as for [`Slotted`](crate::Slotted). In addition,
/// both copies of each hop count must be equal, unless the result depends only on a key that was found. Lines may be
/// read and written in any order, but each line must be atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hopscotch<K> {
    pub(crate) geometry: HopGeometry,
    key: PhantomData<fn() -> K>,
}

impl<K: KeyBytes> Hopscotch<K> {
    /// Makes the format of a node of `span` entries in neighbourhoods of `neighbourhood` entries, with values of
    /// `value_len` bytes.
    ///
    /// # Errors
    /// Returns [`GeometryError`] if there is no such node; the error names the reason.
    pub const fn new(span: usize, neighbourhood: usize, value_len: usize) -> Result<Self, GeometryError> {
        Self::keyed(HopGeometry::new(span, neighbourhood, K::LEN, value_len))
    }

    /// Returns the same format with narrower versions: see [`HopGeometry::with_version_bits`].
    ///
    /// # Errors
    /// Returns [`GeometryError::VersionBits`] if `bits` is less than 2 or more than 6.
    pub const fn with_version_bits(self, bits: u8) -> Result<Self, GeometryError> {
        Self::keyed(self.geometry.with_version_bits(bits))
    }

    /// Returns the same format with narrower hop counts: see [`HopGeometry::with_hop_bits`].
    ///
    /// # Errors
    /// Returns [`GeometryError::HopBits`] if `bits` is 0 or more than 8.
    pub const fn with_hop_bits(self, bits: u8) -> Result<Self, GeometryError> {
        Self::keyed(self.geometry.with_hop_bits(bits))
    }

    /// Adds the type of keys to a geometry.
    const fn keyed(made: Result<HopGeometry, GeometryError>) -> Result<Self, GeometryError> {
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
    pub const fn geometry(&self) -> &HopGeometry {
        &self.geometry
    }

    /// Returns the slots of a home's neighbourhood, from the home on. They wrap around at the node's end.
    #[inline]
    pub(crate) fn slots_near(&self, home: usize) -> impl Iterator<Item = usize> + use<K> {
        let (span, count) = (self.geometry.span, self.geometry.neighbourhood);
        (home..home + count).map(move |slot| if slot < span { slot } else { slot - span })
    }

    /// Returns the offsets of the entries of a home's neighbourhood, from the home on. They wrap around at the node's
    /// end.
    #[inline]
    pub(crate) fn offsets_near(&self, home: usize) -> impl Iterator<Item = usize> + use<K> {
        self.offsets(home, self.geometry.neighbourhood)
    }

    /// Returns the offsets of `count` entries from slot number `first` on. They wrap around at the node's end.
    #[inline]
    pub(crate) fn offsets(&self, first: usize, count: usize) -> impl Iterator<Item = usize> + use<K> {
        let geometry = self.geometry;
        let group = geometry.group_lines * LINE_BYTES;
        let (mut slot, mut number) = (first, first % geometry.per_group);
        let mut next = geometry.slot_at(first);
        (0..count).map(move |_| {
            let at = next;
            (slot, number) = (slot + 1, number + 1);
            if slot == geometry.span {
                (slot, number, next) = (0, 0, LINE_BYTES + geometry.front);
            } else if number == geometry.per_group {
                next = at + group - (number - 1) * geometry.stride;
                number = 0;
            } else {
                next = at + geometry.stride;
            }
            at
        })
    }

    /// Returns the bytes of `count` entries from slot number `first` on, one range for each group, and the number of
    /// the group. The entries wrap around at the node's end. There is a boundary between any two successive ranges.
    #[inline]
    pub(crate) fn runs(
        &self,
        first: usize,
        count: usize,
    ) -> impl Iterator<Item = (usize, Range<usize>)> + use<K> {
        let geometry = self.geometry;
        let (mut slot, mut left) = (first, count);
        let (mut group, mut number) = (first / geometry.per_group, first % geometry.per_group);
        core::iter::from_fn(move || {
            let count = left.min(geometry.per_group - number).min(geometry.span - slot);
            if count == 0 {
                return None;
            }
            let from = geometry.group_at(group) + geometry.front + number * geometry.stride;
            let run = (group, from..from + count * geometry.stride);
            (slot, left, group, number) = (slot + count, left - count, group + 1, 0);
            if slot == geometry.span {
                (slot, group) = (0, 0);
            }
            Some(run)
        })
    }

    fn length(&self, bytes: &[u8]) -> Result<(), CheckFailure> {
        match bytes.len() == self.geometry.node_bytes {
            true => Ok(()),
            false => Err(CheckFailure::corrupt(bytes.len(), Reason::Length)),
        }
    }
}

impl<K> sealed::Sealed for Hopscotch<K> {}

impl<K: KeyBytes> NodeShape<K> for Hopscotch<K> {
    const NAME: &'static str = "hopscotch";

    const ANYWHERE: bool = false;

    const DUPLICATES: bool = true;

    #[inline]
    fn node_bytes(&self) -> usize {
        self.geometry.node_bytes
    }

    #[inline]
    fn capacity(&self) -> usize {
        self.geometry.span
    }

    #[inline]
    fn value_len(&self) -> usize {
        self.geometry.value_len
    }

    fn takes(&self, _low: &K, keys: &mut dyn Iterator<Item = K>) -> bool {
        self.has_places(&mut keys.map(|key| self.home(&key)))
    }

    fn version_after(&self, version: u8, steps: u8) -> u8 {
        self.geometry.place.version_after(version, steps)
    }

    fn state_word(&self) -> Option<usize> {
        Some(self.geometry.place.base)
    }
}

impl<K: KeyBytes> NodeRead<K> for Hopscotch<K> {
    fn header(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure> {
        self.length(bytes)?;
        Ok(self.geometry.place.decode_sound(bytes)?)
    }

    fn accept(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure> {
        self.accept_node(bytes)
    }

    fn lookup<'a>(&self, bytes: &'a [u8], key: &K, level: u8) -> Result<Lookup<'a>, CheckFailure> {
        self.lookup_node(bytes, key, level)
    }

    fn place(&self, bytes: &[u8], key: &K) -> Result<Place, CheckFailure> {
        self.place_key(bytes, key)
    }

    fn torn_entry(&self, bytes: &[u8], key: &K) -> Option<Slot> {
        self.torn_slot(bytes, key)
    }

    fn slots(&self, bytes: &[u8]) -> impl Iterator<Item = Slot> {
        let count = match bytes.len() == self.geometry.node_bytes {
            true => self.geometry.span,
            false => 0,
        };
        self.offsets(0, count).map(Slot::at)
    }

    fn entry<'a>(&self, bytes: &'a [u8], slot: Slot) -> Result<Option<(K, ValueRef<'a>)>, CheckFailure> {
        self.entry_at(bytes, slot)
    }

    fn is_unborn(&self, bytes: &[u8]) -> bool {
        self.geometry.place.is_unborn(bytes)
    }
}

impl<K: KeyBytes> NodeEdit<K> for Hopscotch<K> {
    fn build<'v>(
        &self,
        image: &mut [u8],
        init: &NodeInit<K>,
        entries: impl IntoIterator<Item = (K, ValueRef<'v>)>,
    ) {
        self.found(image, init);
        let entries: Vec<_> = entries.into_iter().collect();
        let homes: Vec<usize> = entries.iter().map(|(key, _)| self.home(key)).collect();
        let Some(slots) = self.arrange(&homes) else {
            panic!("{} entries that find no places", entries.len())
        };
        for ((key, value), slot) in entries.iter().zip(slots) {
            self.put_entry(image, Slot::at(self.geometry.slot_at(slot)), key, *value);
        }
    }

    fn put(&self, image: &mut [u8], slot: Slot, key: &K, value: ValueRef<'_>) -> Range<usize> {
        self.put_entry(image, slot, key, value)
    }

    fn update(&self, image: &mut [u8], slot: Slot, value: ValueRef<'_>) -> Range<usize> {
        self.update_entry(image, slot, value)
    }

    fn remove(&self, image: &mut [u8], slot: Slot) -> Range<usize> {
        self.remove_entry(image, slot)
    }

    fn remove_duplicates(&self, image: &mut [u8], slot: Slot) -> Option<Range<usize>> {
        self.clear_twins(image, slot)
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
        // The marks repeat fields of the header. The header of this image already has its new content, because a step
        // changes the header first.
        if let Ok(header) = self.geometry.place.decode::<K>(image) {
            self.stamp(image, version, &header.fences, 0);
        }
    }
}

impl<K: KeyBytes> NodeStructure<K> for Hopscotch<K> {
    fn prepare_split<'v>(
        &self,
        left: &[u8],
        right: &mut [u8],
        request: &SplitRequest<'v, K>,
    ) -> Result<Option<SplitPlan<'v, K>>, CheckFailure> {
        self.split_in_two(left, right, request)
    }

    fn merge_fits(&self, left: &[u8], right: &[u8]) -> Result<bool, CheckFailure> {
        let mut both = left.to_vec();
        self.clear_copies(&mut both, &self.header(left)?);
        self.take_over(&mut both, right)
    }

    fn repair(&self, image: &mut [u8]) -> Result<Option<Range<usize>>, CheckFailure> {
        match self.geometry.is_in_line() {
            true => self.end_hops(image).map(Some),
            // Larger entries do not hop.
            false => Ok(None),
        }
    }

    fn copy_merge(&self, left: &mut [u8], right: &[u8]) -> Result<Range<usize>, CheckFailure> {
        let mut header = self.header(left)?;
        self.clear_copies(left, &header);
        assert!(
            self.take_over(left, right)?,
            "a merge needs room for all of the right node's entries"
        );
        // From now on the marks contain the wider range of keys. The header gets this range in a later step.
        header.fences.high = self.header(right)?.fences.high;
        let version = self.version_after(header.version, 1);
        self.stamp(left, version, &header.fences, 0);
        Ok(self.range(Part::Rest))
    }

    fn bury(&self, image: &mut [u8], forward: u64) -> Result<Range<usize>, CheckFailure> {
        let mut header = self.header(image)?;
        header.version = self.version_after(header.version, 1);
        header.state = NodeState::Dead;
        header.lag = LineLag::Equal;
        header.owner = 0;
        header.sibling = forward;
        self.evict_entries(image, &K::MIN);
        self.geometry.place.encode(&header, image);
        self.stamp(image, header.version, &header.fences, flag::DEAD);
        Ok(0..self.geometry.node_bytes)
    }
}

impl<K: KeyBytes> Hopscotch<K> {
    /// Initialises a node that has no entries.
    pub(crate) fn found(&self, image: &mut [u8], init: &NodeInit<K>) {
        assert_eq!(image.len(), self.geometry.node_bytes, "an image of one node");
        image.fill(0);
        self.geometry.place.encode(&init.header(), image);
        let young = match init.incarnation == FIRST_INCARNATION {
            true => 0,
            false => flag::YOUNG,
        };
        self.stamp(image, init.version, &init.fences, young);
    }
}
