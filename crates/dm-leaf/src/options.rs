//! Options of reading and writing nodes.

use dm_layout::SplitBias;
use dm_verbs::Nanos;

#[cfg(feature = "study")]
use crate::LeafFlaws;

/// Options of a [`crate::Nodes`] store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeOptions {
    /// Maximum number of attempts if a READ is torn or a node is being changed. After that, the operation returns
    /// [`IndexError::Exhausted`](dm_index::IndexError::Exhausted).
    pub attempts: u32,
    /// The version window: a READ that took this long or longer is repeated, because a version may have wrapped
    /// meanwhile.
    ///
    /// A node version of 8 bits wraps after 256 structural changes of a node. Each change takes at least 3 round trips
    /// under the node's lock, and a node must be filled again before its next split. So 256 changes take longer than
    /// the default. The version of an entry that spans lines has 16 bits in slotted nodes. It wraps after 65,536 writes
    /// of the entry, each of which keeps the lock for at least one round trip, so these writes take much longer.
    pub read_window: Nanos,
    /// The position at which a node is split.
    pub bias: SplitBias,
    /// Whether the right half of a split may be on any memory node. If not, it is on the memory node of the left half
    /// if there is room, because nodes on different memory nodes cannot be merged.
    pub spread: bool,
    /// The kind of node. Nodes of the same size and kind reuse each other's memory, so different formats must have
    /// different kinds.
    pub kind: u8,
    /// Published flaws and broken twins that are switched on.
    #[cfg(feature = "study")]
    pub flaws: LeafFlaws,
}

/// Default of [`NodeOptions::read_window`].
pub const DEFAULT_READ_WINDOW: Nanos = Nanos::from_micros(1_000);
/// Default of [`NodeOptions::attempts`].
pub const DEFAULT_ATTEMPTS: u32 = 1 << 20;

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            attempts: DEFAULT_ATTEMPTS,
            read_window: DEFAULT_READ_WINDOW,
            bias: SplitBias::Median,
            spread: false,
            kind: 0,
            #[cfg(feature = "study")]
            flaws: LeafFlaws::default(),
        }
    }
}
