//! The interface between the radix levels and their leaves, each of which holds one entry.

use core::future::Future;

use dm_index::IndexError;
use dm_verbs::{RemotePtr, Verbs};

use crate::SingleSeen;

/// The result of an operation on a leaf of one entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Single<K> {
    /// The leaf has the entry of the requested key.
    Hit,
    /// The leaf has the live entry of another key. No further key of the tree has that key's first `depth + 1` bytes.
    Other {
        /// The key of that entry.
        key: K,
        /// Upper bound of the depth at which the leaf is linked.
        depth: u64,
    },
    /// The entry was removed. This leaf never holds an entry again: if the key is inserted again, it gets another leaf.
    Removed,
    /// An out-of-place update has replaced the leaf by another one. This leaf never holds an entry again.
    Replaced {
        /// The key of the entry.
        key: K,
        /// The address of the other leaf.
        by: RemotePtr,
    },
    /// The leaf has the entry of the key, with another value than the write expects.
    Differs,
}

/// A store of leaves with one entry each. One READ reads a leaf. An update writes the leaf in place under its lock, or
/// replaces it by another leaf. A removed leaf never holds an entry again.
///
/// A leaf does not contain the address of the node that links it. It contains a *link depth* instead: a word that
/// changes only by FAA and only grows.
pub trait SingleStore<V: Verbs, K> {
    /// Returns the size of a value in bytes.
    fn value_bytes(&self) -> usize;
    /// Returns the size of a leaf in bytes, rounded up to whole lines.
    fn block_bytes(&self) -> u32;
    /// Encodes a new leaf into `out`, which is cleared first. The caller writes the bytes before it links the
    /// leaf.
    fn image(&self, key: &K, value: &[u8], depth: u64, out: &mut Vec<u8>);
    /// Returns the address of the link depth of the leaf at `at`.
    fn depth_at(&self, at: RemotePtr) -> RemotePtr;

    /// Reads the leaf. If it has the entry of `key`, replaces the content of `value` by the entry's value.
    fn get(
        &self,
        v: &V,
        at: RemotePtr,
        key: &K,
        value: &mut Vec<u8>,
    ) -> impl Future<Output = Result<Single<K>, IndexError>>;

    /// Returns whether clients update a leaf in place, by [`SingleStore::update`]. Otherwise they replace it by
    /// [`SingleStore::replace`].
    fn in_place(&self) -> bool;

    /// Replaces the live leaf at `at` by a leaf at `next`, to which nothing points yet: writes `image` to `next`, and
    /// then changes the state of the old leaf by a CAS. Returns whether the leaf was still live.
    fn replace(
        &self,
        v: &V,
        at: RemotePtr,
        next: RemotePtr,
        image: &[u8],
    ) -> impl Future<Output = Result<bool, IndexError>>;

    /// Replaces the value of `key`. If `before` is given, replaces only that value.
    fn update(
        &self,
        v: &V,
        at: RemotePtr,
        key: &K,
        value: &[u8],
        before: Option<&[u8]>,
    ) -> impl Future<Output = Result<Single<K>, IndexError>>;

    /// Removes the entry of `key`. If `before` is given, removes the entry only if its value is `before`.
    fn remove(
        &self,
        v: &V,
        at: RemotePtr,
        key: &K,
        before: Option<&[u8]>,
    ) -> impl Future<Output = Result<Single<K>, IndexError>>;

    /// Reads several leaves, in one round trip if none of them is torn or was replaced. Passes the key and the value of
    /// each leaf that is not removed to `each`, in the order of `at`. If a leaf was replaced, reads the leaf that has
    /// replaced it.
    fn entries(
        &self,
        v: &V,
        at: &[RemotePtr],
        each: impl FnMut(K, &[u8]),
    ) -> impl Future<Output = Result<(), IndexError>>;

    /// Reads several leaves for a check. Passes to `each` the leaf's position in `at`, its description, and its value,
    /// which counts only if the leaf is live. The READ of a torn leaf is repeated a few times. It is not an error if a
    /// leaf is torn or corrupt, or if there is no memory at its address: the leaf is passed to `each` too.
    fn inspect(
        &self,
        v: &V,
        at: &[RemotePtr],
        each: impl FnMut(usize, SingleSeen<K>, &[u8]),
    ) -> impl Future<Output = Result<(), IndexError>>;
}
