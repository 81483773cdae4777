//! Models of locks. Most of them run the shipped `dm-lock` with a counter. The models of hangs and of progress are
//! written by hand.

mod cancelled;
mod counter;
mod failed;
mod handover;
mod hangs;
mod hocl;
mod late_unlock;
mod progress;
mod release;
mod sets;
mod shared;
mod t_r4;
mod t_s13;
mod t_s3;
mod t_s6;

pub(crate) use counter::{compute_nodes, lock_word, node, one_lock};
pub(crate) use failed::ENTRY as LOCK_FAILS;
pub(crate) use shared::{DIES as SHARER_DIES, FAILS as SHARER_FAILS};

use crate::Entry;

/// The entries of this module, in the order of the page.
pub(crate) const ENTRIES: &[Entry] = &[
    hocl::QUEUE,
    hocl::NO_HANDOVER,
    hocl::SPIN,
    hocl::OFF,
    hocl::HOST,
    handover::ENTRY,
    release::ENTRY,
    hangs::MUTUAL,
    hangs::ALONE,
    hangs::BLIND,
    progress::BYPASS,
    progress::LOCK_FREE,
    sets::ENTRY,
    cancelled::ENTRY,
    late_unlock::ENTRY,
    shared::ENTRY,
    t_s3::ENTRY,
    t_s6::ENTRY,
    t_s13::ENTRY,
    t_r4::ENTRY,
];
