//! The tree that a compute node's threads share, and its clients.

use dm_alloc::{AllocError, AllocStats, Allocator, Descriptor, LockHome, LockPlan, Superblock};
use dm_art::{Art, ArtOptions, Separators};
use dm_cache::IndexCache;
use dm_combine::{Combined, Combiner};
use dm_index::{Composed, ComposedOptions, IndexError};
use dm_indirect::{Items, Prefix};
use dm_layout::{KeyBytes, Leaf, NodeFormat, SingleLeaf};
use dm_leaf::{
    NodeOptions, Nodes, OpenError, PackedLeaves, SingleFlaws, SingleOptions, Singles, check_world,
};
use dm_lock::{GlobalLockTable, Local, LockFlaws, LockOptions, LockPlace, Locks};
use dm_sync::{Arc, Fingerprint, fingerprint_of};
use dm_verbs::{Control, NodeId, RemotePtr, Verbs};

use crate::Options;

type Inner<K> = Separators<K, Singles<K>>;

/// One client of a tree: a coroutine with its own connections. See [`dm_index::RangeIndex`] for the operations.
pub type Client<'h, V, K> = Combined<'h, V, Composed<'h, V, K, Inner<K>, PackedLeaves<K>>>;

/// One client of items of variable length.
///
/// ```
/// use dm_loopback::{Endpoint, Loopback, block_on};
/// use dolphin::{Dolphin, ItemClient, Key8, Options, leading_bytes};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Loopback::builder().nodes(2).build()?;
/// let v = pool.connect(0)?;
/// block_on(async {
///     let tree = Dolphin::<Key8>::create_or_open(&v, &Options::items()).await?;
///     let client: ItemClient<'_, Endpoint, Key8> = tree.items(&v, leading_bytes)?;
///     client.insert(b"ada", b"countess of lovelace").await?;
///     let mut value = Vec::new();
///     assert!(client.get(b"ada", &mut value).await? && value == b"countess of lovelace");
///     Ok(())
/// })
/// # }
/// ```
pub type ItemClient<'h, V, K> = Items<'h, V, Client<'h, V, K>>;

/// A Dolphin tree, as the threads of one compute node share it: cached separators, local locks, allocator,
/// running operations.
#[derive(Debug)]
pub struct Dolphin<K: KeyBytes> {
    inner: Inner<K>,
    leaves: PackedLeaves<K>,
    /// The locks of leaves, and those inside of separators' entries.
    locks: [Arc<Locks>; 2],
    alloc: Arc<Allocator>,
    composed: ComposedOptions,
    /// State for operations that clients share, if they share any.
    combiner: Option<Combiner<K>>,
    /// Whether values are references to items.
    holds_items: bool,
}

/// The kind of index in a pool's superblock.
const KIND: &[u8; 4] = b"dlph";
/// Maximum number of memory nodes: a radix node's slot can name this many.
const MEMORY_NODES_MAX: u16 = 256;
/// Bytes of an entry's value: a leaf's address.
const ADDRESS: usize = 8;
/// The kind of leaves' memory; that of radix nodes is 1, and that of their entries 0.
const LEAVES: u8 = 2;

impl<K: KeyBytes> Dolphin<K> {
    /// Opens the pool's tree, creating it if the pool is empty. Any number of clients of any number of compute nodes may
    /// do so at once.
    ///
    /// # Errors
    /// Returns [`OpenError`] if the pool holds something else, if the sizes make no leaf, or if the world
    /// lacks a capability.
    pub async fn create_or_open<V: Verbs + Control>(v: &V, options: &Options) -> Result<Self, OpenError> {
        let (leaf, options) = Self::leaf(v, options)?;
        let superblock = Superblock::create_or_open(v, &Self::descriptor(&options)).await?;
        Self::over(v, &options, leaf, &superblock).await
    }

    /// Opens a tree that exists.
    ///
    /// # Errors
    /// The same as [`Dolphin::create_or_open`], and an error if the pool is empty.
    pub async fn open<V: Verbs + Control>(v: &V, options: &Options) -> Result<Self, OpenError> {
        let (leaf, options) = Self::leaf(v, options)?;
        let superblock = Superblock::open(v, &Self::descriptor(&options)).await?;
        Self::over(v, &options, leaf, &superblock).await
    }

    /// Opens a pool whose superblock was read before, with one READ. Use it to open one pool many times.
    ///
    /// # Errors
    /// Returns an error for sizes that make no leaf, a superblock of another kind or geometry, or a world
    /// that lacks a capability.
    pub async fn from_superblock<V: Verbs + Control>(
        v: &V,
        options: &Options,
        superblock: &Superblock,
    ) -> Result<Self, OpenError> {
        let (leaf, options) = Self::leaf(v, options)?;
        superblock.matches(&Self::descriptor(&options))?;
        Self::over(v, &options, leaf, superblock).await
    }

    /// Returns the leaf format, and the options that this world supports.
    fn leaf<V: Verbs>(v: &V, options: &Options) -> Result<(Leaf<K>, Options), OpenError> {
        let leaf = Leaf::with_node_bytes(options.leaf_bytes, options.value_bytes, options.packed_keys)?;
        let mut options = options.fit(&v.caps(NodeId(0)));
        options.packed_keys = leaf.is_packed();
        options.shared_updates &= NodeFormat::<K>::updates_in_line(&leaf) || options.flaws.leaf.lines_shared;
        Ok((leaf, options))
    }

    /// Returns the parameters that the superblock of this tree stores; every client that opens the pool must
    /// use the same ones. If `options` are not [fit](Options::fit) for a world, the tree there may have other
    /// parameters.
    pub fn descriptor(options: &Options) -> Descriptor {
        let numbers = [
            u64::from(options.items)
                | u64::from(options.shared_updates) << 8
                | u64::from(options.packed_keys) << 16,
            K::LEN as u64,
            options.value_bytes as u64,
            options.leaf_bytes as u64,
            u64::from_le_bytes(options.types.describe()),
        ];
        Descriptor {
            locks: LockPlan {
                home: LockHome::chip_if(options.on_chip),
                per_node: options.locks_per_node,
            },
            members: options.members,
            nodes_max: MEMORY_NODES_MAX,
            ..Descriptor::of(KIND, numbers)
        }
    }

    async fn over<V: Verbs + Control>(
        v: &V,
        options: &Options,
        leaf: Leaf<K>,
        superblock: &Superblock,
    ) -> Result<Self, OpenError> {
        let nodes = superblock.memory_nodes();
        if nodes > MEMORY_NODES_MAX {
            let (listed, most) = (nodes, MEMORY_NODES_MAX);
            return Err(AllocError::TooManyNodes { listed, most }.into());
        }
        let entry = SingleLeaf::new(ADDRESS)?;
        let tables = superblock.lock_tables.clone();
        let table = GlobalLockTable::new(tables, superblock.locks_per_node);
        let in_entries = GlobalLockTable::in_nodes(nodes, entry.lock_at() as u32);
        let locks = [
            Arc::new(Locks::new(
                LockOptions {
                    shared: options.shared_updates,
                    ..Self::locks(options, options.on_chip)
                },
                table,
            )),
            Arc::new(Locks::new(Self::locks(options, false), in_entries)),
        ];
        check_world(v, nodes, locks.iter().map(|locks| &**locks))?;
        let reclaim = options.reclaim.at_most(options.attempts);
        let alloc = Allocator::for_pool(superblock, v.compute_node(), reclaim);
        let alloc = Arc::new(alloc.chunk_bytes(options.chunk_bytes));
        let node_options = NodeOptions {
            attempts: options.attempts,
            bias: options.bias,
            kind: LEAVES,
            flaws: options.flaws.leaf,
            ..NodeOptions::default()
        };
        Ok(Self {
            inner: Self::separators(v, options, entry, (&locks[1], &alloc), superblock.root_word).await?,
            leaves: Nodes::new(leaf, locks[0].clone(), alloc.clone(), node_options),
            locks,
            alloc,
            composed: ComposedOptions {
                attempts: options.attempts,
                cpu: options.cpu,
                flaws: dm_index::Flaws::default(),
            },
            combiner: options.rdwc.is_on().then(|| Combiner::new(&options.rdwc)),
            holds_items: options.items,
        })
    }

    async fn separators<V: Verbs + Control>(
        v: &V,
        options: &Options,
        entry: SingleLeaf<K>,
        (locks, alloc): (&Arc<Locks>, &Arc<Allocator>),
        root_word: RemotePtr,
    ) -> Result<Inner<K>, IndexError> {
        let single = SingleOptions {
            attempts: options.attempts,
            flaws: SingleFlaws::default(),
        };
        let art = ArtOptions {
            types: options.types,
            // The separators' answers are cached instead of the nodes that lead to them.
            cache_bytes: 0,
            attempts: options.attempts,
            depth_slack: 0,
            ..ArtOptions::default()
        };
        let entries = Singles::new(entry, locks.clone(), single);
        let art = Art::open(v, entries, alloc.clone(), root_word, art).await?;
        Separators::new(art, IndexCache::new(options.cache_bytes), options.separators)
    }

    fn locks(options: &Options, on_chip: bool) -> LockOptions {
        LockOptions {
            local: Local::queue_if(options.hierarchical, options.handover_max),
            lock_and_read: options.lock_and_read,
            budget: options.attempts,
            place: LockPlace::chip_if(on_chip),
            flaws: LockFlaws {
                leave_unawaited: options.flaws.unawaited,
                ..LockFlaws::default()
            },
            ..LockOptions::default()
        }
    }

    /// Makes a client over `v`'s connections.
    pub fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> Client<'h, V, K> {
        let composed = Composed::new(v, &self.inner, &self.leaves, self.composed);
        Combined::new(v, composed, self.combiner.as_ref())
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
            &self.alloc,
            prefix,
            self.composed.attempts,
        )
    }

    /// Reads all separators into the cache, as far as they fit, and returns their number. The meter counts it
    /// as housekeeping.
    ///
    /// # Errors
    /// The same as any read.
    pub async fn warm<V: Verbs + Control>(&self, v: &V) -> Result<u64, IndexError> {
        self.alloc.visit(v, self.inner.warm(v)).await
    }

    /// Announces the running operations of this compute node now, instead of at its next operation, and frees
    /// the memory that all others have announced as no longer in use. It is for compute nodes that are idle
    /// for a while. The meter counts it as housekeeping.
    ///
    /// Three rounds of every compute node free everything that was retired before the first round.
    ///
    /// # Errors
    /// The same as any operation.
    pub async fn collect<V: Verbs + Control>(&self, v: &V) -> Result<(), IndexError> {
        Ok(self.alloc.collect_alone(v).await?)
    }

    /// Returns the bytes of this compute node's cache of separators, including every allocation.
    pub fn cache_bytes(&self) -> u64 {
        self.inner.cache_bytes()
    }

    /// Returns the bytes of everything else that this compute node keeps for the tree: local locks, the locks
    /// of read delegation and write combining, allocator, handles.
    pub fn local_bytes(&self) -> u64 {
        let shared = self.combiner.as_ref().map_or(0, Combiner::bytes);
        let locks: usize = self.locks.iter().map(|locks| locks.local_bytes()).sum();
        (locks + self.alloc.local_bytes() + shared + size_of::<Self>()) as u64
    }

    /// Returns the bytes of nodes and leaves that this compute node has allocated, less those that it has
    /// retired, over all memory nodes. The tree's memory is the sum over all compute nodes; the number of one
    /// compute node may be negative.
    pub fn allocated_bytes(&self) -> i64 {
        self.alloc.stats().in_use_bytes
    }

    /// Returns the allocator statistics of this compute node.
    pub fn alloc_stats(&self) -> AllocStats {
        self.alloc.stats()
    }

    /// Returns the address of the radix tree's root.
    pub fn root(&self) -> RemotePtr {
        self.inner.art().root()
    }

    /// Returns the maximum number of entries in a leaf, which packed keys that are close together reach.
    pub fn leaf_capacity(&self) -> usize {
        self.leaves.format().capacity()
    }
}

/// The state that the clients of a compute node share: cached separators, local locks, free memory,
/// operations.
impl<K: KeyBytes> Fingerprint for Dolphin<K> {
    fn fingerprint(&self) -> u64 {
        fingerprint_of(&(
            self.inner.fingerprint(),
            self.locks.each_ref().map(|locks| locks.fingerprint()),
            self.alloc.fingerprint(),
            self.combiner.fingerprint(),
        ))
    }
}
