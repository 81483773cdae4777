//! The index over whole leaves, which the threads of a compute node share.

use dm_alloc::{Allocator, Descriptor};
use dm_assemble::{Common, Handle, OpenError, Parts, Pool};
use dm_index::{CHILD_NODES_MAX, Composed, ComposedOptions, Exchange, IndexError, Survey, survey_index};
use dm_layout::KeyBytes;
use dm_leaf::{Nodes, TwoLevel};
use dm_learned::Learned;
use dm_sync::Fingerprint;
use dm_verbs::{Control, Verbs};

use crate::Options;

/// A ROLEX index with the state that the threads of one compute node share: a copy of the table of leaves with its
/// models, local locks, allocator.
///
/// [`Handle`] has the methods that every index has, and [`RolexParts`] has the methods of this index.
///
/// ```
/// use dm_loopback::{Loopback, block_on};
/// use rolex::{Key8, Options, Rolex, leading_bytes};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Loopback::builder().nodes(2).build()?;
/// let v = pool.connect(0)?;
/// block_on(async {
///     let index = Rolex::<Key8>::create_or_open(&v, &Options::items()).await?;
///     let client = index.items(&v, leading_bytes)?;
///     client.insert(b"ada", b"countess of lovelace").await?;
///     let mut value = Vec::new();
///     assert!(client.get(b"ada", &mut value).await? && value == b"countess of lovelace");
///     Ok(())
/// })
/// # }
/// ```
pub type Rolex<K> = Handle<RolexParts<K>>;

/// The parts of a ROLEX index: learned inner levels over leaves that are read whole.
#[derive(Debug)]
pub struct RolexParts<K: KeyBytes> {
    inner: Learned<K, TwoLevel<K>>,
    leaves: TwoLevel<K>,
    composed: ComposedOptions,
}

/// The kind of index in a pool's superblock.
const KIND: &[u8; 4] = b"rolx";

impl<K: KeyBytes> Parts for RolexParts<K> {
    type Key = K;
    type Options = Options;

    fn fit<V: Verbs>(_: &V, options: &Options) -> Result<Options, OpenError> {
        options.leaf::<K>()?;
        Ok(*options)
    }

    fn descriptor(options: &Options) -> Descriptor {
        let sizes = [K::LEN, options.value_bytes, options.span, options.items.into()];
        Descriptor {
            locks: options.lock_plan(),
            members: options.members,
            nodes_max: CHILD_NODES_MAX,
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
        let (locks, alloc) = (pool.locks(options.locks())?, pool.alloc().clone());
        let leaves = || Nodes::new(leaf, locks.clone(), alloc.clone(), options.leaves());
        Ok(Self {
            inner: Learned::new(leaves(), alloc.clone(), pool.root_word(), options.learned()),
            leaves: leaves(),
            composed: options.composed(),
        })
    }

    fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl Exchange<Key = K> {
        Composed::new(v, &self.inner, &self.leaves, self.composed)
    }

    async fn warm<V: Verbs + Control>(&self, v: &V, _: &Allocator) -> Result<u64, IndexError> {
        self.inner.warm(v).await
    }

    /// Does a round of reclaiming memory. Also writes another table of leaves if this compute node knows that many
    /// leaves are missing in the table.
    async fn collect<V: Verbs + Control>(&self, v: &V, _: &Allocator) -> Result<(), IndexError> {
        self.inner.collect(v).await
    }

    fn cache_bytes(&self) -> u64 {
        self.inner.cache_bytes()
    }

    async fn survey<V: Verbs + Control>(&self, v: &V, survey: &mut Survey) -> Result<(), IndexError> {
        survey_index(v, &self.inner, &self.leaves, survey).await
    }
}

impl<K: KeyBytes> RolexParts<K> {
    /// Writes a table of all leaves now, unless the current table lists exactly these leaves, or no memory node has
    /// room for another table. [`Handle::collect`] does this if many leaves are missing in the table. Returns the
    /// number of leaves.
    ///
    /// # Errors
    /// Returns errors of verbs, [`IndexError::Corrupt`] if a leaf is damaged, and [`IndexError::Pool`] if the table's
    /// first entry does not lead to the first leaf.
    pub async fn retrain<V: Verbs + Control>(&self, v: &V) -> Result<u64, IndexError> {
        self.inner.retrain(v).await
    }

    /// Returns the number of models of this compute node.
    pub fn models(&self) -> usize {
        self.inner.models()
    }
}

impl<K: KeyBytes> Fingerprint for RolexParts<K> {
    fn fingerprint(&self) -> u64 {
        self.inner.fingerprint()
    }
}
