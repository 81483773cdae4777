//! How an index is described to the tests.

use core::error::Error;
use core::future::Future;

use dm_index::RangeIndex;
use dm_verbs::{Control, Verbs};

use crate::TestKey;

/// Why an index could not be opened.
pub type Failure = Box<dyn Error + Send + Sync>;

/// An index with all its options, opened in any world.
///
/// A handle is what the clients of one compute node share.
pub trait IndexUnderTest: Send + Sync + 'static {
    /// Its keys.
    type Key: TestKey;
    /// What the clients of a compute node share.
    type Handle: Send + Sync + 'static;

    /// Bytes of its values.
    fn value_bytes(&self) -> usize;

    /// Opens the index in `v`'s pool, creating it if it is not there.
    fn open<V: Verbs + Control>(&self, v: &V) -> impl Future<Output = Result<Self::Handle, Failure>>;

    /// A client of the handle.
    fn client<'h, V: Verbs + Control>(handle: &'h Self::Handle, v: &'h V)
    -> impl RangeIndex<Key = Self::Key>;
}

/// An index in all key and value sizes.
///
/// Example: `docs/assemble.md`, of an index in all its sizes.
pub trait Family {
    /// Whether scans and bulk loads are what its indexes are for. A hash table's read and sort all of it, and insert one
    /// by one: the script leaves out what would take long.
    const ORDERED: bool = true;

    /// With keys `K`.
    type Index<K: TestKey>: IndexUnderTest<Key = K>;

    /// With keys `K` and values of `value_bytes` bytes.
    fn index<K: TestKey>(&self, value_bytes: usize) -> Self::Index<K>;
}
