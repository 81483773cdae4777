//! Models of trees over hopscotch leaves, and of hash tables of them.

mod alone;
mod faults;
mod flaws;
mod hops;
mod mended;
mod next_life;
mod splits;
mod table;
mod world;

use crate::Entry;

/// The entries of this module, in the order of the page.
pub(crate) const ENTRIES: &[Entry] = &[
    hops::ENTRY,
    splits::ENTRY,
    alone::ENTRY,
    faults::ENTRY,
    mended::ENTRY,
    flaws::T_C1,
    flaws::T_C2,
    flaws::T_C3,
    flaws::T_C4,
    next_life::T_C6,
    table::ENTRY,
    table::FAULTY,
];
