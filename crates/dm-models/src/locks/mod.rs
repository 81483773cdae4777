//! Models of locks: the shipped `dm-lock`, over a counter.

mod counter;
mod hocl;
mod t_s3;

use crate::Entry;

/// In the order listed.
pub(crate) const ENTRIES: &[Entry] = &[hocl::QUEUE, t_s3::ENTRY];
