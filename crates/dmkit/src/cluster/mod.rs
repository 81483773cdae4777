//! Real machines: the promises of a machine's device, memory nodes, and the index of a cluster.
//!
//! Code that needs libibverbs is behind the feature `ib`; without it, the command says how to get it.

mod doctor;
mod protocols;
mod sysfs;

#[cfg(feature = "ib")]
mod serve;

use std::io;
#[cfg(feature = "ib")]
use std::io::Write;

use dm_bench::Registry;

use crate::cli::IndexCommand;

pub(crate) use doctor::perform as doctor;
#[cfg(feature = "ib")]
pub(crate) use serve::perform as serve;

/// Creates, opens or shows the index of a cluster.
#[cfg(feature = "ib")]
pub(crate) fn index(asked: &IndexCommand, registry: &Registry) -> io::Result<bool> {
    let points = asked.bench.points(registry).map_err(io::Error::other)?;
    let before = asked.action.into();
    let told = points[0].describe(before).map_err(io::Error::other)?;
    writeln!(io::stdout(), "{told}")?;
    Ok(true)
}

#[cfg(not(feature = "ib"))]
pub(crate) fn index(_: &IndexCommand, _: &Registry) -> io::Result<bool> {
    Err(io::Error::other(dm_bench::cluster::MISSING))
}

#[cfg(not(feature = "ib"))]
pub(crate) fn serve(_: &crate::cli::Serve) -> io::Result<bool> {
    Err(io::Error::other(dm_bench::cluster::MISSING))
}
