//! Kills compute nodes at any point of their work, and checks every answer of the compute nodes that take over. `cargo
//! test` runs a few short runs; `cargo xtask stress --kills` runs the full size.

use dm_testkit::{KillRun, full_kills_on_loopback, full_kills_simulated, short_kills};
use dm_verbs::Nanos;
use rolex::{Key8, Options, ReclaimOptions, RolexParts};

use crate::common::Tree;

/// Returns an index with small leaves, so that they split and merge often. Its clients retrain the models often.
fn tree(run: KillRun) -> Tree<RolexParts<Key8>> {
    let options = Options {
        span: 6,
        neighbourhood: 3,
        chunk_bytes: 64 << 10,
        reclaim: ReclaimOptions {
            period: Nanos::from_micros(20),
            operations: 4,
            ..ReclaimOptions::new()
        },
        attempts: run.attempts,
        ..Options::new(16)
    };
    Tree::new(options).visiting(100)
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
    // A visit reads every leaf. Here there are many more leaves than in a simulated run, so visits are rarer.
    full_kills_on_loopback(|run| tree(run).visiting(20_000), |report| println!("{report}"));
}
