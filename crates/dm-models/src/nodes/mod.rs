//! Models of single nodes.

mod shared;
mod slots;
mod versions;
mod words;
mod world;

use crate::Entry;

/// The entries of this module, in the order of the page.
pub(crate) const ENTRIES: &[Entry] = &[
    versions::LINES,
    versions::CHECKSUM,
    versions::T_S1,
    versions::T_S2A,
    versions::T_S2B,
    shared::SHARED,
    slots::T_D1,
    slots::T_D2,
    shared::T_D3,
    slots::T_D4,
    slots::T_D5,
    slots::T_D6_I,
    slots::T_D6_II,
    shared::T_D7,
    shared::T_D14,
    words::WORDS,
    words::T_M1,
    words::T_M2,
    words::T_M3,
    words::T_M4,
];
