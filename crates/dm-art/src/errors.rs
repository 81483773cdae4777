//! Errors of bytes, as an index's.

use dm_index::IndexError;
use dm_layout::{Corrupt, Reason};
use dm_verbs::RemotePtr;

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
