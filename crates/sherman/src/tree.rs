//! The tree that a compute node's threads share, and its clients.

use dm_alloc::{AllocStats, Allocator, Descriptor, LockHome, LockPlan, Superblock};
use dm_blink::{Blink, BlinkOptions};
use dm_cache::{CacheFlaws, IndexCache};
use dm_combine::{Combined, Combiner};
use dm_index::{
    CHILD_BYTES, CHILD_NODES_MAX, Composed, ComposedOptions, IndexError, NEAR_CHILD_BYTES,
    NEAR_CHILD_NODES_MAX, NEAR_CHILD_REACH, NEAR_CHILD_UNIT,
};
use dm_indirect::{Items, Prefix};
use dm_layout::{Bookend, Checksummed, GeometryError, KeyBytes, NodeFormat, Slotted};
use dm_leaf::{LeafFlaws, NodeOptions, Nodes, OpenError, check_world};
use dm_lock::{GlobalLockTable, Local, LockFlaws, LockOptions, LockPlace, Locks, ReleaseBy};
use dm_sync::{Arc, Fingerprint, fingerprint_of};
use dm_verbs::{Control, RemotePtr, Verbs};

use crate::{NodeSize, Options};

/// A leaf layout that a tree can have: sealed by [`NodeFormat`].
///
/// ```
/// use sherman::{Key8, Options, Sherman};
///
/// // What a pool says of itself differs by the leaves' layout, so that nobody takes one for another.
/// let (two_level, checksummed) = (
///     Sherman::<Key8>::descriptor(&Options::new(8)),
///     Sherman::<Key8, dm_layout::Checksummed<Key8>>::descriptor(&Options::new(8)),
/// );
/// assert_ne!(two_level.bytes, checksummed.bytes);
/// ```
pub trait LeafFormat<K: KeyBytes>: NodeFormat<K> {
    /// A number that distinguishes pools of different layouts.
    const TAG: u8;
    /// Makes the layout for nodes of this size and values of `value_bytes`.
    ///
    /// # Errors
    /// Returns an error for sizes that make no node.
    fn of(node: NodeSize, value_bytes: usize) -> Result<Self, GeometryError>;
}

macro_rules! leaf_format {
    ($node:ident, $tag:literal) => {
        impl<K: KeyBytes> LeafFormat<K> for $node<K> {
            const TAG: u8 = $tag;
            fn of(node: NodeSize, value_bytes: usize) -> Result<Self, GeometryError> {
                match node {
                    NodeSize::Bytes(bytes) => Self::with_node_bytes(bytes, value_bytes),
                    NodeSize::Span(span) => Self::with_span(span, value_bytes),
                }
            }
        }
    };
}
leaf_format!(Slotted, 1);
leaf_format!(Checksummed, 2);
leaf_format!(Bookend, 3);

const _: () = assert!(
    dm_alloc::MEMORY_NODES_MAX <= CHILD_NODES_MAX,
    "every node of a pool has room in its parent"
);

/// Returns the size of nodes in bytes, if all nodes lie where an address of [`NEAR_CHILD_BYTES`] can point.
fn near(options: &Options) -> Option<usize> {
    match options.node {
        // Blocks of items have all sizes, so nodes between them may have any address.
        NodeSize::Bytes(bytes) if !options.far_children && !options.items => {
            (bytes as u64).is_multiple_of(NEAR_CHILD_UNIT).then_some(bytes)
        }
        _ => None,
    }
}

type Inner<K> = Blink<K, Nodes<K, Slotted<K>>>;

/// One client of a tree: a coroutine with its own connections. See [`dm_index::RangeIndex`] for the operations.
pub type Client<'h, V, K, F = Slotted<K>> = Combined<'h, V, Composed<'h, V, K, Inner<K>, Nodes<K, F>>>;

/// One client of items of variable length.
///
/// ```
/// use dm_loopback::{Endpoint, Loopback, block_on};
/// use sherman::{Sherman, ItemClient, Key8, Options, leading_bytes};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Loopback::builder().nodes(2).build()?;
/// let v = pool.connect(0)?;
/// block_on(async {
///     let tree = Sherman::<Key8>::create_or_open(&v, &Options::items()).await?;
///     let client: ItemClient<'_, Endpoint, Key8> = tree.items(&v, leading_bytes)?;
///     client.insert(b"ada", b"countess of lovelace").await?;
///     let mut value = Vec::new();
///     assert!(client.get(b"ada", &mut value).await? && value == b"countess of lovelace");
///     Ok(())
/// })
/// # }
/// ```
pub type ItemClient<'h, V, K, F = Slotted<K>> = Items<'h, V, Client<'h, V, K, F>>;

/// A Sherman tree, as the threads of one compute node share it: index cache, local locks, allocator.
///
/// `K` is the key, `F` the leaf layout (by default unsorted entries under line versions).
#[derive(Debug)]
pub struct Sherman<K: KeyBytes, F = Slotted<K>> {
    inner: Inner<K>,
    leaves: Nodes<K, F>,
    locks: Arc<Locks>,
    alloc: Arc<Allocator>,
    composed: ComposedOptions,
    /// State for operations that clients share, if they share any.
    combiner: Option<Combiner<K>>,
    /// Whether values are references to items.
    holds_items: bool,
}

/// The kind of index in a pool's superblock.
const KIND: &[u8; 4] = b"shrm";

impl<K: KeyBytes, F: LeafFormat<K>> Sherman<K, F> {
    /// Opens the pool's tree, creating it if the pool is empty. Any number of clients of any number of compute
    /// nodes may do so at once.
    ///
    /// # Errors
    /// Returns [`OpenError`] if the pool holds something else, if the sizes make no node, or if the world
    /// lacks a capability.
    pub async fn create_or_open<V: Verbs + Control>(v: &V, options: &Options) -> Result<Self, OpenError> {
        let leaf = F::of(options.node, options.value_bytes)?;
        let superblock = Superblock::create_or_open(v, &Self::descriptor(options)).await?;
        Self::over(v, options, leaf, &superblock)
    }

    /// Opens a tree that exists.
    ///
    /// # Errors
    /// The same as [`Sherman::create_or_open`], and an error if the pool is empty.
    pub async fn open<V: Verbs + Control>(v: &V, options: &Options) -> Result<Self, OpenError> {
        let leaf = F::of(options.node, options.value_bytes)?;
        let superblock = Superblock::open(v, &Self::descriptor(options)).await?;
        Self::over(v, options, leaf, &superblock)
    }

    /// Returns the parameters that the superblock of this tree stores; every client that opens the pool must
    /// use the same ones.
    pub fn descriptor(options: &Options) -> Descriptor {
        let (unit, size) = match options.node {
            NodeSize::Bytes(bytes) => (0, bytes),
            NodeSize::Span(span) => (1, span),
        };
        let layout = u64::from_le_bytes([
            F::TAG,
            unit,
            // This flaw is part of the layout: all clients that use such locks must know it.
            u8::from(options.flaws.lanes16),
            near(options).map_or(CHILD_BYTES, |_| NEAR_CHILD_BYTES) as u8,
            u8::from(options.items),
            0,
            0,
            0,
        ]);
        let sizes = [K::LEN, options.value_bytes, size].map(|size| size as u64);
        Descriptor {
            locks: LockPlan {
                home: LockHome::chip_if(options.on_chip),
                per_node: options.locks_per_node,
            },
            members: options.members,
            nodes_max: near(options).map_or(dm_alloc::MEMORY_NODES_MAX, |_| NEAR_CHILD_NODES_MAX),
            ..Descriptor::of(KIND, [layout, sizes[0], sizes[1], sizes[2]])
        }
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
        Self::over(v, options, F::of(options.node, options.value_bytes)?, superblock)
    }

    fn over<V: Verbs>(v: &V, options: &Options, leaf: F, superblock: &Superblock) -> Result<Self, OpenError> {
        let (inner, reach) = match near(options) {
            Some(bytes) => (
                Slotted::marked_with_node_bytes(bytes, NEAR_CHILD_BYTES)?,
                NEAR_CHILD_REACH,
            ),
            None => (Slotted::of(options.node, CHILD_BYTES)?, u64::MAX),
        };
        let flaws = options.flaws;
        let lock_options = LockOptions {
            local: Local::queue_if(options.hierarchical, options.handover_max),
            release: if options.release_by_faa {
                ReleaseBy::Faa
            } else {
                ReleaseBy::Auto
            },
            lock_and_read: options.lock_and_read,
            combine: options.combine,
            budget: options.attempts,
            flaws: LockFlaws {
                handover_before_write_back: flaws.handover_before_write_back,
                packed_tickets: flaws.packed_tickets,
                lanes16: flaws.lanes16,
                ..LockFlaws::default()
            },
            place: LockPlace::chip_if(options.on_chip),
            ..LockOptions::default()
        };
        let table = GlobalLockTable::new(superblock.lock_tables.clone(), superblock.locks_per_node);
        let locks = Arc::new(Locks::new(lock_options, table));
        // Inner nodes carry a version per line in every variant.
        check_world(v, superblock.memory_nodes(), [&*locks])?;
        let reclaim = options.reclaim.at_most(options.attempts);
        let alloc = Allocator::for_pool(superblock, v.compute_node(), reclaim)
            .chunk_bytes(options.chunk_bytes)
            .reaching(reach);
        let alloc = Arc::new(alloc);
        let node_options = NodeOptions {
            attempts: options.attempts,
            bias: options.bias,
            flaws: LeafFlaws {
                torn_entry_absent: flaws.torn_entry_absent,
                no_read_window: flaws.no_read_window,
                parent_before_left: flaws.parent_before_left,
                right_unawaited: flaws.right_unawaited,
                open_before_burial: flaws.open_before_burial,
                unburied: options.reclaim.flaws.unburied,
                ..LeafFlaws::NONE
            },
            ..NodeOptions::default()
        };
        let inner_options = NodeOptions {
            kind: 1,
            ..node_options
        };
        let store = Nodes::new(inner, locks.clone(), alloc.clone(), inner_options);
        let cache_flaws = CacheFlaws {
            recycled_slot: flaws.recycled_slot,
        };
        let cache = IndexCache::new(options.cache_bytes).with_flaws(cache_flaws);
        let blink = BlinkOptions {
            attempts: options.attempts,
            root_race_fatal: flaws.root_race_fatal,
        };
        Ok(Self {
            inner: Blink::new(store, cache, superblock.root_word, blink).in_epochs(alloc.epochs().cloned()),
            leaves: Nodes::new(leaf, locks.clone(), alloc.clone(), node_options),
            locks,
            alloc,
            combiner: options.rdwc.is_on().then(|| Combiner::new(&options.rdwc)),
            holds_items: options.items,
            composed: ComposedOptions {
                attempts: options.attempts,
                cpu: options.cpu,
                flaws: dm_index::Flaws {
                    root_race_fatal: flaws.root_race_fatal,
                    scan_trusts_cache: flaws.scan_trusts_cache,
                },
            },
        })
    }

    /// Makes a client over `v`'s connections.
    pub fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> Client<'h, V, K, F> {
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
    ) -> Result<ItemClient<'h, V, K, F>, IndexError> {
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

    /// Returns the index cache of this compute node.
    pub fn cache(&self) -> &IndexCache<K> {
        self.inner.cache()
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

    /// Returns how many entries fit in a leaf.
    pub fn leaf_capacity(&self) -> usize {
        self.leaves.format().capacity()
    }

    /// Returns the bytes of a leaf.
    pub fn leaf_bytes(&self) -> usize {
        self.leaves.format().node_bytes()
    }
}

/// The state that the clients of a compute node share: data of the inner levels, local locks, free memory,
/// operations.
impl<K: KeyBytes, F> Fingerprint for Sherman<K, F> {
    fn fingerprint(&self) -> u64 {
        fingerprint_of(&(
            self.inner.fingerprint(),
            self.locks.fingerprint(),
            self.alloc.fingerprint(),
            self.combiner.fingerprint(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dm_layout::Key8;
    use dm_loopback::{Loopback, block_on};
    use dm_verbs::{AtomicUnit, Capability};

    #[test]
    fn a_world_that_tears_lines_is_refused_by_name() {
        let world = Loopback::builder()
            .atomic_unit(AtomicUnit::Word)
            .build()
            .expect("a world");
        let v = world.connect(0).expect("a client");
        let refused = block_on(Sherman::<Key8>::create_or_open(&v, &Options::new(8)));
        match refused {
            Err(OpenError::Refused(e)) => assert_eq!(e.missing, Capability::LineAtomicity),
            other => panic!("opened: {:?}", other.is_ok()),
        }
    }
}
