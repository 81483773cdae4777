//! Reading a node's bytes.

use alloc::vec::Vec;

use crate::error::CheckFailure;
use crate::format::{Judged, Lookup, NodeShape, Place, Slot, judge};
use crate::header::{Header, LineLag, NodeState};
use crate::key::{FenceKeys, KeyBytes};
use crate::value::ValueRef;

/// Reads nodes. All functions accept any bytes: they return a typed error, and never panic.
pub trait NodeRead<K: KeyBytes>: NodeShape<K> {
    /// Decodes only the header. The other bytes are not checked, so the caller must hold the node's lock or use the
    /// header only as a hint.
    ///
    /// # Errors
    /// Returns [`CheckFailure::Corrupt`] if the bytes are not a header.
    fn header(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure>;

    /// Applies the format's acceptance rule to the whole node. Scans need this, and so do writers that do not use
    /// [`judge`](Self::judge).
    ///
    /// # Errors
    /// Returns [`CheckFailure::Torn`] if the bytes mix two WRITEs, and [`CheckFailure::Corrupt`] if they are not a
    /// node.
    fn accept(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure>;

    /// Looks up `key` in the bytes of one READ of a node of `level`. It checks at least the bytes on which the result
    /// depends.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] under the same conditions as [`accept`](Self::accept), and [`CheckFailure::Torn`] if
    /// an entry's own guard does not match.
    fn lookup<'a>(&self, bytes: &'a [u8], key: &K, level: u8) -> Result<Lookup<'a>, CheckFailure>;

    /// Returns the slot for writing `key`, in an accepted image of a node that covers the key.
    ///
    /// # Errors
    /// Returns [`CheckFailure::Torn`] if an entry's own guard does not match.
    fn place(&self, bytes: &[u8], key: &K) -> Result<Place, CheckFailure>;

    /// Combines acceptance and [`place`](Self::place), for bytes that were READ under the node's lock. Some formats do
    /// both in one pass. Returns [`Judged::Here`] with the place for `key`, if the bytes are a node of `level` that is
    /// not being changed and covers the key. If the key is present, a format may check only the lines that
    /// [`lookup`](Self::lookup) checks. Otherwise the whole node is checked.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] under the same conditions as [`accept`](Self::accept) and [`place`](Self::place).
    fn judge(&self, bytes: &[u8], key: &K, level: u8) -> Result<Judged, CheckFailure> {
        judge(self, bytes, key, level)
    }

    /// Returns the slot of `key` in an accepted image if the key is present and its entry is torn. If no other client
    /// could write the entry, a client must have died during a WRITE of it. The default returns `None`.
    fn torn_entry(&self, _bytes: &[u8], _key: &K) -> Option<Slot> {
        None
    }

    /// Returns the slots that may hold an entry, in byte order. The iterator is empty if `bytes` is not as long as a
    /// node.
    fn slots(&self, bytes: &[u8]) -> impl Iterator<Item = Slot>;

    /// Returns the entry in `slot` of an accepted image, if there is one.
    ///
    /// # Errors
    /// Returns [`CheckFailure::Torn`] if the entry's own guard does not match, and [`CheckFailure::Corrupt`] if the
    /// entry is invalid, for example its presence byte.
    fn entry<'a>(&self, bytes: &'a [u8], slot: Slot) -> Result<Option<(K, ValueRef<'a>)>, CheckFailure>;

    /// Passes every entry of an accepted image to `each`, in byte order.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] under the same conditions as [`entry`](Self::entry). The entries before the invalid
    /// one have been passed to `each`.
    fn visit<'a>(&self, bytes: &'a [u8], mut each: impl FnMut(K, ValueRef<'a>)) -> Result<(), CheckFailure> {
        for slot in self.slots(bytes) {
            if let Some((key, value)) = self.entry(bytes, slot)? {
                each(key, value);
            }
        }
        Ok(())
    }

    /// Returns the entry of an accepted image with the greatest key that is not greater than `key`. In an inner node,
    /// this entry leads to the child for `key`.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] under the same conditions as [`entry`](Self::entry).
    fn floor<'a>(&self, bytes: &'a [u8], key: &K) -> Result<Option<(Slot, K, ValueRef<'a>)>, CheckFailure> {
        let mut best: Option<(Slot, K, ValueRef<'a>)> = None;
        for slot in self.slots(bytes) {
            let entry = self.entry(bytes, slot)?;
            let entry = entry.filter(|(k, _)| k <= key && best.is_none_or(|(_, b, _)| b < *k));
            if let Some((k, value)) = entry {
                best = Some((slot, k, value));
            }
        }
        Ok(best)
    }

    /// Returns the number of entries in an accepted image.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] under the same conditions as [`entry`](Self::entry).
    fn len(&self, bytes: &[u8]) -> Result<usize, CheckFailure> {
        let mut count = 0;
        for slot in self.slots(bytes) {
            count += usize::from(self.entry(bytes, slot)?.is_some());
        }
        Ok(count)
    }

    /// Returns whether the node might not be linked yet, for example because it is the right half of an unfinished
    /// split. A client that used a stale address cannot know whether the node was linked. This accepts any bytes, and
    /// does not check their consistency.
    fn is_unborn(&self, bytes: &[u8]) -> bool {
        let header = self.header(bytes);
        header.is_ok_and(|h| h.state == NodeState::Splitting && h.lag == LineLag::Equal)
    }

    /// Collects those entries of an accepted image whose keys are within `fences` into `out`, in ascending order. A
    /// node that is being split may also contain entries that have moved to the right node. `out` is cleared first.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] under the same conditions as [`entry`](Self::entry).
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
