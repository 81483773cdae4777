//! Models of separators in a radix tree over leaves of many keys.

mod flaws;
mod world;

use crate::Entry;

/// The entries of this module, in the order of the page.
pub(crate) const ENTRIES: &[Entry] = &[flaws::T_D12];
