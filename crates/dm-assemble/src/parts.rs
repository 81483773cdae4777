//! The parts that distinguish one index from another.

use core::future::Future;

use dm_alloc::{Allocator, DEFAULT_CHUNK_BYTES, Descriptor, ReclaimOptions};
use dm_combine::Rdwc;
use dm_index::{Exchange, IndexError, Survey};
use dm_layout::KeyBytes;
use dm_leaf::OpenError;
use dm_verbs::{Control, Verbs};

use crate::Pool;

/// The parts of an index, and the parameters that identify it in a pool. [`Handle`](crate::Handle) adds the rest.
pub trait Parts: Sized {
    /// The index's keys.
    type Key: KeyBytes;
    /// The options of one compute node.
    type Options;

    /// Whether every value is a reference to a block, even if the index was not created for items.
    const VALUES_IN_BLOCKS: bool = false;

    /// Returns `options` with the changes that this world requires. It is called before anything is written
    /// to the pool.
    ///
    /// # Errors
    /// Returns [`OpenError`] if there is no node of these sizes.
    fn fit<V: Verbs>(v: &V, options: &Self::Options) -> Result<Self::Options, OpenError>;

    /// Returns the parameters that the superblock stores; every client that opens the pool must use the same ones.
    fn descriptor(options: &Self::Options) -> Descriptor;

    /// Returns the options that every index has.
    fn common(options: &Self::Options) -> Common;

    /// Assembles the parts over `pool`.
    ///
    /// # Errors
    /// Returns [`OpenError`] if the world lacks a capability, if there is no node of these sizes, or if a request
    /// fails.
    fn assemble<V: Verbs + Control>(
        pool: &mut Pool<'_, V>,
        options: &Self::Options,
    ) -> impl Future<Output = Result<Self, OpenError>>;

    /// Makes a client over `v`'s connections. The client shares no operations with other clients; the handle adds
    /// sharing.
    fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl Exchange<Key = Self::Key>;

    /// Makes a client like [`Parts::client`] of an index that was created for items, whose values are references.
    fn references<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl Exchange<Key = Self::Key> {
        self.client(v)
    }

    /// Fills the cache with as much of the index as fits, and returns the number of nodes or separators that were read.
    ///
    /// # Errors
    /// Returns the same errors as any read.
    fn warm<V: Verbs + Control>(
        &self,
        v: &V,
        alloc: &Allocator,
    ) -> impl Future<Output = Result<u64, IndexError>>;

    /// Announces the running operations of this compute node, and frees the memory that is no longer in use according
    /// to all other announcements. An index whose cached addresses are used without a check announces the age of its
    /// cache, too.
    ///
    /// # Errors
    /// Returns the same errors as any operation.
    fn collect<V: Verbs + Control>(
        &self,
        v: &V,
        alloc: &Allocator,
    ) -> impl Future<Output = Result<(), IndexError>> {
        async { Ok(alloc.collect_alone(v).await?) }
    }

    /// Prepares a warm cache that is too small for the whole index: brings it into the state that it has after a long
    /// run. `keys` are the keys of the run's last operations, in the order of these operations. By default, does
    /// nothing.
    ///
    /// # Errors
    /// Returns the same errors as any read.
    fn warm_for<V: Verbs + Control>(
        &self,
        _v: &V,
        _keys: impl IntoIterator<Item = Self::Key>,
    ) -> impl Future<Output = Result<(), IndexError>> {
        async { Ok(()) }
    }

    /// Replaces the content of this compute node's cache, or its record of hot keys, by a copy from another compute
    /// node, as far as the index supports it. Returns `false` if the cache still has to be warmed: its content was not
    /// replaced, because the other content does not fit or is not known to be valid here, or because the index does not
    /// copy caches.
    ///
    /// # Errors
    /// Returns the same errors as any read.
    fn adopt_cache<V: Verbs + Control>(
        &self,
        _v: &V,
        _other: &Self,
    ) -> impl Future<Output = Result<bool, IndexError>> {
        async { Ok(false) }
    }

    /// Returns the number of gets of a skewed workload after which a compute node's record of hot keys should hold the
    /// hottest ones; 0 if there is no such record.
    fn gets_to_learn(&self) -> usize {
        0
    }

    /// Returns the size of a compute node's record of hot keys in bytes; 0 if there is no such record.
    fn learned_bytes(&self) -> u64 {
        0
    }

    /// Returns the bytes of the cache, including every allocation.
    fn cache_bytes(&self) -> u64;

    /// Visits all nodes of the index, for [`Handle::check`](crate::Handle::check) and
    /// [`Handle::sweep`](crate::Handle::sweep), and adds what it finds to `survey`. An index that consists of an inner
    /// structure and leaves calls [`survey_index`](dm_index::survey_index).
    ///
    /// # Errors
    /// Returns errors of verbs. Damage in nodes is not an error: the survey lists it.
    fn survey<V: Verbs + Control>(
        &self,
        v: &V,
        survey: &mut Survey,
    ) -> impl Future<Output = Result<(), IndexError>>;
}

/// The options that every index has.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Common {
    /// Retry limit of every loop; exceeding it is a typed error.
    pub attempts: u32,
    /// Size in bytes of the chunks that an allocator requests.
    pub chunk_bytes: u64,
    /// The number of bytes of each memory node that the index's addresses can reach.
    pub reach: u64,
    /// Options for reclaiming dead nodes on this compute node.
    pub reclaim: ReclaimOptions,
    /// Read delegation and write combining between the clients of this compute node.
    pub rdwc: Rdwc,
    /// Whether values are references to items of variable length.
    pub items: bool,
}

impl Default for Common {
    fn default() -> Self {
        Self {
            attempts: 1 << 20,
            chunk_bytes: DEFAULT_CHUNK_BYTES,
            reach: u64::MAX,
            reclaim: ReclaimOptions::new(),
            rdwc: Rdwc::OFF,
            items: false,
        }
    }
}
