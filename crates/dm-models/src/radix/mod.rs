//! Models of radix trees.

mod crash;
mod flaws;
mod locked;
pub(crate) mod memory;
mod out_of_place;
mod races;
mod skipped;
mod world;

use crate::Entry;

/// The entries of this module, in the order of the page.
pub(crate) const ENTRIES: &[Entry] = &[
    races::ENTRY,
    crash::CRASH,
    crash::CANCEL,
    crash::FAIL,
    locked::RACES,
    locked::CRASH,
    locked::CANCEL,
    out_of_place::RACES,
    out_of_place::CRASH,
    out_of_place::CANCEL,
    skipped::RACES,
    flaws::T_M1,
    flaws::T_M2,
    flaws::T_M3,
    flaws::T_M4,
    flaws::T_M5,
    flaws::T_M6,
    flaws::T_M7,
    out_of_place::T_M8,
];
