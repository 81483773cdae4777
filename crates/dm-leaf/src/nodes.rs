//! The node store: a format, its locks and its memory.

use core::future::Future;
use core::marker::PhantomData;

use dm_alloc::Allocator;
use dm_index::{Answer, Applied, IndexError, Merge, NodeCopy, NodeStore, Write};
use dm_layout::{FenceKeys, KeyBytes, NodeFormat, NodeInit, ValueRef};
use dm_lock::Locks;
use dm_sync::Arc;
use dm_verbs::{Capability, Control, RemotePtr, VerbErrorKind, Verbs};

use crate::NodeOptions;
use crate::errors::alloc_error;

/// Nodes with unsorted entries under line versions.
pub type TwoLevel<K> = Nodes<K, dm_layout::Slotted<K>>;
/// Nodes as published by Sherman, unsound.
pub type Bookends<K> = Nodes<K, dm_layout::Bookend<K>>;
/// Sorted nodes under a checksum, written back whole.
pub type Checksummed<K> = Nodes<K, dm_layout::Checksummed<K>>;

/// What the threads of one compute node share of a kind of nodes: their format, locks and allocator.
#[derive(Debug)]
pub struct Nodes<K, F> {
    pub(crate) format: F,
    pub(crate) locks: Arc<Locks>,
    pub(crate) alloc: Arc<Allocator>,
    pub(crate) options: NodeOptions,
    _key: PhantomData<fn() -> K>,
}

impl<K: KeyBytes, F: NodeFormat<K>> Nodes<K, F> {
    /// Nodes of `format`, locked by `locks`, in memory from `alloc`.
    pub fn new(format: F, locks: Arc<Locks>, alloc: Arc<Allocator>, options: NodeOptions) -> Self {
        Self {
            format,
            locks,
            alloc,
            options,
            _key: PhantomData,
        }
    }

    /// The format.
    pub fn format(&self) -> &F {
        &self.format
    }

    /// Bytes of a node, as verbs count them.
    #[inline]
    pub(crate) fn node_len(&self) -> u32 {
        // Every format's nodes have at most 64 KiB.
        self.format.node_bytes() as u32
    }

    pub(crate) async fn allocate<V: Verbs + Control>(
        &self,
        v: &V,
        near: Option<RemotePtr>,
    ) -> Result<RemotePtr, IndexError> {
        self.alloc
            .alloc(v, self.node_len(), near)
            .await
            .map_err(alloc_error)
    }
}

impl<V: Verbs + Control, K: KeyBytes, F: NodeFormat<K>> NodeStore<V, K> for Nodes<K, F> {
    fn value_bytes(&self) -> usize {
        self.format.value_len()
    }

    fn capacity(&self) -> usize {
        self.format.capacity()
    }

    // Futures handed on as they are: a layer of async costs as much as a search.

    #[inline]
    fn get(
        &self,
        v: &V,
        at: RemotePtr,
        level: u8,
        key: &K,
        value: &mut Vec<u8>,
    ) -> impl Future<Output = Result<Answer<K, bool>, IndexError>> {
        self.get_entry(v, at, level, key, value)
    }

    #[inline]
    fn write(
        &self,
        v: &V,
        at: RemotePtr,
        level: u8,
        key: &K,
        write: Write<'_>,
        after: Option<&mut NodeCopy<K>>,
    ) -> impl Future<Output = Result<Answer<K, Applied>, IndexError>> {
        self.write_entry(v, at, level, key, write, after)
    }

    fn unfold(&self, copy: &mut NodeCopy<K>) -> Result<(), IndexError> {
        self.unfold_node(copy)
    }

    fn copy(
        &self,
        v: &V,
        at: RemotePtr,
        copy: &mut NodeCopy<K>,
    ) -> impl Future<Output = Result<bool, IndexError>> {
        self.copy_node(v, at, copy)
    }

    fn copies(
        &self,
        v: &V,
        at: &[RemotePtr],
        copy: &mut NodeCopy<K>,
        each: impl FnMut(&NodeCopy<K>) -> bool,
    ) -> impl Future<Output = Result<(), IndexError>> {
        self.copy_nodes(v, at, copy, each)
    }

    async fn create(
        &self,
        v: &V,
        level: u8,
        fences: FenceKeys<K>,
        entries: &[(K, &[u8])],
    ) -> Result<RemotePtr, IndexError> {
        let at = self.allocate(v, None).await?;
        let mut image = vec![0; self.format.node_bytes()];
        let entries = entries.iter().map(|&(k, value)| (k, ValueRef::from(value)));
        self.format
            .build(&mut image, &NodeInit::live(level, fences), entries);
        v.write(at, &image).await?;
        Ok(at)
    }

    async fn reserve(&self, v: &V) -> Result<RemotePtr, IndexError> {
        self.allocate(v, None).await
    }

    async fn load(&self, v: &V, copy: &NodeCopy<K>) -> Result<(), IndexError> {
        let mut image = vec![0; self.format.node_bytes()];
        let init = NodeInit {
            sibling: copy.sibling.raw(),
            ..NodeInit::live(copy.level, copy.fences)
        };
        self.format.build(
            &mut image,
            &init,
            copy.iter().map(|(k, value)| (k, ValueRef::from(value))),
        );
        match v.load(copy.at, &image) {
            Err(e) if e.kind == VerbErrorKind::Unsupported(Capability::DirectLoad) => {
                let _unmetered = v.meter().housekeeping();
                Ok(v.write(copy.at, &image).await?)
            }
            other => Ok(other?),
        }
    }

    async fn merge(
        &self,
        v: &V,
        left: RemotePtr,
        right: RemotePtr,
        level: u8,
        between: &K,
        until: Option<&K>,
    ) -> Result<Merge, IndexError> {
        self.merge_nodes(v, [left, right], level, between, until).await
    }

    async fn collapse(
        &self,
        v: &V,
        at: RemotePtr,
        level: u8,
        commit: impl AsyncFnOnce(&[u8]) -> Result<bool, IndexError>,
    ) -> Result<bool, IndexError> {
        self.collapse_node(v, at, level, commit).await
    }

    fn forget(&self, at: RemotePtr) {
        self.alloc.free_unpublished(at, self.node_len());
    }
}
