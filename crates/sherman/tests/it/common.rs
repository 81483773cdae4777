//! Opens Sherman trees for the test kit.

use std::marker::PhantomData;

use dm_layout::Slotted;
use dm_testkit::{Failure, IndexUnderTest, TestKey};
use dm_verbs::{Control, Verbs};
use sherman::{LeafFormat, Options, RangeIndex, Sherman};

/// A tree with these options.
pub(crate) struct Tree<K, F = Slotted<K>> {
    pub(crate) options: Options,
    _types: PhantomData<fn() -> (K, F)>,
}

impl<K, F> Tree<K, F> {
    pub(crate) const fn new(options: Options) -> Self {
        Self {
            options,
            _types: PhantomData,
        }
    }
}

impl<K: TestKey, F: LeafFormat<K>> IndexUnderTest for Tree<K, F> {
    type Key = K;
    type Handle = Sherman<K, F>;
    fn value_bytes(&self) -> usize {
        self.options.value_bytes
    }
    async fn open<V: Verbs + Control>(&self, v: &V) -> Result<Sherman<K, F>, Failure> {
        Ok(Sherman::create_or_open(v, &self.options).await?)
    }
    fn client<'h, V: Verbs + Control>(tree: &'h Sherman<K, F>, v: &'h V) -> impl RangeIndex<Key = K> {
        tree.client(v)
    }
    async fn sweep<V: Verbs + Control>(
        tree: &Sherman<K, F>,
        v: &V,
        leaked_max: u64,
    ) -> Result<Vec<String>, Failure> {
        let report = tree.sweep(v).await?;
        Ok(report.faults_and_leaks(leaked_max))
    }
}
