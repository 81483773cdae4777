//! The only place in dmkit that names atomics and threads: std, or loom under `--cfg dm_loom`.
//!
//! Every structure that threads of one compute node share is built on this crate, so that the same source
//! runs in production, under loom (as the memory-order oracle) and under the explorer (as the protocol
//! oracle); `docs/TESTING.md` has both among the layers of testing.
//!
//! | item | std | loom | explorer |
//! |---|---|---|---|
//! | [`atomic`], [`thread`], [`Arc`] | std | loom | std |
//! | [`Mutex::with`], [`RwLock::with_read`] | one lock | one lock | one atomic step; [`local_sections`] tells that it happened |
//! | [`Fingerprint`] | – | – | part of the state's hash |
//! | [`epoch`] | atomics | loom's | an operation begins and ends within a step |
//! | [`region`] | std | std (remote memory is not loom's matter) | – |
//!
//! # Example
//! ```
//! use dm_sync::{Arc, Mutex, thread};
//! let total = Arc::new(Mutex::new(0u64));
//! let worker = thread::spawn({
//!     let total = Arc::clone(&total);
//!     move || total.with(|t| *t += 2)
//! });
//! total.with(|t| *t += 1);
//! worker.join().expect("the worker does not panic");
//! assert_eq!(total.with(|t| *t), 3);
//! ```
//!
//! # Unsafe
//! [`region`] maps memory and views it as atomic words, and [`process_alive`] calls `kill` with signal 0. Nothing else is
//! unsafe.
//!
//! # Limits
//! loom models at most five threads, treats SeqCst accesses as AcqRel, and sees nothing of [`region`] or of
//! foreign crates' atomics. A model that ends by its time or branch limit returns success: compare counts.

pub mod atomic;
pub mod epoch;
mod fingerprint;
mod mutex;
mod process;
pub mod region;
mod rwlock;
mod scale;
pub mod thread;

#[cfg(dm_loom)]
pub use loom::sync::Arc;
#[cfg(not(dm_loom))]
pub use std::sync::Arc;

pub use crossbeam_utils::CachePadded;
pub use fingerprint::{Fingerprint, FingerprintHasher, fingerprint_of, fingerprint_unordered};
pub use mutex::{Mutex, count_section, local_sections};
pub use process::process_alive;
pub use rwlock::RwLock;
pub use scale::{SMALL_WORLD, scaled};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
