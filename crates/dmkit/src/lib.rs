//! The command line of dmkit, as a library: a bench of one's own is a registry with one more index.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use dmkit::bench::IndexEntry;
//!
//! fn main() -> ExitCode {
//!     // `IndexEntry::runs` says how yours is opened.
//!     dmkit::Cli::run(&dmkit::shipped().with(IndexEntry::new("mine", "an index of my own")))
//! }
//! ```
//!
//! The command then has the index in `bench` and in the main job, and, with the feature `eval`, as a series of
//! experiments in `reproduce`. [`bench`] is the harness under it, for measurements without a command line.
#![forbid(unsafe_code)]

mod bench_args;
mod cli;
mod cluster;
mod main_job;

pub use cli::Cli;
pub use dm_bench as bench;
pub use dm_shipped::shipped;
