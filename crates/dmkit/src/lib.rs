//! The command line of dmkit as a library. To measure an index of your own, write a program that adds the index to a
//! registry. The README shows a whole program.
//!
//! The program's `bench` can then measure the index, and a run without a command measures it together with all other
//! indexes of the registry. With the feature `eval`, the index can also be a series of the experiments in `reproduce`.
//! [`mod@bench`] is the harness, for measurements without a command line.
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
