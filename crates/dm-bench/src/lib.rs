//! A harness for range indexes on disaggregated memory: any index, measured like the shipped ones.
//!
//! An index is a [`BenchIndex`]; every index that `dm-assemble` puts together is one by itself. A [`Driver`] turns a
//! [`Setting`] into its options, a [`Registry`] gives it a name, and a [`Point`] is one index in one setting. A point
//! runs in any world and returns what was [`Measured`], from which [`report`] makes rows, tables and curves.
//!
//! ```text
//!   Registry ── IndexEntry ── VariantEntry ── Driver<I> ──┐
//!                                                         ├── Point ── run ── Measured ── Row ── table, curves, CSV
//!   Setting: world, nodes, clients, keys, mix, caches ────┘
//! ```
//!
//! Every value that is read is checked: it must be one whole write of its key. [`Bench`] is the shortest way to
//! rows; `dmkit` is the command line over a registry.
//!
//! # Invariants
//! * **I1** The harness knows no index: what it asks of one is in [`BenchIndex`] and [`Driver`].
//! * **I2** A wrong value is counted and shown, and never hidden by an average.
//! * **I3** A simulated point is the same on every machine, and whatever runs beside it.
#![forbid(unsafe_code)]

mod bench;
pub mod cluster;
mod driver;
mod endpoint;
mod index;
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
pub use endpoint::{AnyEndpoint, AnyLease};
pub use index::{BenchIndex, Checked, Footprint};
pub use job::{INTERRUPTED, Interrupted, LATEST, Output, perform, replot};
pub use key::BenchKey;
pub use measured::{Measured, NicShares, Steady, WriteCosts};
pub use origin::Origin;
pub use refusal::{Needs, Refusal};
pub use registry::{IndexEntry, Point, Registry, UnknownIndex, VariantEntry};
pub use run::RunError;
#[cfg(feature = "ib")]
pub use run::ib::Before;
pub use setting::{Fabric, Knobs, Setting, Sharing, count, preset};

// What a setting, a demand and a result are made of.
pub use dm_combine::Rdwc;
pub use dm_index::{CpuCost, Fill};
pub use dm_sim::{Bound, CostModel, Demand, MixDemand, VerbKind};
pub use dm_verbs::Counters;
pub use dm_workload::{Distribution, Mix, OpKind, ScanLength};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
