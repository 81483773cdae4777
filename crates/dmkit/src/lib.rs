//! The command line of dmkit as a library. A program that measures an index of your own adds the index to a registry.
//!
//! The README shows a whole program.
//!
//! The command then has the index in `bench` and in the main job. With the feature `eval`, the index can also be a
//! series of the experiments in `reproduce`. [`mod@bench`] is the harness, for measurements without a command line.
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
