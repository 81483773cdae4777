//! The indexes as benches drive them: one compute node's handle, whatever index it is.

use std::future::Future;

use chime::{Chime, Hotspots};
use dm_index::{IndexError, RangeIndex};
use dm_layout::KeyBytes;
use dm_sim::Bound;
use dm_verbs::{Control, Counters, Verbs};
use dolphin::Dolphin;
use sherman::{LeafFormat, Sherman};
use smart::Smart;

use crate::point::Point;
use crate::run::RunError;

/// What the clients of a compute node share.
pub(crate) trait BenchTree: Sized + Send + Sync + 'static {
    type Key: KeyBytes;

    fn create<V: Verbs + Control>(v: &V, point: &Point) -> impl Future<Output = Result<Self, RunError>>;
    fn open<V: Verbs + Control>(v: &V, point: &Point) -> impl Future<Output = Result<Self, RunError>>;
    fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl RangeIndex<Key = Self::Key>;
    fn warm<V: Verbs + Control>(&self, v: &V) -> impl Future<Output = Result<u64, IndexError>>;
    /// What a warm cache that can't hold all is like after a long time with these keys, the hottest of which come last.
    fn settle<V: Verbs + Control>(
        &self,
        _v: &V,
        _keys: impl Iterator<Item = Self::Key>,
    ) -> impl Future<Output = Result<(), IndexError>> {
        async { Ok(()) }
    }
    /// Warms the cache as `first`'s is.
    fn warm_like<V: Verbs + Control>(
        &self,
        v: &V,
        _first: &Self,
    ) -> impl Future<Output = Result<(), IndexError>> {
        async { self.warm(v).await.map(drop) }
    }
    fn cache_bytes(&self) -> u64;
    fn local_bytes(&self) -> u64;
    /// What its clients allocated less what they gave back; the sum over all compute nodes is what is in use.
    fn allocated_bytes(&self) -> i64;
    /// The model's own bound for the point; the counters say what was shared.
    fn bound(&self, point: &Point, counters: &Counters, ops: u64) -> Option<Bound>;
    /// Where hot entries lie, if the index remembers that.
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
        Chime::hotspots(self)
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
    /// Its leaves are asked for what Sherman's are, but for the locks.
    fn bound(&self, point: &Point, counters: &Counters, ops: u64) -> Option<Bound> {
        let shared = [counters.delegated, counters.combined].map(|n| n as f64 / ops.max(1) as f64);
        point.bound(dolphin::DEFAULT_LEAF_BYTES, self.leaf_capacity(), shared)
    }
}
