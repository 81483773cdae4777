//! A client of a hash table.

use core::future::Future;

use dm_index::{
    Applied, Composed, Exchange, Fill, IndexError, Inner, KeyBytes, RangeIndex, SCAN_BATCH, Scan,
};
use dm_sync::epoch::Running;
use dm_verbs::{Control, Verbs};

use super::Leaves;
use super::directory::Directory;
use super::scatter::{above, gather, scatter};

/// A client of a [`crate::HashTable`]: a coroutine with its own connections.
///
/// Gets and writes are efficient. A hash table has no order, so every scan reads the whole table, and a bulk load
/// inserts one key after another. Scans and bulk loads exist so that programs for any index also run on a table.
#[derive(Debug)]
pub struct TableClient<'h, V: Verbs + Control, K: KeyBytes> {
    v: &'h V,
    composed: Composed<'h, V, K, Directory<K>, Leaves<K>>,
    directory: &'h Directory<K>,
}

impl<'h, V: Verbs + Control, K: KeyBytes> TableClient<'h, V, K> {
    pub(super) fn new(
        v: &'h V,
        composed: Composed<'h, V, K, Directory<K>, Leaves<K>>,
        directory: &'h Directory<K>,
    ) -> Self {
        Self {
            v,
            composed,
            directory,
        }
    }

    /// Calls `each` for all entries, in no particular order. This is not a snapshot, because entries are read at
    /// different moments. No entry is passed twice, and an entry that is present throughout the call is passed.
    ///
    /// # Errors
    /// Returns an error if a verb fails, if a retry limit is reached, or if a leaf's bytes contradict each other.
    pub async fn for_each(&self, mut each: impl FnMut(K, &[u8])) -> Result<(), IndexError> {
        let batch = SCAN_BATCH * self.directory.capacity();
        let mut found = Scan::new();
        let mut from = Some(K::MIN);
        while let Some(at) = from {
            self.composed.scan(&at, batch, &mut found).await?;
            for (key, value) in found.iter() {
                each(gather(&key), value);
            }
            let last = found.keys().last().filter(|_| found.len() == batch);
            from = last.and_then(above);
        }
        Ok(())
    }
}

impl<V: Verbs + Control, K: KeyBytes> RangeIndex for TableClient<'_, V, K> {
    type Key = K;

    fn value_bytes(&self) -> usize {
        self.composed.value_bytes()
    }

    async fn get(&self, key: &K, value: &mut Vec<u8>) -> Result<bool, IndexError> {
        self.composed.get(&scatter(key), value).await
    }
    async fn insert(&self, key: &K, value: &[u8]) -> Result<Applied, IndexError> {
        self.composed.insert(&scatter(key), value).await
    }
    async fn update(&self, key: &K, value: &[u8]) -> Result<Applied, IndexError> {
        self.composed.update(&scatter(key), value).await
    }
    async fn upsert(&self, key: &K, value: &[u8]) -> Result<Applied, IndexError> {
        self.composed.upsert(&scatter(key), value).await
    }
    async fn remove(&self, key: &K) -> Result<Applied, IndexError> {
        self.composed.remove(&scatter(key)).await
    }

    async fn scan(&self, from: &K, limit: usize, out: &mut Scan<K>) -> Result<(), IndexError> {
        out.reset(self.value_bytes());
        // The smallest keys so far. There are at most twice as many as the caller requested, or `SCAN_BATCH` if that is
        // more.
        let mut least: Vec<(K, Vec<u8>)> = Vec::new();
        let keep = |least: &mut Vec<(K, Vec<u8>)>| {
            least.sort_unstable_by_key(|entry| entry.0);
            least.truncate(limit);
        };
        self.for_each(|key, value| {
            if key >= *from {
                least.push((key, value.to_vec()));
            }
            if least.len() >= limit.saturating_mul(2).max(SCAN_BATCH) {
                keep(&mut least);
            }
        })
        .await?;
        keep(&mut least);
        for (key, value) in &least {
            out.push(*key, value);
        }
        Ok(())
    }

    async fn bulk_load(
        &self,
        fill: impl Into<Fill>,
        mut next: impl FnMut(&mut Vec<u8>) -> Option<K>,
    ) -> Result<u64, IndexError> {
        // The fill level is only checked for validity, because inserts determine how full the leaves become.
        fill.into().checked()?;
        if let Some(located) = self.directory.locate(self.v, &K::MIN).await? {
            return Err(IndexError::NotEmpty {
                root: located.leaf.at,
            });
        }
        // All input is read before the first insert, so that refused input leaves the table empty.
        let mut entries: Vec<(K, Vec<u8>)> = Vec::new();
        let mut value = Vec::new();
        while let Some(key) = next(&mut value) {
            if entries.last().is_some_and(|(last, _)| *last >= key) {
                return Err(IndexError::BadInput {
                    why: "a bulk load's keys must ascend strictly",
                });
            }
            let (found, expected) = (value.len(), self.value_bytes());
            if found != expected {
                return Err(IndexError::ValueLength { found, expected });
            }
            entries.push((key, core::mem::take(&mut value)));
        }
        let _unmetered = self.v.meter().housekeeping();
        for (key, value) in &entries {
            self.insert(key, value).await?;
        }
        Ok(entries.len() as u64)
    }
}

impl<V: Verbs + Control, K: KeyBytes> Exchange for TableClient<'_, V, K> {
    async fn exchange(
        &self,
        key: &K,
        before: Option<&[u8]>,
        after: Option<&[u8]>,
    ) -> Result<Applied, IndexError> {
        self.composed.exchange(&scatter(key), before, after).await
    }

    async fn swap(&self, key: &K, before: &mut Vec<u8>, after: Option<&[u8]>) -> Result<Applied, IndexError> {
        self.composed.swap(&scatter(key), before, after).await
    }

    fn begin(&self) -> impl Future<Output = Result<Option<Running<'_>>, IndexError>> {
        self.composed.begin()
    }
}
