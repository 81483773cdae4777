//! Models of whole trees.

use crate::Entry;

/// In the order listed.
pub(crate) const ENTRIES: &[Entry] = &[];
