//! Models of whole trees.

mod crash;
mod flaws;
pub(crate) mod memory;
pub(crate) mod mended;
mod merge;
mod split;
pub(crate) mod subject;
pub(crate) mod world;

use crate::Entry;

/// The entries of this module, in the order of the page.
pub(crate) const ENTRIES: &[Entry] = &[
    split::ENTRY,
    split::VARIANTS,
    flaws::T_S4,
    flaws::T_S5,
    flaws::BOOTSTRAP,
    merge::MERGE,
    merge::SCAN,
    crash::SPLIT,
    crash::FAILED_SPLIT,
    crash::MERGE,
    crash::FAILED_MERGE,
    mended::SPLIT,
    mended::MERGE,
];
