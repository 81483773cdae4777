//! The index with the costs of the published code, which the threads of a compute node share.

use dm_alloc::{Allocator, Descriptor};
use dm_assemble::{Common, Handle, OpenError, Parts, Pool};
use dm_index::{CHILD_NODES_MAX, Composed, ComposedOptions, Exchange, IndexError, Survey, survey_index};
use dm_layout::KeyBytes;
use dm_leaf::{Checksummed, Nodes};
use dm_learned::{Learned, Runs};
use dm_sync::Fingerprint;
use dm_verbs::{Control, Verbs};

use crate::Options;

/// ROLEX as published: the round trips, verbs and bytes of the public code, with the correct leaves of dmkit.
///
/// An operation reads the run of leaves that the error of the models admits. Leaves are sorted and written whole, so a
/// client that dies in the middle of such a WRITE leaves a leaf that nobody can read. [`Options::published`] has the
/// defaults, and `docs/protocol/rolex.md` has the costs.
///
/// ```
/// use dm_loopback::{Loopback, block_on};
/// use rolex::{Applied, Key8, Options, Published, RangeIndex};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Loopback::builder().nodes(2).host_bytes(64 << 20).build()?;
/// let v = pool.connect(0)?;
/// block_on(async {
///     let index = Published::<Key8>::create_or_open(&v, &Options::published(8)).await?;
///     assert_eq!(index.client(&v).insert(&Key8(7), &[7; 8]).await?, Applied::Inserted);
///     Ok(())
/// })
/// # }
/// ```
pub type Published<K> = Handle<PublishedParts<K>>;

/// The parts of ROLEX as published: models that predict runs, over sorted leaves that are written whole.
#[derive(Debug)]
pub struct PublishedParts<K: KeyBytes> {
    inner: Learned<K, Checksummed<K>>,
    leaves: Runs<K, Checksummed<K>>,
    composed: ComposedOptions,
}

/// The kind of index in a pool's superblock.
const KIND: &[u8; 4] = b"rlxp";

impl<K: KeyBytes> Parts for PublishedParts<K> {
    type Key = K;
    type Options = Options;

    fn fit<V: Verbs>(_: &V, options: &Options) -> Result<Options, OpenError> {
        options.sorted_leaf::<K>()?;
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
        let leaf = options.sorted_leaf::<K>()?;
        pool.whole_lines()?;
        let (locks, alloc) = (pool.locks(options.locks())?, pool.alloc().clone());
        let leaves = || Nodes::new(leaf, locks.clone(), alloc.clone(), options.leaves());
        let inner = Learned::new(leaves(), alloc.clone(), pool.root_word(), options.runs());
        Ok(Self {
            leaves: inner.runs(leaves()),
            inner,
            composed: options.composed(),
        })
    }

    fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl Exchange<Key = K> {
        Composed::new(v, &self.inner, &self.leaves, self.composed)
    }

    async fn warm<V: Verbs + Control>(&self, v: &V, _: &Allocator) -> Result<u64, IndexError> {
        self.inner.warm(v).await
    }

    fn cache_bytes(&self) -> u64 {
        self.inner.cache_bytes()
    }

    async fn survey<V: Verbs + Control>(&self, v: &V, survey: &mut Survey) -> Result<(), IndexError> {
        survey_index(v, &self.inner, &self.leaves, survey).await
    }
}

impl<K: KeyBytes> PublishedParts<K> {
    /// Writes a table of all leaves now, as [`RolexParts::retrain`](crate::RolexParts::retrain) does.
    /// [`Handle::collect`] does not do this.
    ///
    /// # Errors
    /// Returns errors of verbs, [`IndexError::Corrupt`] if a leaf is damaged, and [`IndexError::Pool`] if the table's
    /// first entry does not lead to the first leaf.
    pub async fn retrain<V: Verbs + Control>(&self, v: &V) -> Result<u64, IndexError> {
        self.inner.retrain(v).await
    }
}

impl<K: KeyBytes> Fingerprint for PublishedParts<K> {
    fn fingerprint(&self) -> u64 {
        self.inner.fingerprint()
    }
}
