//! Models of single nodes.

use crate::Entry;

/// In the order listed.
pub(crate) const ENTRIES: &[Entry] = &[];
