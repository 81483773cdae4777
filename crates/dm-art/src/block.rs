//! Blocks that nothing points to: new blocks before they are published, and blocks that are retired.

use dm_alloc::{Allocator, Class, Life};
use dm_index::IndexError;
use dm_layout::{NodeTypes, RADIX_INCARNATION_AT};
use dm_verbs::{Control, RemotePtr, Verbs};

/// Returns the class of leaves of this size.
pub(crate) const fn leaf_class(bytes: u32) -> Class {
    Class { bytes, kind: 0 }
}

/// The place of a node's incarnation. A node has no version.
pub(crate) const LIFE: Life = Life::Header {
    incarnation_at: RADIX_INCARNATION_AT,
    version_at: 0,
};

/// Returns the class of nodes of this type.
pub(crate) fn node_class(types: &NodeTypes, kind: u8) -> Class {
    Class {
        bytes: types.block_bytes(kind) as u32,
        kind: 1,
    }
}

/// A block that returns to its allocator when it is dropped, unless it was or may have been published, or a request to
/// it may be in flight.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    alloc: &'a Allocator,
    block: dm_alloc::Block,
    class: Class,
    /// Whether no request of this client to the block is in flight, and nothing points to it.
    idle: bool,
    /// The branch of the slot for which an earlier attempt has written the operation's leaf to this block, if any.
    pub(crate) holds: Option<usize>,
}

impl<'a> Block<'a> {
    pub(crate) async fn new<V: Verbs + Control>(
        v: &V,
        alloc: &'a Allocator,
        class: Class,
        near: Option<RemotePtr>,
    ) -> Result<Self, IndexError> {
        let block = alloc.take(v, class, near).await?;
        Ok(Self {
            alloc,
            block,
            class,
            idle: true,
            holds: None,
        })
    }

    #[inline]
    pub(crate) fn at(&self) -> RemotePtr {
        self.block.at
    }

    /// Returns the incarnation that a node in this block must have.
    pub(crate) fn incarnation(&self) -> u32 {
        self.block.incarnation
    }

    /// Records that the operation will post a request to the block, or the CAS that publishes it. Until [`Block::idle`]
    /// is called, the destructor does not return the block.
    pub(crate) fn busy(&mut self) {
        self.idle = false;
    }

    /// Records that all requests to the block have completed, and that the CAS that should publish it has certainly
    /// failed.
    pub(crate) fn idle(&mut self) {
        self.idle = true;
    }

    /// Records that all requests have completed, as [`Block::idle`] does, and that the block holds a leaf for a slot at
    /// this branch. The next attempt can use that leaf if its slot has the same branch.
    pub(crate) fn written(&mut self, depth: usize) {
        self.idle();
        self.holds = Some(depth);
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        //= docs/protocol/smart.md M15
        if self.idle {
            let next = self.block.after(self.block.version);
            self.alloc.give_back(next, self.class);
        }
    }
}

/// Returns the block of a leaf or node, with the incarnation of the next one in it.
pub(crate) fn retired(at: RemotePtr, incarnation: u32) -> dm_alloc::Block {
    let block = dm_alloc::Block {
        incarnation,
        ..dm_alloc::Block::fresh(at)
    };
    block.after(block.version)
}

/// Retires the block of a leaf or node. No slot may lead to it any more, and no other client may retire it.
pub(crate) fn retire(alloc: &Allocator, at: RemotePtr, incarnation: u32, class: Class) {
    //= docs/protocol/smart.md M21
    alloc.retire(retired(at, incarnation), class);
}
