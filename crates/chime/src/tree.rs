//! The tree that the threads of a compute node share.

use dm_alloc::{Allocator, Descriptor};
use dm_assemble::{Common, Handle, OpenError, Parts, Pool};
use dm_blink::{Blink, BlinkOptions};
use dm_cache::IndexCache;
use dm_hopscotch::{HopGeometry, Hotspots, Neighbourhoods};
use dm_index::{CHILD_BYTES, Composed, ComposedOptions, Exchange, IndexError, Survey, survey_index};
use dm_layout::{KeyBytes, Slotted};
use dm_leaf::{NodeOptions, Nodes};
use dm_sync::{Fingerprint, fingerprint_of};
use dm_verbs::{Control, Verbs};

use crate::Options;

/// A CHIME tree with the state that the threads of one compute node share: index cache, hotspot buffer, local locks,
/// allocator.
///
/// ```
/// use dm_loopback::{Loopback, block_on};
/// use chime::{Key8, Options, Chime, leading_bytes};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Loopback::builder().nodes(2).build()?;
/// let v = pool.connect(0)?;
/// block_on(async {
///     let tree = Chime::<Key8>::create_or_open(&v, &Options::items()).await?;
///     let client = tree.items(&v, leading_bytes)?;
///     client.insert(b"ada", b"countess of lovelace").await?;
///     let mut value = Vec::new();
///     assert!(client.get(b"ada", &mut value).await? && value == b"countess of lovelace");
///     Ok(())
/// })
/// # }
/// ```
pub type Chime<K> = Handle<ChimeParts<K>>;

/// The parts of a CHIME tree: B-link inner nodes above hopscotch leaves, and one set of locks for both.
#[derive(Debug)]
pub struct ChimeParts<K: KeyBytes> {
    inner: Blink<K, Nodes<K, Slotted<K>>>,
    leaves: Neighbourhoods<K>,
    composed: ComposedOptions,
}

/// The kind of index in a pool's superblock.
const KIND: &[u8; 4] = b"chim";

impl<K: KeyBytes> Parts for ChimeParts<K> {
    type Key = K;
    type Options = Options;

    fn fit<V: Verbs>(_: &V, options: &Options) -> Result<Options, OpenError> {
        options.leaf::<K>()?;
        Ok(*options)
    }

    fn descriptor(options: &Options) -> Descriptor {
        let sizes = [
            K::LEN,
            options.value_bytes,
            options.span,
            options.neighbourhood,
            options.inner_span,
            CHILD_BYTES,
            options.items.into(),
        ];
        Descriptor {
            locks: options.lock_plan(),
            members: options.members,
            ..Descriptor::of(KIND, sizes.map(|size| size as u64))
        }
    }

    fn common(options: &Options) -> Common {
        options.common()
    }

    async fn assemble<V: Verbs + Control>(
        pool: &mut Pool<'_, V>,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let leaf = options.leaf::<K>()?;
        pool.whole_lines()?;
        let locks = pool.locks(options.locks())?;
        let (alloc, nodes) = (pool.alloc().clone(), options.nodes());
        let of_inner = NodeOptions { kind: 1, ..nodes };
        let inner = Slotted::with_span(options.inner_span, CHILD_BYTES)?;
        let inner = Nodes::new(inner, locks.clone(), alloc.clone(), of_inner);
        let whole = Nodes::new(leaf, locks.clone(), alloc.clone(), nodes);
        let (cache, epochs) = (IndexCache::new(options.cache_bytes), alloc.epochs().cloned());
        let (root, blink) = (pool.root_word(), BlinkOptions::new(options.attempts));
        Ok(Self {
            inner: Blink::new(inner, cache, root, blink).in_epochs(epochs),
            leaves: Neighbourhoods::new(leaf, whole, locks, alloc, options.hop()),
            composed: options.composed(),
        })
    }

    fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl Exchange<Key = K> {
        Composed::new(v, &self.inner, &self.leaves, self.composed)
    }

    async fn warm<V: Verbs + Control>(&self, v: &V, alloc: &Allocator) -> Result<u64, IndexError> {
        alloc.visit(v, self.inner.warm(v)).await
    }

    /// Copies the hotspot buffer. The inner nodes must still be read.
    async fn adopt_cache<V: Verbs + Control>(&self, _: &V, other: &Self) -> Result<bool, IndexError> {
        if let (Some(own), Some(others)) = (self.hotspots(), other.hotspots()) {
            own.adopt(others);
        }
        Ok(false)
    }

    fn gets_to_learn(&self) -> usize {
        self.hotspots().map_or(0, Hotspots::gets_to_learn)
    }

    fn learned_bytes(&self) -> u64 {
        self.hotspots().map_or(0, Hotspots::bytes)
    }

    fn cache_bytes(&self) -> u64 {
        self.inner.cache().bytes()
    }

    async fn survey<V: Verbs + Control>(&self, v: &V, survey: &mut Survey) -> Result<(), IndexError> {
        survey_index(v, &self.inner, &self.leaves, survey).await
    }
}

impl<K: KeyBytes> ChimeParts<K> {
    /// Returns the hotspot buffer, if there is one. The bytes of the index cache do not include it.
    pub fn hotspots(&self) -> Option<&Hotspots> {
        self.leaves.hotspots()
    }

    /// Returns the geometry of a leaf.
    pub fn geometry(&self) -> &HopGeometry {
        self.leaves.format().geometry()
    }
}

impl<K: KeyBytes> Fingerprint for ChimeParts<K> {
    fn fingerprint(&self) -> u64 {
        let hotspots = self.hotspots().map(Fingerprint::fingerprint);
        fingerprint_of(&(self.inner.fingerprint(), hotspots))
    }
}
