//! The options of an index. All clients that open a pool must use the same layout options, but a client that opens an
//! existing pool takes the numbers of locks and of members from the pool. Each client may choose the other options.

use dm_alloc::{LockHome, LockPlan, ReclaimOptions};
use dm_assemble::{Common, OpenError};
use dm_combine::Rdwc;
use dm_hopscotch::{HopOptions, Hopscotch};
use dm_index::{ComposedOptions, CpuCost};
use dm_indirect::REFERENCE_BYTES;
use dm_layout::{Checksummed, KeyBytes, Slotted, SplitBias};
use dm_leaf::NodeOptions;
use dm_learned::{LearnedOptions, Predicts};
use dm_lock::{Local, LockOptions, LockPlace};
use dm_verbs::Nanos;

/// Options of a [`crate::Rolex`], a [`crate::Published`] or a [`crate::ChimeLearned`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Bytes of every value. This is a layout option.
    pub value_bytes: usize,
    /// Whether values are references to items of variable length ([`Options::items`]). This is a layout option.
    pub items: bool,
    /// Entries of a leaf. This is a layout option.
    pub span: usize,
    /// Entries of a neighbourhood of hopscotch leaves. This is a layout option of [`crate::ChimeLearned`].
    pub neighbourhood: usize,
    /// Maximum difference between the position that a model predicts and the true one, in leaves, or in entries of a
    /// [`crate::Published`].
    pub error: u32,
    /// Lock words per memory node. This is a layout option.
    pub locks_per_node: u32,
    /// Whether locks are in on-chip memory. They are in host memory if this is `false` or if there is no on-chip
    /// memory. This is a layout option.
    pub on_chip: bool,
    /// Budget in bytes of a compute node's copy of the table of leaves. If it is too small, the copy has a part of the
    /// leaves, and operations take steps to the right.
    pub cache_bytes: u64,
    /// Bytes of a compute node's hotspot buffer, which guides speculative reads of hopscotch leaves. With 0 there is no
    /// buffer.
    pub hotspot_bytes: u64,
    /// Whether there are local lock tables in front of the remote ones.
    pub hierarchical: bool,
    /// Maximum number of consecutive handovers of a lock between clients of a compute node; 0 for none.
    pub handover_max: u32,
    /// Whether the lock's CAS and the READ are in one chain, if the world executes them in order.
    pub lock_and_read: bool,
    /// The position at which a leaf is split.
    pub bias: SplitBias,
    /// Read delegation and write combining between the clients of this compute node. They are off by default.
    pub rdwc: Rdwc,
    /// Retry limit of every loop; exceeding it returns an error.
    pub attempts: u32,
    /// Size in bytes of the chunks that an allocator requests.
    pub chunk_bytes: u64,
    /// Maximum number of compute nodes that use the index at once; 0 for an index that never reuses the memory of dead
    /// leaves and of old tables. This is a layout option, which is fixed when the index is created.
    pub members: u16,
    /// Options for reclaiming memory on this compute node.
    pub reclaim: ReclaimOptions,
    /// CPU time that a simulator charges.
    pub cpu: CpuCost,
    /// Broken twins. Each can be switched on alone, and all are off by default.
    #[cfg(feature = "study")]
    pub flaws: crate::Flaws,
}

/// Default of [`Options::span`], and that of the public code of ROLEX.
pub const DEFAULT_SPAN: usize = 16;
/// Entries of a hopscotch leaf in [`Options::chime_learned`] (CHIME §5.1).
pub const CHIME_SPAN: usize = 64;
/// Default of [`Options::neighbourhood`] (CHIME §5.1).
pub const DEFAULT_NEIGHBOURHOOD: usize = 8;
/// Default of [`Options::cache_bytes`] (CHIME §5.1: 100 MB).
pub const DEFAULT_CACHE_BYTES: u64 = 100_000_000;
/// Bytes of the hotspot buffer in [`Options::chime_learned`], as in `chime`.
pub const CHIME_HOTSPOT_BYTES: u64 = 1 << 20;
/// Default of [`Options::handover_max`] (as Sherman's).
pub const DEFAULT_HANDOVER_MAX: u32 = 4;
/// Default of [`Options::attempts`].
pub const DEFAULT_ATTEMPTS: u32 = 1 << 20;
/// Default of [`Options::members`]. The slots of this many members, together with the epoch's line, fill a page.
pub const DEFAULT_MEMBERS: u16 = 63;

impl Options {
    /// Returns defaults for items of variable length: byte strings as keys and as values
    /// ([`crate::Rolex::items`]). CHIME's paper calls this index ROLEX-Indirect.
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
            error: dm_learned::DEFAULT_ERROR,
            locks_per_node: dm_alloc::DEFAULT_LOCKS_PER_NODE,
            on_chip: true,
            cache_bytes: DEFAULT_CACHE_BYTES,
            hotspot_bytes: 0,
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

    /// Returns defaults for a [`crate::ChimeLearned`] with values of `value_bytes` bytes: leaves and a hotspot buffer
    /// as in CHIME.
    pub const fn chime_learned(value_bytes: usize) -> Self {
        Self {
            span: CHIME_SPAN,
            hotspot_bytes: CHIME_HOTSPOT_BYTES,
            ..Self::new(value_bytes)
        }
    }

    /// Returns defaults for a [`crate::Published`] with values of `value_bytes` bytes: locks as in the public code, in
    /// host memory, taken before the leaf is read, and without local queues.
    pub const fn published(value_bytes: usize) -> Self {
        Self {
            on_chip: false,
            hierarchical: false,
            handover_max: 0,
            lock_and_read: false,
            ..Self::new(value_bytes)
        }
    }

    /// Returns defaults for a [`crate::Published`] of items of variable length.
    pub const fn published_items() -> Self {
        Self {
            items: true,
            ..Self::published(REFERENCE_BYTES)
        }
    }
}

/// The version window of a READ of a whole hopscotch leaf. It is shorter than that of other leaves, because the
/// versions of a hopscotch leaf have only 6 bits (docs/protocol/chime.md H2).
const HOP_WINDOW: Nanos = Nanos::from_micros(400);

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
            reach: ADDRESSED_BYTES,
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

    /// Returns the format of whole leaves.
    pub(crate) fn leaf<K: KeyBytes>(&self) -> Result<Slotted<K>, OpenError> {
        Ok(Slotted::with_span(self.span, self.value_bytes)?)
    }

    /// Returns the format of sorted leaves.
    pub(crate) fn sorted_leaf<K: KeyBytes>(&self) -> Result<Checksummed<K>, OpenError> {
        Ok(Checksummed::with_span(self.span, self.value_bytes)?)
    }

    /// Returns the format of hopscotch leaves.
    pub(crate) fn hop_leaf<K: KeyBytes>(&self) -> Result<Hopscotch<K>, OpenError> {
        Ok(Hopscotch::new(self.span, self.neighbourhood, self.value_bytes)?)
    }

    pub(crate) fn leaves(&self) -> NodeOptions {
        NodeOptions {
            attempts: self.attempts,
            bias: self.bias,
            ..NodeOptions::default()
        }
    }

    pub(crate) fn hop_leaves(&self) -> NodeOptions {
        NodeOptions {
            read_window: HOP_WINDOW,
            ..self.leaves()
        }
    }

    pub(crate) fn hop(&self) -> HopOptions {
        HopOptions {
            hotspot_bytes: self.hotspot_bytes,
            ..HopOptions::default()
        }
    }

    pub(crate) fn learned(&self) -> LearnedOptions {
        LearnedOptions {
            error: self.error,
            #[cfg(feature = "study")]
            flaws: self.flaws.learned,
            ..LearnedOptions::new(self.cache_bytes, self.attempts)
        }
    }

    /// Returns the options of models that predict runs. The leaf format has already refused spans of more than 16 bits.
    pub(crate) fn runs(&self) -> LearnedOptions {
        LearnedOptions {
            predicts: Predicts::Run {
                span: u32::try_from(self.span).unwrap_or(u32::MAX),
            },
            ..self.learned()
        }
    }

    pub(crate) fn composed(&self) -> ComposedOptions {
        ComposedOptions::new(self.attempts, self.cpu)
    }
}

/// Bytes of each memory node that an address in a table can reach: 16 TiB.
const ADDRESSED_BYTES: u64 = 1 << 44;
