//! Errors of locks and allocation, as an index's.

use dm_alloc::AllocError;
use dm_index::IndexError;
use dm_lock::LockError;
use dm_verbs::RemotePtr;

/// An allocation's error as an index's.
pub fn alloc_error(e: AllocError) -> IndexError {
    match e {
        AllocError::Verb(e) => IndexError::Verb(e),
        AllocError::Control(e) => IndexError::Control(e),
        AllocError::Contended(e) => IndexError::Exhausted(e),
        AllocError::Exhausted { wanted, nodes_tried } => IndexError::OutOfMemory {
            wanted: u64::from(wanted),
            nodes: nodes_tried,
        },
        AllocError::NoSlot { .. } => IndexError::Pool {
            at: RemotePtr::NULL,
            why: "all slots for members are taken by compute nodes that announce themselves",
        },
        AllocError::NoMemoryNodes => IndexError::OutOfMemory { wanted: 0, nodes: 0 },
        AllocError::BadSize { .. } => IndexError::BadInput {
            why: "a node is larger than a chunk",
        },
        // The rest are a superblock's, which allocation does not touch.
        _ => IndexError::Pool {
            at: RemotePtr::NULL,
            why: "the pool does not fit this index",
        },
    }
}

pub(crate) fn lock_error(e: LockError) -> IndexError {
    e.into()
}
