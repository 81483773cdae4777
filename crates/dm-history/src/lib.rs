//! Histories of concurrent operations, a linearizability checker, and values that show which write produced them.
//!
//! A benchmark that never checks a value measures how fast an index is, but not whether its results are correct. This
//! crate checks the results. It does not depend on RDMA or on dmkit's indexes, so tests of any concurrent map can use
//! it.
//!
//! | module | purpose |
//! |---|---|
//! | [`history`] | records the operations of each client, with their times and results |
//! | [`check()`] | checks whether the history is linearizable |
//! | [`scan`] | checks whether a range read is ordered, free of duplicates, valid and complete |
//! | [`stamp()`] | makes values that [`check_value`] can check: each belongs to its key, and comes from one write |
//! | [`Monotone`] | checks whether a reader saw an older write of a client after a newer one |
//!
//! # Method
//!
//! The checker is the depth-first search of Wing and Gong (*Testing and Verifying Concurrent Objects*, JPDC 1993) with
//! Lowe's memoisation of failed configurations (*Testing for Linearizability*, CCPE 2017), one key at a time
//! (P-compositionality: Horn and Kroening, FORTE 2015). In addition, a [`Spec`] may declare which state an operation
//! sees and which state it leaves ([`Effect`]). Reads and blind writes then need no search. So the history of one hot
//! key, with thousands of operations of tens of concurrent clients, is checked in milliseconds.
//!
//! # Invariants
//!
//! * I1: a verdict `Linearizable` is exact, because the search has found an order. It depends on no limit and no
//!   hash.
//! * I2: a search that runs out of steps returns [`Verdict::TooLarge`], which is not a pass.
//! * I3: a counterexample is a sound cut of the history: with the omitted operations, the history is not linearizable
//!   either.
//!
//! # Example
//!
//! ```
//! use dm_history::{History, KvMap, KvOp, KvRet, Limits, Verdict, check};
//!
//! let mut history = History::new();
//! let put = history.invoke(0, KvOp::Upsert("k", 7), 10);
//! history.respond(put, KvRet::Inserted, 20);
//! let get = history.invoke(1, KvOp::Get("k"), 30); // begins after the upsert has returned …
//! history.respond(get, KvRet::Absent, 40); // … and does not see it
//!
//! let verdict = check(&KvMap::empty(), &history, Limits::default());
//! let Verdict::Counterexample(found) = verdict else { panic!("a lost write must be found") };
//! assert!(found.to_string().contains("Get(\"k\") -> Absent"));
//! ```
//!
//! # Limits
//!
//! The search is exponential in the worst case (the problem is NP-complete); [`Limits`] bounds it. Sets of finished
//! operations are compared by 128-bit hashes, so a false *counterexample* is possible with a probability of about 2⁻¹⁰⁰
//! per check. Each cut of a counterexample is checked by another search. A pass is exact.

#![forbid(unsafe_code)]

pub mod history;
pub mod scan;

mod check;
mod counterexample;
mod kv;
mod links;
mod monotone;
mod search;
mod spec;
mod stamp;

pub use check::{Limits, Passed, TooLarge, Verdict, check};
pub use counterexample::Counterexample;
pub use history::{CallId, History, Operation};
pub use kv::{KvMap, KvOp, KvRet};
pub use monotone::{Monotone, WentBack};
pub use spec::{Effect, Spec};
pub use stamp::{CLIENT_LIMIT, LOADER, SEQUENCE_LIMIT, STAMP_BYTES, Stamp, Wrong, check_value, stamp};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
