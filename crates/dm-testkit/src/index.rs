//! The description of an index for the tests.

use core::error::Error;
use core::future::Future;

use dm_index::RangeIndex;
use dm_verbs::{Control, Verbs};

use crate::TestKey;

/// The reason why an index could not be opened.
pub type Failure = Box<dyn Error + Send + Sync>;

/// An index with all its options, opened in any world.
///
/// A handle is the state that the clients of one compute node share.
pub trait IndexUnderTest: Send + Sync + 'static {
    /// Whether scans and bulk loads are cheap. In a hash table a scan reads and sorts everything, and a bulk load
    /// inserts one key after another, so the conformance script skips the parts that would take long.
    const ORDERED: bool = true;

    /// Whether an update needs no memory. If values are in blocks outside of the leaves, an update takes a new block.
    const UPDATES_IN_PLACE: bool = true;

    /// The type of the keys.
    type Key: TestKey;
    /// The state that the clients of a compute node share.
    type Handle: Send + Sync + 'static;

    /// Returns the size of a value in bytes.
    fn value_bytes(&self) -> usize;

    /// Opens the index in `v`'s pool, and creates it if the pool is empty.
    fn open<V: Verbs + Control>(&self, v: &V) -> impl Future<Output = Result<Self::Handle, Failure>>;

    /// Makes a client of the handle.
    fn client<'h, V: Verbs + Control>(handle: &'h Self::Handle, v: &'h V)
    -> impl RangeIndex<Key = Self::Key>;

    /// Finishes what dead clients have left in the index, checks all of it, and returns the faults that remain. Runs
    /// with kills and a [`SweepChecker`](crate::SweepChecker) call this at their end. More than `leaked_max` lost bytes
    /// are a fault. The default checks nothing.
    fn sweep<V: Verbs + Control>(
        _handle: &Self::Handle,
        _v: &V,
        _leaked_max: u64,
    ) -> impl Future<Output = Result<Vec<String>, Failure>> {
        async { Ok(Vec::new()) }
    }
}

/// An index in all key and value sizes. An index with one size of keys and values needs no family: see
/// [`conform_one`](crate::conform_one).
///
/// `docs/assemble.md` has an example.
pub trait Family {
    /// The index with keys `K`.
    type Index<K: TestKey>: IndexUnderTest<Key = K>;

    /// Returns the index with keys `K` and values of `value_bytes` bytes.
    fn index<K: TestKey>(&self, value_bytes: usize) -> Self::Index<K>;
}
