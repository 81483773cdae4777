//! Errors of allocation and of bytes, as an index's.

use dm_alloc::AllocError;
use dm_index::IndexError;
use dm_layout::{Corrupt, Reason};
use dm_verbs::RemotePtr;

pub(crate) fn alloc_error(e: AllocError) -> IndexError {
    match e {
        AllocError::Verb(e) => IndexError::Verb(e),
        AllocError::Control(e) => IndexError::Control(e),
        AllocError::Contended(e) => IndexError::Exhausted(e),
        AllocError::Exhausted { wanted, nodes_tried } => IndexError::OutOfMemory {
            wanted: u64::from(wanted),
            nodes: nodes_tried,
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

pub(crate) fn corrupt(node: RemotePtr) -> impl Fn(Corrupt) -> IndexError {
    move |what| IndexError::Corrupt { node, what }
}

/// A node or leaf that does not belong where it hangs.
pub(crate) fn misplaced(node: RemotePtr) -> IndexError {
    corrupt(node)(Corrupt {
        offset: 0,
        reason: Reason::Order,
    })
}

/// An address that no slot can hold.
pub(crate) fn unaddressable() -> IndexError {
    IndexError::BadInput {
        why: "a slot addresses 256 memory nodes of 64 TiB, by lines",
    }
}
