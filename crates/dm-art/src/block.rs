//! Memory that nothing points to yet.

use dm_alloc::Allocator;
use dm_index::IndexError;
use dm_verbs::{Control, RemotePtr, Verbs};

/// A block that goes back to its allocator unless it was published, or may have been.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    alloc: &'a Allocator,
    at: RemotePtr,
    bytes: u32,
    /// Nothing of this client is in flight to it, and nothing points to it.
    idle: bool,
}

impl<'a> Block<'a> {
    pub(crate) async fn new<V: Verbs + Control>(
        v: &V,
        alloc: &'a Allocator,
        bytes: u32,
        near: Option<RemotePtr>,
    ) -> Result<Self, IndexError> {
        let at = alloc.alloc(v, bytes, near).await?;
        Ok(Self {
            alloc,
            at,
            bytes,
            idle: true,
        })
    }

    pub(crate) fn at(&self) -> RemotePtr {
        self.at
    }

    /// Something is posted to it, perhaps the CAS that publishes it: from here on it is lost if its operation is dropped.
    pub(crate) fn busy(&mut self) {
        self.idle = false;
    }

    /// All that was posted has completed, and the CAS certainly failed.
    pub(crate) fn idle(&mut self) {
        self.idle = true;
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        //= docs/protocol/smart.md M15
        if self.idle {
            self.alloc.free_unpublished(self.at, self.bytes);
        }
    }
}
