//! Kills compute nodes at any point of their work, and checks every answer of the compute nodes that take over. `cargo
//! test` runs a few short runs; `cargo xtask stress --kills` runs the full size.

use crate::common::Tree;
use dm_testkit::{KillRun, full_kills_on_loopback, full_kills_simulated, short_kills, simulated_kills};
use dm_verbs::Nanos;
use sherman::{Key8, NodeSize, Options, ReclaimOptions, Variant};

/// Returns a tree with small nodes, so that they split and merge often. Values have two words, so that a get which
/// mixes two values is noticed.
fn tree(run: KillRun) -> Tree<Key8> {
    let variants = [Variant::Default, Variant::TwoLevel, Variant::PaperRtt];
    Tree::new(variants[run.seed as usize % variants.len()].apply(Options {
        node: NodeSize::Bytes(256),
        chunk_bytes: 32 << 10,
        reclaim: ReclaimOptions {
            period: Nanos::from_micros(20),
            operations: 4,
            ..ReclaimOptions::new()
        },
        attempts: run.attempts,
        ..Options::new(16)
    }))
}

#[test]
fn kills_in_both_worlds() {
    for report in short_kills(tree) {
        println!("{report}");
    }
}

/// Without fences, a compute node that was suspended writes to nodes that other compute nodes have locked meanwhile.
#[test]
fn a_missing_fence_is_found() {
    let wrong = |seed| {
        let report = simulated_kills(tree, seed, false);
        println!("{report}");
        report.wrong
    };
    assert!((0..40).any(|seed| wrong(seed) > 0), "no answer was wrong");
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
