//! Blocks, and the classes within which they are reused.

use dm_verbs::{LINE, RemotePtr};

/// A size and kind of block. A block is reused within its class only (type stability), so an operation with an old
/// address finds a node of the expected kind. The node's incarnation shows whether it is still the same node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Class {
    /// Size of a block in bytes, before rounding up to whole lines.
    pub bytes: u32,
    /// Distinguishes formats of the same size.
    pub kind: u8,
}

impl Class {
    /// Returns the size of a block in bytes, rounded up to whole lines.
    pub(crate) fn block_bytes(self) -> u64 {
        u64::from(self.bytes).next_multiple_of(LINE as u64)
    }
}

/// A block, with the incarnation and version of the next node in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Block {
    /// Address of the block.
    pub at: RemotePtr,
    /// Incarnation of the next node that is built in this block.
    pub incarnation: u32,
    /// Version with which the next node must begin. No line of the block has this version.
    pub version: u8,
}

impl Block {
    /// Returns the block at `at` with the incarnation and the version for its first node.
    pub const fn fresh(at: RemotePtr) -> Self {
        Self {
            at,
            incarnation: 1,
            version: 1,
        }
    }

    /// Returns whether the block was never handed out, so that no client can have its address.
    pub const fn is_fresh(self) -> bool {
        self.incarnation == 1
    }

    /// Returns this block with the incarnation and the version of its next node. `version` is the last version of the
    /// previous node in it.
    #[must_use]
    pub const fn after(self, version: u8) -> Self {
        Self {
            at: self.at,
            incarnation: self.incarnation.wrapping_add(1),
            version: version.wrapping_add(1),
        }
    }
}
