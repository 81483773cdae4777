//! Models of read delegation and write combining. They run the shipped `dm-combine`, mostly over an index of single
//! words.

mod flaws;
mod shared;
mod tree;
mod world;

use crate::Entry;

/// The entries of this module, in the order of the page.
pub(crate) const ENTRIES: &[Entry] = &[
    shared::RDWC,
    shared::CANCELLED,
    tree::ENTRY,
    flaws::T_R1,
    flaws::T_R2,
    flaws::T_R3,
];
