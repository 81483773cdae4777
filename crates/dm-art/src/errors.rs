//! Constructors of index errors for corrupt or misplaced bytes.

use dm_index::IndexError;
use dm_layout::{Corrupt, Reason};
use dm_verbs::RemotePtr;

pub(crate) fn corrupt(node: RemotePtr) -> impl Fn(Corrupt) -> IndexError {
    move |what| IndexError::Corrupt { node, what }
}

/// Returns the error for a node or leaf that is linked at a wrong place.
pub(crate) fn misplaced(node: RemotePtr) -> IndexError {
    corrupt(node)(Corrupt {
        offset: 0,
        reason: Reason::Order,
    })
}

/// Returns the error for an address that a slot cannot hold.
pub(crate) fn unaddressable() -> IndexError {
    IndexError::BadInput {
        why: "the address does not fit into a slot: it must be 64-byte aligned, on one of 256 memory nodes of 64 TiB",
    }
}
