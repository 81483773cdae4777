//! What a table is opened with. Layout options must agree between all who open it; the rest is each one's own.

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
    /// Bytes of every value. Layout.
    pub value_bytes: usize,
    /// Entries of a leaf. Layout.
    pub span: usize,
    /// Entries of a neighbourhood. Layout.
    pub neighbourhood: usize,
    /// Bits of a key that the directory goes by, at most: it takes 8 bytes for each combination of them, in a memory node
    /// and in every compute node. A table that has more leaves is right all the same, but not all of its keys are found
    /// in one round trip. Layout.
    pub depth_max: u8,
    /// Lock words per memory node. Layout.
    pub locks_per_node: u32,
    /// Locks in on-chip memory where there is any, else in host memory. Layout.
    pub on_chip: bool,
    /// Bytes of the hotspot buffer of a compute node, which speculative reads go by; 0 for none of either.
    pub hotspot_bytes: u64,
    /// Local lock tables in front of the remote ones.
    pub hierarchical: bool,
    /// Consecutive handovers of a lock between threads of a compute node; 0 for none.
    pub handover_max: u32,
    /// Lock CAS and READ in one chain, where the world executes them in order.
    pub lock_and_read: bool,
    /// Attempts of any loop before a typed error.
    pub attempts: u32,
    /// Chunk that an allocator asks for, bytes. No directory is larger.
    pub chunk_bytes: u64,
    /// CPU time that a simulator charges.
    pub cpu: CpuCost,
    /// Flaws, each switchable alone. Off by default.
    #[cfg(feature = "study")]
    pub flaws: TableFlaws,
}

/// Default of [`TableOptions::span`] (CHIME §5.1).
pub const DEFAULT_SPAN: usize = 64;
/// Default of [`TableOptions::neighbourhood`] (CHIME §5.1).
pub const DEFAULT_NEIGHBOURHOOD: usize = 8;
/// Default of [`TableOptions::depth_max`]: a million slots, 8 MiB, for some 20 million keys.
pub const DEFAULT_DEPTH_MAX: u8 = 20;

/// A READ of a whole leaf that took longer is not trusted: its versions are narrow (docs/protocol/chime.md H2).
const WINDOW: Nanos = Nanos::from_micros(500);

impl TableOptions {
    /// Defaults, for values of `value_bytes` bytes.
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
            // Nothing is merged: neighbours need not lie on one memory node.
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
