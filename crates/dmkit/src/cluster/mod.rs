//! Real machines: the promises of a machine's device, memory nodes, and the index of a cluster.
//!
//! Code that needs libibverbs is behind the feature `ib`. Without this feature, a command that needs it prints how to
//! build with it.

mod doctor;
mod protocols;
mod sysfs;

#[cfg(feature = "ib")]
mod serve;

use std::io::{self, Write};

use dm_bench::{Point, Registry};

use crate::cli::{IndexAction, IndexCommand};

pub(crate) use doctor::perform as doctor;
#[cfg(feature = "ib")]
pub(crate) use serve::perform as serve;

/// Creates, opens, shows, checks or sweeps an index. Returns `false` if a check has found faults.
pub(crate) fn index(asked: &IndexCommand, json: bool, registry: &Registry) -> io::Result<bool> {
    let points = asked.bench.points(registry).map_err(io::Error::other)?;
    let sweeps = match asked.action {
        IndexAction::Check => false,
        IndexAction::Sweep => true,
        IndexAction::Create | IndexAction::Open | IndexAction::Show => {
            writeln!(io::stdout(), "{}", describe(&points[0], asked.action)?)?;
            return Ok(true);
        }
    };
    let found = points[0].check_index(sweeps).map_err(io::Error::other)?;
    writeln!(io::stdout(), "{}", if json { &found.json } else { &found.text })?;
    Ok(found.clean)
}

#[cfg(feature = "ib")]
fn describe(point: &Point, action: IndexAction) -> io::Result<String> {
    let before = match action {
        IndexAction::Create => dm_bench::Before::Create,
        IndexAction::Open => dm_bench::Before::Open,
        _ => dm_bench::Before::Nothing,
    };
    point.describe(before).map_err(io::Error::other)
}

#[cfg(not(feature = "ib"))]
fn describe(_: &Point, _: IndexAction) -> io::Result<String> {
    Err(io::Error::other(dm_bench::cluster::MISSING))
}

#[cfg(not(feature = "ib"))]
pub(crate) fn serve(_: &crate::cli::Serve) -> io::Result<bool> {
    Err(io::Error::other(dm_bench::cluster::MISSING))
}
