//! How a tree works.

use dm_index::CpuCost;
use dm_layout::NodeTypes;
use dm_verbs::Nanos;

#[cfg(feature = "study")]
use crate::ArtFlaws;

/// Default of [`ArtOptions::cache_bytes`].
pub const DEFAULT_CACHE_BYTES: u64 = 64 << 20;
/// Default of [`ArtOptions::turn`].
pub const DEFAULT_TURN: Nanos = Nanos::from_millis(4_000);
/// Default of [`ArtOptions::depth_slack`].
pub const DEFAULT_DEPTH_SLACK: u8 = 1;
/// Default of [`ArtOptions::attempts`].
pub const DEFAULT_ATTEMPTS: u32 = 1 << 20;

/// How an [`crate::Art`] works.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ArtOptions {
    /// The sizes of nodes. All clients of a tree must use the same.
    pub types: NodeTypes,
    /// Budget of a compute node's cache of inner nodes, bytes.
    pub cache_bytes: u64,
    /// Attempts of an operation's loop before a typed error.
    pub attempts: u32,
    /// Where memory is used again: how long at least cached nodes are good for. Twice as long at most, and for ever as long as
    /// nothing is retired.
    pub turn: Nanos,
    /// Key bytes by which a leaf's link depth is larger than it need be. A split that far below needs no FAA; in return
    /// it takes a second READ to prove a key absent whose slot leads to another's leaf.
    pub depth_slack: u8,
    /// CPU time of each operation.
    pub cpu: CpuCost,
    /// Published flaws.
    #[cfg(feature = "study")]
    pub flaws: ArtFlaws,
}

impl Default for ArtOptions {
    fn default() -> Self {
        Self {
            types: NodeTypes::SHIPPED,
            cache_bytes: DEFAULT_CACHE_BYTES,
            attempts: DEFAULT_ATTEMPTS,
            turn: DEFAULT_TURN,
            depth_slack: DEFAULT_DEPTH_SLACK,
            cpu: CpuCost::NONE,
            #[cfg(feature = "study")]
            flaws: ArtFlaws::default(),
        }
    }
}
