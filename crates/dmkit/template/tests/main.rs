//! Tests: the conformance script, many clients at once, the verbs of operations, and every interleaving of a few
//! clients.

mod budget;
mod costs;
mod model;
mod script;

use std::marker::PhantomData;

use dm_index::RangeIndex;
use dm_testkit::{Failure, IndexUnderTest, TestKey};
use dm_verbs::{Control, Verbs};
use my_index::{Index, Options};

/// The index as the test kit opens it.
struct Opened<K>(Options, PhantomData<fn() -> K>);

impl<K> Opened<K> {
    fn with_span(span: usize, value_bytes: usize) -> Self {
        let options = Options {
            span,
            ..Options::new(value_bytes)
        };
        Self(options, PhantomData)
    }
}

impl<K: TestKey> IndexUnderTest for Opened<K> {
    type Key = K;
    type Handle = Index<K>;
    fn value_bytes(&self) -> usize {
        self.0.value_bytes
    }
    async fn open<V: Verbs + Control>(&self, v: &V) -> Result<Index<K>, Failure> {
        Ok(Index::create_or_open(v, &self.0).await?)
    }
    fn client<'h, V: Verbs + Control>(index: &'h Index<K>, v: &'h V) -> impl RangeIndex<Key = K> {
        index.client(v)
    }
}
