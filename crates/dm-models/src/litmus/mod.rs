//! Litmus tests: a few requests that tell one side of the RNIC's contract from the other.

use crate::Entry;

/// In the order listed.
pub(crate) const ENTRIES: &[Entry] = &[];
