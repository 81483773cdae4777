//! Editing the image of one node.

use core::ops::Range;

use alloc::vec::Vec;

use crate::error::{CheckFailure, Reason};
use crate::format::{NodeRead, Part, Slot};
use crate::header::{Header, NodeInit};
use crate::key::KeyBytes;
use crate::value::ValueRef;

/// Sorts the keys of a new node.
///
/// # Errors
/// Returns [`Reason::Order`] if a key is duplicate.
pub(crate) fn sort_distinct<K: KeyBytes>(keys: &mut [K]) -> Result<(), CheckFailure> {
    keys.sort_unstable();
    match keys.windows(2).any(|pair| pair[0] == pair[1]) {
        true => Err(CheckFailure::corrupt(0, Reason::Order)),
        false => Ok(()),
    }
}

/// Edits images of nodes. The writer holds the node's lock and has accepted the image. It WRITEs the byte range that an
/// edit returns (`image[range]` to the node's address plus `range.start`). Edits panic only on misuse, such as a value
/// of another length, an image that is not as long as a node, a slot of another format, or entries that have no room.
pub trait NodeEdit<K: KeyBytes>: NodeRead<K> {
    /// Overwrites `image` with a new node. The order of `entries` does not matter. Panics if they do not fit.
    fn build<'v>(
        &self,
        image: &mut [u8],
        init: &NodeInit<K>,
        entries: impl IntoIterator<Item = (K, ValueRef<'v>)>,
    );

    /// Overwrites `image` with a new node. It contains `new`, and those entries of the accepted `from` that are within
    /// the new fence keys.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] under the same conditions as [`entry`](super::NodeRead::entry), and [`Reason::Room`] if
    /// the entries do not fit. Returns [`Reason::Order`] if a key is duplicate.
    fn build_from(
        &self,
        image: &mut [u8],
        init: &NodeInit<K>,
        from: &[u8],
        new: Option<(K, ValueRef<'_>)>,
    ) -> Result<(), CheckFailure> {
        let mut entries = Vec::with_capacity(self.capacity() + 1);
        self.visit(from, |key, value| {
            if init.fences.contains(&key) {
                entries.push((key, value));
            }
        })?;
        entries.extend(new);
        let mut keys: Vec<K> = entries.iter().map(|(key, _)| *key).collect();
        sort_distinct(&mut keys)?;
        if !self.takes(&init.fences.low, &mut keys.iter().copied()) {
            return Err(CheckFailure::corrupt(0, Reason::Room));
        }
        self.build(image, init, entries);
        Ok(())
    }

    /// Puts a new entry into the slot that [`place`](super::NodeRead::place) returned as free.
    fn put(&self, image: &mut [u8], slot: Slot, key: &K, value: ValueRef<'_>) -> Range<usize>;

    /// Gives the entry in `slot` a new value.
    fn update(&self, image: &mut [u8], slot: Slot, value: ValueRef<'_>) -> Range<usize>;

    /// Removes the entry in `slot`.
    fn remove(&self, image: &mut [u8], slot: Slot) -> Range<usize>;

    /// Removes the duplicates of the entry in `slot` from other slots, and returns the bytes to WRITE. Returns `None`
    /// if there are no duplicates; only formats with [`DUPLICATES`](super::NodeShape::DUPLICATES) can have them. The
    /// caller must WRITE these bytes before it changes the entry, because a reader that sees only a duplicate takes it
    /// for the entry.
    fn remove_duplicates(&self, _image: &mut [u8], _slot: Slot) -> Option<Range<usize>> {
        None
    }

    /// Removes the entries of `part` whose keys are not less than `from`. The guards are set later, by
    /// [`seal_head`](Self::seal_head) or [`seal_rest`](Self::seal_rest).
    fn evict(&self, image: &mut [u8], from: &K, part: Part);

    /// Writes the header and the guard that covers it.
    fn seal_head(&self, image: &mut [u8], header: &Header<K>);

    /// Writes the guards of the other lines, for a header of `version`.
    fn seal_rest(&self, image: &mut [u8], version: u8);
}
