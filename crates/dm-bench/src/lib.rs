//! A harness for range indexes on disaggregated memory. It measures any index in the same way as the shipped ones.
//!
//! An index implements [`BenchIndex`]; every index that `dm-assemble` puts together does so automatically. A [`Driver`]
//! makes the index's options from a [`Setting`], a [`Registry`] gives the index a name, and a [`Point`] is one index in
//! one setting. A point runs in any world and returns a [`Measured`], from which [`report`] makes rows, tables and
//! curves.
//!
//! ```text
//!   Registry ── IndexEntry ── VariantEntry ── Driver<I> ──┐
//!                                                         ├── Point ── run ── Measured ── Row ── table, curves, CSV
//!   Setting: world, nodes, clients, keys, mix, caches ────┘
//! ```
//!
//! Every value that is read is checked: it must be one whole write of its key. [`Bench`] is the shortest way to measure
//! an index in a program; `dmkit` is the command line for a registry.
//!
//! # Invariants
//! * **I1** The harness contains no code for a particular index. It uses an index only through [`BenchIndex`] and
//!   [`Driver`].
//! * **I2** A wrong value is counted and shown, and never hidden by an average.
//! * **I3** A simulated point has the same result on every machine, regardless of other load.
#![deny(unsafe_code)]

mod bench;
pub mod cluster;
mod driver;
mod faults;
mod index;
mod indirect;
mod job;
mod key;
mod measured;
mod origin;
mod refusal;
mod registry;
pub mod report;
mod run;
mod setting;
#[cfg(test)]
mod toy;
mod work;

pub use bench::Bench;
pub use driver::{Driver, Trips};
pub use faults::{Deaths, Faults, Kill, Slice};
pub use index::{BenchIndex, Checked, Footprint};
pub use indirect::{Indirect, IndirectOptions};
pub use job::{
    Events, INTERRUPTED, Interrupted, LATEST, Output, Place, Runs, check, perform, replot, run_all,
};
pub use key::BenchKey;
pub use measured::{Busiest, Counted, Measured, NicShares, Steady, WriteCosts};
pub use origin::Origin;
pub use refusal::{Needs, Refusal};
pub use registry::{IndexEntry, Point, Registry, Titles, UnknownIndex, VariantEntry};
pub use run::RunError;
#[cfg(feature = "ib")]
pub use run::ib::Before;
pub use setting::{Fabric, Knobs, Setting, Sharing, count, preset};

// Types in the public interface that come from other crates.
pub use dm_combine::Rdwc;
pub use dm_index::{CpuCost, Fill};
pub use dm_sim::CostModel;
pub use dm_verbs::Counters;
pub use dm_workload::{Distribution, Mix, OpKind, ScanLength};
pub use dm_worlds::{AnyEndpoint, AnyLease};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
