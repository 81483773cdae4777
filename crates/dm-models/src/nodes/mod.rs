//! Models of single nodes.

mod shared;
mod versions;
mod world;

use crate::Entry;

/// In the order listed.
pub(crate) const ENTRIES: &[Entry] = &[
    versions::LINES,
    versions::CHECKSUM,
    versions::T_S1,
    versions::T_S2A,
    versions::T_S2B,
    shared::SHARED,
    shared::T_D3,
    shared::T_D7,
];
