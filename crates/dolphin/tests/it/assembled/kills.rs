//! Kills compute nodes at any point of their work, and checks every answer of the compute nodes that take over. `cargo
//! test` runs a few short runs; `cargo xtask stress --kills` runs the full size.

use dm_testkit::{KillRun, full_kills_on_loopback, full_kills_simulated, short_kills};
use dolphin::Key8;

use super::{Assembled, small};
use crate::tree::Shape;

fn index(run: KillRun) -> Assembled<Key8> {
    Assembled::new(Shape {
        attempts: run.attempts,
        ..small(16)
    })
}

#[test]
fn kills_in_both_worlds() {
    for report in short_kills(index) {
        println!("{report}");
    }
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress --kills`"]
fn full_kills_on_simulated_testbeds() {
    full_kills_simulated(index, |report| println!("{report}"));
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress --kills`"]
fn full_kills_of_threads() {
    full_kills_on_loopback(index, |report| println!("{report}"));
}
