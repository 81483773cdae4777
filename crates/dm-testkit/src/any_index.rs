//! A client of any index, as one type for each type of keys.

use core::future::Future;
use core::pin::Pin;

use dm_index::{Applied, Fill, IndexError, KeyBytes, RangeIndex, Scan};
use dm_verbs::{Control, Verbs};

use crate::IndexUnderTest;

/// A client of an index whose type is erased. The scripts use such clients, so that a test program with many indexes
/// has each script only once for each type of keys. An operation costs one allocation more.
pub(crate) struct AnyIndex<'i, K>(Box<dyn Operations<K> + 'i>);

impl<'h, K> AnyIndex<'h, K> {
    /// Makes a client of the handle.
    pub(crate) fn of<I: IndexUnderTest<Key = K>>(
        handle: &'h I::Handle,
        v: &'h (impl Verbs + Control),
    ) -> Self {
        Self(Box::new(I::client(handle, v)))
    }
}

type Answer<'f, T> = Pin<Box<dyn Future<Output = Result<T, IndexError>> + 'f>>;
type Next<'f, K> = dyn FnMut(&mut Vec<u8>) -> Option<K> + 'f;

/// The methods of [`RangeIndex`] in a form that trait objects can have.
trait Operations<K> {
    fn value_bytes(&self) -> usize;
    fn get<'f>(&'f self, key: &'f K, value: &'f mut Vec<u8>) -> Answer<'f, bool>;
    fn insert<'f>(&'f self, key: &'f K, value: &'f [u8]) -> Answer<'f, Applied>;
    fn update<'f>(&'f self, key: &'f K, value: &'f [u8]) -> Answer<'f, Applied>;
    fn upsert<'f>(&'f self, key: &'f K, value: &'f [u8]) -> Answer<'f, Applied>;
    fn remove<'f>(&'f self, key: &'f K) -> Answer<'f, Applied>;
    fn scan<'f>(&'f self, from: &'f K, limit: usize, out: &'f mut Scan<K>) -> Answer<'f, ()>;
    fn bulk_load<'f>(&'f self, fill: Fill, next: &'f mut Next<'f, K>) -> Answer<'f, u64>;
}

impl<I: RangeIndex> Operations<I::Key> for I {
    fn value_bytes(&self) -> usize {
        self.value_bytes()
    }
    fn get<'f>(&'f self, key: &'f I::Key, value: &'f mut Vec<u8>) -> Answer<'f, bool> {
        Box::pin(self.get(key, value))
    }
    fn insert<'f>(&'f self, key: &'f I::Key, value: &'f [u8]) -> Answer<'f, Applied> {
        Box::pin(self.insert(key, value))
    }
    fn update<'f>(&'f self, key: &'f I::Key, value: &'f [u8]) -> Answer<'f, Applied> {
        Box::pin(self.update(key, value))
    }
    fn upsert<'f>(&'f self, key: &'f I::Key, value: &'f [u8]) -> Answer<'f, Applied> {
        Box::pin(self.upsert(key, value))
    }
    fn remove<'f>(&'f self, key: &'f I::Key) -> Answer<'f, Applied> {
        Box::pin(self.remove(key))
    }
    fn scan<'f>(&'f self, from: &'f I::Key, limit: usize, out: &'f mut Scan<I::Key>) -> Answer<'f, ()> {
        Box::pin(self.scan(from, limit, out))
    }
    fn bulk_load<'f>(&'f self, fill: Fill, next: &'f mut Next<'f, I::Key>) -> Answer<'f, u64> {
        Box::pin(self.bulk_load(fill, next))
    }
}

impl<K: KeyBytes> RangeIndex for AnyIndex<'_, K> {
    type Key = K;

    fn value_bytes(&self) -> usize {
        self.0.value_bytes()
    }
    async fn get(&self, key: &K, value: &mut Vec<u8>) -> Result<bool, IndexError> {
        self.0.get(key, value).await
    }
    async fn insert(&self, key: &K, value: &[u8]) -> Result<Applied, IndexError> {
        self.0.insert(key, value).await
    }
    async fn update(&self, key: &K, value: &[u8]) -> Result<Applied, IndexError> {
        self.0.update(key, value).await
    }
    async fn upsert(&self, key: &K, value: &[u8]) -> Result<Applied, IndexError> {
        self.0.upsert(key, value).await
    }
    async fn remove(&self, key: &K) -> Result<Applied, IndexError> {
        self.0.remove(key).await
    }
    async fn scan(&self, from: &K, limit: usize, out: &mut Scan<K>) -> Result<(), IndexError> {
        self.0.scan(from, limit, out).await
    }
    async fn bulk_load(
        &self,
        fill: impl Into<Fill>,
        mut next: impl FnMut(&mut Vec<u8>) -> Option<K>,
    ) -> Result<u64, IndexError> {
        self.0.bulk_load(fill.into(), &mut next).await
    }
}
