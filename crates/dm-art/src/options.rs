//! Options of a radix tree.

use dm_index::CpuCost;
use dm_layout::{NodeTypes, PARTIAL_MAX};
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

/// The path compression of a tree: the number of key bytes that a header holds. If a path has more key bytes without a
/// branch, nodes with one child hold the rest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Compression {
    partial_max: u8,
}

impl Compression {
    /// A header holds up to [`PARTIAL_MAX`] key bytes.
    pub const PESSIMISTIC: Self = Self {
        partial_max: PARTIAL_MAX as u8,
    };
    /// Headers hold no key bytes, so a path has a node for each key byte that several keys share.
    pub const NONE: Self = Self { partial_max: 0 };

    /// Returns the maximum number of key bytes in a header.
    #[inline]
    #[must_use]
    pub const fn partial_max(self) -> usize {
        self.partial_max as usize
    }
}

/// Options of an [`crate::Art`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ArtOptions {
    /// The sizes of nodes. All clients of a tree must use the same sizes.
    pub types: NodeTypes,
    /// The path compression. All clients of a tree must use the same one.
    pub compression: Compression,
    /// Budget in bytes of a compute node's cache of inner nodes.
    pub cache_bytes: u64,
    /// Retry limit of an operation's loop; exceeding it returns an error.
    pub attempts: u32,
    /// The length of a turn of the cache, if memory is reused. A cached node is used for one to two turns, or for
    /// ever if nothing is retired.
    pub turn: Nanos,
    /// The number of key bytes by which a leaf's link depth is larger than necessary. If a leaf moves at most that many
    /// bytes deeper in a split, no FAA is needed. In return, proving that a key is absent takes a second READ if its
    /// slot leads to another key's leaf.
    pub depth_slack: u8,
    /// CPU time that a simulator charges for each operation.
    pub cpu: CpuCost,
    /// Published flaws that are switched on.
    #[cfg(feature = "study")]
    pub flaws: ArtFlaws,
}

impl ArtOptions {
    /// Returns defaults for nodes of these sizes.
    pub fn new(types: NodeTypes) -> Self {
        Self {
            types,
            compression: Compression::PESSIMISTIC,
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

impl Default for ArtOptions {
    fn default() -> Self {
        Self::new(NodeTypes::SHIPPED)
    }
}
