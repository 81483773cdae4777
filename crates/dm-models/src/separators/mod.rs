//! Models of separators in a radix tree over leaves of many keys.

mod flaws;
mod world;

use crate::Entry;

/// The entries, in the order listed.
pub(crate) const ENTRIES: &[Entry] = &[flaws::T_D12];
