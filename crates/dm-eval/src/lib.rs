//! The studies of dmkit.
//!
//! [`reproduce`] runs a paper's figures on the simulated testbed and grades the paper's claims. An experiment is a file:
//! a testbed, panels of series over a dial, and claims with the paper's numbers. Its series are indexes of a
//! registry, so an index of one's own can be a series too. [`explore`] model-checks a protocol of `dm-models` by name.
//!
//! # Invariants
//! * **I1** A grade follows from the samples of its record, and the record says how it was made.
//! * **I2** A search that was cut short or only sampled is not a pass.
#![forbid(unsafe_code)]

pub mod explore;
pub mod reproduce;

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
