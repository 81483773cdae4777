//! The explorer: every interleaving of every verb's micro-steps, behind the same seam that the shipped code runs on.
#![forbid(unsafe_code)]

mod chart;
mod client;
mod endpoint;
mod fp;
mod knobs;
mod lease;
mod machine;
mod memory;
mod model;
mod runner;
mod search;
mod spec;
mod step;
mod trace;
mod verdict;

pub use client::Client;
pub use endpoint::Endpoint;
pub use knobs::{Elapsed, Knobs, Retries};
pub use lease::Lease;
pub use model::{CLIENTS_MAX, DEFAULT_CHIP_BYTES, DEFAULT_HOST_BYTES, End, Model};
pub use search::{BadReplay, Search};
pub use spec::{Counter, CounterOp, NoSpec, Register, RegisterOp};
pub use trace::{Access, BadTrace, Touch, Trace, TraceStep};
pub use verdict::{Counterexample, Coverage, Cut, Failure, Report, Verdict};
