//! Locks of radix nodes, for trees in which a client changes a node only under the node's lock (ROWEX).

use core::fmt;

use dm_index::{IndexError, KeyBytes};
use dm_lock::Guard;
use dm_verbs::{Control, RemotePtr, Verbs};

use crate::SingleStore;
use crate::art::ArtClient;

/// The lock of a node that is about to change. It is empty if the tree's nodes have no locks.
///
/// If this is dropped, the unlock is posted behind everything that the client has posted to the node before.
#[must_use = "if this is dropped, the unlock is not awaited"]
pub(crate) struct NodeLock<'h, V: Verbs>(Option<Box<Guard<'h, V>>>);

impl<V: Verbs> fmt::Debug for NodeLock<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeLock").field(&self.is_held()).finish()
    }
}

impl<V: Verbs> NodeLock<'_, V> {
    /// Returns whether a lock is held.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.0.is_some()
    }

    /// Releases the lock. The caller must have awaited its changes of the node, because the lock may be handed to
    /// another client of the compute node.
    pub(crate) async fn release(self) -> Result<(), IndexError> {
        match self.0 {
            Some(guard) => Ok(Box::pin(guard.release()).await?),
            None => Ok(()),
        }
    }
}

impl<'h, V, K, L> ArtClient<'h, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    /// Takes the lock of the node at `at`. Does nothing if the tree's nodes have no locks. The client must hold no
    /// other lock, because two nodes can have the same lock.
    pub(crate) async fn lock_node(&self, at: RemotePtr) -> Result<NodeLock<'h, V>, IndexError> {
        //= docs/protocol/smart.md M24
        match &self.art.node_locks {
            // The future is boxed, so that trees without such locks have no larger futures.
            Some(locks) => Ok(NodeLock(Some(Box::new(Box::pin(locks.lock(self.v, at)).await?)))),
            None => Ok(NodeLock(None)),
        }
    }
}
