//! Reading a node's bytes.

use alloc::vec::Vec;

use crate::error::CheckFailure;
use crate::format::{Judged, Lookup, NodeShape, Place, Slot, judge};
use crate::header::{Header, LineLag, NodeState};
use crate::key::{FenceKeys, KeyBytes};
use crate::value::ValueRef;

/// Reads nodes. Any bytes may be passed: a failure is a typed error, and nothing panics.
pub trait NodeRead<K: KeyBytes>: NodeShape<K> {
    /// Decodes only the header, under the node's lock or as a hint. The other bytes are not checked.
    ///
    /// # Errors
    /// Returns [`CheckFailure::Corrupt`] if the bytes are not a header.
    fn header(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure>;

    /// Applies the format's acceptance rule to the whole node. Scans need this, and writers before they edit
    /// the node.
    ///
    /// # Errors
    /// Returns [`CheckFailure::Torn`] if the bytes mix two writes, and [`CheckFailure::Corrupt`] if they are
    /// not a node.
    fn accept(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure>;

    /// Searches the bytes of one READ for `key` in a node of `level`. Acceptance and search are one pass,
    /// which checks only the bytes on which the result depends.
    ///
    /// # Errors
    /// Returns the same errors as [`accept`](Self::accept), and [`CheckFailure::Torn`] if an entry's own
    /// guard fails.
    fn lookup<'a>(&self, bytes: &'a [u8], key: &K, level: u8) -> Result<Lookup<'a>, CheckFailure>;

    /// Returns where to write `key`, in an accepted image of a node whose fence keys contain it.
    ///
    /// # Errors
    /// Returns [`CheckFailure::Torn`] if an entry's own guard fails.
    fn place(&self, bytes: &[u8], key: &K) -> Result<Place, CheckFailure>;

    /// Combines acceptance and [`place`](Self::place) in one pass over bytes that were READ under the node's
    /// lock. Returns whether they are a node of `level` that is not being changed and covers `key`, and the
    /// slot of the key or for it. If the key is present, only the header's line and the key's line are
    /// checked, as by a reader; otherwise the whole node is checked.
    ///
    /// # Errors
    /// Returns the same errors as [`accept`](Self::accept) and [`place`](Self::place).
    fn judge(&self, bytes: &[u8], key: &K, level: u8) -> Result<Judged, CheckFailure> {
        judge(self, bytes, key, level)
    }

    /// Returns the slot of `key` in an accepted image if the key is present and its entry is torn. A client has died
    /// in the middle of a WRITE of that entry, if there was no other client that could write it.
    fn torn_entry(&self, _bytes: &[u8], _key: &K) -> Option<Slot> {
        None
    }

    /// Returns the slots that may hold an entry, in byte order; none if `bytes` does not have the length of
    /// such a node.
    fn slots(&self, bytes: &[u8]) -> impl Iterator<Item = Slot> + use<Self, K>;

    /// Returns the entry in `slot`, if there is one, in an accepted image.
    ///
    /// # Errors
    /// Returns [`CheckFailure::Torn`] if the entry's own guard fails, and [`CheckFailure::Corrupt`] if its
    /// presence byte is invalid.
    fn entry<'a>(&self, bytes: &'a [u8], slot: Slot) -> Result<Option<(K, ValueRef<'a>)>, CheckFailure>;

    /// Passes every entry of an accepted image to `each`, in byte order.
    ///
    /// # Errors
    /// Returns the same errors as [`entry`](Self::entry); the entries before the invalid one were passed.
    fn visit<'a>(&self, bytes: &'a [u8], mut each: impl FnMut(K, ValueRef<'a>)) -> Result<(), CheckFailure> {
        for slot in self.slots(bytes) {
            if let Some((key, value)) = self.entry(bytes, slot)? {
                each(key, value);
            }
        }
        Ok(())
    }

    /// Returns the entry with the greatest key not above `key` in an accepted image. In an inner node, this
    /// entry leads to the child for `key`.
    ///
    /// # Errors
    /// Returns the same errors as [`entry`](Self::entry).
    fn floor<'a>(&self, bytes: &'a [u8], key: &K) -> Result<Option<(Slot, K, ValueRef<'a>)>, CheckFailure> {
        let mut best: Option<(Slot, K, ValueRef<'a>)> = None;
        for slot in self.slots(bytes) {
            if let Some((k, value)) = self.entry(bytes, slot)?
                && k <= *key
                && best.is_none_or(|(_, b, _)| b < k)
            {
                best = Some((slot, k, value));
            }
        }
        Ok(best)
    }

    /// Returns the number of entries in an accepted image.
    ///
    /// # Errors
    /// Returns the same errors as [`entry`](Self::entry).
    fn len(&self, bytes: &[u8]) -> Result<usize, CheckFailure> {
        let mut count = 0;
        for slot in self.slots(bytes) {
            count += usize::from(self.entry(bytes, slot)?.is_some());
        }
        Ok(count)
    }

    /// Returns whether the image is of a node that may not be linked yet, such as the right half of a split
    /// in progress. A client that used an old address cannot know whether the node has been linked. This
    /// accepts any bytes, and does not check whether they are consistent.
    fn is_unborn(&self, bytes: &[u8]) -> bool {
        let header = self.header(bytes);
        header.is_ok_and(|h| h.state == NodeState::Splitting && h.lag == LineLag::Equal)
    }

    /// Collects the entries of an accepted image whose keys are inside its fence keys into `out`, by
    /// ascending key. (A node that is being split may still contain entries that were moved.) `out` is
    /// cleared first.
    ///
    /// # Errors
    /// Returns the same errors as [`entry`](Self::entry).
    fn gather<'a>(
        &self,
        bytes: &'a [u8],
        fences: &FenceKeys<K>,
        out: &mut Vec<(K, ValueRef<'a>)>,
    ) -> Result<(), CheckFailure> {
        out.clear();
        self.visit(bytes, |key, value| {
            if fences.contains(&key) {
                out.push((key, value));
            }
        })?;
        out.sort_unstable_by_key(|entry| entry.0);
        Ok(())
    }
}
