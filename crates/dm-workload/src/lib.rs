//! Workloads for range indexes: mixes of operations (YCSB's or your own), distributions (exact Zipf, uniform, latest),
//! keys, and stamped values.
//!
//! The next operation of a client depends only on this crate and a seed: with the same [`Plan`], every client gets the
//! same operations on every index and in every world. (The exception is [`OpStream::next_seeing`] with
//! [`Distribution::Latest`], which also depends on the inserts of other clients.) No operation allocates memory.
//!
//! | type | contents |
//! |---|---|
//! | [`Mix`] | the share of each kind of operation: YCSB A–F and LOAD (Cooper et al., SoCC 2010, §4), Sherman's mixes (SIGMOD 2022, §5.1.2), or `get:50,upsert:50` |
//! | [`Distribution`] | the choice among the loaded keys: `uniform`, `zipf:0.99`, `latest` |
//! | [`KeySpace`] | the bytes of the i-th key: a bijection, so that no two keys are equal, and no key is reserved |
//! | [`Values`] | the bytes of a value, stamped so that a reader can check that it is whole and belongs to its key |
//! | [`Plan`], [`OpStream`] | all of this together, divided among clients |
//! | [`Trace`] | recorded operations, which replace the mix and the distribution |
//!
//! # Skew and scale
//!
//! The share of the hottest key under Zipf depends on the number of keys: θ = 0.99 gives it 4.24 % of the draws among
//! 10⁹ keys and 6.50 % among 10⁶, so a small run has 1.5 times as much contention as a large one. Therefore ranks are
//! drawn over a *given* count ([`Workload::ranks`]), and mapped to the loaded keys: the hottest ranks one to one to a
//! permutation of the keys, and the other ranks by a salted hash. [`hottest_share`] returns the share of the hottest
//! key for a count.
//!
//! # Invariants
//! * I1: operations are a function of (workload, client), except those of [`OpStream::next_seeing`] with
//!   [`Distribution::Latest`].
//! * I2: the clients' numbers of operations add up to the workload's number, and no two clients insert the same key.
//! * I3: keys of different indices differ, for any number of keys.
//!
//! # Example
//!
//! ```
//! use dm_workload::{Distribution, KeySpace, Mix, OpKind, Workload};
//!
//! let plan = Workload::new("a".parse()?, 10_000, 1_000_000)
//!     .distribution("zipf:0.99".parse()?)
//!     .ranks(60_000_000) // as much contention as with the papers' 60 M keys
//!     .clients(64)
//!     .seed(7)
//!     .plan()?;
//! let keys = KeySpace::scrambled(7);
//! let updates = (0..64).flat_map(|client| plan.client(client)).filter(|op| op.kind == OpKind::Update).count();
//! assert!((495_000..505_000).contains(&updates)); // A is half reads, half updates
//! let first = plan.client(0).next().unwrap();
//! let _key: u64 = keys.number(first.key);
//! # Ok::<(), dm_workload::WorkloadError>(())
//! ```
//!
//! # Limits
//!
//! Zipf draws use `f64` powers, which can differ in the last bit between maths libraries: about one draw in 10¹⁴ could
//! then give a neighbouring rank, so a run could differ between platforms.

#![forbid(unsafe_code)]

mod addresses;
mod distribution;
mod error;
mod keys;
mod mix;
mod permutation;
mod stream;
mod trace;
mod values;
mod zipf;

pub use distribution::Distribution;
pub use error::WorkloadError;
pub use keys::KeySpace;
pub use mix::{Mix, OpKind};
pub use stream::{Op, OpStream, Plan, ScanLength, Workload};
pub use trace::{Trace, TraceError};
pub use values::Values;
pub use zipf::{Zipf, hottest_share};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
