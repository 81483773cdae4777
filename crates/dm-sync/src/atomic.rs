//! Atomic integers, fences and orderings: std's, or those of loom or shuttle.
//!
//! shuttle treats every access as SeqCst: it finds wrong interleavings, never a wrong ordering. Its `fence` does nothing
//! and is no point at which threads change, and its `compare_exchange_weak` never fails without a reason. loom judges the
//! orderings.

pub use crate::backend::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
