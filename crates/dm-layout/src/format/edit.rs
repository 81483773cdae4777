//! Editing the image of one node.

use core::ops::Range;

use alloc::vec::Vec;

use crate::error::{CheckFailure, Reason};
use crate::format::{NodeRead, Part, Slot};
use crate::header::{Header, NodeInit};
use crate::key::KeyBytes;
use crate::value::ValueRef;

/// Edits images of nodes. The writer holds the node's lock, has accepted the image, and WRITEs the byte range that an
/// edit returns (`image[range]` to the node's address plus `range.start`). Edits panic only on misuse: a wrong value
/// length, an image that is not as long as a node, or a slot of another format.
pub trait NodeEdit<K: KeyBytes>: NodeRead<K> {
    /// Overwrites `image` with a new node. `entries` may have any order. Panics if they do not fit.
    fn build<'v>(
        &self,
        image: &mut [u8],
        init: &NodeInit<K>,
        entries: impl IntoIterator<Item = (K, ValueRef<'v>)>,
    );

    /// Overwrites `image` with a new node. It contains the entries of the accepted `from` that are inside the
    /// new fence keys, and `new`.
    ///
    /// # Errors
    /// Returns the same errors as [`entry`](super::NodeRead::entry); [`Reason::Order`] if a key is duplicate, or if
    /// there are more entries than fit.
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
        keys.sort_unstable();
        let twice = keys.windows(2).any(|pair| pair[0] == pair[1]);
        if twice || !self.takes(&init.fences.low, &mut keys.iter().copied()) {
            return Err(CheckFailure::corrupt(0, Reason::Order));
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

    /// Removes the duplicates of the entry in `slot` from other slots and returns the bytes to WRITE; `None` if there
    /// are none. Only formats with [`DUPLICATES`](super::NodeShape::DUPLICATES) can have any. They must be written
    /// before the entry itself changes, because a reader that sees only a duplicate mistakes it for the entry.
    fn remove_duplicates(&self, _image: &mut [u8], _slot: Slot) -> Option<Range<usize>> {
        None
    }

    /// Removes the entries of `part` whose keys are not below `from`. Guards are set by the step's
    /// [`seal_head`](Self::seal_head) or [`seal_rest`](Self::seal_rest).
    fn evict(&self, image: &mut [u8], from: &K, part: Part);

    /// Writes the header and the guard that covers it.
    fn seal_head(&self, image: &mut [u8], header: &Header<K>);

    /// Writes the guards of the other lines, for a header of `version`.
    fn seal_rest(&self, image: &mut [u8], version: u8);
}
