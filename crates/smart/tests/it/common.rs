//! Opens SMART trees for the test kit.

use std::marker::PhantomData;

use dm_testkit::{Failure, IndexUnderTest, TestKey};
use dm_verbs::{Control, Verbs};
use smart::{Compression, NodeTypes, Options, PrefixIndex, RangeIndex, Smart};

/// Returns these options with every lock in a lock table: those of leaves (HOCL), and those of inner nodes (ROWEX). As in
/// the paper's baselines, a leaf's WRITE is awaited before the unlock.
pub(crate) const fn under_tables(options: Options) -> Options {
    Options {
        rear_locks: false,
        locked_nodes: true,
        combine: false,
        ..options
    }
}

/// Returns these options with out-of-place updates.
pub(crate) const fn out_of_place(options: Options) -> Options {
    Options {
        in_place: false,
        ..options
    }
}

/// Returns these options as in the paper's baseline ART: out-of-place updates, and inner nodes under locks.
pub(crate) const fn art(options: Options) -> Options {
    out_of_place(under_tables(options))
}

/// Returns these options without path compression, and with no other nodes than those of 256 slots.
pub(crate) const fn plain(options: Options) -> Options {
    Options {
        types: NodeTypes::ONE,
        compression: Compression::NONE,
        ..options
    }
}

/// Returns these options with headers that hold no key bytes. Clients skip the bytes in front of a branch.
pub(crate) const fn optimistic(options: Options) -> Options {
    Options {
        compression: Compression::OPTIMISTIC,
        ..options
    }
}

/// Returns these options with headers that hold some key bytes. Clients skip the others.
pub(crate) const fn hybrid(options: Options) -> Options {
    Options {
        compression: Compression::HYBRID,
        ..options
    }
}

/// Returns these options with a cache that is indexed by hashes of prefixes.
pub(crate) const fn hash_cache(options: Options) -> Options {
    Options {
        cache_index: PrefixIndex::Hash,
        ..options
    }
}

/// A tree with these options.
pub(crate) struct Tree<K> {
    pub(crate) options: Options,
    _types: PhantomData<fn() -> K>,
}

impl<K> Tree<K> {
    pub(crate) const fn new(options: Options) -> Self {
        Self {
            options,
            _types: PhantomData,
        }
    }
}

impl<K: TestKey> IndexUnderTest for Tree<K> {
    type Key = K;
    type Handle = Smart<K>;
    fn value_bytes(&self) -> usize {
        self.options.value_bytes
    }
    async fn open<V: Verbs + Control>(&self, v: &V) -> Result<Smart<K>, Failure> {
        Ok(Smart::create_or_open(v, &self.options).await?)
    }
    fn client<'h, V: Verbs + Control>(tree: &'h Smart<K>, v: &'h V) -> impl RangeIndex<Key = K> {
        tree.client(v)
    }
    async fn sweep<V: Verbs + Control>(
        tree: &Smart<K>,
        v: &V,
        leaked_max: u64,
    ) -> Result<Vec<String>, Failure> {
        let report = tree.sweep(v).await?;
        Ok(report.faults_and_leaks(leaked_max))
    }
}
