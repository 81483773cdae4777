//! Memory that nothing points to yet, and memory that nothing points to any more.

use dm_alloc::{Allocator, Class};
use dm_index::IndexError;
use dm_layout::NodeTypes;
use dm_verbs::{Control, RemotePtr, Verbs};

/// Leaves of so many bytes.
pub(crate) const fn leaf_class(bytes: u32) -> Class {
    Class { bytes, kind: 0 }
}

/// Nodes of this type.
pub(crate) fn node_class(types: &NodeTypes, kind: u8) -> Class {
    Class {
        bytes: types.block_bytes(kind) as u32,
        kind: 1,
    }
}

/// A block that goes back to its allocator unless it was published, or may have been.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    alloc: &'a Allocator,
    block: dm_alloc::Block,
    class: Class,
    /// Nothing of this client is in flight to it, and nothing points to it.
    idle: bool,
    /// The link depth of the leaf of its operation's key and value that was written to it before.
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

    /// What a node that is built here must call its incarnation.
    pub(crate) fn incarnation(&self) -> u32 {
        self.block.incarnation
    }

    /// Something is posted to it, perhaps the CAS that publishes it: from here on it is lost if its operation is dropped.
    pub(crate) fn busy(&mut self) {
        self.idle = false;
    }

    /// All that was posted has completed, and the CAS certainly failed.
    pub(crate) fn idle(&mut self) {
        self.idle = true;
    }

    /// The same of a leaf: the next attempt finds it written, with this link depth.
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

/// Takes a leaf or a node out of use: nothing links to it any more, and this client is who retires it.
pub(crate) fn retire(alloc: &Allocator, at: RemotePtr, incarnation: u32, class: Class) {
    let block = dm_alloc::Block {
        incarnation,
        ..dm_alloc::Block::fresh(at)
    };
    //= docs/protocol/smart.md M21
    alloc.retire(block.after(block.version), class);
}
