//! Helpers that open tables for the test kit.

use std::marker::PhantomData;

use dm_hopscotch::{HashTable, TableOptions};
use dm_index::{Key8, RangeIndex};
use dm_testkit::{Failure, IndexUnderTest, TestKey};
use dm_verbs::{Control, Verbs};

/// A table with these options.
pub(crate) struct Table<K> {
    pub(crate) options: TableOptions,
    _types: PhantomData<fn() -> K>,
}

impl<K> Table<K> {
    pub(crate) const fn new(options: TableOptions) -> Self {
        Self {
            options,
            _types: PhantomData,
        }
    }
}

impl<K: TestKey> IndexUnderTest for Table<K> {
    const ORDERED: bool = false;
    type Key = K;
    type Handle = HashTable<K>;
    fn value_bytes(&self) -> usize {
        self.options.value_bytes
    }
    async fn open<V: Verbs + Control>(&self, v: &V) -> Result<HashTable<K>, Failure> {
        Ok(HashTable::create_or_open(v, &self.options).await?)
    }
    fn client<'h, V: Verbs + Control>(table: &'h HashTable<K>, v: &'h V) -> impl RangeIndex<Key = K> {
        table.client(v)
    }
}

/// Returns options with small leaves, so that hops, splits and deeper directories are frequent, and with few locks,
/// so that leaves share them.
pub(crate) fn small(value_bytes: usize) -> TableOptions {
    TableOptions {
        span: 6,
        neighbourhood: 3,
        locks_per_node: 64,
        chunk_bytes: 64 << 10,
        ..TableOptions::new(value_bytes)
    }
}

pub(crate) async fn open<V: Verbs + Control>(v: &V, options: TableOptions) -> HashTable<Key8> {
    Table::<Key8>::new(options)
        .open(v)
        .await
        .expect("the table is opened")
}
