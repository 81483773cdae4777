//! The state of an index that the threads of a compute node share.

use core::ops::Deref;

use dm_alloc::{AllocError, AllocStats, Allocator, Descriptor, Superblock, Sweep};
use dm_combine::{Combined, Combiner};
use dm_index::{Exchange, IndexError};
use dm_indirect::{Items, Prefix};
use dm_leaf::OpenError;
use dm_lock::{LockWord, Locks};
use dm_sync::{Arc, Fingerprint, fingerprint_of};
use dm_verbs::{Control, Verbs};

use crate::{Parts, Pool};

/// The state of an index that the threads of one compute node share: its parts, local locks, allocator,
/// shared operations.
///
/// It dereferences to its parts, which have the methods that only this index has.
#[derive(Debug)]
pub struct Handle<P: Parts> {
    parts: P,
    locks: Vec<Arc<Locks>>,
    pub(crate) alloc: Arc<Allocator>,
    /// State for operations that clients share, if they share any.
    combiner: Option<Combiner<P::Key>>,
    attempts: u32,
    /// Whether values are references to items.
    holds_items: bool,
}

impl<P: Parts> Handle<P> {
    /// Opens the pool's index, or creates it if the pool is empty. Any number of clients of any number of compute nodes
    /// may do so at once.
    ///
    /// # Errors
    /// Returns [`OpenError`] if the pool holds another index, if it has more memory nodes than the index's addresses
    /// can distinguish, if there is no node of these sizes, if the world lacks a capability, or if a request fails.
    pub async fn create_or_open<V: Verbs + Control>(v: &V, options: &P::Options) -> Result<Self, OpenError> {
        let options = P::fit(v, options)?;
        let superblock = Superblock::create_or_open(v, &P::descriptor(&options)).await?;
        Self::over(v, &options, &superblock).await
    }

    /// Opens an index that exists.
    ///
    /// # Errors
    /// Returns the same errors as [`Handle::create_or_open`], and an error if the pool is empty.
    pub async fn open<V: Verbs + Control>(v: &V, options: &P::Options) -> Result<Self, OpenError> {
        let options = P::fit(v, options)?;
        let superblock = Superblock::open(v, &P::descriptor(&options)).await?;
        Self::over(v, &options, &superblock).await
    }

    /// Opens a pool whose superblock was read before. Use this to open one pool many times.
    ///
    /// # Errors
    /// Returns the same errors as [`Handle::create_or_open`], and an error if the superblock has another kind or
    /// geometry.
    pub async fn from_superblock<V: Verbs + Control>(
        v: &V,
        options: &P::Options,
        superblock: &Superblock,
    ) -> Result<Self, OpenError> {
        let options = P::fit(v, options)?;
        superblock.matches(&P::descriptor(&options))?;
        Self::over(v, &options, superblock).await
    }

    async fn over<V: Verbs + Control>(
        v: &V,
        options: &P::Options,
        superblock: &Superblock,
    ) -> Result<Self, OpenError> {
        let (listed, most) = (superblock.memory_nodes(), P::descriptor(options).nodes_max);
        if listed > most {
            return Err(AllocError::TooManyNodes { listed, most }.into());
        }
        let common = P::common(options);
        let reclaim = common.reclaim.at_most(common.attempts);
        let alloc = Allocator::for_pool(superblock, v.compute_node(), reclaim)
            .sweeping(Sweep::of(superblock, LockWord::freed, LockWord::unshared))
            .chunk_bytes(common.chunk_bytes)
            .reaching(common.reach);
        if common.items || P::VALUES_IN_BLOCKS {
            alloc.restores_kind(dm_indirect::KIND);
        }
        let alloc = Arc::new(alloc);
        let mut pool = Pool::new(v, superblock, alloc.clone());
        let parts = P::assemble(&mut pool, options).await?;
        Ok(Self {
            parts,
            locks: pool.into_locks(),
            alloc,
            combiner: common.rdwc.is_on().then(|| Combiner::new(&common.rdwc)),
            attempts: common.attempts,
            holds_items: common.items,
        })
    }

    /// Returns the parameters that the superblock of this index stores; every client that opens the pool must use the
    /// same ones. If [`Parts::fit`] changes options for a world, pass the changed options.
    pub fn descriptor(options: &P::Options) -> Descriptor {
        P::descriptor(options)
    }

    /// Makes a client over the connections of `v`. Each client is a coroutine with its own connections. See
    /// [`RangeIndex`](dm_index::RangeIndex) for the operations.
    pub fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> impl Exchange<Key = P::Key> {
        // In an index of items, the clients of `items` share operations on words. A value of this client may have the
        // same length as such a word, but is not one, so this client must not share operations with them.
        let apart = P::VALUES_IN_BLOCKS && self.holds_items;
        let combiner = self.combiner.as_ref().filter(|_| !apart);
        Combined::new(v, self.parts.client(v), combiner)
    }

    /// Makes a client of items of variable length, over `v`'s connections. The index compares the `prefix` of a key
    /// (usually [`leading_bytes`](dm_indirect::leading_bytes)).
    ///
    /// # Errors
    /// Returns [`IndexError::BadInput`] if, according to the options, values are not references to items, and
    /// [`IndexError::ValueLength`] if the index's values are not as long as references.
    pub fn items<'h, V: Verbs + Control>(
        &'h self,
        v: &'h V,
        prefix: Prefix<P::Key>,
    ) -> Result<Items<'h, V, impl Exchange<Key = P::Key>>, IndexError> {
        let client = Combined::new(v, self.parts.references(v), self.combiner.as_ref());
        let attempts = self.attempts;
        Items::made_for_them(self.holds_items, v, client, &self.alloc, prefix, attempts)
    }

    /// Reads the inner levels into the cache, as far as they fit, and returns the number of nodes or separators that
    /// were read. The verbs are metered as housekeeping.
    ///
    /// # Errors
    /// Returns the same errors as any read.
    pub async fn warm<V: Verbs + Control>(&self, v: &V) -> Result<u64, IndexError> {
        self.parts.warm(v, &self.alloc).await
    }

    /// Prepares a warm cache that is too small for the whole index: brings it into the state that it has after a long
    /// run. `keys` are the keys of the run's last operations, in the order of these operations. Does nothing if the
    /// index has no such preparation.
    ///
    /// # Errors
    /// Returns the same errors as any read.
    pub async fn warm_for<V: Verbs + Control>(
        &self,
        v: &V,
        keys: impl IntoIterator<Item = P::Key>,
    ) -> Result<(), IndexError> {
        self.parts.warm_for(v, keys).await
    }

    /// Replaces the content of this compute node's cache, or its record of hot keys, by a copy from another compute
    /// node, as far as the index supports it. Returns `false` if the cache still has to be warmed, because its content
    /// was not replaced.
    ///
    /// # Errors
    /// Returns the same errors as any read.
    pub async fn adopt_cache<V: Verbs + Control>(&self, v: &V, other: &Self) -> Result<bool, IndexError> {
        self.parts.adopt_cache(v, &other.parts).await
    }

    /// Announces the running operations of this compute node now, instead of at its next operation. Frees the memory
    /// that, according to the announcements of all other compute nodes, is no longer in use. Call this on compute nodes
    /// that are idle for a while. The meter counts the verbs as housekeeping.
    ///
    /// Three rounds of every compute node free everything that was retired before the first round. An index whose
    /// cached addresses are used without a check (SMART) needs five rounds.
    ///
    /// # Errors
    /// Returns the same errors as any operation.
    pub async fn collect<V: Verbs + Control>(&self, v: &V) -> Result<(), IndexError> {
        self.parts.collect(v, &self.alloc).await
    }

    /// Returns whether the values in leaves are references to blocks.
    pub(crate) fn refers_to_blocks(&self) -> bool {
        self.holds_items || P::VALUES_IN_BLOCKS
    }

    /// Returns the bytes of the cache, including every allocation.
    pub fn cache_bytes(&self) -> u64 {
        self.parts.cache_bytes()
    }

    /// Returns the bytes of everything else that this compute node keeps for the index: local locks, the locks of read
    /// delegation and write combining, allocator, handles.
    pub fn local_bytes(&self) -> u64 {
        let shared = self.combiner.as_ref().map_or(0, Combiner::bytes);
        let locks: usize = self.locks.iter().map(|locks| locks.local_bytes()).sum();
        (locks + self.alloc.local_bytes() + shared + size_of::<Self>()) as u64
    }

    /// Returns the bytes of the blocks that this compute node has allocated on all memory nodes, minus those that it
    /// has freed or retired. The index's memory is the sum over all compute nodes. The number for one compute node may
    /// be negative.
    pub fn allocated_bytes(&self) -> i64 {
        self.alloc.stats().in_use_bytes
    }

    /// Returns the allocator statistics of this compute node.
    pub fn alloc_stats(&self) -> AllocStats {
        self.alloc.stats()
    }
}

impl<P: Parts> Deref for Handle<P> {
    type Target = P;
    fn deref(&self) -> &P {
        &self.parts
    }
}

/// Covers the state that the clients of a compute node share: caches, local locks, free memory, and shared
/// operations.
impl<P: Parts + Fingerprint> Fingerprint for Handle<P> {
    fn fingerprint(&self) -> u64 {
        let locks = self.locks.iter();
        let locks = locks.fold(0, |before, locks| fingerprint_of(&(before, locks.fingerprint())));
        let (parts, alloc) = (self.parts.fingerprint(), self.alloc.fingerprint());
        fingerprint_of(&(parts, locks, alloc, self.combiner.fingerprint()))
    }
}
