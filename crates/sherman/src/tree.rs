//! The tree that the threads of a compute node share.

use dm_alloc::{Allocator, Descriptor, MEMORY_NODES_MAX};
use dm_assemble::{Common, Handle, OpenError, Parts, Pool};
use dm_blink::Blink;
use dm_cache::IndexCache;
use dm_index::{
    CHILD_BYTES, Composed, ComposedOptions, Exchange, IndexError, NEAR_CHILD_BYTES, NEAR_CHILD_NODES_MAX,
    Survey, survey_index,
};
use dm_layout::{KeyBytes, Slotted};
use dm_leaf::{NodeOptions, Nodes};
use dm_sync::Fingerprint;
use dm_verbs::{Control, Verbs};

use crate::{LeafFormat, NodeSize, Options};

type Inner<K> = Blink<K, Nodes<K, Slotted<K>>>;

/// A Sherman tree with the state that the threads of one compute node share: index cache, local locks,
/// allocator.
///
/// `K` is the key, and `F` is the leaf layout (by default unsorted entries under line versions). [`Handle`] has the
/// methods that every index has, and [`ShermanParts`] has the methods of this index.
///
/// ```
/// use dm_loopback::{Loopback, block_on};
/// use sherman::{Key8, Options, Sherman, leading_bytes};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Loopback::builder().nodes(2).build()?;
/// let v = pool.connect(0)?;
/// block_on(async {
///     let tree = Sherman::<Key8>::create_or_open(&v, &Options::items()).await?;
///     let client = tree.items(&v, leading_bytes)?;
///     client.insert(b"ada", b"countess of lovelace").await?;
///     let mut value = Vec::new();
///     assert!(client.get(b"ada", &mut value).await? && value == b"countess of lovelace");
///     Ok(())
/// })
/// # }
/// ```
pub type Sherman<K, F = Slotted<K>> = Handle<ShermanParts<K, F>>;

/// The parts of a Sherman tree: B-link inner nodes over leaves of layout `F`, and one set of locks for both.
#[derive(Debug)]
pub struct ShermanParts<K: KeyBytes, F> {
    inner: Inner<K>,
    leaves: Nodes<K, F>,
    composed: ComposedOptions,
}

/// The kind of index in a pool's superblock.
const KIND: &[u8; 4] = b"shrm";

impl<K: KeyBytes, F: LeafFormat<K>> Parts for ShermanParts<K, F> {
    type Key = K;
    type Options = Options;

    fn fit<V: Verbs>(_: &V, options: &Options) -> Result<Options, OpenError> {
        F::of(options.node, options.value_bytes)?;
        Ok(*options)
    }

    fn descriptor(options: &Options) -> Descriptor {
        let (unit, size) = match options.node {
            NodeSize::Bytes(bytes) => (0, bytes),
            NodeSize::Span(span) => (1, span),
        };
        // Four locks in a word (T-S13) are a flaw that is part of the layout, because all clients of a pool must use
        // the same kind of locks.
        let (lanes, items) = (u8::from(options.lanes16()), u8::from(options.items));
        let child = options.near().map_or(CHILD_BYTES, |_| NEAR_CHILD_BYTES) as u8;
        let layout = u64::from_le_bytes([F::TAG, unit, lanes, child, items, 0, 0, 0]);
        let sizes = [K::LEN, options.value_bytes, size].map(|size| size as u64);
        let nodes_max = options.near().map_or(MEMORY_NODES_MAX, |_| NEAR_CHILD_NODES_MAX);
        Descriptor {
            locks: options.lock_plan(),
            members: options.members,
            nodes_max,
            ..Descriptor::of(KIND, [layout, sizes[0], sizes[1], sizes[2]])
        }
    }

    fn common(options: &Options) -> Common {
        options.common()
    }

    async fn assemble<V: Verbs + Control>(
        pool: &mut Pool<'_, V>,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let leaf = F::of(options.node, options.value_bytes)?;
        let inner = match options.near() {
            Some(bytes) => Slotted::marked_with_node_bytes(bytes, NEAR_CHILD_BYTES)?,
            None => Slotted::of(options.node, CHILD_BYTES)?,
        };
        // In every variant, inner nodes have a version in each line.
        pool.whole_lines()?;
        let locks = pool.locks(options.locks())?;
        let nodes = options.nodes();
        let inner_nodes = NodeOptions { kind: 1, ..nodes };
        let store = Nodes::new(inner, locks.clone(), pool.alloc().clone(), inner_nodes);
        let (cache, blink) = (options.cache(), options.blink());
        let epochs = pool.alloc().epochs().cloned();
        Ok(Self {
            inner: Blink::new(store, cache, pool.root_word(), blink).in_epochs(epochs),
            leaves: Nodes::new(leaf, locks, pool.alloc().clone(), nodes),
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
        self.inner.cache().bytes()
    }

    async fn survey<V: Verbs + Control>(&self, v: &V, survey: &mut Survey) -> Result<(), IndexError> {
        survey_index(v, &self.inner, &self.leaves, survey).await
    }
}

impl<K: KeyBytes, F: LeafFormat<K>> ShermanParts<K, F> {
    /// Returns the index cache of this compute node.
    pub fn cache(&self) -> &IndexCache<K> {
        self.inner.cache()
    }

    /// Returns the maximum number of entries in a leaf.
    pub fn leaf_capacity(&self) -> usize {
        self.leaves.format().capacity()
    }
}

impl<K: KeyBytes, F> Fingerprint for ShermanParts<K, F> {
    fn fingerprint(&self) -> u64 {
        self.inner.fingerprint()
    }
}
