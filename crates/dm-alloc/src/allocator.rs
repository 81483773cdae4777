//! The allocator that the clients of one compute node share.

use core::future::poll_fn;
use core::task::Poll;

use dm_sync::atomic::{AtomicU32, Ordering};
use dm_sync::roster::Roster;
use dm_sync::{Arc, CachePadded, Fingerprint, Mutex, fingerprint_of};
use dm_verbs::{ClientId, Control, ControlError, LINE, LocalStep, NodeId, RemotePtr, Verbs};

use crate::AllocError;
use crate::block::{Block, Class};
use crate::census::Lives;
use crate::pool::{Found, Held, NodePool, Trip};
use crate::reclaim::{Reclaim, ReclaimOptions};
use crate::superblock::{PAGE, Superblock};
use crate::sweep::Sweep;

/// Default size of a large chunk in bytes (Sherman §4.2.4).
pub const DEFAULT_CHUNK_BYTES: u64 = 8 << 20;

/// Memory use of an [`Allocator`] in bytes, over all memory nodes.
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
    /// Chunks that were fetched from memory nodes.
    pub fetched_bytes: u64,
    /// Blocks handed out, minus those that were freed or retired. This can be negative, because a compute node may
    /// retire blocks that other compute nodes have allocated. The sum over all compute nodes is the memory in use.
    pub in_use_bytes: i64,
    /// Retired blocks that running operations may still read.
    pub limbo_bytes: u64,
    /// Free blocks, also those that only one client gets again ([`Allocator::give_back_unawaited`]).
    pub free_bytes: u64,
    /// Parts of chunks that no block will ever use: remainders that are too small for a block, records of chunks, and
    /// chunks that end beyond the limit of [`Allocator::reaching`].
    pub wasted_bytes: u64,
}

/// A two-stage allocator (Sherman §4.2.4), shared by the clients of one compute node. It fetches chunks from the
/// memory nodes' control plane and cuts blocks out of them without communication. All blocks of a chunk are of one size
/// and kind.
///
/// Blocks are 64-byte aligned and type-stable: a freed block is reused only for requests of its own [`Class`]. A block
/// is zero the first time it is handed out; a reused block has its old content.
#[derive(Debug)]
pub struct Allocator {
    pub(crate) pools: Box<[CachePadded<Mutex<NodePool>>]>,
    next: AtomicU32,
    chunk_bytes: u64,
    /// Blocks are allocated only below this offset of each memory node.
    reach: u64,
    /// The pool's lock tables. They are swept if this compute node expels a member.
    pub(crate) sweep: Option<Sweep>,
    pub(crate) roster: Arc<Roster>,
    pub(crate) lives: Mutex<Lives>,
    pub(crate) reclaim: Option<Reclaim>,
}

impl Allocator {
    /// Makes an allocator over memory nodes `0..memory_nodes`, with chunks of at most [`DEFAULT_CHUNK_BYTES`]. The
    /// round robin starts at memory node `compute_node` modulo `memory_nodes`, so that not all compute nodes start with
    /// the same memory node.
    pub fn new(memory_nodes: u16, compute_node: u16) -> Self {
        Self {
            pools: (0..memory_nodes)
                .map(|_| CachePadded::new(Mutex::new(NodePool::default())))
                .collect(),
            next: AtomicU32::new(u32::from(compute_node)),
            chunk_bytes: DEFAULT_CHUNK_BYTES,
            reach: u64::MAX,
            sweep: None,
            roster: Arc::default(),
            lives: Mutex::default(),
            reclaim: None,
        }
    }

    /// Makes an allocator over a pool's memory nodes. If the pool reclaims memory, this compute node announces itself
    /// with the options `reclaim`. No compute node of such a pool may do without announcements, because a member reuses
    /// a block as soon as no announced operation can still read it.
    pub fn for_pool(superblock: &Superblock, compute_node: u16, reclaim: ReclaimOptions) -> Self {
        let alloc = Self::new(superblock.memory_nodes(), compute_node);
        match superblock.members {
            Some(area) => alloc.reclaiming(area, reclaim),
            None => alloc,
        }
    }

    /// Returns this allocator with the lock tables of the pool. If the allocator expels a member, it frees the member's
    /// locks in these tables before it frees the member's slot.
    #[must_use]
    pub fn sweeping(mut self, sweep: Sweep) -> Self {
        self.sweep = Some(sweep);
        self
    }

    /// Returns the lock tables of the pool, if this allocator has them.
    pub fn lock_tables(&self) -> Option<&Sweep> {
        self.sweep.as_ref()
    }

    /// Returns what this compute node knows about the members of the pool. The clients that lock nodes of the pool need
    /// it.
    pub fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    /// Sets the size of large chunks to `bytes`, rounded up to whole pages. The first chunks of each class are smaller.
    #[must_use]
    pub fn chunk_bytes(mut self, bytes: u64) -> Self {
        self.chunk_bytes = bytes.max(1).next_multiple_of(PAGE);
        self
    }

    /// Limits blocks to the first `bytes` of each memory node. A memory node whose next chunk ends beyond this limit
    /// counts as full.
    #[must_use]
    pub fn reaching(mut self, bytes: u64) -> Self {
        self.reach = bytes;
        self
    }

    /// Returns the number of memory nodes.
    pub fn memory_nodes(&self) -> u16 {
        self.pools.len() as u16
    }

    /// Allocates a block of at least `size` bytes. The allocator first tries the memory node of `near`. Without
    /// `near`, it first tries the memory node with the most free blocks of this class, if the pool reclaims memory. If
    /// there is no such node, or it has no room, the allocator tries all nodes in round robin.
    ///
    /// If several clients of a compute node need a chunk of one memory node at the same time, only one of them requests
    /// it, and the others wait. If the future is dropped, no block is handed out; a chunk request in flight may be lost
    /// with it ([`Control::call`]).
    ///
    /// # Errors
    /// Returns [`AllocError::Exhausted`] if every memory node is full, [`AllocError::BadSize`] if `size` is 0 or larger
    /// than a chunk, and [`AllocError::NoMemoryNodes`] if the allocator has no memory nodes. If no memory node had a
    /// block and the request to at least one of them failed, returns the control plane's own error. Also returns
    /// [`ControlError::Fenced`] if this client is fenced. If the pool reclaims memory, it can also return the errors of
    /// verbs, [`AllocError::Corrupt`] if a depot is damaged, and [`AllocError::Contended`] if a retry limit is reached.
    pub async fn alloc<V: Verbs + Control>(
        &self,
        v: &V,
        size: u32,
        near: Option<RemotePtr>,
    ) -> Result<RemotePtr, AllocError> {
        let block = self.take_sized(v, plain(size), size, near).await?;
        Ok(block.at)
    }

    /// Allocates a block of a class, like [`Allocator::alloc`]. The result also says which incarnation and version
    /// the new node must have.
    ///
    /// # Errors
    /// Returns the errors of [`Allocator::alloc`].
    pub async fn take<V: Verbs + Control>(
        &self,
        v: &V,
        class: Class,
        near: Option<RemotePtr>,
    ) -> Result<Block, AllocError> {
        self.take_sized(v, class, class.bytes, near).await
    }

    /// Takes a block on `near`'s memory node without communication, if there is one. This accesses shared
    /// local state, so the caller must await [`Env::local`](dm_verbs::Env::local) first.
    #[inline]
    pub fn at_hand(&self, client: ClientId, class: Class, near: RemotePtr) -> Option<Block> {
        let pool = self
            .pools
            .get(usize::from(near.node().0))
            .filter(|_| class.bytes > 0)?;
        pool.with(|p| p.at_hand(client, class))
    }

    /// Returns the memory node on which this compute node has the most free blocks of `class`; `None` if it has no free
    /// block of `class`, or if the pool reclaims nothing.
    fn richest(&self, class: Class) -> Option<NodeId> {
        self.reclaim.as_ref()?;
        let pools = (0..).map(NodeId).zip(&self.pools);
        let free = pools.map(|(node, pool)| (pool.with(|p| p.free(class)), node));
        let most = free.filter(|(free, _)| *free > 0).max_by_key(|(free, _)| *free)?;
        Some(most.1)
    }

    /// Takes a block of `class`. Errors that name a size contain `size`, which is the size that the caller requested.
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
            && let Some(block) = self.block_of(v, node, (class, true), &mut failed).await?
        {
            return Ok(block);
        }
        // Relaxed: the number only balances the load, and orders no other access.
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        for i in 0..u32::from(nodes) {
            let node = NodeId((first.wrapping_add(i) % u32::from(nodes)) as u16);
            if near != Some(node)
                && let Some(block) = self.block_of(v, node, (class, true), &mut failed).await?
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

    /// Takes back a block of `size` bytes (as requested) that no other client has ever been able to reach. It may
    /// be handed out again at once.
    ///
    /// # Panics
    /// Panics if `block` is not 64-byte aligned, or is on a memory node that the allocator does not have.
    pub fn free_unpublished(&self, block: RemotePtr, size: u32) {
        let block = Block::fresh(block);
        self.give_back(block.after(block.version), plain(size));
    }

    /// Takes back a block of a class, like [`Allocator::free_unpublished`]. `block` has the incarnation and
    /// version for its next node.
    ///
    /// # Panics
    /// Panics if the block's address is not 64-byte aligned, or is on a memory node that the allocator does not have.
    pub fn give_back(&self, block: Block, class: Class) {
        self.pool_of(block.at).with(|pool| match self.forgets_blocks() {
            true => pool.retire(class),
            false => pool.put(block, class),
        });
    }

    /// Takes back a block that only `client` has ever been able to reach, and to which a WRITE of this client may still
    /// be in flight. Only this client gets the block again, until [`Allocator::land`], which [`Allocator::prepare`]
    /// calls, has proved that the WRITE has landed.
    ///
    /// # Panics
    /// Panics if the block's address is not 64-byte aligned, or is on a memory node that the allocator does not have.
    pub fn give_back_unawaited(&self, client: ClientId, block: Block, class: Class) {
        self.pool_of(block.at).with(|pool| match self.forgets_blocks() {
            true => pool.retire(class),
            false => pool.put_orphan(client, block, class),
        });
    }

    /// Ends the hold of a block and takes the block back, like [`Allocator::give_back_unawaited`]. If the compute node
    /// has forgotten its memory since the hold began, the block may belong to others, so this forgets the block too.
    pub(crate) fn give_back_held_unawaited(&self, client: ClientId, held: Held, block: Block, class: Class) {
        self.pool_of(block.at).with(|pool| match pool.release(&held) {
            true => pool.put_orphan(client, block, class),
            false => pool.retire(class),
        });
    }

    /// Returns whether blocks that come back now must be forgotten, because a census may have given them to others.
    /// Call it in the section of a pool.
    pub(crate) fn forgets_blocks(&self) -> bool {
        self.reclaim.as_ref().is_some_and(Reclaim::forgets_blocks)
    }

    pub(crate) fn pool_of(&self, block: RemotePtr) -> &Mutex<NodePool> {
        assert!(
            block.offset().is_multiple_of(LINE as u64) && block.node().0 < self.memory_nodes(),
            "{block} is no block of this allocator"
        );
        &self.pools[usize::from(block.node().0)]
    }

    /// Returns the memory use.
    pub fn stats(&self) -> AllocStats {
        let mut stats = AllocStats::default();
        for pool in &self.pools {
            pool.with(|p| p.add_to(&mut stats));
        }
        stats.limbo_bytes = self.reclaim.as_ref().map_or(0, Reclaim::limbo_bytes);
        stats
    }

    /// Returns the size in bytes of the compute node's own memory that the allocator uses. Small tables, such as those
    /// of the membership and of the lock tables' places, are not counted.
    pub fn local_bytes(&self) -> usize {
        let pools = self.pools.len() * size_of::<CachePadded<Mutex<NodePool>>>();
        size_of::<Self>()
            + pools
            + self.roster.bytes()
            + self.reclaim.as_ref().map_or(0, Reclaim::heap_bytes)
            + self
                .pools
                .iter()
                .map(|pool| pool.with(|p| p.heap_bytes()))
                .sum::<usize>()
    }

    /// Takes a block on `node`. Returns `None` if the memory node is full, or if the request for a chunk failed. In the
    /// second case, this stores the error in `failed`, except for [`ControlError::Fenced`], which it returns. If
    /// `receives` is set, this tries the depot before it fetches a new chunk.
    pub(crate) async fn block_of<V: Verbs + Control>(
        &self,
        v: &V,
        node: NodeId,
        (class, receives): (Class, bool),
        failed: &mut Option<ControlError>,
    ) -> Result<Option<Block>, AllocError> {
        let pool = &self.pools[usize::from(node.0)];
        // The loop ends, because each iteration returns, waits for another client's chunk, gets blocks, or finds that
        // the memory node has less memory left than before.
        let kept = self.kept();
        loop {
            v.local(LocalStep::Section).await;
            let wanted = match pool.with(|p| p.take(v.client(), class, (self.chunk_bytes, kept))) {
                Found::Block(block) => return Ok(Some(block)),
                // The depot may have blocks even if no chunk is left.
                Found::Full if receives && self.receive(v, node).await? => continue,
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
            let fetch = Fetch {
                pool,
                trip: pool.with(NodePool::begin_trip),
            };
            // Free blocks that another compute node gave up are used before new memory.
            if receives && self.receive(v, node).await? {
                continue;
            }
            let answer = v.chunk(node, wanted).await;
            match answer {
                Ok(start) if start.offset() + wanted > self.reach => pool.with(|p| p.out_of_reach(wanted)),
                Ok(start) => {
                    self.record_chunk(v, class, (start, wanted)).await?;
                    pool.with(|p| {
                        if p.remembers(fetch.trip) {
                            p.add(class, (start, wanted), kept);
                        }
                    });
                }
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
        // Relaxed: fingerprints are taken between steps, while no client runs.
        fingerprint_of(&(
            self.next.load(Ordering::Relaxed) % self.pools.len().max(1) as u32,
            pools,
            self.roster.fingerprint(),
            self.reclaim.as_ref().map(Fingerprint::fingerprint),
        ))
    }
}

impl Fingerprint for NodePool {
    fn fingerprint(&self) -> u64 {
        fingerprint_of(&self.state())
    }
}

/// A chunk request in flight. Dropping it wakes the waiting clients, whether the request succeeded or not.
struct Fetch<'a> {
    pool: &'a Mutex<NodePool>,
    trip: Trip,
}

impl Drop for Fetch<'_> {
    fn drop(&mut self) {
        let waiting = self.pool.with(|p| {
            p.end_trip(self.trip);
            p.fetched()
        });
        for waker in waiting {
            waker.wake();
        }
    }
}

/// Returns the class of blocks that are requested by size alone.
fn plain(size: u32) -> Class {
    // Sizes that round up to the same number of lines belong to the same class.
    let bytes = size.checked_next_multiple_of(LINE as u32).unwrap_or(size);
    Class { bytes, kind: 0 }
}
