//! The store of hopscotch leaves: neighbourhoods in front of whole nodes.

use core::future::Future;
use core::ops::Range;

use dm_alloc::Allocator;
use dm_cache::Hotspots;
use dm_index::{Answer, Applied, Created, IndexError, Lead, Merge, Neighbours, NodeCopy, NodeStore, Write};
use dm_layout::{FenceKeys, Fullness, Hopscotch, KeyBytes, NodeShape};
use dm_lock::Locks;
use dm_sync::Arc;
use dm_sync::epoch::Seat;
use dm_verbs::{Control, RemotePtr, Verbs};

use crate::HopOptions;

/// Hopscotch leaves as the threads of one compute node share them. The store `S` holds whole nodes of the same
/// format, under the same locks.
#[derive(Debug)]
pub struct Neighbourhoods<K, S> {
    pub(crate) format: Hopscotch<K>,
    pub(crate) nodes: S,
    pub(crate) locks: Arc<Locks>,
    pub(crate) alloc: Arc<Allocator>,
    /// The slots of frequently read keys.
    pub(crate) hotspots: Option<Hotspots>,
    pub(crate) options: HopOptions,
}

impl<K: KeyBytes, S> Neighbourhoods<K, S> {
    /// Wraps `nodes`, which must use this format, these locks and this allocator.
    pub fn new(
        format: Hopscotch<K>,
        nodes: S,
        locks: Arc<Locks>,
        alloc: Arc<Allocator>,
        options: HopOptions,
    ) -> Self {
        Self {
            format,
            nodes,
            locks,
            alloc,
            hotspots: Hotspots::new(options.hotspot_bytes),
            options,
        }
    }

    /// Returns the hotspot buffer, if there is one.
    pub fn hotspots(&self) -> Option<&Hotspots> {
        self.hotspots.as_ref()
    }

    /// Returns the format of the leaves.
    pub fn format(&self) -> &Hopscotch<K> {
        &self.format
    }

    pub(crate) fn header_len(&self) -> u32 {
        self.format.geometry().header_bytes() as u32
    }

    pub(crate) fn node_len(&self) -> u32 {
        // A node has at most 64 KiB.
        self.format.node_bytes() as u32
    }
}

impl<V: Verbs + Control, K: KeyBytes, S: NodeStore<V, K>> NodeStore<V, K> for Neighbourhoods<K, S> {
    async fn get(
        &self,
        v: &V,
        at: Lead,
        level: u8,
        key: &K,
        value: &mut Vec<u8>,
    ) -> Result<Answer<K, bool>, IndexError> {
        if level == 0 {
            if self.get_alone(v, at.at, key, value).await? {
                return Ok(Answer::Done(true));
            }
            if let Some(found) = self.get_near(v, (at.at, at.linked), key, value).await? {
                return Ok(Answer::Done(found));
            }
        }
        //= docs/protocol/chime.md H2
        self.nodes.get(v, at, level, key, value).await
    }

    async fn write(
        &self,
        v: &V,
        at: Lead,
        level: u8,
        key: &K,
        write: Write<'_>,
        after: Option<&mut NodeCopy<K>>,
    ) -> Result<Answer<K, Applied>, IndexError> {
        //= docs/protocol/chime.md H5
        // A sibling pointer may lead to a node under construction, and a neighbourhood does not show this.
        if level == 0
            && !at.linked
            && after.is_none()
            && let Some(answer) = self.write_near(v, at.at, key, write).await?
        {
            return Ok(answer);
        }
        Box::pin(self.nodes.write(v, at, level, key, write, after)).await
    }

    // Everything else goes to the store of whole nodes.

    fn value_bytes(&self) -> usize {
        self.nodes.value_bytes()
    }
    fn capacity(&self) -> usize {
        self.nodes.capacity()
    }
    fn takes(&self, copy: &NodeCopy<K>, key: &K) -> bool {
        self.nodes.takes(copy, key)
    }

    fn share(&self, low: &K, key: &K) -> Fullness {
        self.nodes.share(low, key)
    }
    fn unfold(&self, copy: &mut NodeCopy<K>) -> Result<(), IndexError> {
        self.nodes.unfold(copy)
    }
    fn copy(
        &self,
        v: &V,
        at: RemotePtr,
        copy: &mut NodeCopy<K>,
    ) -> impl Future<Output = Result<bool, IndexError>> {
        self.nodes.copy(v, at, copy)
    }
    fn copies(
        &self,
        v: &V,
        at: &[RemotePtr],
        copy: &mut NodeCopy<K>,
        each: impl FnMut(&NodeCopy<K>) -> bool,
    ) -> impl Future<Output = Result<(), IndexError>> {
        self.nodes.copies(v, at, copy, each)
    }
    fn create(
        &self,
        v: &V,
        level: u8,
        fences: FenceKeys<K>,
        entries: &[(K, &[u8])],
        unborn: bool,
    ) -> impl Future<Output = Result<Created, IndexError>> {
        self.nodes.create(v, level, fences, entries, unborn)
    }
    fn open(&self, v: &V, node: &Created) -> impl Future<Output = Result<(), IndexError>> {
        self.nodes.open(v, node)
    }
    fn reserve(&self, v: &V) -> impl Future<Output = Result<RemotePtr, IndexError>> {
        self.nodes.reserve(v)
    }
    fn load(&self, v: &V, copy: &NodeCopy<K>) -> impl Future<Output = Result<(), IndexError>> {
        self.nodes.load(v, copy)
    }
    fn merge<P: NodeStore<V, K>>(
        &self,
        v: &V,
        pair: &Neighbours<K>,
        parents: &P,
        after: &mut NodeCopy<K>,
    ) -> impl Future<Output = Result<Merge, IndexError>> {
        self.nodes.merge(v, pair, parents, after)
    }
    fn join(
        &self,
        v: &V,
        pair: &Neighbours<K>,
        unlink: impl AsyncFnOnce() -> Result<(), IndexError>,
    ) -> impl Future<Output = Result<Merge, IndexError>> {
        self.nodes.join(v, pair, unlink)
    }
    fn node_bytes(&self) -> u32 {
        self.nodes.node_bytes()
    }
    fn unlink(&self, image: &mut [u8], pair: &Neighbours<K>) -> Result<Option<Range<usize>>, IndexError> {
        self.nodes.unlink(image, pair)
    }
    fn show(&self, at: RemotePtr, image: &[u8], copy: &mut NodeCopy<K>) -> Result<bool, IndexError> {
        self.nodes.show(at, image, copy)
    }
    fn collapse(
        &self,
        v: &V,
        at: RemotePtr,
        level: u8,
        commit: impl AsyncFnOnce(&[u8]) -> Result<bool, IndexError>,
    ) -> impl Future<Output = Result<bool, IndexError>> {
        self.nodes.collapse(v, at, level, commit)
    }
    fn forget(&self, node: Created) {
        self.nodes.forget(node);
    }
    fn seat(&self, v: &V) -> Option<Seat> {
        self.nodes.seat(v)
    }
    #[inline]
    fn is_due(&self, v: &V) -> bool {
        self.nodes.is_due(v)
    }
    fn attend(&self, v: &V, seat: &Seat) -> impl Future<Output = Result<(), IndexError>> {
        self.nodes.attend(v, seat)
    }
    fn beat(&self, v: &V, seat: &Seat) -> impl Future<Output = Result<(), IndexError>> {
        self.nodes.beat(v, seat)
    }
    fn tend(&self, v: &V) -> impl Future<Output = Result<(), IndexError>> {
        self.nodes.tend(v)
    }
    fn vacate(&self, v: &V, seat: Seat) {
        self.nodes.vacate(v, seat);
    }
}
