//! Atomic integers, fences and orderings, from std, loom or shuttle.
//!
//! shuttle treats every access as SeqCst: it finds wrong interleavings, but never a wrong ordering. Its `fence` does
//! nothing and is not a point at which threads switch, and its `compare_exchange_weak` never fails spuriously. loom
//! checks the orderings.

pub use crate::backend::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
