//! Blocks, and the classes that they are exchanged within.

use dm_verbs::{LINE, RemotePtr};

/// Blocks of one class are exchanged for each other for ever, and never for one of another (type stability): whoever
/// comes by an old address finds a node of the kind that he expects, and its own word for whether it is the one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Class {
    /// Bytes of a block; rounded up to whole lines.
    pub bytes: u32,
    /// Tells formats of one size apart.
    pub kind: u8,
}

impl Class {
    /// Bytes that a block takes.
    pub(crate) fn block_bytes(self) -> u64 {
        u64::from(self.bytes).next_multiple_of(LINE as u64)
    }
}

/// A block, and by what its next node is told from its last ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Block {
    /// Where it lies.
    pub at: RemotePtr,
    /// What the node that is built here next must call its incarnation.
    pub incarnation: u32,
    /// The version that this node must begin with: one that no line of the block carries.
    pub version: u8,
}

impl Block {
    /// A block that was never handed out: zero.
    pub const fn fresh(at: RemotePtr) -> Self {
        Self {
            at,
            incarnation: 1,
            version: 1,
        }
    }

    /// Whether nobody can have an address of it: it was never handed out.
    pub const fn is_fresh(self) -> bool {
        self.incarnation == 1
    }

    /// This block after a node was written there, whose last version was `version`.
    #[must_use]
    pub const fn after(self, version: u8) -> Self {
        Self {
            at: self.at,
            incarnation: self.incarnation.wrapping_add(1),
            version: version.wrapping_add(1),
        }
    }
}
