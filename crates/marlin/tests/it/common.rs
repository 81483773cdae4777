//! Opens Marlin trees for the test kit.

use std::marker::PhantomData;

use dm_testkit::{Failure, IndexUnderTest, TestKey};
use dm_verbs::{Control, Verbs};
use marlin::{Marlin, Options, RangeIndex};

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
    const UPDATES_IN_PLACE: bool = false;

    type Key = K;
    type Handle = Marlin<K>;
    fn value_bytes(&self) -> usize {
        self.options.value_bytes
    }
    async fn open<V: Verbs + Control>(&self, v: &V) -> Result<Marlin<K>, Failure> {
        Ok(Marlin::create_or_open(v, &self.options).await?)
    }
    fn client<'h, V: Verbs + Control>(tree: &'h Marlin<K>, v: &'h V) -> impl RangeIndex<Key = K> {
        tree.client(v)
    }
    async fn sweep<V: Verbs + Control>(
        tree: &Marlin<K>,
        v: &V,
        leaked_max: u64,
    ) -> Result<Vec<String>, Failure> {
        let report = tree.sweep(v).await?;
        Ok(report.faults_and_leaks(leaked_max))
    }
}
