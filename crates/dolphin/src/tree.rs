//! The tree that the threads of a compute node share.

use dm_alloc::{Allocator, Descriptor};
use dm_art::{Art, Separators, Singles};
use dm_assemble::{Common, Handle, OpenError, Parts, Pool};
use dm_cache::IndexCache;
use dm_index::{Composed, ComposedOptions, Exchange, IndexError, Survey, survey_index};
use dm_layout::{KeyBytes, NodeShape, SingleLeaf};
use dm_leaf::{Nodes, PackedLeaves};
use dm_sync::Fingerprint;
use dm_verbs::{Control, NodeId, RemotePtr, Verbs};

use crate::Options;

/// A Dolphin tree with the state that the threads of one compute node share: cached separators, local locks, allocator,
/// running operations.
///
/// [`Handle`] has the methods that every index has, and [`DolphinParts`] has the methods of this index.
///
/// ```
/// use dm_loopback::{Loopback, block_on};
/// use dolphin::{Key8, Options, Dolphin, leading_bytes};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Loopback::builder().nodes(2).build()?;
/// let v = pool.connect(0)?;
/// block_on(async {
///     let tree = Dolphin::<Key8>::create_or_open(&v, &Options::items()).await?;
///     let client = tree.items(&v, leading_bytes)?;
///     client.insert(b"ada", b"countess of lovelace").await?;
///     let mut value = Vec::new();
///     assert!(client.get(b"ada", &mut value).await? && value == b"countess of lovelace");
///     Ok(())
/// })
/// # }
/// ```
pub type Dolphin<K> = Handle<DolphinParts<K>>;

/// The parts of a Dolphin tree: a radix tree of separators, with a lock in each entry, over leaves whose locks are in
/// the pool's tables.
#[derive(Debug)]
pub struct DolphinParts<K: KeyBytes> {
    inner: Separators<K, Singles<K>>,
    leaves: PackedLeaves<K>,
    composed: ComposedOptions,
}

/// The kind of index in a pool's superblock.
const KIND: &[u8; 4] = b"dlph";
/// Maximum number of memory nodes: a slot of a radix node can distinguish this many.
const MEMORY_NODES_MAX: u16 = 256;
/// Bytes of the value of a separator's entry: a leaf's address.
const ADDRESS: usize = 8;

impl<K: KeyBytes> Parts for DolphinParts<K> {
    type Key = K;
    type Options = Options;

    fn fit<V: Verbs>(v: &V, options: &Options) -> Result<Options, OpenError> {
        let leaf = options.leaf::<K>()?;
        let mut options = options.fit(&v.caps(NodeId(0)));
        options.packed_keys = leaf.is_packed();
        options.shared_updates &= NodeShape::<K>::updates_in_line(&leaf) || options.lines_shared();
        Ok(options)
    }

    fn descriptor(options: &Options) -> Descriptor {
        let [types, more_types] = options.types.describe();
        let numbers = [
            u64::from(options.items)
                | u64::from(options.shared_updates) << 8
                | u64::from(options.packed_keys) << 16,
            K::LEN as u64,
            options.value_bytes as u64,
            options.leaf_bytes as u64,
            types,
            more_types,
        ];
        Descriptor {
            locks: options.lock_plan(),
            members: options.members,
            nodes_max: MEMORY_NODES_MAX,
            ..Descriptor::of(KIND, numbers)
        }
    }

    fn common(options: &Options) -> Common {
        options.common()
    }

    async fn assemble<V: Verbs + Control>(
        pool: &mut Pool<'_, V>,
        options: &Options,
    ) -> Result<Self, OpenError> {
        pool.whole_lines()?;
        let locks = pool.locks(options.leaf_locks())?;
        Ok(Self {
            inner: Self::separators(pool, options).await?,
            leaves: Nodes::new(options.leaf::<K>()?, locks, pool.alloc().clone(), options.nodes()),
            composed: options.composed(),
        })
    }

    fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl Exchange<Key = K> {
        Composed::new(v, &self.inner, &self.leaves, self.composed)
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

impl<K: KeyBytes> DolphinParts<K> {
    async fn separators<V: Verbs + Control>(
        pool: &mut Pool<'_, V>,
        options: &Options,
    ) -> Result<Separators<K, Singles<K>>, OpenError> {
        let entry = SingleLeaf::new(ADDRESS)?;
        let locks = pool.locks_in_nodes(entry.lock_at(), options.entry_locks())?;
        let entries = Singles::new(entry, locks, options.entries());
        let (v, alloc, root_word) = (pool.verbs(), pool.alloc().clone(), pool.root_word());
        let art = Art::open(v, entries, alloc, root_word, options.radix()).await?;
        let cache = IndexCache::new(options.cache_bytes);
        Ok(Separators::new(art, cache, options.separators)?)
    }

    /// Returns the address of the radix tree's root.
    pub fn root(&self) -> RemotePtr {
        self.inner.art().root()
    }
}

impl<K: KeyBytes> Fingerprint for DolphinParts<K> {
    fn fingerprint(&self) -> u64 {
        self.inner.fingerprint()
    }
}
