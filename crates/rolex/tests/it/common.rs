//! Opens the indexes for the test kit.

use core::cell::Cell;
use core::marker::PhantomData;

use dm_assemble::Parts;
use dm_index::{Fill, Scan};
use dm_testkit::{Failure, IndexUnderTest, TestKey};
use dm_verbs::{Control, Verbs};
use rolex::{
    Applied, ChimeLearnedParts, Handle, IndexError, Options, PublishedParts, RangeIndex, RolexParts,
};

/// One of the three indexes.
pub(crate) trait Learns: Parts<Key: TestKey, Options = Options> + Send + Sync + 'static {
    /// Returns defaults for values of this length.
    fn options(value_bytes: usize) -> Options;

    /// Writes a table of all leaves.
    async fn retrain<V: Verbs + Control>(&self, v: &V) -> Result<u64, IndexError>;
}

impl<K: TestKey> Learns for RolexParts<K> {
    fn options(value_bytes: usize) -> Options {
        Options::new(value_bytes)
    }
    async fn retrain<V: Verbs + Control>(&self, v: &V) -> Result<u64, IndexError> {
        Self::retrain(self, v).await
    }
}

impl<K: TestKey> Learns for ChimeLearnedParts<K> {
    fn options(value_bytes: usize) -> Options {
        Options::chime_learned(value_bytes)
    }
    async fn retrain<V: Verbs + Control>(&self, v: &V) -> Result<u64, IndexError> {
        Self::retrain(self, v).await
    }
}

impl<K: TestKey> Learns for PublishedParts<K> {
    fn options(value_bytes: usize) -> Options {
        Options::published(value_bytes)
    }
    async fn retrain<V: Verbs + Control>(&self, v: &V) -> Result<u64, IndexError> {
        Self::retrain(self, v).await
    }
}

/// An index with these options.
pub(crate) struct Tree<P> {
    pub(crate) options: Options,
    /// Each client retrains the models after this many operations; 0 for never.
    visits: u32,
    _types: PhantomData<fn() -> P>,
}

impl<P> Tree<P> {
    pub(crate) const fn new(options: Options) -> Self {
        Self {
            options,
            visits: 0,
            _types: PhantomData,
        }
    }

    pub(crate) const fn visiting(self, visits: u32) -> Self {
        Self { visits, ..self }
    }
}

/// An opened index.
pub(crate) struct Opened<P: Parts> {
    pub(crate) handle: Handle<P>,
    visits: u32,
}

impl<P: Learns> IndexUnderTest for Tree<P> {
    type Key = P::Key;
    type Handle = Opened<P>;
    fn value_bytes(&self) -> usize {
        self.options.value_bytes
    }
    async fn open<V: Verbs + Control>(&self, v: &V) -> Result<Opened<P>, Failure> {
        Ok(Opened {
            handle: Handle::create_or_open(v, &self.options).await?,
            visits: self.visits,
        })
    }
    fn client<'h, V: Verbs + Control>(index: &'h Opened<P>, v: &'h V) -> impl RangeIndex<Key = P::Key> {
        Visiting {
            index,
            v,
            client: index.handle.client(v),
            left: Cell::new(index.visits),
        }
    }
    async fn sweep<V: Verbs + Control>(
        index: &Opened<P>,
        v: &V,
        leaked_max: u64,
    ) -> Result<Vec<String>, Failure> {
        let report = index.handle.sweep(v).await?;
        Ok(report.faults_and_leaks(leaked_max))
    }
}

/// A client that also retrains the models. A visit that fails is ignored, because it changes no answer.
struct Visiting<'h, P: Parts, V, C> {
    index: &'h Opened<P>,
    v: &'h V,
    client: C,
    left: Cell<u32>,
}

impl<P: Learns, V: Verbs + Control, C> Visiting<'_, P, V, C> {
    async fn after<T>(&self, done: Result<T, IndexError>) -> Result<T, IndexError> {
        if self.index.visits > 0 {
            self.left.set(self.left.get() - 1);
            if self.left.get() == 0 {
                self.left.set(self.index.visits);
                let _written_or_not = self.index.handle.retrain(self.v).await;
            }
        }
        done
    }
}

impl<P: Learns, V: Verbs + Control, C: RangeIndex<Key = P::Key>> RangeIndex for Visiting<'_, P, V, C> {
    type Key = P::Key;

    fn value_bytes(&self) -> usize {
        self.client.value_bytes()
    }
    async fn get(&self, key: &P::Key, value: &mut Vec<u8>) -> Result<bool, IndexError> {
        self.after(self.client.get(key, value).await).await
    }
    async fn insert(&self, key: &P::Key, value: &[u8]) -> Result<Applied, IndexError> {
        self.after(self.client.insert(key, value).await).await
    }
    async fn update(&self, key: &P::Key, value: &[u8]) -> Result<Applied, IndexError> {
        self.after(self.client.update(key, value).await).await
    }
    async fn upsert(&self, key: &P::Key, value: &[u8]) -> Result<Applied, IndexError> {
        self.after(self.client.upsert(key, value).await).await
    }
    async fn remove(&self, key: &P::Key) -> Result<Applied, IndexError> {
        self.after(self.client.remove(key).await).await
    }
    async fn scan(&self, from: &P::Key, limit: usize, out: &mut Scan<P::Key>) -> Result<(), IndexError> {
        self.after(self.client.scan(from, limit, out).await).await
    }
    async fn bulk_load(
        &self,
        fill: impl Into<Fill>,
        next: impl FnMut(&mut Vec<u8>) -> Option<P::Key>,
    ) -> Result<u64, IndexError> {
        self.client.bulk_load(fill, next).await
    }
}
