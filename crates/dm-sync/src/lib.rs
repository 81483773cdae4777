//! The only crate of dmkit that uses atomics directly. Its atomics, locks and threads come from std, from loom
//! (`--cfg dm_loom`) or from shuttle (`--cfg dm_shuttle`).
//!
//! Every structure that threads of one compute node share is built on this crate. So the same source runs in
//! production, under loom (which checks memory orders), under shuttle (which samples schedules of more
//! threads than loom can handle) and under the explorer (which checks protocols). `docs/TESTING.md` describes
//! these layers of testing.
//!
//! | item | std | loom | shuttle | explorer |
//! |---|---|---|---|---|
//! | [`atomic`], [`thread`] | std | loom | shuttle, every access SeqCst | std |
//! | [`Arc`] | std | loom | std: counting is not a step | std |
//! | [`Mutex::with`], [`RwLock::with_read`] | one lock | one lock | one lock | one step; [`local_sections`] counts it |
//! | [`Fingerprint`] | – | – | – | part of the state's hash |
//! | [`epoch`] | atomics | loom's | shuttle's; fences do nothing | the beginning and the end are each within a step |
//! | [`roster`], [`gate`] | atomics | loom's | shuttle's | used within a step |
//! | [`region`] | std | std (loom does not check remote memory) | std: a request is one step | – |
//! | `schedules` | – | – | draws schedules, and repeats one | – |
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
//! [`region`] maps memory and views it as atomic words, [`process_alive`] calls `kill` with signal 0, and [`prefetch`]
//! is one instruction. Nothing else is unsafe.
//!
//! # Limits
//! loom models at most five threads, treats SeqCst accesses as AcqRel, and does not see [`region`] or the atomics of
//! foreign crates. A model that reaches its limit of time or of permutations returns success, so check the number of
//! interleavings that it has visited.
//!
//! shuttle samples, so a bug that it does not find may still exist. It orders all accesses as if they were
//! SeqCst; only loom finds a fence or an ordering that is too weak. Under shuttle and loom, use atomics and
//! locks only within a model.

pub mod atomic;
mod backend;
pub mod epoch;
mod fingerprint;
pub mod gate;
mod mutex;
mod prefetch;
mod process;
pub mod region;
pub mod roster;
mod rwlock;
mod scale;
#[cfg(dm_shuttle)]
pub mod schedules;
pub mod thread;

pub use backend::sync::Arc;
pub use crossbeam_utils::CachePadded;
pub use fingerprint::{Fingerprint, FingerprintHasher, fingerprint_of, fingerprint_unordered};
pub use mutex::{Mutex, count_section, local_sections};
pub use prefetch::prefetch;
pub use process::process_alive;
pub use rwlock::RwLock;
pub use scale::{SMALL_WORLD, scaled};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
