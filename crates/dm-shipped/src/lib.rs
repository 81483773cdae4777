//! The registry of the shipped indexes for the harness of `dm-bench`: Sherman, SMART, CHIME, Dolphin and Marlin with the
//! variants of their papers.
//!
//! The shipped indexes use only interfaces that every index can use: each gives the harness its options for a setting,
//! and the verbs that an operation needs without contention.
//!
//! ```
//! let registry = dm_shipped::shipped();
//! let names: Vec<&str> = registry.entries().iter().map(|entry| entry.name()).collect();
//! assert_eq!(names, ["sherman", "smart", "chime", "dolphin", "marlin"]);
//! assert!(registry.series("fg+").is_ok());
//! ```
#![forbid(unsafe_code)]

use dm_bench::Registry;

/// Returns the registry of the shipped indexes: Sherman, SMART, CHIME, Dolphin and Marlin, each with its variants.
pub fn shipped() -> Registry {
    Registry::new()
        .with(sherman::bench::entry())
        .with(smart::bench::entry())
        .with(chime::bench::entry())
        .with(dolphin::bench::entry())
        .with(marlin::bench::entry())
}

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
