//! The options of a tree. All clients that open a pool must use the same layout options, but a client that opens an
//! existing pool takes the numbers of locks and of members from the pool. Each client may choose the other options.

use dm_alloc::{LockHome, LockPlan, ReclaimOptions};
use dm_art::{ArtOptions, SeparatorOptions, SingleOptions};
use dm_assemble::{Common, OpenError};
use dm_combine::Rdwc;
use dm_index::{ComposedOptions, CpuCost};
use dm_indirect::REFERENCE_BYTES;
use dm_layout::{KeyBytes, Leaf, NodeTypes, SplitBias};
use dm_leaf::NodeOptions;
use dm_lock::{Local, LockOptions, LockPlace};
use dm_verbs::Caps;

/// Options of a [`crate::Dolphin`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Bytes of every value. This is a layout option.
    pub value_bytes: usize,
    /// Whether values are references to items of variable length ([`Options::items`]). This is a layout option.
    pub items: bool,
    /// Bytes of a leaf, a multiple of 64. This is a layout option.
    pub leaf_bytes: usize,
    /// Whether leaves store each key as its distance above the leaf's low fence key. If its keys are close together, a
    /// leaf then has room for nearly twice as many entries of 8 + 8 bytes. This is turned off if values are so large
    /// that a leaf would not have room for more entries. This is a layout option.
    pub packed_keys: bool,
    /// The sizes of radix nodes. This is a layout option.
    pub types: NodeTypes,
    /// Lock words per memory node. This is a layout option.
    pub locks_per_node: u32,
    /// Whether the locks of leaves are in on-chip memory. They are in host memory if this is `false` or if there is no
    /// on-chip memory. This is a layout option.
    pub on_chip: bool,
    /// Budget in bytes of a compute node's cache of separators.
    pub cache_bytes: u64,
    /// Options for reading and caching separators.
    pub separators: SeparatorOptions,
    /// Whether there are local lock tables in front of the remote ones.
    pub hierarchical: bool,
    /// Maximum number of consecutive handovers of a lock between clients of a compute node; 0 for none.
    pub handover_max: u32,
    /// Whether updates share their leaf's lock, so that no update waits for another one. All other writes hold the lock
    /// alone. This is turned off if the world lacks masked atomics, if an entry takes more than a line, and for items.
    /// This is a layout option.
    pub shared_updates: bool,
    /// Whether the lock's CAS and the READ are in one chain, if the world executes them in order. (The FAA of a share
    /// and the READ are in one chain in every such world, whatever this option says.)
    pub lock_and_read: bool,
    /// The position at which a node is split.
    pub bias: SplitBias,
    /// Read delegation and write combining between the clients of this compute node. The paper's code has them,
    /// although its text does not mention them. They are off by default.
    pub rdwc: Rdwc,
    /// Retry limit of every loop; exceeding it returns an error.
    pub attempts: u32,
    /// Size in bytes of the chunks that an allocator requests. Dolphin's code uses 16 MB.
    pub chunk_bytes: u64,
    /// Maximum number of compute nodes that use the tree at once; 0 for a tree that never reuses the memory of dead
    /// nodes. This is a layout option, which is fixed when the tree is created.
    pub members: u16,
    /// Options for reclaiming dead nodes on this compute node.
    pub reclaim: ReclaimOptions,
    /// CPU time that a simulator charges.
    pub cpu: CpuCost,
    /// Published flaws and broken twins. Each can be switched on alone, and all are off by default.
    #[cfg(feature = "study")]
    pub flaws: crate::Flaws,
}

/// Default of [`Options::leaf_bytes`] (Dolphin's evaluation: leaves of 1 KB).
pub const DEFAULT_LEAF_BYTES: usize = 1024;
/// Default of [`Options::cache_bytes`] (Dolphin's evaluation: 2000 MB).
pub const DEFAULT_CACHE_BYTES: u64 = 2_000_000_000;
/// Default of [`Options::handover_max`] (as Sherman's).
pub const DEFAULT_HANDOVER_MAX: u32 = 4;
/// Default of [`Options::attempts`].
pub const DEFAULT_ATTEMPTS: u32 = 1 << 20;
/// Default of [`Options::members`]. The slots of this many members, together with the epoch's line, fill a page.
pub const DEFAULT_MEMBERS: u16 = 63;

impl Options {
    /// Returns defaults for items of variable length: byte strings as keys and as values
    /// ([`crate::Dolphin::items`]).
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
            leaf_bytes: DEFAULT_LEAF_BYTES,
            packed_keys: true,
            types: NodeTypes::SHIPPED,
            locks_per_node: dm_alloc::DEFAULT_LOCKS_PER_NODE,
            on_chip: true,
            cache_bytes: DEFAULT_CACHE_BYTES,
            separators: SeparatorOptions::new(),
            hierarchical: true,
            handover_max: DEFAULT_HANDOVER_MAX,
            shared_updates: true,
            lock_and_read: true,
            bias: SplitBias::Median,
            rdwc: Rdwc::OFF,
            attempts: DEFAULT_ATTEMPTS,
            chunk_bytes: dm_alloc::DEFAULT_CHUNK_BYTES,
            members: DEFAULT_MEMBERS,
            reclaim: ReclaimOptions::new(),
            cpu: CpuCost::NONE,
            #[cfg(feature = "study")]
            flaws: crate::Flaws::NONE,
        }
    }
}

impl Options {
    /// Returns these options without [`Options::shared_updates`] if the world lacks masked atomics, or if values are
    /// items. A tree does this automatically.
    #[must_use]
    pub const fn fit(mut self, caps: &Caps) -> Self {
        self.shared_updates &= caps.masked_atomics && !self.items;
        self
    }
}

/// The kind of the leaves' memory. The kind of radix nodes is 1, and the kind of the separators' entries is 0.
const LEAVES: u8 = 2;

// The methods below make the options of the parts.
impl Options {
    /// Returns the place and the number of the locks of a pool with these options.
    pub(crate) const fn lock_plan(&self) -> LockPlan {
        LockPlan {
            home: LockHome::chip_if(self.on_chip),
            per_node: self.locks_per_node,
        }
    }

    pub(crate) const fn common(&self) -> Common {
        Common {
            attempts: self.attempts,
            chunk_bytes: self.chunk_bytes,
            reach: u64::MAX,
            reclaim: self.reclaim,
            rdwc: self.rdwc,
            items: self.items,
        }
    }

    pub(crate) fn leaf_locks(&self) -> LockOptions {
        LockOptions {
            shared: self.shared_updates,
            place: LockPlace::chip_if(self.on_chip),
            ..self.entry_locks()
        }
    }

    /// Returns whether updates share a lock even if their values take several lines (T-D14).
    pub(crate) const fn lines_shared(&self) -> bool {
        #[cfg(feature = "study")]
        let shared = self.flaws.leaf.lines_shared;
        #[cfg(not(feature = "study"))]
        let shared = false;
        shared
    }

    pub(crate) fn entry_locks(&self) -> LockOptions {
        LockOptions {
            local: Local::queue_if(self.hierarchical, self.handover_max),
            lock_and_read: self.lock_and_read,
            budget: self.attempts,
            place: LockPlace::Host,
            #[cfg(feature = "study")]
            flaws: dm_lock::LockFlaws {
                leave_unawaited: self.flaws.unawaited,
                ..dm_lock::LockFlaws::default()
            },
            ..LockOptions::default()
        }
    }

    /// Returns the format of the leaves.
    pub(crate) fn leaf<K: KeyBytes>(&self) -> Result<Leaf<K>, OpenError> {
        let (bytes, value, packed) = (self.leaf_bytes, self.value_bytes, self.packed_keys);
        Ok(Leaf::with_node_bytes(bytes, value, packed)?)
    }

    pub(crate) fn nodes(&self) -> NodeOptions {
        NodeOptions {
            attempts: self.attempts,
            bias: self.bias,
            kind: LEAVES,
            #[cfg(feature = "study")]
            flaws: self.flaws.leaf,
            ..NodeOptions::default()
        }
    }

    pub(crate) fn entries(&self) -> SingleOptions {
        SingleOptions::new(self.attempts)
    }

    pub(crate) fn radix(&self) -> ArtOptions {
        ArtOptions {
            types: self.types,
            // Separators are cached, so the radix nodes that lead to them need no cache.
            cache_bytes: 0,
            attempts: self.attempts,
            depth_slack: 0,
            ..ArtOptions::default()
        }
    }

    pub(crate) fn composed(&self) -> ComposedOptions {
        ComposedOptions::new(self.attempts, self.cpu)
    }
}
