//! Models of locks: the shipped `dm-lock`, mostly over a counter.

mod cancelled;
mod counter;
mod handover;
mod hocl;
mod release;
mod sets;
mod shared;
mod t_r4;
mod t_s13;
mod t_s3;
mod t_s6;

pub(crate) use counter::{compute_nodes, lock_word, node, one_lock};
pub(crate) use shared::DIES as SHARER_DIES;

use crate::Entry;

/// In the order listed.
pub(crate) const ENTRIES: &[Entry] = &[
    hocl::QUEUE,
    hocl::NO_HANDOVER,
    hocl::SPIN,
    hocl::OFF,
    hocl::HOST,
    handover::ENTRY,
    release::ENTRY,
    sets::ENTRY,
    cancelled::ENTRY,
    shared::ENTRY,
    t_s3::ENTRY,
    t_s6::ENTRY,
    t_s13::ENTRY,
    t_r4::ENTRY,
];
