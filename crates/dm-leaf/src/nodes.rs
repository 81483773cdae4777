//! The node store: a format, its locks and its memory.

use core::future::Future;
use core::marker::PhantomData;
use core::ops::Range;

use dm_alloc::{Allocator, Block, Class, Life};
use dm_index::{
    Answer, Applied, BulkLoad, Created, IndexError, Inspected, Lead, Merge, Neighbours, NodeAccess,
    NodeCopies, NodeCopy, NodeStore, Restructure, Tended, Write,
};
use dm_layout::{FenceKeys, Fullness, Header, KeyBytes, NodeFormat, NodeInit, NodeState, ValueRef};
use dm_lock::Locks;
use dm_sync::{Arc, Mutex};
use dm_verbs::{Capability, Control, RemotePtr, VerbErrorKind, Verbs};

use crate::NodeOptions;
use crate::split::Unlinked;
use crate::write::failure;

/// Nodes with unsorted entries under line versions.
pub type TwoLevel<K> = Nodes<K, dm_layout::Slotted<K>>;
/// Nodes like [`TwoLevel`], or with packed keys, as the leaf format determines.
pub type PackedLeaves<K> = Nodes<K, dm_layout::Leaf<K>>;
/// Nodes as published for Sherman, which are unsound.
pub type Bookends<K> = Nodes<K, dm_layout::Bookend<K>>;
/// Sorted nodes with a checksum, which are written back whole.
pub type Checksummed<K> = Nodes<K, dm_layout::Checksummed<K>>;

/// Nodes of one kind, with their format, locks and allocator. The threads of one compute node share this value.
#[derive(Debug)]
pub struct Nodes<K, F> {
    pub(crate) format: F,
    pub(crate) locks: Arc<Locks>,
    pub(crate) alloc: Arc<Allocator>,
    pub(crate) options: NodeOptions,
    /// The progress of a bulk load.
    run: Mutex<Run>,
    _key: PhantomData<fn() -> K>,
}

/// The current run of a bulk load: neighbours that it puts on one memory node, because neighbours on different memory
/// nodes cannot be merged.
#[derive(Clone, Copy, Debug)]
struct Run {
    last: RemotePtr,
    /// Number of nodes that still belong to this run.
    left: u32,
    /// Number of all nodes so far.
    all: u32,
}

/// A new run of a bulk load has about 1/`RUNS` of the nodes that each memory node has so far, up to a limit. So the
/// load fills the memory nodes evenly.
const RUNS: u32 = 16;

impl<K: KeyBytes, F: NodeFormat<K>> Nodes<K, F> {
    /// Makes nodes of `format`, with these locks and memory from `alloc`.
    pub fn new(format: F, locks: Arc<Locks>, alloc: Arc<Allocator>, options: NodeOptions) -> Self {
        let nodes = Self {
            format,
            locks,
            alloc,
            options,
            run: Mutex::new(Run {
                last: RemotePtr::NULL,
                left: 0,
                all: 0,
            }),
            _key: PhantomData,
        };
        let life = Life::Header {
            incarnation_at: nodes.format.header_at() + Header::<K>::INCARNATION_AT,
            version_at: nodes.format.header_at() + Header::<K>::VERSION_AT,
        };
        nodes.alloc.restores(nodes.class(), life);
        nodes
    }

    /// Returns the format.
    pub fn format(&self) -> &F {
        &self.format
    }

    /// Returns the size of a node in bytes, in the type that verbs use.
    #[inline]
    pub(crate) fn node_len(&self) -> u32 {
        // Every format's nodes have at most 64 KiB.
        self.format.node_bytes() as u32
    }

    /// Allocates the next node of a bulk load. It is on the memory node of the previous node, or, if a run has ended,
    /// on a memory node that the allocator chooses. Runs become longer as the load grows, up to about as many nodes as
    /// a node has slots. So small trees use all memory nodes too.
    async fn next_of_load<V: Verbs + Control>(&self, v: &V) -> Result<RemotePtr, IndexError> {
        let run = self.run.with(|run| *run);
        let near = (run.left > 0).then_some(run.last);
        let at = self.allocate(v, near).await?.at;
        let all = run.all.saturating_add(1);
        // A node on another memory node begins a new run, because the previous memory node was full.
        let left = match near.filter(|near| near.node() == at.node()) {
            Some(_) => run.left - 1,
            None => {
                let longest = self.format.capacity() as u32;
                (all / (RUNS * u32::from(self.alloc.memory_nodes()).max(1))).min(longest)
            }
        };
        self.run.with(|run| *run = Run { last: at, left, all });
        Ok(at)
    }

    pub(crate) async fn allocate<V: Verbs + Control>(
        &self,
        v: &V,
        near: Option<RemotePtr>,
    ) -> Result<Block, IndexError> {
        Ok(self.alloc.take(v, self.class(), near).await?)
    }

    /// Returns the class of these nodes' blocks. The block of a dead node can only become another node of the same
    /// format.
    pub(crate) fn class(&self) -> Class {
        Class {
            bytes: self.node_len(),
            kind: self.options.kind,
        }
    }
}

impl<V: Verbs + Control, K: KeyBytes, F: NodeFormat<K>> NodeAccess<V, K> for Nodes<K, F> {
    type Whole = Self;

    fn whole(&self) -> &Self {
        self
    }

    fn value_bytes(&self) -> usize {
        self.format.value_len()
    }

    // The next methods return the inner futures directly, because another `async` block would cost as much as a search
    // in a node.

    #[inline]
    fn get(
        &self,
        v: &V,
        at: Lead,
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
        at: Lead,
        level: u8,
        key: &K,
        write: Write<'_>,
        after: Option<&mut NodeCopy<K>>,
    ) -> impl Future<Output = Result<Answer<K, Applied>, IndexError>> {
        self.write_entry(v, at, level, key, write, after)
    }
}

impl<V: Verbs + Control, K: KeyBytes, F: NodeFormat<K>> NodeCopies<V, K> for Nodes<K, F> {
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

    fn copies_at_once(
        &self,
        v: &V,
        at: &[RemotePtr],
        copy: &mut NodeCopy<K>,
        each: impl FnMut(&NodeCopy<K>),
    ) -> impl Future<Output = Result<(), IndexError>> {
        self.copy_at_once(v, at, copy, each)
    }
}

impl<V: Verbs + Control, K: KeyBytes, F: NodeFormat<K>> Restructure<V, K> for Nodes<K, F> {
    async fn create(
        &self,
        v: &V,
        level: u8,
        fences: FenceKeys<K>,
        entries: &[(K, &[u8])],
        unborn: bool,
    ) -> Result<Created, IndexError> {
        let block = self.allocate(v, None).await?;
        let Block {
            at,
            incarnation,
            version,
        } = block;
        let node = Created {
            at,
            incarnation,
            version,
            level,
        };
        let mut unlinked = Unlinked::new(v, self, block);
        //= docs/protocol/reclaim.md R8
        let mut init = NodeInit {
            incarnation,
            version,
            ..NodeInit::live(level, fences)
        };
        if unborn {
            init.state = NodeState::Splitting;
            init.owner = u32::from(v.client().0) + 1;
        }
        let mut image = vec![0; self.format.node_bytes()];
        let entries = entries.iter().map(|&(k, value)| (k, ValueRef::from(value)));
        self.format.build(&mut image, &init, entries);
        unlinked.written = true;
        v.write(at, &image).await?;
        unlinked.armed = false;
        Ok(node)
    }

    async fn open(&self, v: &V, node: &Created) -> Result<(), IndexError> {
        self.open_created(v, node).await
    }

    async fn merge<P: Restructure<V, K>>(
        &self,
        v: &V,
        pair: &Neighbours<K>,
        parents: &P,
        after: &mut NodeCopy<K>,
    ) -> Result<Merge, IndexError> {
        self.merge_nodes(v, pair, parents, after).await
    }

    async fn join(
        &self,
        v: &V,
        pair: &Neighbours<K>,
        unlink: impl AsyncFnOnce() -> Result<(), IndexError>,
    ) -> Result<Merge, IndexError> {
        self.join_nodes(v, pair, unlink).await
    }

    fn node_bytes(&self) -> u32 {
        self.node_len()
    }

    fn unlink(&self, image: &mut [u8], pair: &Neighbours<K>) -> Result<Option<Range<usize>>, IndexError> {
        self.unlink_right(image, pair)
    }

    fn show(&self, at: RemotePtr, image: &[u8], copy: &mut NodeCopy<K>) -> Result<bool, IndexError> {
        let header = self.decode(at, image, copy).map_err(|e| failure(at, e))?;
        Ok(header.fences != FenceKeys::ALL && self.is_sparse(image).map_err(|e| failure(at, e))?)
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

    async fn tend(&self, v: &V, at: RemotePtr) -> Result<Tended, IndexError> {
        self.tend_node(v, at).await
    }

    async fn inspect(&self, v: &V, at: RemotePtr, copy: &mut NodeCopy<K>) -> Result<Inspected, IndexError> {
        self.inspect_node(v, at, copy).await
    }

    fn forget(&self, node: Created) {
        let block = Block {
            at: node.at,
            incarnation: node.incarnation,
            version: node.version,
        };
        self.alloc.give_back(block.after(node.version), self.class());
    }
}

impl<V: Verbs + Control, K: KeyBytes, F: NodeFormat<K>> BulkLoad<V, K> for Nodes<K, F> {
    fn capacity(&self) -> usize {
        self.format.capacity()
    }

    fn takes(&self, copy: &NodeCopy<K>, count: usize) -> bool {
        let mut keys = copy.entries.iter().take(count).map(|(key, _)| *key);
        F::ANYWHERE || self.format.takes(&copy.fences.low, &mut keys)
    }

    fn share(&self, low: &K, key: &K) -> Fullness {
        self.format.share(low, key)
    }

    async fn reserve(&self, v: &V) -> Result<RemotePtr, IndexError> {
        // No node was ever linked in this index, so no client has an address of this memory, and its content does not
        // matter.
        self.next_of_load(v).await
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
}

impl<V: Verbs + Control, K: KeyBytes, F: NodeFormat<K>> NodeStore<V, K> for Nodes<K, F> {
    type Reclaim = Allocator;

    fn reclaim(&self) -> &Allocator {
        &self.alloc
    }
}
