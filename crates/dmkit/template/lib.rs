//! An index that is assembled from dmkit's parts.

mod inner;
mod leaf;

use dm_alloc::{Allocator, DEFAULT_CHUNK_BYTES, DEFAULT_LOCKS_PER_NODE};
use dm_alloc::{Descriptor, LockHome, LockPlan};
use dm_assemble::{Common, Handle, OpenError, Parts, Pool};
use dm_combine::Rdwc;
use dm_index::{
    Composed, ComposedOptions, CpuCost, Exchange, IndexError, KeyBytes, Survey, survey_index,
};
use dm_lock::{LockOptions, LockPlace};
use dm_sync::Fingerprint;
use dm_verbs::{Control, Verbs};

/// The index, with the state that the threads of one compute node share.
pub type Index<K> = Handle<IndexParts<K>>;

/// The options of one compute node.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Number of entries of a node.
    pub span: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Bytes of the index cache, if the inner structure has a cache of a fixed size.
    pub cache_bytes: u64,
    /// Number of lock words on each memory node.
    pub locks_per_node: u32,
    /// Maximum number of compute nodes that use the pool at once; 0 if memory is never reused.
    pub members: u16,
    /// Size in bytes of the chunks that an allocator requests.
    pub chunk_bytes: u64,
    /// Retry limit of every loop; exceeding it returns an error.
    pub attempts: u32,
    /// CPU time of an operation that a simulator charges.
    pub cpu: CpuCost,
    /// Operations that clients of a compute node share.
    pub rdwc: Rdwc,
}

impl Options {
    /// Returns the defaults for values of `value_bytes` bytes.
    pub const fn new(value_bytes: usize) -> Self {
        Self {
            span: 64,
            value_bytes,
            cache_bytes: 64 << 20,
            locks_per_node: DEFAULT_LOCKS_PER_NODE,
            members: 63,
            chunk_bytes: DEFAULT_CHUNK_BYTES,
            attempts: 1 << 20,
            cpu: CpuCost::NONE,
            rdwc: Rdwc::OFF,
        }
    }
}

/// The parts of the index.
#[derive(Debug)]
pub struct IndexParts<K: KeyBytes> {
    inner: inner::Inner<K>,
    leaves: leaf::Leaves<K>,
    composed: ComposedOptions,
}

impl<K: KeyBytes> Parts for IndexParts<K> {
    type Key = K;
    type Options = Options;

    fn fit<V: Verbs>(_: &V, options: &Options) -> Result<Options, OpenError> {
        leaf::format::<K>(options)?;
        Ok(*options)
    }

    fn descriptor(options: &Options) -> Descriptor {
        let sizes = [K::LEN, options.value_bytes, options.span].map(|size| size as u64);
        Descriptor {
            locks: LockPlan {
                home: LockHome::ChipIfAny,
                per_node: options.locks_per_node,
            },
            members: options.members,
            // Choose four other letters when the bytes of a node change, so that old clients cannot open new pools.
            ..Descriptor::of(b"mine", sizes)
        }
    }

    fn common(options: &Options) -> Common {
        Common {
            attempts: options.attempts,
            chunk_bytes: options.chunk_bytes,
            rdwc: options.rdwc,
            ..Common::default()
        }
    }

    async fn assemble<V: Verbs + Control>(
        pool: &mut Pool<'_, V>,
        options: &Options,
    ) -> Result<Self, OpenError> {
        // Nodes have a version in each line. This refuses an RNIC on which a READ may tear a line.
        pool.whole_lines()?;
        let locks = pool.locks(lock_options(options, LockPlace::Chip))?;
        Ok(Self {
            inner: inner::open(pool, &locks, options).await?,
            leaves: leaf::leaves(pool, &locks, options)?,
            composed: ComposedOptions::new(options.attempts, options.cpu),
        })
    }

    fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl Exchange<Key = K> {
        Composed::new(v, &self.inner, &self.leaves, self.composed)
    }

    async fn warm<V: Verbs + Control>(&self, v: &V, alloc: &Allocator) -> Result<u64, IndexError> {
        alloc.visit(v, self.inner.warm(v)).await
    }

    fn cache_bytes(&self) -> u64 {
        inner::bytes(&self.inner)
    }

    async fn survey<V: Verbs + Control>(
        &self,
        v: &V,
        survey: &mut Survey,
    ) -> Result<(), IndexError> {
        survey_index(v, &self.inner, &self.leaves, survey).await
    }
}

/// Covers the inner structure, which the clients of a compute node share. The handle adds the locks, the allocator and
/// the shared operations.
impl<K: KeyBytes> Fingerprint for IndexParts<K> {
    fn fingerprint(&self) -> u64 {
        self.inner.fingerprint()
    }
}

fn lock_options(options: &Options, place: LockPlace) -> LockOptions {
    LockOptions {
        place,
        budget: options.attempts,
        ..LockOptions::default()
    }
}
