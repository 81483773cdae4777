//! Models of recovery: a client dies, for example while it holds or shares a lock. Other members expel its compute
//! node, free its locks, finish its work, and find the blocks that it has lost. They run the shipped `dm-alloc` and
//! `dm-lock`.

mod census;
mod clear;
mod expel;
mod gate;
mod member;
mod shares;
mod sums;
mod takeover;
mod world;

use crate::Entry;

/// The entries of this module, in the order of the page.
pub(crate) const ENTRIES: &[Entry] = &[
    takeover::IN_TABLE,
    takeover::IN_NODE,
    expel::ENTRY,
    gate::ENTRY,
    shares::ENTRY,
    clear::ENTRY,
    census::ENTRY,
];
