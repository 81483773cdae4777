//! Runs the assembled example through the tests of every index: long runs of many clients, compute nodes that are
//! killed, memory that runs out or is cut off, and damaged bytes. The example itself contains its script, its costs and
//! its model, which this program runs too.

mod bad_input;
mod kills;
mod stress;

use std::marker::PhantomData;

use dm_testkit::{Failure, IndexUnderTest, TestKey};
use dm_verbs::{Control, Verbs};
use dolphin::RangeIndex;

use crate::tree::{ArtHopscotch, Shape};

/// The index as the test kit opens it.
struct Assembled<K>(Shape, PhantomData<fn() -> K>);

impl<K> Assembled<K> {
    const fn new(shape: Shape) -> Self {
        Self(shape, PhantomData)
    }
}

impl<K: TestKey> IndexUnderTest for Assembled<K> {
    type Key = K;
    type Handle = ArtHopscotch<K>;
    fn value_bytes(&self) -> usize {
        self.0.value_bytes
    }
    async fn open<V: Verbs + Control>(&self, v: &V) -> Result<ArtHopscotch<K>, Failure> {
        Ok(ArtHopscotch::create_or_open(v, &self.0).await?)
    }
    fn client<'h, V: Verbs + Control>(index: &'h ArtHopscotch<K>, v: &'h V) -> impl RangeIndex<Key = K> {
        index.client(v)
    }
    async fn sweep<V: Verbs + Control>(
        index: &ArtHopscotch<K>,
        v: &V,
        leaked_max: u64,
    ) -> Result<Vec<String>, Failure> {
        let report = index.sweep(v).await?;
        Ok(report.faults_and_leaks(leaked_max))
    }
}

/// Returns parameters with leaves of a dozen entries, so that they split and merge often.
fn small(value_bytes: usize) -> Shape {
    Shape {
        span: 12,
        neighbourhood: 4,
        chunk_bytes: 64 << 10,
        ..Shape::new(value_bytes)
    }
}
