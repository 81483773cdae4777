//! Errors of locks and allocation, as an index's.

use dm_alloc::AllocError;
use dm_index::IndexError;
use dm_lock::{LockError, LockWord};
use dm_verbs::{Exhausted, RemotePtr, Why};

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
    match e {
        LockError::Verb(e) => IndexError::Verb(e),
        LockError::Refused(e) => IndexError::Refused(e),
        LockError::Held(Exhausted {
            at,
            why: Why::LockHeld { word },
            attempts,
        }) => IndexError::LockTimeout {
            lock: at,
            owner: LockWord::unpack(word).owner,
            attempts,
        },
        LockError::Held(e) => IndexError::Exhausted(e),
        LockError::Lost { place, .. } => IndexError::Lock {
            lock: place,
            why: "it was taken over or overwritten while this client held it",
        },
        LockError::AlreadyHeld { place } => IndexError::Lock {
            lock: place,
            why: "this client holds it already",
        },
        LockError::NoLockTable { node } => IndexError::Lock {
            lock: RemotePtr::new(node, 0).unwrap_or(RemotePtr::NULL).into(),
            why: "its memory node has no lock table",
        },
        _ => IndexError::BadInput {
            why: "this client's number does not fit into a lock word",
        },
    }
}
