//! A hash table of hopscotch leaves, without a tree above them (CHIME §4.5).
//!
//! ```text
//!   key ─► scattered key: one to one, its first bits as good as drawn
//!            │ first `depth` bits
//!            ▼
//!   directory ─ slot ─┬─ slot ─┬─ slot ─┬─ slot      8 bytes each, in a memory node and, as hints, in each compute node
//!                     └──┬─────┘        │
//!                        ▼              ▼
//!                      leaf ─sibling─► leaf ─sibling─► leaf     each answers for a range of scattered keys
//! ```
//!
//! The leaves are those of a tree: they say what they answer for, split under their locks, and lead to their right
//! neighbours. So a slot that is out of date costs a step to the right, and never a wrong answer; the directory is
//! extendible hashing's (Fagin et al., TODS 1979) without anything that must be locked, or be right.
//!
//! # Invariants
//! * **I1** No leaf dies, and none begins elsewhere than it did (H10).
//! * **I2** A slot names a leaf that begins at or left of the slot's first key (H11).
//! * **I3** The root word names directories that are written wholly, each deeper than the last (H12).

mod client;
mod directory;
mod grow;
mod known;
mod options;
mod scatter;

use dm_alloc::{AllocStats, Allocator, Descriptor, LockHome, LockPlan, ReclaimOptions, Superblock};
use dm_index::{Composed, ComposedOptions, IndexError, KeyBytes};
use dm_layout::{GeometryError, HopGeometry, Hopscotch};
use dm_leaf::{Nodes, OpenError, check_world};
use dm_lock::{GlobalLockTable, Locks};
use dm_sync::{Arc, Fingerprint, fingerprint_of};
use dm_verbs::{Control, RemotePtr, Verbs};

use self::known::DEPTH_LIMIT;
use crate::{Hotspots, Neighbourhoods};

pub use client::TableClient;
pub use directory::{Directory, Hint};
pub use options::{DEFAULT_DEPTH_MAX, DEFAULT_NEIGHBOURHOOD, DEFAULT_SPAN, TableOptions};
pub use scatter::{gather, scatter};

/// The leaves of a table.
type Leaves<K> = Neighbourhoods<K, Nodes<K, Hopscotch<K>>>;

/// The kind of index in a pool's superblock.
const KIND: &[u8; 4] = b"hops";

/// A one-sided hash table, as the threads of one compute node share it: directory, local locks, allocator.
///
/// Removed entries leave room for others; leaves are not merged, and a table does not shrink.
#[derive(Debug)]
pub struct HashTable<K: KeyBytes> {
    directory: Directory<K>,
    leaves: Leaves<K>,
    locks: Arc<Locks>,
    alloc: Arc<Allocator>,
    composed: ComposedOptions,
}

impl<K: KeyBytes> HashTable<K> {
    /// Opens the pool's table, creating it if the pool is empty. Any number of clients of any number of compute nodes may
    /// do so at once.
    ///
    /// # Errors
    /// [`OpenError`]: the pool holds something else, sizes make no leaf, or the world lacks a promise.
    pub async fn create_or_open<V: Verbs + Control>(
        v: &V,
        options: &TableOptions,
    ) -> Result<Self, OpenError> {
        let leaf = Self::leaf(options)?;
        let superblock = Superblock::create_or_open(v, &Self::descriptor(options)).await?;
        Self::over(v, options, leaf, &superblock)
    }

    /// Opens a table that exists.
    ///
    /// # Errors
    /// As [`HashTable::create_or_open`], and where the pool is empty.
    pub async fn open<V: Verbs + Control>(v: &V, options: &TableOptions) -> Result<Self, OpenError> {
        let leaf = Self::leaf(options)?;
        let superblock = Superblock::open(v, &Self::descriptor(options)).await?;
        Self::over(v, options, leaf, &superblock)
    }

    /// Over a pool whose superblock was read before: opens it without a verb, for whoever opens one pool many times.
    ///
    /// # Errors
    /// Sizes that make no leaf, a superblock of another kind or geometry, or a world that lacks a promise.
    pub fn from_superblock<V: Verbs>(
        v: &V,
        options: &TableOptions,
        superblock: &Superblock,
    ) -> Result<Self, OpenError> {
        superblock.matches(&Self::descriptor(options))?;
        Self::over(v, options, Self::leaf(options)?, superblock)
    }

    fn leaf(options: &TableOptions) -> Result<Hopscotch<K>, GeometryError> {
        Hopscotch::new(options.span, options.neighbourhood, options.value_bytes)
    }

    /// What must agree between all who open a pool: what a superblock of this table says.
    pub fn descriptor(options: &TableOptions) -> Descriptor {
        let sizes = [
            K::LEN,
            options.value_bytes,
            options.span,
            options.neighbourhood,
            usize::from(options.depth_max),
        ];
        // No members: no node dies, so there is nothing to announce.
        Descriptor {
            locks: LockPlan {
                home: LockHome::chip_if(options.on_chip),
                per_node: options.locks_per_node,
            },
            ..Descriptor::of(KIND, sizes.map(|size| size as u64))
        }
    }

    fn over<V: Verbs>(
        v: &V,
        options: &TableOptions,
        leaf: Hopscotch<K>,
        superblock: &Superblock,
    ) -> Result<Self, OpenError> {
        if options.depth_max > DEPTH_LIMIT {
            return Err(OpenError::Index(IndexError::BadInput {
                why: "a directory goes by at most 28 bits of a key",
            }));
        }
        let table = GlobalLockTable::new(superblock.lock_tables.clone(), superblock.locks_per_node);
        let locks = Arc::new(Locks::new(options.locks(), table));
        check_world(v, superblock.memory_nodes(), [&*locks])?;
        let alloc = Allocator::for_pool(superblock, v.compute_node(), ReclaimOptions::new());
        let alloc = Arc::new(alloc.chunk_bytes(options.chunk_bytes));
        let whole = Nodes::new(leaf, locks.clone(), alloc.clone(), options.nodes());
        Ok(Self {
            directory: Directory::new(leaf, alloc.clone(), superblock.root_word, options),
            leaves: Neighbourhoods::new(leaf, whole, locks.clone(), alloc.clone(), options.hop()),
            locks,
            alloc,
            composed: ComposedOptions {
                attempts: options.attempts,
                cpu: options.cpu,
                ..ComposedOptions::default()
            },
        })
    }

    /// A client over `v`'s connections.
    pub fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> TableClient<'h, V, K> {
        let composed = Composed::new(v, &self.directory, &self.leaves, self.composed);
        TableClient::new(v, composed, &self.directory)
    }

    /// Reads the directory; metered as housekeeping.
    ///
    /// # Errors
    /// As any read.
    pub async fn warm<V: Verbs>(&self, v: &V) -> Result<(), IndexError> {
        let _unmetered = v.meter().housekeeping();
        self.directory.look(v).await.map(drop)
    }

    /// The directory, as the compute node knows it.
    pub fn directory(&self) -> &Directory<K> {
        &self.directory
    }

    /// The hotspot buffer, if there is one. Its bytes are beside those of [`HashTable::local_bytes`].
    pub fn hotspots(&self) -> Option<&Hotspots> {
        self.leaves.hotspots()
    }

    /// Bytes of everything that this compute node keeps for the table: its copy of the directory, local locks, allocator,
    /// handles.
    pub fn local_bytes(&self) -> u64 {
        let directory = self.directory.bytes() - size_of::<Directory<K>>();
        (directory + self.locks.local_bytes() + self.alloc.local_bytes() + size_of::<Self>()) as u64
    }

    /// What this compute node's allocator has to do with.
    pub fn alloc_stats(&self) -> AllocStats {
        self.alloc.stats()
    }

    /// The word that names the directory.
    pub fn root_word(&self) -> RemotePtr {
        self.directory.root_word()
    }

    /// Where everything lies in a leaf.
    pub fn geometry(&self) -> &HopGeometry {
        self.leaves.format().geometry()
    }
}

/// All that a compute node's clients share: the directory, local locks, free memory.
impl<K: KeyBytes> Fingerprint for HashTable<K> {
    fn fingerprint(&self) -> u64 {
        fingerprint_of(&(
            self.directory.fingerprint(),
            self.locks.fingerprint(),
            self.alloc.fingerprint(),
            self.hotspots().map(Fingerprint::fingerprint),
        ))
    }
}
