//! The operations of a range index, as one client sees them.

use core::future::Future;

use dm_sync::epoch::Running;

use crate::{Fill, IndexError, KeyBytes, Scan};

/// What a write did.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Applied {
    /// The key was absent and is present now.
    Inserted,
    /// The key was present and has the new value now.
    Replaced,
    /// The key was present and is absent now.
    Removed,
    /// Nothing: an insert found the key present.
    Present,
    /// Nothing: an update or a remove found the key absent.
    Absent,
    /// Nothing: an exchange found another value, or one where there was to be none, or none.
    Differs,
}

/// A range index, seen by one client (a coroutine). Values have a fixed length that the index was opened with.
///
/// Every operation is linearizable on its own. Futures need not be `Send`. Dropping a future before it is done
/// leaves no lock held; its effect may or may not have happened.
///
/// # Errors
/// Every operation answers [`IndexError`], which names the place; a write that answers an error may have happened
/// (see the verb error's effect), one that answers `Ok` has.
pub trait RangeIndex {
    /// The key type.
    type Key: KeyBytes;

    /// Bytes of every value.
    fn value_bytes(&self) -> usize;

    /// Reads the value of `key` into `value` (cleared first); `false` if absent.
    fn get(&self, key: &Self::Key, value: &mut Vec<u8>) -> impl Future<Output = Result<bool, IndexError>>;
    /// Adds `key`, unless present: [`Applied::Inserted`] or [`Applied::Present`].
    fn insert(&self, key: &Self::Key, value: &[u8]) -> impl Future<Output = Result<Applied, IndexError>>;
    /// Replaces the value of `key`: [`Applied::Replaced`] or [`Applied::Absent`].
    fn update(&self, key: &Self::Key, value: &[u8]) -> impl Future<Output = Result<Applied, IndexError>>;
    /// Adds or replaces: [`Applied::Inserted`] or [`Applied::Replaced`].
    fn upsert(&self, key: &Self::Key, value: &[u8]) -> impl Future<Output = Result<Applied, IndexError>>;
    /// Removes `key`: [`Applied::Removed`] or [`Applied::Absent`].
    fn remove(&self, key: &Self::Key) -> impl Future<Output = Result<Applied, IndexError>>;

    /// The first `limit` entries from `from` (inclusive) on, in key order, into `out` (cleared first). Fewer only at
    /// the end of the index. Not a snapshot: each entry is seen at one moment of the scan, those of later nodes at
    /// later moments. No key is returned twice, and a key that is present throughout is found.
    fn scan(
        &self,
        from: &Self::Key,
        limit: usize,
        out: &mut Scan<Self::Key>,
    ) -> impl Future<Output = Result<(), IndexError>>;

    /// Fills an empty index with keys in strictly ascending order, each leaf to `fill`: a share of its capacity above 0
    /// and at most 1, or as [`Fill`] says. `next` writes a value into its (empty) argument and answers the key, or
    /// `None` at the end. Images are written directly where the world allows it and count as housekeeping. Answers how
    /// many entries there are.
    fn bulk_load(
        &self,
        fill: impl Into<Fill>,
        next: impl FnMut(&mut Vec<u8>) -> Option<Self::Key>,
    ) -> impl Future<Output = Result<u64, IndexError>>;
}

/// A range index whose values can be compared and exchanged: what is built of values that name memory rests on it.
///
/// ```
/// use dm_index::{Applied, Exchange, IndexError, Key8};
///
/// /// Adds to a counter in a value of 8 bytes, whoever else does.
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
    /// Gives `key` what is in `after`, `None` being absence, if it has what is in `before`: [`Applied::Inserted`],
    /// [`Applied::Replaced`], [`Applied::Removed`], or [`Applied::Absent`] where both are `None` and nothing is there. Else
    /// [`Applied::Differs`].
    fn exchange(
        &self,
        key: &Self::Key,
        before: Option<&[u8]>,
        after: Option<&[u8]>,
    ) -> impl Future<Output = Result<Applied, IndexError>>;

    /// Begins an operation of several steps, which ends when the answer is dropped: memory that was in use at its beginning
    /// is not used again before. `None` where memory never is.
    fn begin(&self) -> impl Future<Output = Result<Option<Running<'_>>, IndexError>>;
}
