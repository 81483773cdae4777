//! The tree that a compute node's threads share, and its clients.

use dm_alloc::{
    AllocError, AllocStats, Allocator, Descriptor, LockHome, LockPlan, ReclaimOptions, Superblock,
};
use dm_art::{Art, ArtClient, ArtOptions};
use dm_combine::{Combined, Combiner};
use dm_index::IndexError;
use dm_indirect::{Items, Prefix};
use dm_layout::{KeyBytes, SingleLeaf};
use dm_leaf::{OpenError, SingleOptions, Singles};
use dm_lock::{GlobalLockTable, Local, LockOptions, LockPlace, Locks};
use dm_sync::{Arc, Fingerprint, fingerprint_of};
use dm_verbs::{Control, NodeId, RemotePtr, Verbs};

use crate::Options;

/// One client of a tree: a coroutine with its own connections. See [`dm_index::RangeIndex`] for the operations.
pub type Client<'h, V, K> = Combined<'h, V, ArtClient<'h, V, K, Singles<K>>>;

/// One client of items of variable length.
///
/// ```
/// use dm_loopback::{Endpoint, Loopback, block_on};
/// use smart::{Smart, ItemClient, Key8, Options, leading_bytes};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Loopback::builder().nodes(2).build()?;
/// let v = pool.connect(0)?;
/// block_on(async {
///     let tree = Smart::<Key8>::create_or_open(&v, &Options::items()).await?;
///     let client: ItemClient<'_, Endpoint, Key8> = tree.items(&v, leading_bytes)?;
///     client.insert(b"ada", b"countess of lovelace").await?;
///     let mut value = Vec::new();
///     assert!(client.get(b"ada", &mut value).await? && value == b"countess of lovelace");
///     Ok(())
/// })
/// # }
/// ```
pub type ItemClient<'h, V, K> = Items<'h, V, Client<'h, V, K>>;

/// A SMART tree, as the threads of one compute node share it: prefix cache, local locks, allocator, running
/// operations.
#[derive(Debug)]
pub struct Smart<K: KeyBytes> {
    art: Art<K, Singles<K>>,
    locks: Arc<Locks>,
    /// State for operations that clients share, if they share any.
    combiner: Option<Combiner<K>>,
    attempts: u32,
    /// Whether values are references to items.
    holds_items: bool,
}

/// The kind of index in a pool's superblock.
const KIND: &[u8; 4] = b"smrt";
/// Maximum number of memory nodes: a slot can name this many.
const MEMORY_NODES_MAX: u16 = 256;

impl<K: KeyBytes> Smart<K> {
    /// Opens the pool's tree, creating it if the pool is empty. Any number of clients of any number of compute nodes may
    /// do so at once.
    ///
    /// # Errors
    /// Returns [`OpenError`] if the pool holds something else, if a value makes no leaf, or if the world
    /// lacks a capability.
    pub async fn create_or_open<V: Verbs + Control>(v: &V, options: &Options) -> Result<Self, OpenError> {
        let layout = SingleLeaf::new(options.value_bytes)?;
        let superblock = Superblock::create_or_open(v, &Self::descriptor(options)).await?;
        Self::over(v, options, layout, &superblock).await
    }

    /// Opens a tree that exists.
    ///
    /// # Errors
    /// The same as [`Smart::create_or_open`], and an error if the pool is empty.
    pub async fn open<V: Verbs + Control>(v: &V, options: &Options) -> Result<Self, OpenError> {
        let layout = SingleLeaf::new(options.value_bytes)?;
        let superblock = Superblock::open(v, &Self::descriptor(options)).await?;
        Self::over(v, options, layout, &superblock).await
    }

    /// Opens a pool whose superblock was read before, with one READ. Use it to open one pool many times.
    ///
    /// # Errors
    /// Returns an error for a value size that makes no leaf, a superblock of another kind or geometry, or a
    /// world that lacks a capability.
    pub async fn from_superblock<V: Verbs + Control>(
        v: &V,
        options: &Options,
        superblock: &Superblock,
    ) -> Result<Self, OpenError> {
        superblock.matches(&Self::descriptor(options))?;
        let layout = SingleLeaf::new(options.value_bytes)?;
        Self::over(v, options, layout, superblock).await
    }

    /// Returns the parameters that the superblock of this tree stores; every client that opens the pool must
    /// use the same ones.
    pub fn descriptor(options: &Options) -> Descriptor {
        let numbers = [
            u64::from(options.items),
            K::LEN as u64,
            options.value_bytes as u64,
            u64::from_le_bytes(options.types.describe()),
        ];
        Descriptor {
            // The locks are in the leaves, so the lock table of the pool is not used.
            locks: LockPlan {
                home: LockHome::ChipIfAny,
                per_node: 1,
            },
            members: options.members,
            nodes_max: MEMORY_NODES_MAX,
            ..Descriptor::of(KIND, numbers)
        }
    }

    async fn over<V: Verbs + Control>(
        v: &V,
        options: &Options,
        layout: SingleLeaf<K>,
        superblock: &Superblock,
    ) -> Result<Self, OpenError> {
        let nodes = superblock.memory_nodes();
        if nodes > MEMORY_NODES_MAX {
            let (listed, most) = (nodes, MEMORY_NODES_MAX);
            return Err(AllocError::TooManyNodes { listed, most }.into());
        }
        let lock_options = LockOptions {
            local: Local::queue_if(options.hierarchical, options.handover_max),
            place: LockPlace::Host,
            lock_and_read: options.lock_and_read,
            budget: options.attempts,
            ..LockOptions::default()
        };
        let table = GlobalLockTable::in_nodes(nodes, layout.lock_at() as u32);
        let locks = Arc::new(Locks::new(lock_options, table));
        for node in 0..nodes {
            locks.check(&v.caps(NodeId(node)))?;
        }
        let single = SingleOptions {
            attempts: options.attempts,
            flaws: options.flaws.leaf,
        };
        let reclaim = ReclaimOptions {
            attempts: options.reclaim.attempts.min(options.attempts),
            // Its cache is used without proof.
            remembers: true,
            ..options.reclaim
        };
        let alloc = Allocator::for_pool(superblock, v.compute_node(), reclaim);
        let alloc = Arc::new(alloc.chunk_bytes(options.chunk_bytes));
        let art = ArtOptions {
            types: options.types,
            cache_bytes: options.cache_bytes,
            attempts: options.attempts,
            turn: options.turn,
            depth_slack: options.depth_slack,
            cpu: options.cpu,
            flaws: options.flaws.inner,
        };
        let leaves = Singles::new(layout, locks.clone(), single);
        let art = Art::open(v, leaves, alloc, superblock.root_word, art).await?;
        let combiner = options.rdwc.is_on().then(|| Combiner::new(&options.rdwc));
        Ok(Self {
            art,
            locks,
            combiner,
            attempts: options.attempts,
            holds_items: options.items,
        })
    }

    /// Makes a client over `v`'s connections.
    pub fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> Client<'h, V, K> {
        Combined::new(v, self.art.client(v), self.combiner.as_ref())
    }

    /// Makes a client of items of variable length, over `v`'s connections. The tree compares the `prefix` of
    /// a key (usually [`leading_bytes`](crate::leading_bytes)).
    ///
    /// # Errors
    /// Returns [`IndexError::BadInput`] if the tree's values are not those of [`Options::items`].
    pub fn items<'h, V: Verbs + Control>(
        &'h self,
        v: &'h V,
        prefix: Prefix<K>,
    ) -> Result<ItemClient<'h, V, K>, IndexError> {
        Items::made_for_them(
            self.holds_items,
            v,
            self.client(v),
            self.art.alloc(),
            prefix,
            self.attempts,
        )
    }

    /// Reads all inner nodes into the cache, as far as they fit, and returns their number. The meter counts
    /// it as housekeeping.
    ///
    /// # Errors
    /// The same as any read.
    pub async fn warm<V: Verbs + Control>(&self, v: &V) -> Result<u64, IndexError> {
        self.art.warm(v).await
    }

    /// Reads the inner nodes on each key's path that are not cached, one key after another. If not all fit,
    /// the last ones read are cached in the end. The meter counts it as housekeeping; no leaf is read.
    ///
    /// # Errors
    /// The same as any read.
    pub async fn warm_for<V: Verbs + Control>(
        &self,
        v: &V,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<(), IndexError> {
        self.art.client(v).warm_for(keys).await
    }

    /// Replaces the content of this compute node's cache by that of another compute node's. Returns `false`
    /// and changes nothing if it does not fit, or is not known to be valid here.
    ///
    /// # Errors
    /// The same as any operation.
    pub async fn adopt_cache<V: Verbs + Control>(&self, v: &V, other: &Self) -> Result<bool, IndexError> {
        self.art.adopt_cache(v, &other.art).await
    }

    /// Returns the bytes of the cache of inner nodes, including every allocation.
    pub fn cache_bytes(&self) -> u64 {
        self.art.cache().bytes()
    }

    /// Returns the bytes of everything else that this compute node keeps for the tree: local locks, the locks
    /// of read delegation and write combining, allocator, handles.
    pub fn local_bytes(&self) -> u64 {
        let shared = self.combiner.as_ref().map_or(0, Combiner::bytes);
        (self.locks.local_bytes() + self.art.alloc().local_bytes() + shared + size_of::<Self>()) as u64
    }

    /// Announces the running operations and the cache's age of this compute node now, instead of at its next
    /// operation, and frees the memory that all others have announced as no longer in use. It is for compute
    /// nodes that are idle for a while. The meter counts it as housekeeping.
    ///
    /// Five rounds of every compute node free everything that was retired before the first round.
    ///
    /// # Errors
    /// The same as any operation.
    pub async fn collect<V: Verbs + Control>(&self, v: &V) -> Result<(), IndexError> {
        self.art.collect(v).await
    }

    /// Returns the bytes of nodes and leaves that this compute node has allocated, less those that it has
    /// retired, over all memory nodes. The tree's memory is the sum over all compute nodes; the number of one
    /// compute node may be negative.
    pub fn allocated_bytes(&self) -> i64 {
        self.art.alloc().stats().in_use_bytes
    }

    /// Returns the allocator statistics of this compute node.
    pub fn alloc_stats(&self) -> AllocStats {
        self.art.alloc().stats()
    }

    /// Returns the address of the root node.
    pub fn root(&self) -> RemotePtr {
        self.art.root()
    }
}

/// The state that the clients of a compute node share: cache, local locks, free memory, operations.
impl<K: KeyBytes> Fingerprint for Smart<K> {
    fn fingerprint(&self) -> u64 {
        fingerprint_of(&(
            self.art.fingerprint(),
            self.locks.fingerprint(),
            self.combiner.fingerprint(),
        ))
    }
}
