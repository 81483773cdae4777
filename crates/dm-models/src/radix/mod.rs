//! Models of radix trees.

mod crash;
mod flaws;
pub(crate) mod memory;
mod races;
mod world;

use crate::Entry;

/// The entries of this module, in the order of the page.
pub(crate) const ENTRIES: &[Entry] = &[
    races::ENTRY,
    crash::CRASH,
    crash::CANCEL,
    crash::FAIL,
    flaws::T_M1,
    flaws::T_M2,
    flaws::T_M3,
    flaws::T_M4,
    flaws::T_M5,
    flaws::T_M6,
    flaws::T_M7,
];
