//! The operations of a range index, as a client calls them.

use core::future::Future;

use dm_sync::epoch::Running;

use crate::{Fill, IndexError, KeyBytes, Scan};

/// The result of a write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Applied {
    /// The key was absent and is present now.
    Inserted,
    /// The key was present and has the new value now.
    Replaced,
    /// The key was present and is absent now.
    Removed,
    /// Nothing changed: an insert found the key present.
    Present,
    /// Nothing changed: the key was absent. This is the result of an update, of a remove, or of an exchange of no value
    /// for no value.
    Absent,
    /// Nothing changed: an exchange did not find the expected value, or the expected absence of the key.
    Differs,
}

/// A range index, seen by one client (a coroutine). Values have a fixed length, which is set when the index is
/// opened.
///
/// Every operation on a single key is linearizable; [`scan`](Self::scan) is not. Futures need not be `Send`. If a
/// future is dropped before it is done, no lock stays held; the operation may or may not have taken effect.
///
/// # Errors
/// Every operation returns [`IndexError`], which names the place. A write that returns an error may have
/// taken effect (see [`IndexError::effect`]); a write that returns `Ok` has taken effect.
pub trait RangeIndex {
    /// The key type.
    type Key: KeyBytes;

    /// Returns the size of a value in bytes.
    fn value_bytes(&self) -> usize;

    /// Reads the value of `key` into `value`, which is cleared first. Returns `false` if the key is absent.
    fn get(&self, key: &Self::Key, value: &mut Vec<u8>) -> impl Future<Output = Result<bool, IndexError>>;
    /// Adds `key` unless it is present. Returns [`Applied::Inserted`] or [`Applied::Present`].
    fn insert(&self, key: &Self::Key, value: &[u8]) -> impl Future<Output = Result<Applied, IndexError>>;
    /// Replaces the value of `key`. Returns [`Applied::Replaced`] or [`Applied::Absent`].
    fn update(&self, key: &Self::Key, value: &[u8]) -> impl Future<Output = Result<Applied, IndexError>>;
    /// Adds or replaces `key`. Returns [`Applied::Inserted`] or [`Applied::Replaced`].
    fn upsert(&self, key: &Self::Key, value: &[u8]) -> impl Future<Output = Result<Applied, IndexError>>;
    /// Removes `key`. Returns [`Applied::Removed`] or [`Applied::Absent`].
    fn remove(&self, key: &Self::Key) -> impl Future<Output = Result<Applied, IndexError>>;

    /// Reads the first `limit` entries from `from` (inclusive) on, in key order, into `out`, which is cleared first.
    /// Returns fewer entries only at the end of the index. This is not a snapshot: each entry is seen at one moment of
    /// the scan, and entries of later nodes at later moments. No key is returned twice, and a key that is present
    /// throughout the scan is found.
    fn scan(
        &self,
        from: &Self::Key,
        limit: usize,
        out: &mut Scan<Self::Key>,
    ) -> impl Future<Output = Result<(), IndexError>>;

    /// Fills an empty index with keys in strictly ascending order. `fill` is each leaf's share of its capacity, above 0
    /// and at most 1, or another [`Fill`]. Each call of `next` writes a value into its argument, which is empty, and
    /// returns the key, or `None` at the end. Nodes are written without verbs if the world allows it; otherwise their
    /// WRITEs are metered as housekeeping. Returns the number of entries.
    fn bulk_load(
        &self,
        fill: impl Into<Fill>,
        next: impl FnMut(&mut Vec<u8>) -> Option<Self::Key>,
    ) -> impl Future<Output = Result<u64, IndexError>>;
}

/// A range index whose values can be compared and exchanged. This is for code whose values are addresses of memory.
///
/// ```
/// use dm_index::{Applied, Exchange, IndexError, Key8};
///
/// /// Adds to a counter in an 8-byte value, even while other clients do the same.
/// async fn add<I: Exchange<Key = Key8>>(index: &I, key: &Key8, by: u64) -> Result<u64, IndexError> {
///     let mut value = Vec::new();
///     loop {
///         let before = index.get(key, &mut value).await?.then_some(&value[..]);
///         let count = before.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
///         let after = (count + by).to_le_bytes();
///         if index.exchange(key, before, Some(&after)).await? != Applied::Differs {
///             return Ok(count + by);
///         }
///     }
/// }
/// ```
pub trait Exchange: RangeIndex {
    /// Sets the value of `key` to `after` if its value is `before`. `None` means that the key is absent. Returns
    /// [`Applied::Inserted`], [`Applied::Replaced`] or [`Applied::Removed`], or [`Applied::Absent`] if both are `None`
    /// and the key is absent. Returns [`Applied::Differs`] if the key does not have the value `before`, or is present
    /// although `before` is `None`.
    fn exchange(
        &self,
        key: &Self::Key,
        before: Option<&[u8]>,
        after: Option<&[u8]>,
    ) -> impl Future<Output = Result<Applied, IndexError>>;

    /// Sets the value of `key` to `after` if the key is present, or removes the key if `after` is `None`, and puts the
    /// old value into `before`. Returns [`Applied::Replaced`], [`Applied::Removed`] or [`Applied::Absent`]. It returns
    /// [`Applied::Differs`], and has changed nothing, if another client has changed the value meanwhile. `before` has a
    /// meaning only if the value was replaced or removed.
    ///
    /// The default gets the value and exchanges it. An index that finds the old value while it writes needs no get.
    fn swap(
        &self,
        key: &Self::Key,
        before: &mut Vec<u8>,
        after: Option<&[u8]>,
    ) -> impl Future<Output = Result<Applied, IndexError>> {
        async move {
            let expected = self.value_bytes();
            if let Some(found) = after.map(<[u8]>::len).filter(|&n| n != expected) {
                return Err(IndexError::ValueLength { found, expected });
            }
            match self.get(key, before).await? {
                true => self.exchange(key, Some(before), after).await,
                false => Ok(Applied::Absent),
            }
        }
    }

    /// Begins an operation of several steps, which ends when the result is dropped. Memory that was in use when the
    /// operation began is not reused before the operation ends. Returns `None` if memory is never reused.
    fn begin(&self) -> impl Future<Output = Result<Option<Running<'_>>, IndexError>>;
}
