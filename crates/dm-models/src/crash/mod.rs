//! Models of clients that die, and of queue pairs that fail.

mod holder_dies;
pub(crate) mod sweep;

use crate::{Entry, locks};

/// The entries of this module, in the order of the page.
pub(crate) const ENTRIES: &[Entry] = &[
    holder_dies::ENTRY,
    locks::SHARER_DIES,
    locks::LOCK_FAILS,
    locks::SHARER_FAILS,
];
