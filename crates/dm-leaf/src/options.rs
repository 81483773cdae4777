//! Options of reading and writing nodes.

use dm_layout::SplitBias;
use dm_verbs::Nanos;

#[cfg(feature = "study")]
use crate::LeafFlaws;

/// Options of a [`crate::Nodes`] store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeOptions {
    /// Maximum number of attempts at a READ that is torn, or at a node that is being split; then the operation
    /// returns an error.
    pub attempts: u32,
    /// The version window: a READ that took at least this long is repeated, because a version may have wrapped
    /// meanwhile.
    ///
    /// Between two node-level writes of one node lie at least half its capacity in inserts, each of which locks and
    /// writes the node (at least 2 round trips). With versions of 8 bits, a wrap takes 256 node-level writes. On any
    /// network the default is far below that time.
    pub read_window: Nanos,
    /// The position at which a node is split.
    pub bias: SplitBias,
    /// Whether the right half of a split may go to any memory node. If not, it goes to the memory node of the left
    /// half, which merges require.
    pub spread: bool,
    /// The kind of node. Nodes of the same size and kind reuse each other's memory, so different formats must have
    /// different kinds.
    pub kind: u8,
    /// Published flaws that are switched on.
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
