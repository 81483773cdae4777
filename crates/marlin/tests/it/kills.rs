//! Kills compute nodes at any point of their work, and checks every answer of the compute nodes that take over. `cargo
//! test` runs a few short runs; `cargo xtask stress --kills` runs the full size.

use dm_testkit::{KillRun, full_kills_on_loopback, full_kills_simulated, short_kills};
use dm_verbs::Nanos;
use marlin::{Key8, Options, ReclaimOptions};

use crate::common::Tree;

/// Returns a tree with small nodes, so that they split and merge often.
fn tree(run: KillRun) -> Tree<Key8> {
    Tree::new(Options {
        node_bytes: 256,
        chunk_bytes: 64 << 10,
        reclaim: ReclaimOptions {
            period: Nanos::from_micros(20),
            operations: 4,
            ..ReclaimOptions::new()
        },
        combine: !run.seed.is_multiple_of(3),
        attempts: run.attempts,
        ..Options::new(16)
    })
}

#[test]
fn kills_in_both_worlds() {
    for report in short_kills(tree) {
        println!("{report}");
    }
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress --kills`"]
fn full_kills_on_simulated_testbeds() {
    full_kills_simulated(tree, |report| println!("{report}"));
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress --kills`"]
fn full_kills_of_threads() {
    full_kills_on_loopback(tree, |report| println!("{report}"));
}
