//! Threads and the hint of a spinning loop: std's, or those of loom or shuttle.

// loom has no scoped threads.
#[cfg(not(dm_loom))]
pub use crate::backend::thread::scope;
pub use crate::backend::{
    hint::spin_loop,
    thread::{JoinHandle, Thread, current, park, spawn, yield_now},
};
// This is always std's, because it describes the machine.
pub use std::thread::available_parallelism;

/// Returns whether this thread is unwinding in a build for loom or shuttle. A destructor must not enter a
/// section then: loom would abort instead of reporting the failure, and shuttle would run other threads
/// between the failure and its report.
///
/// In other builds this is always `false`, at no cost.
///
/// ```
/// assert!(!dm_sync::thread::unwinds_under_checker());
/// ```
#[inline(always)]
pub fn unwinds_under_checker() -> bool {
    cfg!(any(dm_loom, dm_shuttle)) && std::thread::panicking()
}
