//! Models of clients that die.

mod holder_dies;

use crate::{Entry, locks};

/// In the order listed.
pub(crate) const ENTRIES: &[Entry] = &[holder_dies::ENTRY, locks::SHARER_DIES];
