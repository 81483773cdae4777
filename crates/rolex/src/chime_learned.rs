//! The index over hopscotch leaves, which the threads of a compute node share.

use dm_alloc::{Allocator, Descriptor};
use dm_assemble::{Common, Handle, OpenError, Parts, Pool};
use dm_hopscotch::{Hopscotch, Hotspots, Neighbourhoods};
use dm_index::{CHILD_NODES_MAX, Composed, ComposedOptions, Exchange, IndexError, Survey, survey_index};
use dm_layout::KeyBytes;
use dm_leaf::Nodes;
use dm_learned::Learned;
use dm_sync::{Fingerprint, fingerprint_of};
use dm_verbs::{Control, Verbs};

use crate::Options;

/// CHIME-Learned (CHIME §5.3): the learned inner levels of [`Rolex`](crate::Rolex) over the hopscotch leaves of CHIME,
/// of which a get reads one neighbourhood. [`Options::chime_learned`] has its defaults.
///
/// ```
/// use dm_loopback::{Loopback, block_on};
/// use rolex::{Applied, ChimeLearned, Key8, Options, RangeIndex};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Loopback::builder().nodes(2).host_bytes(64 << 20).build()?;
/// let v = pool.connect(0)?;
/// block_on(async {
///     let index = ChimeLearned::<Key8>::create_or_open(&v, &Options::chime_learned(8)).await?;
///     assert_eq!(index.client(&v).insert(&Key8(7), &[7; 8]).await?, Applied::Inserted);
///     Ok(())
/// })
/// # }
/// ```
pub type ChimeLearned<K> = Handle<ChimeLearnedParts<K>>;

/// The parts of CHIME-Learned: learned inner levels over hopscotch leaves.
#[derive(Debug)]
pub struct ChimeLearnedParts<K: KeyBytes> {
    inner: Learned<K, Nodes<K, Hopscotch<K>>>,
    leaves: Neighbourhoods<K>,
    composed: ComposedOptions,
}

/// The kind of index in a pool's superblock.
const KIND: &[u8; 4] = b"chln";

impl<K: KeyBytes> Parts for ChimeLearnedParts<K> {
    type Key = K;
    type Options = Options;

    fn fit<V: Verbs>(_: &V, options: &Options) -> Result<Options, OpenError> {
        options.hop_leaf::<K>()?;
        Ok(*options)
    }

    fn descriptor(options: &Options) -> Descriptor {
        let Options {
            value_bytes,
            span,
            neighbourhood,
            items,
            ..
        } = *options;
        let sizes = [K::LEN, value_bytes, span, neighbourhood, items.into()];
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
        let leaf = options.hop_leaf::<K>()?;
        pool.whole_lines()?;
        let (locks, alloc) = (pool.locks(options.locks())?, pool.alloc().clone());
        let whole = || Nodes::new(leaf, locks.clone(), alloc.clone(), options.hop_leaves());
        Ok(Self {
            inner: Learned::new(whole(), alloc.clone(), pool.root_word(), options.learned()),
            leaves: Neighbourhoods::new(leaf, whole(), locks.clone(), alloc.clone(), options.hop()),
            composed: options.composed(),
        })
    }

    fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl Exchange<Key = K> {
        Composed::new(v, &self.inner, &self.leaves, self.composed)
    }

    async fn warm<V: Verbs + Control>(&self, v: &V, _: &Allocator) -> Result<u64, IndexError> {
        self.inner.warm(v).await
    }

    /// Does a round of reclaiming memory. Also writes another table of leaves if many of the leaves that this compute
    /// node knows are missing from the table.
    async fn collect<V: Verbs + Control>(&self, v: &V, _: &Allocator) -> Result<(), IndexError> {
        self.inner.collect(v).await
    }

    /// Copies the hotspot buffer, if there is one. Returns `false`, because the table must still be read.
    async fn adopt_cache<V: Verbs + Control>(&self, _: &V, other: &Self) -> Result<bool, IndexError> {
        if let (Some(own), Some(others)) = (self.leaves.hotspots(), other.leaves.hotspots()) {
            own.adopt(others);
        }
        Ok(false)
    }

    fn gets_to_learn(&self) -> usize {
        self.leaves.hotspots().map_or(0, Hotspots::gets_to_learn)
    }

    fn learned_bytes(&self) -> u64 {
        self.leaves.hotspots().map_or(0, Hotspots::bytes)
    }

    fn cache_bytes(&self) -> u64 {
        self.inner.cache_bytes()
    }

    async fn survey<V: Verbs + Control>(&self, v: &V, survey: &mut Survey) -> Result<(), IndexError> {
        survey_index(v, &self.inner, &self.leaves, survey).await
    }
}

impl<K: KeyBytes> ChimeLearnedParts<K> {
    /// Writes a table of all leaves now, as [`RolexParts::retrain`](crate::RolexParts::retrain) does.
    ///
    /// # Errors
    /// Returns errors of verbs, [`IndexError::Corrupt`] if a leaf is damaged, and [`IndexError::Pool`] if the table's
    /// first entry does not lead to the first leaf.
    pub async fn retrain<V: Verbs + Control>(&self, v: &V) -> Result<u64, IndexError> {
        self.inner.retrain(v).await
    }
}

impl<K: KeyBytes> Fingerprint for ChimeLearnedParts<K> {
    fn fingerprint(&self) -> u64 {
        let hotspots = self.leaves.hotspots().map(Fingerprint::fingerprint);
        fingerprint_of(&(self.inner.fingerprint(), hotspots))
    }
}
