//! The indexes as benches drive them: one compute node's handle, for any index.

use std::future::Future;

use chime::{Chime, ChimeParts, Hotspots};
use dm_index::{IndexError, RangeIndex};
use dm_layout::KeyBytes;
use dm_sim::Bound;
use dm_verbs::{Control, Counters, Verbs};
use dolphin::Dolphin;
use sherman::{LeafFormat, Sherman};
use smart::Smart;

use crate::point::Point;
use crate::run::RunError;

/// The state that the clients of a compute node share.
pub(crate) trait BenchTree: Sized + Send + Sync + 'static {
    type Key: KeyBytes;

    fn create<V: Verbs + Control>(v: &V, point: &Point) -> impl Future<Output = Result<Self, RunError>>;
    fn open<V: Verbs + Control>(v: &V, point: &Point) -> impl Future<Output = Result<Self, RunError>>;
    fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl RangeIndex<Key = Self::Key>;
    fn warm<V: Verbs + Control>(&self, v: &V) -> impl Future<Output = Result<u64, IndexError>>;
    /// Brings a warm cache that cannot hold everything into the state that it has after a long time with
    /// these keys. The hottest keys come last.
    fn settle<V: Verbs + Control>(
        &self,
        _v: &V,
        _keys: impl Iterator<Item = Self::Key>,
    ) -> impl Future<Output = Result<(), IndexError>> {
        async { Ok(()) }
    }
    /// Warms the cache with the content of `first`'s.
    fn warm_like<V: Verbs + Control>(
        &self,
        v: &V,
        _first: &Self,
    ) -> impl Future<Output = Result<(), IndexError>> {
        async { self.warm(v).await.map(drop) }
    }
    fn cache_bytes(&self) -> u64;
    fn local_bytes(&self) -> u64;
    /// Returns what its clients allocated less what they gave back. The sum over all compute nodes is the
    /// memory in use.
    fn allocated_bytes(&self) -> i64;
    /// Returns the model's own bound for the point; the counters say how many operations were shared.
    fn bound(&self, point: &Point, counters: &Counters, ops: u64) -> Option<Bound>;
    /// Returns the guesses where hot entries are, if the index has them.
    fn hotspots(&self) -> Option<&Hotspots> {
        None
    }
}

impl<K: KeyBytes, F: LeafFormat<K> + Send + Sync + 'static> BenchTree for Sherman<K, F> {
    type Key = K;

    async fn create<V: Verbs + Control>(v: &V, point: &Point) -> Result<Self, RunError> {
        Ok(Sherman::create_or_open(v, &point.options()).await?)
    }
    async fn open<V: Verbs + Control>(v: &V, point: &Point) -> Result<Self, RunError> {
        Ok(Sherman::open(v, &point.options()).await?)
    }
    fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl RangeIndex<Key = K> {
        Sherman::client(self, v)
    }
    async fn warm<V: Verbs + Control>(&self, v: &V) -> Result<u64, IndexError> {
        Sherman::warm(self, v).await
    }
    fn cache_bytes(&self) -> u64 {
        Sherman::cache_bytes(self)
    }
    fn local_bytes(&self) -> u64 {
        Sherman::local_bytes(self)
    }
    fn allocated_bytes(&self) -> i64 {
        Sherman::allocated_bytes(self)
    }
    fn bound(&self, point: &Point, counters: &Counters, ops: u64) -> Option<Bound> {
        let shared = [counters.delegated, counters.combined].map(|n| n as f64 / ops.max(1) as f64);
        point.bound(self.leaf_bytes(), self.leaf_capacity(), shared)
    }
}

impl<K: KeyBytes> BenchTree for Smart<K> {
    type Key = K;

    async fn create<V: Verbs + Control>(v: &V, point: &Point) -> Result<Self, RunError> {
        Ok(Smart::create_or_open(v, &point.smart_options()).await?)
    }
    async fn open<V: Verbs + Control>(v: &V, point: &Point) -> Result<Self, RunError> {
        Ok(Smart::open(v, &point.smart_options()).await?)
    }
    fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl RangeIndex<Key = K> {
        Smart::client(self, v)
    }
    async fn warm<V: Verbs + Control>(&self, v: &V) -> Result<u64, IndexError> {
        Smart::warm(self, v).await
    }
    async fn settle<V: Verbs + Control>(
        &self,
        v: &V,
        keys: impl Iterator<Item = K>,
    ) -> Result<(), IndexError> {
        self.warm_for(v, keys).await
    }
    async fn warm_like<V: Verbs + Control>(&self, v: &V, first: &Self) -> Result<(), IndexError> {
        if !self.adopt_cache(v, first).await? {
            self.warm(v).await?;
        }
        Ok(())
    }
    fn cache_bytes(&self) -> u64 {
        Smart::cache_bytes(self)
    }
    fn local_bytes(&self) -> u64 {
        Smart::local_bytes(self)
    }
    fn allocated_bytes(&self) -> i64 {
        Smart::allocated_bytes(self)
    }
    fn bound(&self, point: &Point, counters: &Counters, ops: u64) -> Option<Bound> {
        point.smart_bound(counters, ops)
    }
}

impl<K: KeyBytes> BenchTree for Chime<K> {
    type Key = K;

    async fn create<V: Verbs + Control>(v: &V, point: &Point) -> Result<Self, RunError> {
        Ok(Chime::create_or_open(v, &point.chime_options()).await?)
    }
    async fn open<V: Verbs + Control>(v: &V, point: &Point) -> Result<Self, RunError> {
        Ok(Chime::open(v, &point.chime_options()).await?)
    }
    fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl RangeIndex<Key = K> {
        Chime::client(self, v)
    }
    async fn warm<V: Verbs + Control>(&self, v: &V) -> Result<u64, IndexError> {
        Chime::warm(self, v).await
    }
    fn cache_bytes(&self) -> u64 {
        Chime::cache_bytes(self) + self.hotspots().map_or(0, Hotspots::bytes)
    }
    fn local_bytes(&self) -> u64 {
        Chime::local_bytes(self)
    }
    fn allocated_bytes(&self) -> i64 {
        Chime::allocated_bytes(self)
    }
    fn bound(&self, point: &Point, counters: &Counters, ops: u64) -> Option<Bound> {
        point.chime_bound(self.geometry(), counters, ops)
    }
    fn hotspots(&self) -> Option<&Hotspots> {
        ChimeParts::hotspots(self)
    }
}

impl<K: KeyBytes> BenchTree for Dolphin<K> {
    type Key = K;

    async fn create<V: Verbs + Control>(v: &V, point: &Point) -> Result<Self, RunError> {
        Ok(Dolphin::create_or_open(v, &point.dolphin_options()).await?)
    }
    async fn open<V: Verbs + Control>(v: &V, point: &Point) -> Result<Self, RunError> {
        Ok(Dolphin::open(v, &point.dolphin_options()).await?)
    }
    fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl RangeIndex<Key = K> {
        Dolphin::client(self, v)
    }
    async fn warm<V: Verbs + Control>(&self, v: &V) -> Result<u64, IndexError> {
        Dolphin::warm(self, v).await
    }
    fn cache_bytes(&self) -> u64 {
        Dolphin::cache_bytes(self)
    }
    fn local_bytes(&self) -> u64 {
        Dolphin::local_bytes(self)
    }
    fn allocated_bytes(&self) -> i64 {
        Dolphin::allocated_bytes(self)
    }
    /// Returns Sherman's bound, because the verbs are the same except for the locks.
    fn bound(&self, point: &Point, counters: &Counters, ops: u64) -> Option<Bound> {
        let shared = [counters.delegated, counters.combined].map(|n| n as f64 / ops.max(1) as f64);
        point.bound(dolphin::DEFAULT_LEAF_BYTES, self.leaf_capacity(), shared)
    }
}
