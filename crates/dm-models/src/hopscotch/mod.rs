//! Models of trees over hopscotch leaves.

mod alone;
mod flaws;
mod hops;
mod splits;
mod world;

use crate::Entry;

/// In the order listed.
pub(crate) const ENTRIES: &[Entry] = &[hops::ENTRY, splits::ENTRY, alone::ENTRY, flaws::T_C1, flaws::T_C2];
