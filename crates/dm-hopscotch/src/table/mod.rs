//! A hash table of hopscotch leaves, without a tree above them (CHIME §4.5).
//!
//! ```text
//!   key ─► scattered key: one to one, its first bits are practically random
//!            │ first `depth` bits
//!            ▼
//!   directory ─ slot ─┬─ slot ─┬─ slot ─┬─ slot      8 bytes each, in a memory node and, as hints, in each compute node
//!                     └──┬─────┘        │
//!                        ▼              ▼
//!                      leaf ─sibling─► leaf ─sibling─► leaf     each covers a range of scattered keys
//! ```
//!
//! The leaves are like those of a tree: they contain their ranges, are split under their locks, and point to their
//! right neighbours. So an outdated slot costs steps to the right, but never causes a wrong result. The directory is
//! that of extendible hashing (Fagin et al., TODS 1979), but it needs no locks and need not be up to date.
//!
//! # Invariants
//! * **I1** No leaf dies, and no leaf changes its low fence key (H10).
//! * **I2** A slot points to a leaf that begins at or left of the slot's first key (H11).
//! * **I3** The root word points to the first leaf, and then only to directories that are completely written, each
//!   deeper than the previous one (H12).

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

/// The store of a table's leaves.
type Leaves<K> = Neighbourhoods<K>;

/// The kind of index, as a pool's superblock stores it.
const KIND: &[u8; 4] = b"hops";

/// A one-sided hash table with the state that the threads of one compute node share: directory, local locks,
/// allocator.
///
/// Later entries use the memory of removed ones. Leaves are not merged, so a table does not shrink.
#[derive(Debug)]
pub struct HashTable<K: KeyBytes> {
    directory: Directory<K>,
    leaves: Leaves<K>,
    locks: Arc<Locks>,
    alloc: Arc<Allocator>,
    composed: ComposedOptions,
}

impl<K: KeyBytes> HashTable<K> {
    /// Opens the pool's table, and creates it if the pool is empty. Any number of clients of any number of compute
    /// nodes may do so at the same time.
    ///
    /// # Errors
    /// Returns [`OpenError`] if the pool cannot be used or holds another index, if there is no leaf of these sizes, if
    /// `depth_max` is above 28, or if the world lacks a capability.
    pub async fn create_or_open<V: Verbs + Control>(
        v: &V,
        options: &TableOptions,
    ) -> Result<Self, OpenError> {
        let leaf = Self::leaf(options)?;
        let superblock = Superblock::create_or_open(v, &Self::descriptor(options)).await?;
        Self::over(v, options, leaf, &superblock)
    }

    /// Opens an existing table.
    ///
    /// # Errors
    /// Returns [`OpenError`] if the pool is empty, or for the reasons of [`HashTable::create_or_open`].
    pub async fn open<V: Verbs + Control>(v: &V, options: &TableOptions) -> Result<Self, OpenError> {
        let leaf = Self::leaf(options)?;
        let superblock = Superblock::open(v, &Self::descriptor(options)).await?;
        Self::over(v, options, leaf, &superblock)
    }

    /// Opens a table without a verb, with a superblock that was read before. Use this in programs that open one pool
    /// many times.
    ///
    /// # Errors
    /// Returns [`OpenError`] if there is no leaf of these sizes, if the superblock is of another kind or geometry, if
    /// `depth_max` is above 28, or if the world lacks a capability.
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

    /// Returns the parameters that the superblock stores. Every client that opens the pool must use the same ones.
    pub fn descriptor(options: &TableOptions) -> Descriptor {
        let sizes = [
            K::LEN,
            options.value_bytes,
            options.span,
            options.neighbourhood,
            usize::from(options.depth_max),
        ];
        // No node dies, so clients need not announce epochs. The pool therefore has no members.
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
                why: "`depth_max` is above 28, the largest depth of a directory",
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
            composed: ComposedOptions::new(options.attempts, options.cpu),
        })
    }

    /// Returns a client over `v`'s connections.
    pub fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> TableClient<'h, V, K> {
        let composed = Composed::new(v, &self.directory, &self.leaves, self.composed);
        TableClient::new(v, composed, &self.directory)
    }

    /// Reads the root word, and the directory if the compute node has no copy of it or the directory is deeper than the
    /// copy. The verbs are metered as housekeeping.
    ///
    /// # Errors
    /// Returns an error if a READ fails, if a slot of the directory is not an address, or if the directory is deeper
    /// than `depth_max`.
    pub async fn warm<V: Verbs>(&self, v: &V) -> Result<(), IndexError> {
        let _unmetered = v.meter().housekeeping();
        self.directory.look(v).await.map(drop)
    }

    /// Returns the compute node's directory.
    pub fn directory(&self) -> &Directory<K> {
        &self.directory
    }

    /// Returns the hotspot buffer, if there is one.
    pub fn hotspots(&self) -> Option<&Hotspots> {
        self.leaves.hotspots()
    }

    /// Returns the bytes of this compute node's own memory that the table uses: the copy of the directory, the local
    /// locks, the allocator, and this object. The hotspot buffer is not included.
    pub fn local_bytes(&self) -> u64 {
        let directory = self.directory.bytes() - size_of::<Directory<K>>();
        (directory + self.locks.local_bytes() + self.alloc.local_bytes() + size_of::<Self>()) as u64
    }

    /// Returns the allocator statistics of this compute node.
    pub fn alloc_stats(&self) -> AllocStats {
        self.alloc.stats()
    }

    /// Returns the address of the word that points to the directory.
    pub fn root_word(&self) -> RemotePtr {
        self.directory.root_word()
    }

    /// Returns the geometry of a leaf: the positions of its parts.
    pub fn geometry(&self) -> &HopGeometry {
        self.leaves.format().geometry()
    }
}

/// Covers all that a compute node's clients share: the directory, local locks, free memory, and the hotspot buffer.
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
