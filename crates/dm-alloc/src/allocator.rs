//! The allocator that the clients of one compute node share.

use core::future::poll_fn;
use core::task::Poll;

use dm_sync::atomic::{AtomicU32, Ordering};
use dm_sync::{CachePadded, Fingerprint, Mutex, fingerprint_of};
use dm_verbs::{ClientId, Control, ControlError, LINE, LocalStep, NodeId, RemotePtr, Verbs};

use crate::AllocError;
use crate::block::{Block, Class};
use crate::pool::{Found, NodePool};
use crate::reclaim::{Reclaim, ReclaimOptions};
use crate::superblock::{PAGE, Superblock};

/// Bytes of a chunk unless asked otherwise (Sherman §4.2.4).
pub const DEFAULT_CHUNK_BYTES: u64 = 8 << 20;

/// Bytes that an [`Allocator`] has to do with, over all memory nodes.
///
/// ```
/// use dm_alloc::{AllocStats, Allocator};
/// use dm_loopback::{Loopback, block_on};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let world = Loopback::builder().nodes(1).build()?;
/// let v = world.connect(0)?;
/// let blocks = Allocator::new(1, 0);
/// block_on(blocks.alloc(&v, 1024, None))?;
/// let stats: AllocStats = blocks.stats();
/// assert!(stats.in_use_bytes == 1024 && stats.fetched_bytes >= 1024);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AllocStats {
    /// Chunks got from memory nodes.
    pub fetched_bytes: u64,
    /// Blocks handed out, less those that came back or were retired. A compute node that retires what others have
    /// allocated comes out below zero; the sum over all is what is in use.
    pub in_use_bytes: i64,
    /// Retired blocks that somebody may still be reading.
    pub limbo_bytes: u64,
    /// Blocks that came back and wait in free lists.
    pub free_bytes: u64,
    /// Remainders of chunks given up: no block will come from them.
    pub wasted_bytes: u64,
}

/// Two-stage allocation (Sherman §4.2.4): chunks from the memory nodes' control plane, blocks out of chunks without
/// any communication. One per compute node, shared by its clients.
///
/// Blocks are 64-byte aligned and type-stable: a freed block goes to requests of its own size only (rounded up to
/// 64 bytes). A block is zero the first time it is handed out; one that came back holds whatever was in it.
#[derive(Debug)]
pub struct Allocator {
    pub(crate) pools: Box<[CachePadded<Mutex<NodePool>>]>,
    next: AtomicU32,
    chunk_bytes: u64,
    /// Where on a memory node blocks end, at the latest.
    reach: u64,
    pub(crate) reclaim: Option<Reclaim>,
}

impl Allocator {
    /// Over memory nodes `0..memory_nodes`, with chunks of [`DEFAULT_CHUNK_BYTES`]. `compute_node` decides with
    /// which memory node the round robin starts, so that compute nodes do not all start with the same.
    pub fn new(memory_nodes: u16, compute_node: u16) -> Self {
        Self {
            pools: (0..memory_nodes)
                .map(|_| CachePadded::new(Mutex::new(NodePool::default())))
                .collect(),
            next: AtomicU32::new(u32::from(compute_node)),
            chunk_bytes: DEFAULT_CHUNK_BYTES,
            reach: u64::MAX,
            reclaim: None,
        }
    }

    /// Over a pool's memory nodes. If its members announce themselves, so does this one, as `reclaim` says: that is not a
    /// choice, for others use memory again only because all announce what they run.
    pub fn for_pool(superblock: &Superblock, compute_node: u16, reclaim: ReclaimOptions) -> Self {
        let alloc = Self::new(superblock.memory_nodes(), compute_node);
        match superblock.members {
            Some(area) => alloc.reclaiming(area, reclaim),
            None => alloc,
        }
    }

    /// With chunks of `bytes`, rounded up to whole pages.
    #[must_use]
    pub fn chunk_bytes(mut self, bytes: u64) -> Self {
        self.chunk_bytes = bytes.max(1).next_multiple_of(PAGE);
        self
    }

    /// With no block beyond the first `bytes` of a memory node: one that gives a chunk there counts as full.
    #[must_use]
    pub fn reaching(mut self, bytes: u64) -> Self {
        self.reach = bytes;
        self
    }

    /// Memory nodes that it takes from.
    pub fn memory_nodes(&self) -> u16 {
        self.pools.len() as u16
    }

    /// A block of at least `size` bytes. With `near`, on that address' memory node if there is room; without, where most
    /// are free that came back; else round robin over the nodes.
    ///
    /// Clients of a compute node that need a chunk of one node at once share one request. Dropped at any await it
    /// hands out nothing; a chunk request under way may be lost with it, as [`Control::call`] says.
    ///
    /// # Errors
    /// [`AllocError::Exhausted`] when every node is full, [`AllocError::BadSize`], [`AllocError::NoMemoryNodes`], or
    /// the control plane's own error when no node gave a block and one could not be asked.
    pub async fn alloc<V: Verbs + Control>(
        &self,
        v: &V,
        size: u32,
        near: Option<RemotePtr>,
    ) -> Result<RemotePtr, AllocError> {
        let block = self.take_sized(v, plain(size), size, near).await?;
        Ok(block.at)
    }

    /// As [`Allocator::alloc`], a block of a class, and how the node there must be told from its last one.
    ///
    /// # Errors
    /// As there.
    pub async fn take<V: Verbs + Control>(
        &self,
        v: &V,
        class: Class,
        near: Option<RemotePtr>,
    ) -> Result<Block, AllocError> {
        self.take_sized(v, class, class.bytes, near).await
    }

    /// What [`Allocator::take`] would answer, if that is at hand on `near`'s memory node. A section: a local step comes
    /// before it.
    #[inline]
    pub fn at_hand(&self, client: ClientId, class: Class, near: RemotePtr) -> Option<Block> {
        let pool = self
            .pools
            .get(usize::from(near.node().0))
            .filter(|_| class.bytes > 0)?;
        pool.with(|p| p.at_hand(client, class))
    }

    /// Where most blocks of `class` are free, if any are: there is no wish, so no chunk is asked for elsewhere.
    fn richest(&self, class: Class) -> Option<NodeId> {
        self.reclaim.as_ref()?;
        let pools = (0..).map(NodeId).zip(&self.pools);
        let free = pools.map(|(node, pool)| (pool.with(|p| p.free(class)), node));
        let most = free.filter(|(free, _)| *free > 0).max_by_key(|(free, _)| *free)?;
        Some(most.1)
    }

    /// `size` is what was asked for, as errors name it.
    async fn take_sized<V: Verbs + Control>(
        &self,
        v: &V,
        class: Class,
        size: u32,
        near: Option<RemotePtr>,
    ) -> Result<Block, AllocError> {
        let bytes = class.block_bytes();
        if size == 0 || bytes > self.chunk_bytes {
            return Err(AllocError::BadSize {
                wanted: size,
                most: self.chunk_bytes,
            });
        }
        let nodes = self.memory_nodes();
        if nodes == 0 {
            return Err(AllocError::NoMemoryNodes);
        }
        let near = near.map(|p| p.node()).filter(|n| n.0 < nodes);
        let near = near.or_else(|| self.richest(class));
        let mut failed = None;
        if let Some(node) = near
            && let Some(block) = self.block_of(v, node, class, &mut failed).await?
        {
            return Ok(block);
        }
        // Relaxed: a hint for balance, it orders nothing.
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        for i in 0..u32::from(nodes) {
            let node = NodeId((first.wrapping_add(i) % u32::from(nodes)) as u16);
            if near != Some(node)
                && let Some(block) = self.block_of(v, node, class, &mut failed).await?
            {
                return Ok(block);
            }
        }
        Err(failed.map_or(
            AllocError::Exhausted {
                wanted: size,
                nodes_tried: nodes,
            },
            AllocError::Control,
        ))
    }

    /// Takes back a block of `size` bytes (as asked for) that no other client has ever been able to reach: it may be
    /// handed out again at once.
    pub fn free_unpublished(&self, block: RemotePtr, size: u32) {
        let block = Block::fresh(block);
        self.give_back(block.after(block.version), plain(size));
    }

    /// As [`Allocator::free_unpublished`], a block of a class. `block` is as it is to be handed out next.
    pub fn give_back(&self, block: Block, class: Class) {
        self.pool_of(block.at).with(|pool| pool.put(block, class));
    }

    /// Takes back a block that nobody but `client` has ever been able to reach, and to which a WRITE of this client may
    /// be under way: only this client gets it again, unless [`Allocator::attend`] has seen the WRITE landed.
    pub fn give_back_unawaited(&self, client: ClientId, block: Block, class: Class) {
        self.pool_of(block.at)
            .with(|pool| pool.put_orphan(client, block, class));
    }

    pub(crate) fn pool_of(&self, block: RemotePtr) -> &Mutex<NodePool> {
        assert!(
            block.offset().is_multiple_of(LINE as u64) && block.node().0 < self.memory_nodes(),
            "{block} is no block of this allocator"
        );
        &self.pools[usize::from(block.node().0)]
    }

    /// What it holds.
    pub fn stats(&self) -> AllocStats {
        let mut stats = AllocStats::default();
        for pool in &self.pools {
            pool.with(|p| p.add_to(&mut stats));
        }
        stats.limbo_bytes = self.reclaim.as_ref().map_or(0, Reclaim::limbo_bytes);
        stats
    }

    /// Bytes of this compute node's memory that it takes, every allocation counted.
    pub fn local_bytes(&self) -> usize {
        let pools = self.pools.len() * size_of::<CachePadded<Mutex<NodePool>>>();
        size_of::<Self>()
            + pools
            + self.reclaim.as_ref().map_or(0, Reclaim::heap_bytes)
            + self
                .pools
                .iter()
                .map(|pool| pool.with(|p| p.heap_bytes()))
                .sum::<usize>()
    }

    /// `None` when the node is full or could not be asked (`failed` says why then).
    async fn block_of<V: Verbs + Control>(
        &self,
        v: &V,
        node: NodeId,
        class: Class,
        failed: &mut Option<ControlError>,
    ) -> Result<Option<Block>, AllocError> {
        let pool = &self.pools[usize::from(node.0)];
        // Every round either ends, or waits for a chunk, or learns that the node has less left than it said before.
        loop {
            v.local(LocalStep::Section).await;
            let wanted = match pool.with(|p| p.take(v.client(), class, self.chunk_bytes)) {
                Found::Block(block) => return Ok(Some(block)),
                // What another compute node has too much of, as below.
                Found::Full if self.receive(v, node).await? => continue,
                Found::Full => return Ok(None),
                Found::Fetching => {
                    poll_fn(|cx| match pool.with(|p| p.wait(cx.waker())) {
                        true => Poll::Pending,
                        false => Poll::Ready(()),
                    })
                    .await;
                    continue;
                }
                Found::Fetch(wanted) => wanted,
            };
            let fetch = Fetch { pool };
            // What another compute node has too much of comes before memory that nobody had yet.
            if self.receive(v, node).await? {
                continue;
            }
            let answer = v.chunk(node, wanted).await;
            match answer {
                Ok(start) if start.offset() + wanted > self.reach => pool.with(|p| p.out_of_reach(wanted)),
                Ok(start) => pool.with(|p| p.add(start, wanted)),
                Err(ControlError::OutOfMemory { left, .. }) => pool.with(|p| p.refused(left.min(wanted - 1))),
                Err(e @ ControlError::Fenced) => return Err(e.into()),
                Err(e) => {
                    *failed = Some(e);
                    return Ok(None);
                }
            }
            drop(fetch);
        }
    }
}

impl Fingerprint for Allocator {
    fn fingerprint(&self) -> u64 {
        let pools: Vec<u64> = self.pools.iter().map(|pool| (**pool).fingerprint()).collect();
        // Relaxed: looked at between steps.
        fingerprint_of(&(
            self.next.load(Ordering::Relaxed) % self.pools.len().max(1) as u32,
            pools,
            self.reclaim.as_ref().map(Fingerprint::fingerprint),
        ))
    }
}

impl Fingerprint for NodePool {
    fn fingerprint(&self) -> u64 {
        fingerprint_of(&self.state())
    }
}

/// A chunk request under way: whatever becomes of it, the waiters go on.
struct Fetch<'a> {
    pool: &'a Mutex<NodePool>,
}

impl Drop for Fetch<'_> {
    fn drop(&mut self) {
        for waker in self.pool.with(NodePool::fetched) {
            waker.wake();
        }
    }
}

/// The class of blocks that are asked for by size alone.
fn plain(size: u32) -> Class {
    // Sizes in one multiple of a line are one class.
    let bytes = size.checked_next_multiple_of(LINE as u32).unwrap_or(size);
    Class { bytes, kind: 0 }
}
