//! The index: radix separators over hopscotch leaves.

use dm_alloc::{Allocator, Descriptor, LockHome, LockPlan, ReclaimOptions, Superblock};
use dm_art::{Art, ArtOptions, DEFAULT_ATTEMPTS, SeparatorOptions, Separators};
use dm_cache::IndexCache;
use dm_hopscotch::{HopOptions, Hopscotch, Neighbourhoods};
use dm_index::{Composed, ComposedOptions, CpuCost, Flaws};
use dm_layout::{KeyBytes, NodeTypes, SingleLeaf};
use dm_leaf::{NodeOptions, Nodes, OpenError, SingleOptions, Singles, check_world};
use dm_lock::{GlobalLockTable, LockOptions, LockPlace, Locks};
use dm_sync::{Arc, Fingerprint, fingerprint_of};
use dm_verbs::{Control, Verbs};

/// From a key to its leaf.
type Inner<K> = Separators<K, Singles<K>>;
/// Leaves of which a client reads one neighbourhood.
type Leaves<K> = Neighbourhoods<K, Nodes<K, Hopscotch<K>>>;

/// Parameters stored in the superblock; every client that opens the pool must use the same ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) span: usize,
    pub(crate) neighbourhood: usize,
    pub(crate) value_bytes: usize,
    pub(crate) types: NodeTypes,
    pub(crate) locks_per_node: u32,
    /// How many compute nodes may use the pool at once; 0 for no reclamation.
    pub(crate) members: u16,
    /// Bytes that an allocator asks for at once; each compute node may choose its own.
    pub(crate) chunk_bytes: u64,
    /// Retry limit of every loop; exceeding it is a typed error.
    pub(crate) attempts: u32,
}

/// The index, as the threads of one compute node share it.
#[derive(Debug)]
pub(crate) struct ArtHopscotch<K: KeyBytes> {
    pub(crate) inner: Inner<K>,
    pub(crate) leaves: Leaves<K>,
    pub(crate) alloc: Arc<Allocator>,
    locks: [Arc<Locks>; 2],
    attempts: u32,
}

impl Shape {
    pub(crate) const fn new(value_bytes: usize) -> Self {
        Self {
            span: 64,
            neighbourhood: 8,
            value_bytes,
            types: NodeTypes::SHIPPED,
            locks_per_node: dm_alloc::DEFAULT_LOCKS_PER_NODE,
            members: 63,
            chunk_bytes: dm_alloc::DEFAULT_CHUNK_BYTES,
            attempts: DEFAULT_ATTEMPTS,
        }
    }

    /// Returns the content of a pool's superblock.
    fn descriptor<K: KeyBytes>(&self) -> Descriptor {
        let [key, value, span, near] =
            [K::LEN, self.value_bytes, self.span, self.neighbourhood].map(|size| size as u64);
        let types = u64::from_le_bytes(self.types.describe());
        Descriptor {
            locks: LockPlan {
                home: LockHome::ChipIfAny,
                per_node: self.locks_per_node,
            },
            members: self.members,
            ..Descriptor::of(b"a*hs", [key, value, span, near, types])
        }
    }
}

impl<K: KeyBytes> ArtHopscotch<K> {
    pub(crate) async fn create_or_open<V: Verbs + Control>(v: &V, shape: &Shape) -> Result<Self, OpenError> {
        let superblock = Superblock::create_or_open(v, &shape.descriptor::<K>()).await?;
        Self::over(v, shape, &superblock).await
    }

    pub(crate) async fn over<V: Verbs + Control>(
        v: &V,
        shape: &Shape,
        superblock: &Superblock,
    ) -> Result<Self, OpenError> {
        superblock.matches(&shape.descriptor::<K>())?;
        let leaf = Hopscotch::new(shape.span, shape.neighbourhood, shape.value_bytes)?;
        let entry = SingleLeaf::new(8)?;
        // Leaves' locks are in a table, on the RNIC if it has room; entries carry their own.
        let tables = superblock.lock_tables.clone();
        let table = GlobalLockTable::new(tables, superblock.locks_per_node);
        let nodes = superblock.memory_nodes();
        let in_entries = GlobalLockTable::in_nodes(nodes, entry.lock_at() as u32);
        let places = [(table, LockPlace::Chip), (in_entries, LockPlace::Host)];
        let locks = places.map(|(table, place)| {
            let options = LockOptions {
                place,
                budget: shape.attempts,
                ..LockOptions::default()
            };
            Arc::new(Locks::new(options, table))
        });
        check_world(v, nodes, locks.iter().map(|locks| &**locks))?;
        let alloc = Allocator::for_pool(superblock, v.compute_node(), ReclaimOptions::new());
        let alloc = Arc::new(alloc.chunk_bytes(shape.chunk_bytes));
        // Leaves have a kind of memory of their own: kind 0 is for entries, kind 1 for radix nodes.
        let whole = NodeOptions {
            attempts: shape.attempts,
            kind: 2,
            ..NodeOptions::default()
        };
        let whole = Nodes::new(leaf, locks[0].clone(), alloc.clone(), whole);
        let hop = HopOptions::default();
        let single = SingleOptions {
            attempts: shape.attempts,
            ..SingleOptions::default()
        };
        let entries = Singles::new(entry, locks[1].clone(), single);
        let art = ArtOptions {
            types: shape.types,
            // The separators' answers are cached instead of the nodes that lead to them.
            cache_bytes: 0,
            attempts: shape.attempts,
            depth_slack: 0,
            ..ArtOptions::default()
        };
        let art = Art::open(v, entries, alloc.clone(), superblock.root_word, art).await?;
        let cache = IndexCache::new(64 << 20);
        Ok(Self {
            inner: Separators::new(art, cache, SeparatorOptions::default())?,
            leaves: Neighbourhoods::new(leaf, whole, locks[0].clone(), alloc.clone(), hop),
            alloc,
            locks,
            attempts: shape.attempts,
        })
    }

    pub(crate) fn client<'h, V: Verbs + Control>(
        &'h self,
        v: &'h V,
    ) -> Composed<'h, V, K, Inner<K>, Leaves<K>> {
        let options = ComposedOptions {
            attempts: self.attempts,
            cpu: CpuCost::NONE,
            flaws: Flaws::default(),
        };
        Composed::new(v, &self.inner, &self.leaves, options)
    }
}

impl<K: KeyBytes> Fingerprint for ArtHopscotch<K> {
    fn fingerprint(&self) -> u64 {
        fingerprint_of(&(
            self.inner.fingerprint(),
            self.locks.each_ref().map(|locks| locks.fingerprint()),
            self.alloc.fingerprint(),
        ))
    }
}
