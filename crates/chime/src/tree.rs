//! The tree that a compute node's threads share, and its clients.

use dm_alloc::{AllocStats, Allocator, Descriptor, LockHome, LockPlan, Superblock};
use dm_blink::{Blink, BlinkOptions};
use dm_cache::IndexCache;
use dm_combine::{Combined, Combiner};
use dm_hopscotch::{HopGeometry, HopOptions, Hopscotch, Hotspots, Neighbourhoods};
use dm_index::{CHILD_BYTES, Composed, ComposedOptions, Flaws, IndexError};
use dm_indirect::{Items, Prefix};
use dm_layout::{KeyBytes, Slotted};
use dm_leaf::{NodeOptions, Nodes, OpenError, check_world};
use dm_lock::{GlobalLockTable, Local, LockOptions, LockPlace, Locks};
use dm_sync::{Arc, Fingerprint, fingerprint_of};
use dm_verbs::{Control, Nanos, RemotePtr, Verbs};

use crate::Options;

type Inner<K> = Blink<K, Nodes<K, Slotted<K>>>;
type Leaves<K> = Neighbourhoods<K, Nodes<K, Hopscotch<K>>>;

/// One client of a tree: a coroutine with its own connections. See [`dm_index::RangeIndex`] for the operations.
pub type Client<'h, V, K> = Combined<'h, V, Composed<'h, V, K, Inner<K>, Leaves<K>>>;

/// One client of items of variable length.
///
/// ```
/// use dm_loopback::{Endpoint, Loopback, block_on};
/// use chime::{Chime, ItemClient, Key8, Options, leading_bytes};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Loopback::builder().nodes(2).build()?;
/// let v = pool.connect(0)?;
/// block_on(async {
///     let tree = Chime::<Key8>::create_or_open(&v, &Options::items()).await?;
///     let client: ItemClient<'_, Endpoint, Key8> = tree.items(&v, leading_bytes)?;
///     client.insert(b"ada", b"countess of lovelace").await?;
///     let mut value = Vec::new();
///     assert!(client.get(b"ada", &mut value).await? && value == b"countess of lovelace");
///     Ok(())
/// })
/// # }
/// ```
pub type ItemClient<'h, V, K> = Items<'h, V, Client<'h, V, K>>;

/// A CHIME tree, as the threads of one compute node share it: index cache, local locks, allocator.
#[derive(Debug)]
pub struct Chime<K: KeyBytes> {
    inner: Inner<K>,
    leaves: Leaves<K>,
    locks: Arc<Locks>,
    alloc: Arc<Allocator>,
    composed: ComposedOptions,
    /// State for operations that clients share, if they share any.
    combiner: Option<Combiner<K>>,
    /// Whether values are references to items.
    holds_items: bool,
}

/// A READ of a whole leaf that took longer is not trusted, because versions are narrow
/// (docs/protocol/chime.md H2).
const WINDOW: Nanos = Nanos::from_micros(500);

/// The kind of index in a pool's superblock.
const KIND: &[u8; 4] = b"chim";

impl<K: KeyBytes> Chime<K> {
    /// Opens the pool's tree, creating it if the pool is empty. Any number of clients of any number of compute nodes may
    /// do so at once.
    ///
    /// # Errors
    /// Returns [`OpenError`] if the pool holds something else, if the sizes make no node, or if the world
    /// lacks a capability.
    pub async fn create_or_open<V: Verbs + Control>(v: &V, options: &Options) -> Result<Self, OpenError> {
        let leaf = Self::leaf(options)?;
        let superblock = Superblock::create_or_open(v, &Self::descriptor(options)).await?;
        Self::over(v, options, leaf, &superblock)
    }

    /// Opens a tree that exists.
    ///
    /// # Errors
    /// The same as [`Chime::create_or_open`], and an error if the pool is empty.
    pub async fn open<V: Verbs + Control>(v: &V, options: &Options) -> Result<Self, OpenError> {
        let leaf = Self::leaf(options)?;
        let superblock = Superblock::open(v, &Self::descriptor(options)).await?;
        Self::over(v, options, leaf, &superblock)
    }

    /// Opens a pool whose superblock was read before, without a verb. Use it to open one pool many times.
    ///
    /// # Errors
    /// Returns an error for sizes that make no node, a superblock of another kind or geometry, or a world
    /// that lacks a capability.
    pub fn from_superblock<V: Verbs>(
        v: &V,
        options: &Options,
        superblock: &Superblock,
    ) -> Result<Self, OpenError> {
        superblock.matches(&Self::descriptor(options))?;
        Self::over(v, options, Self::leaf(options)?, superblock)
    }

    fn leaf(options: &Options) -> Result<Hopscotch<K>, OpenError> {
        Ok(Hopscotch::new(
            options.span,
            options.neighbourhood,
            options.value_bytes,
        )?)
    }

    /// Returns the parameters that the superblock of this tree stores; every client that opens the pool must
    /// use the same ones.
    pub fn descriptor(options: &Options) -> Descriptor {
        let sizes = [
            K::LEN,
            options.value_bytes,
            options.span,
            options.neighbourhood,
            options.inner_span,
            CHILD_BYTES,
            usize::from(options.items),
        ];
        Descriptor {
            locks: LockPlan {
                home: LockHome::chip_if(options.on_chip),
                per_node: options.locks_per_node,
            },
            members: options.members,
            ..Descriptor::of(KIND, sizes.map(|size| size as u64))
        }
    }

    fn over<V: Verbs>(
        v: &V,
        options: &Options,
        leaf: Hopscotch<K>,
        superblock: &Superblock,
    ) -> Result<Self, OpenError> {
        let inner = Slotted::with_span(options.inner_span, CHILD_BYTES)?;
        let locks = Arc::new(Self::locks(options, superblock));
        check_world(v, superblock.memory_nodes(), [&*locks])?;
        let reclaim = options.reclaim.at_most(options.attempts);
        let alloc =
            Allocator::for_pool(superblock, v.compute_node(), reclaim).chunk_bytes(options.chunk_bytes);
        let alloc = Arc::new(alloc);
        let hop = HopOptions {
            vacancy_piggyback: options.vacancy_piggyback,
            metadata_replication: options.metadata_replication,
            hotspot_bytes: options.hotspot_bytes,
            flaws: options.flaws.hop,
            ..HopOptions::default()
        };
        let leaf_options = NodeOptions {
            attempts: options.attempts,
            read_window: WINDOW,
            bias: options.bias,
            flaws: options.flaws.leaf,
            ..NodeOptions::default()
        };
        let inner_options = NodeOptions {
            kind: 1,
            ..leaf_options
        };
        let inner = Nodes::new(inner, locks.clone(), alloc.clone(), inner_options);
        let whole = Nodes::new(leaf, locks.clone(), alloc.clone(), leaf_options);
        let blink = BlinkOptions {
            attempts: options.attempts,
            root_race_fatal: false,
        };
        let cache = IndexCache::new(options.cache_bytes);
        Ok(Self {
            inner: Blink::new(inner, cache, superblock.root_word, blink).in_epochs(alloc.epochs().cloned()),
            leaves: Neighbourhoods::new(leaf, whole, locks.clone(), alloc.clone(), hop),
            locks,
            alloc,
            combiner: options.rdwc.is_on().then(|| Combiner::new(&options.rdwc)),
            holds_items: options.items,
            composed: ComposedOptions {
                attempts: options.attempts,
                cpu: options.cpu,
                flaws: Flaws::default(),
            },
        })
    }

    fn locks(options: &Options, superblock: &Superblock) -> Locks {
        let lock_options = LockOptions {
            local: Local::queue_if(options.hierarchical, options.handover_max),
            lock_and_read: options.lock_and_read,
            budget: options.attempts,
            place: LockPlace::chip_if(options.on_chip),
            ..LockOptions::default()
        };
        let tables = superblock.lock_tables.clone();
        Locks::new(
            lock_options,
            GlobalLockTable::new(tables, superblock.locks_per_node),
        )
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

    /// Reads all inner nodes into the index cache, as far as they fit; metered as housekeeping.
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

    /// Returns the bytes of the index cache, including every allocation.
    pub fn cache_bytes(&self) -> u64 {
        self.inner.cache().bytes()
    }

    /// Returns the hotspot buffer, if there is one. The bytes of the index cache do not include it.
    pub fn hotspots(&self) -> Option<&Hotspots> {
        self.leaves.hotspots()
    }

    /// Returns the bytes of everything else that this compute node keeps for the tree: local locks, the locks
    /// of read delegation and write combining, allocator, handles.
    pub fn local_bytes(&self) -> u64 {
        let shared = self.combiner.as_ref().map_or(0, Combiner::bytes);
        (self.locks.local_bytes() + self.alloc.local_bytes() + shared + size_of::<Self>()) as u64
    }

    /// Returns the bytes of nodes that this compute node has allocated, less those that it has retired, over
    /// all memory nodes. The tree's memory is the sum over all compute nodes; the number of one compute node may be
    /// negative.
    pub fn allocated_bytes(&self) -> i64 {
        self.alloc.stats().in_use_bytes
    }

    /// Returns the allocator statistics of this compute node.
    pub fn alloc_stats(&self) -> AllocStats {
        self.alloc.stats()
    }

    /// Returns the address of the word that points to the root.
    pub fn root_word(&self) -> RemotePtr {
        self.inner.root_word()
    }

    /// Returns the geometry of a leaf.
    pub fn geometry(&self) -> &HopGeometry {
        self.leaves.format().geometry()
    }
}

/// The state that the clients of a compute node share: data of the inner levels, local locks, free memory,
/// operations.
impl<K: KeyBytes> Fingerprint for Chime<K> {
    fn fingerprint(&self) -> u64 {
        fingerprint_of(&(
            self.inner.fingerprint(),
            self.locks.fingerprint(),
            self.alloc.fingerprint(),
            self.combiner.fingerprint(),
            self.hotspots().map(Fingerprint::fingerprint),
        ))
    }
}
