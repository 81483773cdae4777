//! Memory that nothing points to yet.

use core::future::Future;
use core::pin::Pin;
use core::task::Context;

use dm_alloc::Allocator;
use dm_index::IndexError;
use dm_verbs::{Control, LocalStep, RemotePtr, Step, Verbs};

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

    /// One that is at hand on `near`'s memory node; else the local step that is to be awaited before that is asked, if
    /// that is why.
    #[inline]
    pub(crate) fn at_hand<'v, V: Verbs>(
        v: &'v V,
        alloc: &'a Allocator,
        bytes: u32,
        near: RemotePtr,
        cx: &mut Context<'_>,
    ) -> Result<Self, Option<Step<'v, V>>> {
        let mut step = v.local(LocalStep::Section);
        if Pin::new(&mut step).poll(cx).is_pending() {
            return Err(Some(step));
        }
        let at = alloc.at_hand(v.client(), bytes, near).ok_or(None)?;
        Ok(Self {
            alloc,
            at,
            bytes,
            idle: true,
        })
    }

    #[inline]
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
