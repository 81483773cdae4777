//! The studies of dmkit: reproductions of papers' figures, and model checking by name.
//!
//! [`reproduce`] runs the figures of papers on the simulated testbed and grades the papers' claims. An experiment is a
//! file with a testbed, the panels of a figure, and the paper's claims with their numbers. A panel compares several
//! series, usually while one parameter varies. If the experiment is about trees, its series are indexes of a registry,
//! so an index of your own can be a series too. [`explore`] model-checks a protocol of `dm-models` by name.
//!
//! # Invariants
//! * **I1** A grade follows from the samples of its record, and the record contains the parameters of its runs.
//! * **I2** A search that was cut short or only sampled is not a pass.
#![forbid(unsafe_code)]

pub mod explore;
pub mod reproduce;

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
