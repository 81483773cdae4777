//! The options of a tree. All clients that open a pool must use the same layout options, but a client that opens an
//! existing pool takes the numbers of locks and of members from the pool. Each client may choose the other options.

use dm_alloc::{LockHome, LockPlan, ReclaimOptions};
use dm_assemble::{Common, OpenError};
use dm_blink::BlinkOptions;
use dm_combine::Rdwc;
use dm_index::{ComposedOptions, CpuCost};
use dm_indirect::REFERENCE_BYTES;
use dm_layout::{KeyBytes, Slotted, SplitBias};
use dm_leaf::NodeOptions;
use dm_lock::{Local, LockOptions, LockPlace};
use dm_verbs::Caps;

/// Options of a [`crate::Marlin`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Bytes of every value. Values are in blocks outside of the leaves. This is a layout option.
    pub value_bytes: usize,
    /// Whether blocks hold items of variable length ([`Options::items`]). This is a layout option.
    pub items: bool,
    /// Bytes of a node, a multiple of 64. This is a layout option.
    pub node_bytes: usize,
    /// Lock words per memory node. This is a layout option.
    pub locks_per_node: u32,
    /// Whether locks are in on-chip memory. They are in host memory if this is `false` or if there is no on-chip
    /// memory. This is a layout option.
    pub on_chip: bool,
    /// Budget in bytes of a compute node's cache of inner nodes.
    pub cache_bytes: u64,
    /// Whether updates share their leaf's lock, and inserts hold it beside them. Otherwise every write holds the lock
    /// alone. This is turned off if the world lacks masked atomics. This is a layout option.
    pub shared: bool,
    /// Whether the request that releases the leaf is in one chain with the WRITE or CAS before it. The published code
    /// awaits that WRITE or CAS first.
    pub combine: bool,
    /// Whether there are local lock tables in front of the remote ones.
    pub hierarchical: bool,
    /// Maximum number of consecutive handovers of a lock between clients of a compute node; 0 for none.
    pub handover_max: u32,
    /// Whether the lock's CAS and the READ are in one chain, if the world executes them in order. (The FAA of a share
    /// and the READ are in one chain in every such world, whatever this option says.)
    pub lock_and_read: bool,
    /// The position at which a node is split.
    pub bias: SplitBias,
    /// Read delegation and write combining between the clients of this compute node. They are off by default.
    pub rdwc: Rdwc,
    /// Retry limit of every loop; exceeding it returns an error.
    pub attempts: u32,
    /// Size in bytes of the chunks that an allocator requests. The published code uses 16 MB.
    pub chunk_bytes: u64,
    /// Maximum number of compute nodes that use the tree at once; 0 for a tree that never reuses the memory of dead
    /// nodes and of old values. This is a layout option, which is fixed when the tree is created.
    pub members: u16,
    /// Options for reclaiming memory on this compute node.
    pub reclaim: ReclaimOptions,
    /// CPU time that a simulator charges.
    pub cpu: CpuCost,
    /// Published flaws and broken twins. Each can be switched on alone, and all are off by default.
    #[cfg(feature = "study")]
    pub flaws: crate::Flaws,
}

/// Default of [`Options::node_bytes`]: nodes of 1 KB, as Sherman's. The published code has 64 entries in a node.
pub const DEFAULT_NODE_BYTES: usize = 1024;
/// Default of [`Options::cache_bytes`] (the published code: 600 MB).
pub const DEFAULT_CACHE_BYTES: u64 = 600_000_000;
/// Default of [`Options::handover_max`] (as Sherman's).
pub const DEFAULT_HANDOVER_MAX: u32 = 4;
/// Default of [`Options::attempts`].
pub const DEFAULT_ATTEMPTS: u32 = 1 << 20;
/// Default of [`Options::members`]. The slots of this many members, together with the epoch's line, fill a page.
pub const DEFAULT_MEMBERS: u16 = 63;

impl Options {
    /// Returns defaults for items of variable length: byte strings as keys and as values
    /// ([`crate::Marlin::items`]).
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
            node_bytes: DEFAULT_NODE_BYTES,
            locks_per_node: dm_alloc::DEFAULT_LOCKS_PER_NODE,
            on_chip: true,
            cache_bytes: DEFAULT_CACHE_BYTES,
            shared: true,
            combine: true,
            hierarchical: true,
            handover_max: DEFAULT_HANDOVER_MAX,
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

    /// Returns these options with the round trips of the published code: an update or an insert takes four, and a
    /// remove three.
    #[must_use]
    pub const fn published(mut self) -> Self {
        self.combine = false;
        self
    }

    /// Returns these options, changed as little as necessary for a world with these capabilities. A tree in such a
    /// world uses the changed options automatically.
    #[must_use]
    pub const fn fit(mut self, caps: &Caps) -> Self {
        self.shared &= caps.masked_atomics;
        self
    }
}

/// The kind of the inner nodes' memory. The kind of leaves is 0.
const INNER: u8 = 1;

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

    pub(crate) fn locks(&self) -> LockOptions {
        LockOptions {
            local: Local::queue_if(self.hierarchical, self.handover_max),
            shared: self.shared,
            combine: self.combine,
            lock_and_read: self.lock_and_read,
            budget: self.attempts,
            place: LockPlace::chip_if(self.on_chip),
            #[cfg(feature = "study")]
            flaws: self.flaws.locks,
            ..LockOptions::default()
        }
    }

    /// Returns the format of the leaves.
    pub(crate) fn leaf<K: KeyBytes>(&self) -> Result<Slotted<K>, OpenError> {
        Ok(Slotted::words_with_node_bytes(self.node_bytes)?)
    }

    pub(crate) fn leaves(&self) -> NodeOptions {
        NodeOptions {
            attempts: self.attempts,
            bias: self.bias,
            #[cfg(feature = "study")]
            flaws: self.flaws.leaf,
            ..NodeOptions::default()
        }
    }

    pub(crate) fn inner_nodes(&self) -> NodeOptions {
        NodeOptions {
            kind: INNER,
            ..self.leaves()
        }
    }

    pub(crate) fn blink(&self) -> BlinkOptions {
        BlinkOptions::new(self.attempts)
    }

    pub(crate) fn composed(&self) -> ComposedOptions {
        ComposedOptions::new(self.attempts, self.cpu)
    }
}
