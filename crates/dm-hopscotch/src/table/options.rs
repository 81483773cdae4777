//! Options of a hash table. All clients of a pool must use the same layout options; the other options may differ.

use dm_index::CpuCost;
use dm_layout::SplitBias;
use dm_leaf::NodeOptions;
use dm_lock::{Local, LockOptions, LockPlace};
use dm_verbs::Nanos;

use crate::HopOptions;
#[cfg(feature = "study")]
use crate::study::TableFlaws;

/// Options of a [`crate::HashTable`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TableOptions {
    /// Size in bytes of every value. This is a layout option.
    pub value_bytes: usize,
    /// Number of entries in a leaf. This is a layout option.
    pub span: usize,
    /// Number of entries in a neighbourhood. This is a layout option.
    pub neighbourhood: usize,
    /// Maximum number of key bits that select a slot of the directory, at most 28. The directory takes 8 bytes for each
    /// combination of these bits, in a memory node and in every compute node. If a table has more leaves than slots,
    /// its results are still right, but some keys take more than one round trip. This is a layout option.
    pub depth_max: u8,
    /// Number of lock words per memory node. This is a layout option.
    pub locks_per_node: u32,
    /// Whether locks are in on-chip memory if there is any. If not, they are in host memory. This is a layout option.
    pub on_chip: bool,
    /// Size in bytes of a compute node's hotspot buffer for speculative reads. If it is 0 or too small for one set of
    /// entries, there is no buffer, and there are no speculative reads.
    pub hotspot_bytes: u64,
    /// Whether local lock tables are used in front of the remote locks.
    pub hierarchical: bool,
    /// Maximum number of consecutive handovers of a lock between clients of a compute node; 0 for none.
    pub handover_max: u32,
    /// Whether the lock's CAS and a READ are posted in one chain, if the world executes them in order.
    pub lock_and_read: bool,
    /// Retry limit of every loop; exceeding it returns an error.
    pub attempts: u32,
    /// Size in bytes of the chunks that an allocator requests. A directory does not grow beyond this size.
    pub chunk_bytes: u64,
    /// CPU time that a simulator charges.
    pub cpu: CpuCost,
    /// Flaws, each of which can be switched on alone. All are off by default.
    #[cfg(feature = "study")]
    pub flaws: TableFlaws,
}

/// Default of [`TableOptions::span`] (CHIME §5.1).
pub const DEFAULT_SPAN: usize = 64;
/// Default of [`TableOptions::neighbourhood`] (CHIME §5.1).
pub const DEFAULT_NEIGHBOURHOOD: usize = 8;
/// Default of [`TableOptions::depth_max`]: a million slots, which take 8 MiB and suffice for about 20 million
/// keys.
pub const DEFAULT_DEPTH_MAX: u8 = 20;

/// The version window of a READ of a whole leaf. It is shorter than that of other nodes, because a hopscotch leaf's
/// versions have only 6 bits (docs/protocol/chime.md H2).
const WINDOW: Nanos = Nanos::from_micros(400);

impl TableOptions {
    /// Returns the default options for values of `value_bytes` bytes.
    #[must_use]
    pub fn new(value_bytes: usize) -> Self {
        Self {
            value_bytes,
            span: DEFAULT_SPAN,
            neighbourhood: DEFAULT_NEIGHBOURHOOD,
            depth_max: DEFAULT_DEPTH_MAX,
            locks_per_node: dm_alloc::DEFAULT_LOCKS_PER_NODE,
            on_chip: true,
            hotspot_bytes: 0,
            hierarchical: true,
            handover_max: 4,
            lock_and_read: true,
            attempts: 1 << 20,
            chunk_bytes: dm_alloc::DEFAULT_CHUNK_BYTES,
            cpu: CpuCost::NONE,
            #[cfg(feature = "study")]
            flaws: TableFlaws::default(),
        }
    }

    pub(super) fn hop(&self) -> HopOptions {
        HopOptions {
            hotspot_bytes: self.hotspot_bytes,
            //= docs/protocol/chime.md H10
            merges: false,
            #[cfg(feature = "study")]
            flaws: self.flaws.hop,
            ..HopOptions::default()
        }
    }

    pub(super) fn nodes(&self) -> NodeOptions {
        NodeOptions {
            attempts: self.attempts,
            read_window: WINDOW,
            bias: SplitBias::Coarse,
            // Leaves are not merged, so neighbours need not be on one memory node.
            spread: true,
            #[cfg(feature = "study")]
            flaws: self.flaws.leaf,
            ..NodeOptions::default()
        }
    }

    pub(super) fn locks(&self) -> LockOptions {
        LockOptions {
            local: Local::queue_if(self.hierarchical, self.handover_max),
            lock_and_read: self.lock_and_read,
            budget: self.attempts,
            place: LockPlace::chip_if(self.on_chip),
            ..LockOptions::default()
        }
    }
}
