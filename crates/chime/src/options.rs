//! The options of a tree. All clients that open a pool must use the same layout options. Each client may
//! choose the other options.

use dm_alloc::{LockHome, LockPlan, ReclaimOptions};
use dm_assemble::{Common, OpenError};
use dm_combine::Rdwc;
use dm_hopscotch::{HopOptions, Hopscotch};
use dm_index::{ComposedOptions, CpuCost};
use dm_indirect::REFERENCE_BYTES;
use dm_layout::{KeyBytes, SplitBias};
use dm_leaf::NodeOptions;
use dm_lock::{Local, LockOptions, LockPlace};
use dm_verbs::Nanos;

/// Options of a [`crate::Chime`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Bytes of every value. This is a layout option.
    pub value_bytes: usize,
    /// Whether values are references to items of variable length ([`Options::items`]). This is a layout option.
    pub items: bool,
    /// Entries of a leaf. This is a layout option.
    pub span: usize,
    /// Entries of a neighbourhood. This is a layout option.
    pub neighbourhood: usize,
    /// Children of an inner node. This is a layout option.
    pub inner_span: usize,
    /// Lock words per memory node of a new tree. A client that opens an existing tree uses the tree's number.
    pub locks_per_node: u32,
    /// Whether locks are in on-chip memory if there is any; otherwise they are in host memory. This is a layout
    /// option.
    pub on_chip: bool,
    /// Budget in bytes of a compute node's cache of inner nodes.
    pub cache_bytes: u64,
    /// Whether an insert gets the free slots together with the lock, without another READ (CHIME §4.2.1).
    pub vacancy_piggyback: bool,
    /// Whether a get relies on the copy of the leaf's fence keys in each neighbourhood (CHIME §4.2.2). If not, it also
    /// reads the leaf's header, in the same chain.
    pub metadata_replication: bool,
    /// Bytes of a compute node's hotspot buffer (CHIME §4.3), which guides speculative reads. With 0 there is
    /// no buffer, and there are no speculative reads.
    pub hotspot_bytes: u64,
    /// Whether there are local lock tables in front of the remote ones.
    pub hierarchical: bool,
    /// Maximum number of consecutive handovers of a lock between clients of a compute node; 0 for none.
    pub handover_max: u32,
    /// Whether the lock's CAS and the READ are in one chain, if the world executes them in order.
    pub lock_and_read: bool,
    /// The position at which a node is split.
    pub bias: SplitBias,
    /// Read delegation and write combining between the clients of this compute node (SMART §4.2). They are off by
    /// default; the paper uses them.
    pub rdwc: Rdwc,
    /// Retry limit of every loop; exceeding it returns an error.
    pub attempts: u32,
    /// Size in bytes of the large chunks that an allocator requests. The first chunks of each class are smaller. The
    /// paper uses 16 MB.
    pub chunk_bytes: u64,
    /// Maximum number of compute nodes that use the tree at once; 0 for a tree that never reuses the memory of dead
    /// nodes. This is fixed when the tree is created: a client that opens an existing tree uses the tree's number.
    pub members: u16,
    /// Options for reclaiming dead nodes on this compute node.
    pub reclaim: ReclaimOptions,
    /// CPU time that a simulator charges.
    pub cpu: CpuCost,
    /// Flaws, each with a switch of its own. All are off by default.
    #[cfg(feature = "study")]
    pub flaws: crate::Flaws,
}

/// Default of [`Options::span`]: with keys and values of 8 bytes, a leaf has 960 bytes, so it takes one packet of
/// 1,024. The paper has [`PUBLISHED_SPAN`]. Scans read fewer bytes of smaller leaves, but inserts split them more often
/// (docs/protocol/chime.md, Bounds).
pub const DEFAULT_SPAN: usize = 42;
/// Entries of the paper's nodes (CHIME §5.1), and the default of [`Options::inner_span`].
pub const PUBLISHED_SPAN: usize = 64;
/// Default of [`Options::neighbourhood`] (CHIME §5.1).
pub const DEFAULT_NEIGHBOURHOOD: usize = 8;
/// Default of [`Options::cache_bytes`] (CHIME §5.1: 100 MB).
pub const DEFAULT_CACHE_BYTES: u64 = 100_000_000;
/// Default of [`Options::hotspot_bytes`]: room for the hottest 131,000 entries, with 8 bytes each. (CHIME §5.1: 30 MB
/// with 16 bytes per entry.)
pub const DEFAULT_HOTSPOT_BYTES: u64 = 1 << 20;
/// Default of [`Options::handover_max`] (as Sherman's).
pub const DEFAULT_HANDOVER_MAX: u32 = 4;
/// Default of [`Options::attempts`].
pub const DEFAULT_ATTEMPTS: u32 = 1 << 20;
/// Default of [`Options::members`]. The slots of this many members, together with the epoch's line, fill a page.
pub const DEFAULT_MEMBERS: u16 = 63;

impl Options {
    /// Returns defaults for items of variable length: byte strings as keys and as values
    /// ([`crate::Chime::items`]).
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
            span: DEFAULT_SPAN,
            neighbourhood: DEFAULT_NEIGHBOURHOOD,
            inner_span: PUBLISHED_SPAN,
            locks_per_node: dm_alloc::DEFAULT_LOCKS_PER_NODE,
            on_chip: true,
            cache_bytes: DEFAULT_CACHE_BYTES,
            vacancy_piggyback: true,
            metadata_replication: true,
            hotspot_bytes: DEFAULT_HOTSPOT_BYTES,
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
}

/// The version window of a READ of a whole node. It is shorter than the default, because a hopscotch leaf's versions
/// have only 6 bits (docs/protocol/chime.md H2). Inner nodes have the same window.
const WINDOW: Nanos = Nanos::from_micros(400);

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
            lock_and_read: self.lock_and_read,
            budget: self.attempts,
            place: LockPlace::chip_if(self.on_chip),
            ..LockOptions::default()
        }
    }

    pub(crate) fn nodes(&self) -> NodeOptions {
        NodeOptions {
            attempts: self.attempts,
            read_window: WINDOW,
            bias: self.bias,
            #[cfg(feature = "study")]
            flaws: self.flaws.leaf,
            ..NodeOptions::default()
        }
    }

    /// Returns the format of the leaves.
    pub(crate) fn leaf<K: KeyBytes>(&self) -> Result<Hopscotch<K>, OpenError> {
        Ok(Hopscotch::new(self.span, self.neighbourhood, self.value_bytes)?)
    }

    pub(crate) fn hop(&self) -> HopOptions {
        HopOptions {
            vacancy_piggyback: self.vacancy_piggyback,
            metadata_replication: self.metadata_replication,
            hotspot_bytes: self.hotspot_bytes,
            #[cfg(feature = "study")]
            flaws: self.flaws.hop,
            ..HopOptions::default()
        }
    }

    pub(crate) fn composed(&self) -> ComposedOptions {
        ComposedOptions::new(self.attempts, self.cpu)
    }
}
