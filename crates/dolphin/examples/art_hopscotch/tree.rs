//! The index: radix separators over hopscotch leaves.

use dm_alloc::{Allocator, Descriptor, LockHome, LockPlan};
use dm_art::{Art, ArtOptions, DEFAULT_ATTEMPTS, SeparatorOptions, Separators, SingleOptions, Singles};
use dm_assemble::{Common, Handle, OpenError, Parts, Pool};
use dm_cache::IndexCache;
use dm_hopscotch::{HopOptions, Hopscotch, Neighbourhoods};
use dm_index::{Composed, ComposedOptions, CpuCost, Exchange, IndexError, Survey, survey_index};
use dm_layout::{KeyBytes, NodeTypes, SingleLeaf};
use dm_leaf::{NodeOptions, Nodes};
use dm_lock::{LockOptions, LockPlace};
use dm_sync::Fingerprint;
use dm_verbs::{Control, Verbs};

/// The inner structure, which leads from a key to its leaf.
type Inner<K> = Separators<K, Singles<K>>;
/// Leaves. A client reads one neighbourhood of a leaf.
type Leaves<K> = Neighbourhoods<K>;

/// Parameters stored in the superblock; every client that opens the pool must use the same ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) span: usize,
    pub(crate) neighbourhood: usize,
    pub(crate) value_bytes: usize,
    pub(crate) types: NodeTypes,
    pub(crate) locks_per_node: u32,
    /// Maximum number of compute nodes that use the pool at once; 0 for no reclamation.
    pub(crate) members: u16,
    /// Size in bytes of the chunks that an allocator requests. It may differ between compute nodes.
    pub(crate) chunk_bytes: u64,
    /// Retry limit of every loop; exceeding it returns an error.
    pub(crate) attempts: u32,
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
}

/// The index, with the state that the threads of one compute node share.
pub(crate) type ArtHopscotch<K> = Handle<ArtHopscotchParts<K>>;

/// The parts of the index.
#[derive(Debug)]
pub(crate) struct ArtHopscotchParts<K: KeyBytes> {
    pub(crate) inner: Inner<K>,
    leaves: Leaves<K>,
    attempts: u32,
}

impl<K: KeyBytes> Parts for ArtHopscotchParts<K> {
    type Key = K;
    type Options = Shape;

    fn fit<V: Verbs>(_: &V, shape: &Shape) -> Result<Shape, OpenError> {
        Self::leaf(shape)?;
        Ok(*shape)
    }

    fn descriptor(shape: &Shape) -> Descriptor {
        let [key, value, span, near] =
            [K::LEN, shape.value_bytes, shape.span, shape.neighbourhood].map(|size| size as u64);
        let [types, more_types] = shape.types.describe();
        Descriptor {
            locks: LockPlan {
                home: LockHome::ChipIfAny,
                per_node: shape.locks_per_node,
            },
            members: shape.members,
            ..Descriptor::of(b"a*hs", [key, value, span, near, types, more_types])
        }
    }

    fn common(shape: &Shape) -> Common {
        Common {
            attempts: shape.attempts,
            chunk_bytes: shape.chunk_bytes,
            ..Common::default()
        }
    }

    async fn assemble<V: Verbs + Control>(pool: &mut Pool<'_, V>, shape: &Shape) -> Result<Self, OpenError> {
        let (leaf, entry) = (Self::leaf(shape)?, SingleLeaf::new(8)?);
        pool.whole_lines()?;
        // The locks of leaves are in a table, on the RNIC if it has room. An entry contains its own lock.
        let locks = |place| LockOptions {
            place,
            budget: shape.attempts,
            ..LockOptions::default()
        };
        let leaf_locks = pool.locks(locks(LockPlace::Chip))?;
        let entry_locks = pool.locks_in_nodes(entry.lock_at(), locks(LockPlace::Host))?;
        let alloc = pool.alloc().clone();
        // The memory of leaves has its own kind. Kind 0 is for entries, and kind 1 is for radix nodes.
        let whole = NodeOptions {
            attempts: shape.attempts,
            kind: 2,
            ..NodeOptions::default()
        };
        let whole = Nodes::new(leaf, leaf_locks.clone(), alloc.clone(), whole);
        let single = SingleOptions::new(shape.attempts);
        let entries = Singles::new(entry, entry_locks, single);
        let art = ArtOptions {
            types: shape.types,
            // Separators are cached, so the radix nodes that lead to them need no cache.
            cache_bytes: 0,
            attempts: shape.attempts,
            depth_slack: 0,
            ..ArtOptions::default()
        };
        let art = Art::open(pool.verbs(), entries, alloc.clone(), pool.root_word(), art).await?;
        Ok(Self {
            inner: Separators::new(art, IndexCache::new(64 << 20), SeparatorOptions::default())?,
            leaves: Neighbourhoods::new(leaf, whole, leaf_locks, alloc, HopOptions::default()),
            attempts: shape.attempts,
        })
    }

    fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl Exchange<Key = K> {
        let options = ComposedOptions::new(self.attempts, CpuCost::NONE);
        Composed::new(v, &self.inner, &self.leaves, options)
    }

    async fn warm<V: Verbs + Control>(&self, v: &V, alloc: &Allocator) -> Result<u64, IndexError> {
        alloc.visit(v, self.inner.warm(v)).await
    }

    fn cache_bytes(&self) -> u64 {
        self.inner.cache_bytes()
    }

    async fn survey<V: Verbs + Control>(&self, v: &V, survey: &mut Survey) -> Result<(), IndexError> {
        survey_index(v, &self.inner, &self.leaves, survey).await
    }
}

impl<K: KeyBytes> ArtHopscotchParts<K> {
    fn leaf(shape: &Shape) -> Result<Hopscotch<K>, OpenError> {
        let leaf = Hopscotch::new(shape.span, shape.neighbourhood, shape.value_bytes)?;
        Ok(leaf)
    }
}

impl<K: KeyBytes> Fingerprint for ArtHopscotchParts<K> {
    fn fingerprint(&self) -> u64 {
        self.inner.fingerprint()
    }
}
