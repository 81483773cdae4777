//! Real machines: the cluster file, the promises of a machine's device, memory nodes, and benches over them.
//!
//! Code that needs libibverbs is behind the feature `ib`; without it, the command says how to get it.

mod doctor;
mod file;
mod latencies;
mod merge;
mod protocols;
mod sysfs;

#[cfg(feature = "ib")]
mod bench;
#[cfg(feature = "ib")]
mod index;
#[cfg(feature = "ib")]
mod serve;

pub(crate) use doctor::perform as doctor;
#[cfg(feature = "ib")]
use file::ClusterFile;
pub(crate) use file::{ClusterRun, Machine, capability};
pub(crate) use latencies::Latencies;
pub(crate) use merge::perform as merge;

#[cfg(feature = "ib")]
pub(crate) use {bench::run, index::perform as index, serve::perform as serve};

#[cfg(not(feature = "ib"))]
mod without {
    use std::io;

    use indicatif::ProgressBar;

    use super::ClusterRun;
    use crate::bench_tree::BenchTree;
    use crate::cli::{IndexCommand, Serve};
    use crate::point::{BenchKey, Measured, Point};
    use crate::run::RunError;

    /// The reason why nothing can use real queue pairs in this build.
    pub(super) const MISSING: &str = "this dmkit was built without RDMA: \
        `cargo run --release --package dmkit --features ib -- …` has it, and `dmkit doctor` says what that needs";

    pub(crate) fn serve(_: &Serve) -> io::Result<bool> {
        Err(io::Error::other(MISSING))
    }

    pub(crate) fn index(_: &IndexCommand) -> io::Result<bool> {
        Err(io::Error::other(MISSING))
    }

    pub(crate) fn run<K: BenchKey, T: BenchTree<Key = K>>(
        _: &Point,
        _: &ClusterRun,
        _: &ProgressBar,
    ) -> Result<Measured, RunError> {
        Err(RunError::Bad(MISSING.to_owned()))
    }
}
#[cfg(not(feature = "ib"))]
pub(crate) use without::{index, run, serve};
