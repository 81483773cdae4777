//! The options of a tree. All clients that open a pool must use the same layout options, but a client that opens an
//! existing pool takes the numbers of locks and of members from the pool. Each client may choose the other options.

use dm_alloc::{LockHome, LockPlan, ReclaimOptions};
use dm_assemble::Common;
use dm_blink::BlinkOptions;
use dm_cache::IndexCache;
use dm_combine::Rdwc;
use dm_index::{CHILD_NODES_MAX, ComposedOptions, CpuCost, NEAR_CHILD_REACH, NEAR_CHILD_UNIT};
use dm_indirect::REFERENCE_BYTES;
use dm_layout::{KeyBytes, SplitBias};
use dm_leaf::NodeOptions;
use dm_lock::{Local, LockOptions, LockPlace, ReleaseBy};

/// The size of nodes.
///
/// ```
/// use dm_loopback::{Loopback, block_on};
/// use sherman::{Key8, NodeSize, Options, Sherman};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Loopback::builder().nodes(1).build()?;
/// let v = pool.connect(0)?;
/// let options = Options { node: NodeSize::Span(16), ..Options::new(8) };
/// let tree = block_on(Sherman::<Key8>::create_or_open(&v, &options))?;
/// assert_eq!(tree.leaf_capacity(), 16);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeSize {
    /// This many bytes, a multiple of 64. The paper uses 1024.
    Bytes(usize),
    /// Room for this many entries.
    Span(usize),
}

/// Options of a [`crate::Sherman`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Bytes of every value. This is a layout option.
    pub value_bytes: usize,
    /// Whether values are references to items of variable length ([`Options::items`]). This is a layout option.
    pub items: bool,
    /// Size of nodes. This is a layout option.
    pub node: NodeSize,
    /// Whether inner nodes store the address of a child in 6 bytes instead of 4. With 4 bytes, a pool of more than
    /// [32](dm_index::NEAR_CHILD_NODES_MAX) memory nodes is refused, and memory beyond the first
    /// [64 GiB](dm_index::NEAR_CHILD_REACH) of a memory node is not used. Nodes of [`NodeSize::Span`], nodes whose size
    /// is not a multiple of 1 KiB, and trees of items, always use 6 bytes. This is a layout option.
    pub far_children: bool,
    /// Lock words per memory node. This is a layout option.
    pub locks_per_node: u32,
    /// Whether locks are in on-chip memory if there is any (`+on-chip`); otherwise they are in host memory.
    /// This is a layout option.
    pub on_chip: bool,
    /// Budget in bytes of a compute node's cache of inner nodes.
    pub cache_bytes: u64,
    /// Whether the unlock is in the chain of the write-back (`+combine`).
    pub combine: bool,
    /// Whether there are local lock tables in front of the remote ones (`+hierarchical`).
    pub hierarchical: bool,
    /// Maximum number of consecutive handovers of a lock between clients of a compute node; 0 for none. The
    /// paper uses 4.
    pub handover_max: u32,
    /// Whether the lock's CAS and the READ are in one chain, if the world executes them in order.
    pub lock_and_read: bool,
    /// Whether locks are released by FAA instead of WRITE (FG).
    pub release_by_faa: bool,
    /// The position at which a node is split.
    pub bias: SplitBias,
    /// Read delegation and write combining between the clients of this compute node (SMART §4.2). This is not in
    /// Sherman's paper, and is off by default.
    pub rdwc: Rdwc,
    /// Retry limit of every loop; exceeding it returns an error.
    pub attempts: u32,
    /// Size in bytes of the chunks that an allocator requests. The paper uses 8 MiB.
    pub chunk_bytes: u64,
    /// Maximum number of compute nodes that use the tree at once; 0 for a tree that never reuses the memory of dead
    /// nodes. This is a layout option, which is fixed when the tree is created.
    pub members: u16,
    /// Options for reclaiming dead nodes on this compute node.
    pub reclaim: ReclaimOptions,
    /// CPU time that a simulator charges.
    pub cpu: CpuCost,
    /// Published flaws and broken twins. All are off by default.
    #[cfg(feature = "study")]
    pub flaws: crate::Flaws,
}

/// Default of [`Options::node`] (Sherman §5.1).
pub const DEFAULT_NODE: NodeSize = NodeSize::Bytes(1024);
/// Default of [`Options::cache_bytes`] (Sherman §5.1: 500 MB).
pub const DEFAULT_CACHE_BYTES: u64 = 500_000_000;
/// Default of [`Options::handover_max`] (Sherman §4.3).
pub const DEFAULT_HANDOVER_MAX: u32 = 4;
/// Default of [`Options::attempts`].
pub const DEFAULT_ATTEMPTS: u32 = 1 << 20;

/// Default of [`Options::members`]. The slots of this many members, together with the epoch's line, fill a page.
pub const DEFAULT_MEMBERS: u16 = 63;

impl Options {
    /// Returns defaults for items of variable length: byte strings as keys and as values
    /// ([`crate::Sherman::items`]).
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
            node: DEFAULT_NODE,
            far_children: false,
            locks_per_node: dm_alloc::DEFAULT_LOCKS_PER_NODE,
            on_chip: true,
            cache_bytes: DEFAULT_CACHE_BYTES,
            combine: true,
            hierarchical: true,
            handover_max: DEFAULT_HANDOVER_MAX,
            lock_and_read: true,
            release_by_faa: false,
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

const _: () = assert!(
    dm_alloc::MEMORY_NODES_MAX <= CHILD_NODES_MAX,
    "every node of a pool has room in its parent"
);

// The methods below make the options of the parts.
impl Options {
    /// Returns the size of nodes in bytes, if inner nodes store addresses of [`dm_index::NEAR_CHILD_BYTES`] bytes.
    pub(crate) fn near(&self) -> Option<usize> {
        match self.node {
            // Blocks of items have various sizes, so nodes between the blocks may be at any address.
            NodeSize::Bytes(bytes) if !self.far_children && !self.items => {
                (bytes as u64).is_multiple_of(NEAR_CHILD_UNIT).then_some(bytes)
            }
            _ => None,
        }
    }

    /// Returns whether four locks share a word (T-S13).
    pub(crate) fn lanes16(&self) -> bool {
        #[cfg(feature = "study")]
        let lanes16 = self.flaws.lanes16;
        #[cfg(not(feature = "study"))]
        let lanes16 = false;
        lanes16
    }

    /// Returns the place and the number of the locks of a pool with these options.
    pub(crate) const fn lock_plan(&self) -> LockPlan {
        LockPlan {
            home: LockHome::chip_if(self.on_chip),
            per_node: self.locks_per_node,
        }
    }

    pub(crate) fn common(&self) -> Common {
        Common {
            attempts: self.attempts,
            chunk_bytes: self.chunk_bytes,
            reach: self.near().map_or(u64::MAX, |_| NEAR_CHILD_REACH),
            reclaim: self.reclaim,
            rdwc: self.rdwc,
            items: self.items,
        }
    }

    pub(crate) fn cache<K: KeyBytes>(&self) -> IndexCache<K> {
        let cache = IndexCache::new(self.cache_bytes);
        #[cfg(feature = "study")]
        let cache = cache.with_flaws(dm_cache::CacheFlaws {
            recycled_slot: self.flaws.recycled_slot,
        });
        cache
    }

    pub(crate) fn blink(&self) -> BlinkOptions {
        let options = BlinkOptions::new(self.attempts);
        #[cfg(feature = "study")]
        let options = BlinkOptions {
            root_race_fatal: self.flaws.root_race_fatal,
            ..options
        };
        options
    }

    pub(crate) fn locks(&self) -> LockOptions {
        LockOptions {
            local: Local::queue_if(self.hierarchical, self.handover_max),
            release: match self.release_by_faa {
                true => ReleaseBy::Faa,
                false => ReleaseBy::Auto,
            },
            lock_and_read: self.lock_and_read,
            combine: self.combine,
            budget: self.attempts,
            #[cfg(feature = "study")]
            flaws: dm_lock::LockFlaws {
                handover_before_write_back: self.flaws.handover_before_write_back,
                packed_tickets: self.flaws.packed_tickets,
                lanes16: self.flaws.lanes16,
                ..dm_lock::LockFlaws::default()
            },
            place: LockPlace::chip_if(self.on_chip),
            ..LockOptions::default()
        }
    }

    pub(crate) fn nodes(&self) -> NodeOptions {
        NodeOptions {
            attempts: self.attempts,
            bias: self.bias,
            #[cfg(feature = "study")]
            flaws: dm_leaf::LeafFlaws {
                torn_entry_absent: self.flaws.torn_entry_absent,
                no_read_window: self.flaws.no_read_window,
                parent_before_left: self.flaws.parent_before_left,
                right_unawaited: self.flaws.right_unawaited,
                open_before_burial: self.flaws.open_before_burial,
                unburied: self.reclaim.flaws.unburied,
                one_lock_mends: self.flaws.one_lock_mends,
                reopens_widened: self.flaws.reopens_widened,
                ..dm_leaf::LeafFlaws::NONE
            },
            ..NodeOptions::default()
        }
    }

    pub(crate) fn composed(&self) -> ComposedOptions {
        let options = ComposedOptions::new(self.attempts, self.cpu);
        #[cfg(feature = "study")]
        let options = ComposedOptions {
            flaws: dm_index::Flaws {
                root_race_fatal: self.flaws.root_race_fatal,
                scan_trusts_cache: self.flaws.scan_trusts_cache,
            },
            ..options
        };
        options
    }
}
