//! What a tree is opened with. Layout options must agree between all who open it; the rest is each one's own.

use dm_alloc::ReclaimOptions;
use dm_art::ArtFlaws;
use dm_combine::Rdwc;
use dm_index::CpuCost;
use dm_indirect::REFERENCE_BYTES;
use dm_layout::NodeTypes;
use dm_leaf::SingleFlaws;
use dm_verbs::Nanos;

/// Published flaws, each switchable alone. Off by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flaws {
    /// Of the inner levels: T-M1, T-M3 to T-M7.
    pub inner: ArtFlaws,
    /// Of leaves: T-M2.
    pub leaf: SingleFlaws,
}

/// Options of a [`crate::Smart`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Bytes of every value. Layout.
    pub value_bytes: usize,
    /// Values are references to items of variable length ([`Options::items`]). Layout.
    pub items: bool,
    /// Sizes of inner nodes. Layout.
    pub types: NodeTypes,
    /// Budget of the cache of inner nodes of a compute node, bytes.
    pub cache_bytes: u64,
    /// Local queues in front of the leaves' locks (SMART's E-HOCL).
    pub hierarchical: bool,
    /// Consecutive handovers of a lock between threads of a compute node; 0 for none.
    pub handover_max: u32,
    /// Lock CAS and READ in one chain, where the world executes them in order.
    pub lock_and_read: bool,
    /// Read delegation and write combining between the clients of this compute node (§4.2). On, as in the paper.
    pub rdwc: Rdwc,
    /// Attempts of any loop before a typed error.
    pub attempts: u32,
    /// Chunk that an allocator asks for, bytes. SMART: 16 MB.
    pub chunk_bytes: u64,
    /// Compute nodes that may use the pool at once, each announcing what it runs so that memory can be used again; 0 for
    /// never. Layout: said when the pool is made.
    pub members: u16,
    /// How this compute node takes part in that.
    pub reclaim: ReclaimOptions,
    /// Where memory is used again: how long at least cached nodes are good for.
    pub turn: Nanos,
    /// Key bytes by which a leaf's link depth is larger than it need be: a split that far below is a verb shorter, and
    /// in return it takes a second READ to prove a key absent whose slot leads to another's leaf.
    pub depth_slack: u8,
    /// CPU time that a simulator charges.
    pub cpu: CpuCost,
    /// Published flaws.
    pub flaws: Flaws,
}

/// Default of [`Options::cache_bytes`] (SMART §5.1: 600 MB).
pub const DEFAULT_CACHE_BYTES: u64 = 600_000_000;
/// Default of [`Options::handover_max`] (as Sherman's).
pub const DEFAULT_HANDOVER_MAX: u32 = 4;
/// Default of [`Options::members`]: their slots and the epoch's line fill a page.
pub const DEFAULT_MEMBERS: u16 = 63;
/// Default of [`Options::attempts`].
pub const DEFAULT_ATTEMPTS: u32 = dm_art::DEFAULT_ATTEMPTS;

impl Options {
    /// Defaults, for items of variable length: byte strings as keys and as values ([`crate::Smart::items`]).
    pub const fn items() -> Self {
        Self {
            items: true,
            ..Self::new(REFERENCE_BYTES)
        }
    }

    /// Defaults, for values of `value_bytes` bytes.
    pub const fn new(value_bytes: usize) -> Self {
        Self {
            value_bytes,
            items: false,
            types: NodeTypes::SHIPPED,
            cache_bytes: DEFAULT_CACHE_BYTES,
            hierarchical: true,
            handover_max: DEFAULT_HANDOVER_MAX,
            lock_and_read: true,
            rdwc: Rdwc::ON,
            attempts: DEFAULT_ATTEMPTS,
            chunk_bytes: dm_alloc::DEFAULT_CHUNK_BYTES,
            members: DEFAULT_MEMBERS,
            reclaim: ReclaimOptions::new(),
            turn: dm_art::DEFAULT_TURN,
            depth_slack: dm_art::DEFAULT_DEPTH_SLACK,
            cpu: CpuCost::NONE,
            flaws: Flaws {
                inner: ArtFlaws {
                    repairs_unchecked: false,
                    depth_unawaited: false,
                    switch_unfrozen: false,
                    removal_empties: false,
                    merge_leaves_empties: false,
                    scan_trusts_cache: false,
                    cache_unpinned: false,
                    renewal_waits: false,
                    gives_back_early: false,
                },
                leaf: SingleFlaws {
                    stale_write_back: false,
                },
            },
        }
    }
}

/// CPU time of a client's work per operation, for a simulator: walking the cache (half fixed, half exponential, for cache
/// misses) and judging the leaf. As Sherman's, so that the two are compared by what they ask of the network.
pub const MODEL_CPU: CpuCost = CpuCost {
    locate: Nanos(950),
    locate_mean: Nanos(950),
    search: Nanos(500),
};
