//! The options of a tree. All clients that open a pool must use the same layout options, but a client that opens an
//! existing pool takes the numbers of locks and of members from the pool. Each client may choose the other options.

use dm_alloc::{LockHome, LockPlan, ReclaimOptions};
use dm_art::{ArtOptions, Compression, PrefixIndex, SingleOptions};
use dm_assemble::Common;
use dm_combine::Rdwc;
use dm_index::CpuCost;
use dm_indirect::REFERENCE_BYTES;
use dm_layout::NodeTypes;
use dm_lock::{Local, LockOptions, LockPlace};
use dm_verbs::Nanos;

/// Options of a [`crate::Smart`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Bytes of every value. This is a layout option.
    pub value_bytes: usize,
    /// Whether values are references to items of variable length ([`Options::items`]). This is a layout option.
    pub items: bool,
    /// Sizes of inner nodes. This is a layout option.
    pub types: NodeTypes,
    /// Path compression. This is a layout option.
    pub compression: Compression,
    /// Whether each leaf has a lock word of its own at its end (the paper's rear embedded lock). Otherwise the locks of
    /// leaves are in lock tables, as in Sherman (HOCL). This is a layout option.
    pub rear_locks: bool,
    /// Whether an update writes a leaf in place, under the leaf's lock. Otherwise it replaces the leaf by another one,
    /// and leaves have no locks. This is a layout option.
    pub in_place: bool,
    /// Whether a client takes an inner node's lock before it changes the node (ROWEX). The locks are in lock tables.
    /// Otherwise inner nodes are lock-free. This is a layout option.
    pub locked_nodes: bool,
    /// Lock words per memory node, if any lock is in a table. The tables are in on-chip memory if there is any. This is
    /// a layout option.
    pub locks_per_node: u32,
    /// Budget in bytes of a compute node's cache of inner nodes.
    pub cache_bytes: u64,
    /// The index of this cache: the paper's radix index, or its baseline, a hash table of prefixes. The latter needs a
    /// compression that skips no key bytes.
    pub cache_index: PrefixIndex,
    /// Whether there are local queues in front of the locks of leaves and nodes (SMART's E-HOCL).
    pub hierarchical: bool,
    /// Maximum number of consecutive handovers of a lock between clients of a compute node; 0 for none.
    pub handover_max: u32,
    /// Whether the lock's CAS and the READ are in one chain, if the world executes them in order.
    pub lock_and_read: bool,
    /// Whether the unlock of a leaf is in the chain of the leaf's WRITE, if the world executes them in order. Otherwise
    /// the WRITE is awaited first, as in the paper's baselines. An inner node's lock is always released after the
    /// change of the node.
    pub combine: bool,
    /// Read delegation and write combining between the clients of this compute node (§4.2). They are on by default, as
    /// in the paper.
    pub rdwc: Rdwc,
    /// Retry limit of every loop; exceeding it returns an error.
    pub attempts: u32,
    /// Size in bytes of the chunks that an allocator requests. The paper uses 16 MB.
    pub chunk_bytes: u64,
    /// Maximum number of compute nodes that use the pool at once. Each announces its running operations, so that memory
    /// can be reused; 0 means that memory is never reused. This is a layout option, which is fixed when the pool is
    /// created.
    pub members: u16,
    /// Options of reclamation on this compute node.
    pub reclaim: ReclaimOptions,
    /// The length of a turn of the cache, if memory is reused. A cached node is used for one to two turns, or for ever
    /// if nothing is retired.
    pub turn: Nanos,
    /// The number of key bytes that a client adds to the link depth of a new leaf (rule M9). If a leaf moves at most
    /// that many bytes deeper in a split, the split takes one verb less. In return, proving that a key is absent may
    /// take a second READ if the key's cached slot leads to another key's leaf.
    pub depth_slack: u8,
    /// CPU time that a simulator charges.
    pub cpu: CpuCost,
    /// Published flaws and broken twins. All are off by default.
    #[cfg(feature = "study")]
    pub flaws: crate::Flaws,
}

/// Default of [`Options::cache_bytes`] (SMART §5.1: 600 MB).
pub const DEFAULT_CACHE_BYTES: u64 = 600_000_000;
/// Default of [`Options::handover_max`] (as Sherman's).
pub const DEFAULT_HANDOVER_MAX: u32 = 4;
/// Default of [`Options::members`]. The slots of this many members, together with the epoch's line, fill a page.
pub const DEFAULT_MEMBERS: u16 = 63;
/// Default of [`Options::attempts`].
pub const DEFAULT_ATTEMPTS: u32 = dm_art::DEFAULT_ATTEMPTS;

impl Options {
    /// Returns defaults for items of variable length: byte strings as keys and as values
    /// ([`crate::Smart::items`]).
    pub const fn items() -> Self {
        Self {
            items: true,
            ..Self::new(REFERENCE_BYTES)
        }
    }

    /// Returns defaults for values of `value_bytes` bytes.
    pub const fn new(value_bytes: usize) -> Self {
        Self {
            value_bytes,
            items: false,
            types: NodeTypes::SHIPPED,
            compression: Compression::PESSIMISTIC,
            in_place: true,
            rear_locks: true,
            locked_nodes: false,
            locks_per_node: dm_alloc::DEFAULT_LOCKS_PER_NODE,
            cache_bytes: DEFAULT_CACHE_BYTES,
            cache_index: PrefixIndex::Radix,
            hierarchical: true,
            handover_max: DEFAULT_HANDOVER_MAX,
            lock_and_read: true,
            combine: true,
            rdwc: Rdwc::ON,
            attempts: DEFAULT_ATTEMPTS,
            chunk_bytes: dm_alloc::DEFAULT_CHUNK_BYTES,
            members: DEFAULT_MEMBERS,
            reclaim: ReclaimOptions::new(),
            turn: dm_art::DEFAULT_TURN,
            depth_slack: dm_art::DEFAULT_DEPTH_SLACK,
            cpu: CpuCost::NONE,
            #[cfg(feature = "study")]
            flaws: crate::Flaws::NONE,
        }
    }
}

// The methods below make the options of the parts.
impl Options {
    pub(crate) const fn common(&self) -> Common {
        Common {
            attempts: self.attempts,
            chunk_bytes: self.chunk_bytes,
            reach: u64::MAX,
            reclaim: ReclaimOptions {
                // Operations use cached addresses without checking them.
                remembers: true,
                ..self.reclaim
            },
            rdwc: self.rdwc,
            items: self.items,
        }
    }

    /// Returns whether any lock is in a lock table of the pool.
    pub(crate) const fn has_tables(&self) -> bool {
        (self.in_place && !self.rear_locks) || self.locked_nodes
    }

    /// Returns the place and the number of the locks in tables.
    pub(crate) const fn lock_plan(&self) -> LockPlan {
        LockPlan {
            home: LockHome::ChipIfAny,
            per_node: if self.has_tables() { self.locks_per_node } else { 1 },
        }
    }

    /// Returns the options of locks in this kind of memory.
    pub(crate) fn locks(&self, place: LockPlace) -> LockOptions {
        LockOptions {
            local: Local::queue_if(self.hierarchical, self.handover_max),
            place,
            lock_and_read: self.lock_and_read,
            combine: self.combine,
            budget: self.attempts,
            ..LockOptions::default()
        }
    }

    pub(crate) fn leaves(&self) -> SingleOptions {
        let options = SingleOptions {
            in_place: self.in_place,
            ..SingleOptions::new(self.attempts)
        };
        #[cfg(feature = "study")]
        let options = SingleOptions {
            flaws: self.flaws.leaf,
            ..options
        };
        options
    }

    pub(crate) fn inner(&self) -> ArtOptions {
        let mut options = ArtOptions::new(self.types);
        options.compression = self.compression;
        options.cache_bytes = self.cache_bytes;
        options.cache_index = self.cache_index;
        options.attempts = self.attempts;
        options.turn = self.turn;
        options.depth_slack = self.depth_slack;
        options.cpu = self.cpu;
        #[cfg(feature = "study")]
        {
            options.flaws = self.flaws.inner;
        }
        options
    }
}
