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

/// A SMART tree, as the threads of one compute node share it: prefix cache, local locks, allocator, operations
/// under way.
#[derive(Debug)]
pub struct Smart<K: KeyBytes> {
    art: Art<K, Singles<K>>,
    locks: Arc<Locks>,
    /// What clients share of their operations, if anything.
    combiner: Option<Combiner<K>>,
    attempts: u32,
    /// Values are references.
    holds_items: bool,
}

/// The kind of index in a pool's superblock.
const KIND: &[u8; 4] = b"smrt";
/// Memory nodes that a slot can name.
const MEMORY_NODES_MAX: u16 = 256;

impl<K: KeyBytes> Smart<K> {
    /// Opens the pool's tree, creating it if the pool is empty. Any number of clients of any number of compute nodes may
    /// do so at once.
    ///
    /// # Errors
    /// [`OpenError`]: the pool holds something else, a value makes no leaf, or the world lacks a promise.
    pub async fn create_or_open<V: Verbs + Control>(v: &V, options: &Options) -> Result<Self, OpenError> {
        let layout = SingleLeaf::new(options.value_bytes)?;
        let superblock = Superblock::create_or_open(v, &Self::descriptor(options)).await?;
        Self::over(v, options, layout, &superblock).await
    }

    /// Opens a tree that exists.
    ///
    /// # Errors
    /// As [`Smart::create_or_open`], and where the pool is empty.
    pub async fn open<V: Verbs + Control>(v: &V, options: &Options) -> Result<Self, OpenError> {
        let layout = SingleLeaf::new(options.value_bytes)?;
        let superblock = Superblock::open(v, &Self::descriptor(options)).await?;
        Self::over(v, options, layout, &superblock).await
    }

    /// Over a pool whose superblock was read before: opens it with one READ, for whoever opens one pool many times.
    ///
    /// # Errors
    /// A value size that makes no leaf, a superblock of another kind or geometry, or a world that lacks a promise.
    pub async fn from_superblock<V: Verbs + Control>(
        v: &V,
        options: &Options,
        superblock: &Superblock,
    ) -> Result<Self, OpenError> {
        superblock.matches(&Self::descriptor(options))?;
        let layout = SingleLeaf::new(options.value_bytes)?;
        Self::over(v, options, layout, superblock).await
    }

    /// What must agree between all who open a pool: what a superblock of this tree says.
    pub fn descriptor(options: &Options) -> Descriptor {
        let numbers = [
            u64::from(options.items),
            K::LEN as u64,
            options.value_bytes as u64,
            u64::from_le_bytes(options.types.describe()),
        ];
        Descriptor {
            // The locks lie in the leaves: the table that every pool has is not used.
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

    /// A client over `v`'s connections.
    pub fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> Client<'h, V, K> {
        Combined::new(v, self.art.client(v), self.combiner.as_ref())
    }

    /// A client of items of variable length, over `v`'s connections: what the tree compares of a key is its `prefix`
    /// ([`leading_bytes`](crate::leading_bytes), as a rule).
    ///
    /// # Errors
    /// [`IndexError::BadInput`] for a tree of other values than [`Options::items`].
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

    /// Reads all inner nodes into the cache, as far as they fit; metered as housekeeping. Answers how many.
    ///
    /// # Errors
    /// As any read.
    pub async fn warm<V: Verbs + Control>(&self, v: &V) -> Result<u64, IndexError> {
        self.art.warm(v).await
    }

    /// Reads the inner nodes on the way of each key, one after the other, if they are not cached: where not all fit, what
    /// came last is there in the end. Metered as housekeeping; no leaf is read.
    ///
    /// # Errors
    /// As any read.
    pub async fn warm_for<V: Verbs + Control>(
        &self,
        v: &V,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<(), IndexError> {
        self.art.client(v).warm_for(keys).await
    }

    /// Takes over what the cache of another compute node holds, instead of what is in this one's; `false`, and nothing is
    /// changed, if it does not fit, or is not known to be good here.
    ///
    /// # Errors
    /// As any operation's.
    pub async fn adopt_cache<V: Verbs + Control>(&self, v: &V, other: &Self) -> Result<bool, IndexError> {
        self.art.adopt_cache(v, &other.art).await
    }

    /// Bytes of the cache of inner nodes, every allocation counted.
    pub fn cache_bytes(&self) -> u64 {
        self.art.cache().bytes()
    }

    /// Bytes of everything else that this compute node keeps for the tree: local locks, those of read delegation and write
    /// combining, allocator, handles.
    pub fn local_bytes(&self) -> u64 {
        let shared = self.combiner.as_ref().map_or(0, Combiner::bytes);
        (self.locks.local_bytes() + self.art.alloc().local_bytes() + shared + size_of::<Self>()) as u64
    }

    /// Announces what this compute node runs and remembers, and frees what all others have announced to be past, now instead of
    /// at an operation of its own: for compute nodes that do nothing for a while. Metered as housekeeping.
    ///
    /// Five rounds of every compute node free what was retired before the first.
    ///
    /// # Errors
    /// As any operation's.
    pub async fn collect<V: Verbs + Control>(&self, v: &V) -> Result<(), IndexError> {
        self.art.collect(v).await
    }

    /// Bytes of nodes and leaves that this compute node has allocated, less those that it has retired, over all memory
    /// nodes. The sum over all compute nodes is what the tree takes; one of them may come out below zero.
    pub fn allocated_bytes(&self) -> i64 {
        self.art.alloc().stats().in_use_bytes
    }

    /// What this compute node's allocator has to do with.
    pub fn alloc_stats(&self) -> AllocStats {
        self.art.alloc().stats()
    }

    /// The root node.
    pub fn root(&self) -> RemotePtr {
        self.art.root()
    }
}

/// All that a compute node's clients share: cache, local locks, free memory, operations.
impl<K: KeyBytes> Fingerprint for Smart<K> {
    fn fingerprint(&self) -> u64 {
        fingerprint_of(&(
            self.art.fingerprint(),
            self.locks.fingerprint(),
            self.combiner.fingerprint(),
        ))
    }
}
