//! The tree that the threads of a compute node share.

use dm_alloc::{Allocator, Descriptor, MEMORY_NODES_MAX};
use dm_assemble::{Common, Handle, OpenError, Parts, Pool};
use dm_blink::Blink;
use dm_cache::IndexCache;
use dm_index::{CHILD_BYTES, Composed, ComposedOptions, Exchange, IndexError, Survey, survey_index};
use dm_indirect::{Items, OutOfLine, REFERENCE_NODES_MAX, leading_bytes};
use dm_layout::{KeyBytes, Slotted};
use dm_leaf::{Nodes, TwoLevel};
use dm_sync::{Arc, Fingerprint};
use dm_verbs::{Control, NodeId, Verbs};

use crate::Options;

/// A Marlin tree with the state that the threads of one compute node share: index cache, local locks, allocator.
///
/// [`Handle`] has the methods that every index has, and [`MarlinParts`] has the methods of this index.
///
/// ```
/// use dm_loopback::{Loopback, block_on};
/// use marlin::{Key8, Marlin, Options, leading_bytes};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Loopback::builder().nodes(2).build()?;
/// let v = pool.connect(0)?;
/// block_on(async {
///     let tree = Marlin::<Key8>::create_or_open(&v, &Options::items()).await?;
///     let client = tree.items(&v, leading_bytes)?;
///     client.insert(b"ada", b"countess of lovelace").await?;
///     let mut value = Vec::new();
///     assert!(client.get(b"ada", &mut value).await? && value == b"countess of lovelace");
///     Ok(())
/// })
/// # }
/// ```
pub type Marlin<K> = Handle<MarlinParts<K>>;

/// The parts of a Marlin tree: B-link inner nodes over leaves of words, which refer to blocks with the values.
#[derive(Debug)]
pub struct MarlinParts<K: KeyBytes> {
    inner: Blink<K, TwoLevel<K>>,
    leaves: TwoLevel<K>,
    alloc: Arc<Allocator>,
    value_bytes: usize,
    items: bool,
    attempts: u32,
    composed: ComposedOptions,
}

/// The kind of index in a pool's superblock.
const KIND: &[u8; 4] = b"mrln";

impl<K: KeyBytes> Parts for MarlinParts<K> {
    type Key = K;
    type Options = Options;

    const VALUES_IN_BLOCKS: bool = true;

    fn fit<V: Verbs>(v: &V, options: &Options) -> Result<Options, OpenError> {
        options.leaf::<K>()?;
        Ok(options.fit(&v.caps(NodeId(0))))
    }

    fn descriptor(options: &Options) -> Descriptor {
        let numbers = [
            u64::from(options.items) | u64::from(options.shared) << 8,
            K::LEN as u64,
            options.value_bytes as u64,
            options.node_bytes as u64,
        ];
        Descriptor {
            locks: options.lock_plan(),
            members: options.members,
            nodes_max: MEMORY_NODES_MAX.min(REFERENCE_NODES_MAX),
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
        let inner = Slotted::with_node_bytes(options.node_bytes, CHILD_BYTES)?;
        let (locks, alloc) = (pool.locks(options.locks())?, pool.alloc().clone());
        let store = Nodes::new(inner, locks.clone(), alloc.clone(), options.inner_nodes());
        let (cache, epochs) = (IndexCache::new(options.cache_bytes), alloc.epochs().cloned());
        Ok(Self {
            inner: Blink::new(store, cache, pool.root_word(), options.blink()).in_epochs(epochs),
            leaves: Nodes::new(options.leaf::<K>()?, locks, alloc.clone(), options.leaves()),
            alloc,
            value_bytes: options.value_bytes,
            items: options.items,
            attempts: options.attempts,
            composed: options.composed(),
        })
    }

    fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl Exchange<Key = K> {
        let items = Items::new(v, self.references(v), &self.alloc, leading_bytes, self.attempts);
        let items = items.expect("words are as long as references");
        let items = if self.items { items } else { items.exact() };
        OutOfLine::<_, _, K>::new(items, self.value_bytes)
    }

    fn references<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl Exchange<Key = K> {
        Composed::new(v, &self.inner, &self.leaves, self.composed)
    }

    async fn warm<V: Verbs + Control>(&self, v: &V, alloc: &Allocator) -> Result<u64, IndexError> {
        alloc.visit(v, self.inner.warm(v)).await
    }

    fn cache_bytes(&self) -> u64 {
        self.inner.cache().bytes()
    }

    async fn survey<V: Verbs + Control>(&self, v: &V, survey: &mut Survey) -> Result<(), IndexError> {
        survey_index(v, &self.inner, &self.leaves, survey).await
    }
}

impl<K: KeyBytes> MarlinParts<K> {
    /// Returns the index cache of this compute node.
    pub fn cache(&self) -> &IndexCache<K> {
        self.inner.cache()
    }

    /// Returns the maximum number of entries in a leaf.
    pub fn leaf_capacity(&self) -> usize {
        self.leaves.format().geometry().capacity()
    }
}

impl<K: KeyBytes> Fingerprint for MarlinParts<K> {
    fn fingerprint(&self) -> u64 {
        self.inner.fingerprint()
    }
}
