//! Options of a radix tree.

use dm_cache::PrefixIndex;
use dm_index::{CpuCost, IndexError};
use dm_layout::{NodeTypes, PARTIAL_MAX, RadixHeader};
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

/// The path compression of a tree: the number of key bytes that a header holds, and what becomes of further bytes that
/// all keys below a node share. Nodes with one child hold them, or no node holds them. A header holds the last of the
/// bytes in front of its branch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Compression {
    partial_max: u8,
    skips: bool,
}

impl Compression {
    /// A header holds up to [`PARTIAL_MAX`] key bytes, and nodes with one child hold further bytes.
    pub const PESSIMISTIC: Self = Self {
        partial_max: PARTIAL_MAX as u8,
        skips: false,
    };
    /// Headers hold no key bytes. A client skips the bytes in front of a branch, and compares them when it has found a
    /// leaf.
    pub const OPTIMISTIC: Self = Self {
        partial_max: 0,
        skips: true,
    };
    /// A header holds up to [`PARTIAL_MAX`] key bytes, and a client skips further bytes.
    pub const HYBRID: Self = Self {
        partial_max: PARTIAL_MAX as u8,
        skips: true,
    };
    /// Headers hold no key bytes, so a path has a node for each key byte that several keys share.
    pub const NONE: Self = Self {
        partial_max: 0,
        skips: false,
    };

    /// Returns the maximum number of key bytes in a header.
    #[inline]
    #[must_use]
    pub const fn partial_max(self) -> usize {
        self.partial_max as usize
    }

    /// Returns whether a client skips key bytes that no header holds.
    #[inline]
    #[must_use]
    pub const fn skips(self) -> bool {
        self.skips
    }

    /// Returns the number of nodes with one child that a path from key byte `from` needs above a node with this branch.
    pub(crate) const fn nodes_above(self, from: usize, branch: usize) -> usize {
        let most = self.partial_max();
        match self.skips {
            true => 0,
            // Each further node holds `most` bytes in its header and one in its slot.
            false => (branch - from).saturating_sub(most).div_ceil(most + 1),
        }
    }

    /// Returns the header of a node with this branch, on the path of `key`. The path to the node determines only the
    /// key bytes in front of `from`.
    pub(crate) fn header(self, kind: u8, from: usize, branch: usize, key: &[u8]) -> RadixHeader {
        let begin = from.max(branch.saturating_sub(self.partial_max()));
        RadixHeader::new(begin as u8, kind, &key[begin..branch])
    }

    /// Returns the key bytes in a header from byte `from` on, and the index of the first one. Returns `None` if bytes
    /// are missing, and the tree does not skip any.
    #[inline]
    pub(crate) fn partial(self, header: &RadixHeader, from: u8) -> Option<(u8, &[u8])> {
        let begin = match self.skips {
            true => from.max(header.depth()),
            false => from,
        };
        Some((begin, header.partial_from(begin)?))
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
    /// The index of this cache. [`PrefixIndex::Hash`] needs a compression that skips no key bytes.
    pub cache_index: PrefixIndex,
    /// Retry limit of each of an operation's loops; exceeding it returns an error.
    pub attempts: u32,
    /// The length of a turn of the cache, if memory is reused. A cached node is used for one to two turns, or for
    /// ever if nothing is retired.
    pub turn: Nanos,
    /// The number of key bytes that a client adds to the link depth of a new leaf (see
    /// [`SingleStore`](crate::SingleStore)). If a leaf moves at most that many bytes deeper in a split, no FAA is
    /// needed. In return, proving that a key is absent may take a second READ if the key's cached slot leads to another
    /// key's leaf.
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
            cache_index: PrefixIndex::Radix,
            attempts: DEFAULT_ATTEMPTS,
            turn: DEFAULT_TURN,
            depth_slack: DEFAULT_DEPTH_SLACK,
            cpu: CpuCost::NONE,
            #[cfg(feature = "study")]
            flaws: ArtFlaws::default(),
        }
    }

    /// Checks that the options do not contradict each other.
    ///
    /// # Errors
    /// Returns [`IndexError::BadInput`] if the cache has a hash index and the compression skips key bytes.
    pub const fn check(&self) -> Result<(), IndexError> {
        match (self.cache_index, self.compression.skips()) {
            (PrefixIndex::Hash, true) => Err(IndexError::BadInput {
                why: "a cache with a hash index needs whole prefixes: choose a compression that skips no key bytes",
            }),
            _ => Ok(()),
        }
    }
}

impl Default for ArtOptions {
    fn default() -> Self {
        Self::new(NodeTypes::SHIPPED)
    }
}
