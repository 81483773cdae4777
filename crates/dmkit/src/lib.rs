//! The command line of dmkit, as a library: a bench of one's own is a registry with one more index.
//!
//! The README shows a whole program.
//!
//! The command then has the index in `bench` and in the main job, and, with the feature `eval`, as a series of
//! experiments in `reproduce`. [`mod@bench`] is the harness under it, for measurements without a command line.
#![forbid(unsafe_code)]

mod bench_args;
mod cli;
mod cluster;
mod main_job;
mod new;

pub use cli::Cli;
pub use dm_bench as bench;
pub use dm_shipped::shipped;

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
