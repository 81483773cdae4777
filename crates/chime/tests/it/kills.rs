//! Kills compute nodes at any point of their work, and checks every answer of the compute nodes that take over. `cargo
//! test` runs a few short runs; `cargo xtask stress --kills` runs the full size.

use chime::{Key8, Options};
use dm_testkit::{KillRun, full_kills_on_loopback, full_kills_simulated, short_kills};

use crate::common::Tree;

/// Returns a tree with leaves of 12 entries, so that they split and merge often. Values have two words, so that a get
/// which mixes two values is noticed, or one word, as in the shipped index.
fn tree(run: KillRun) -> Tree<Key8> {
    Tree::new(Options {
        span: 12,
        neighbourhood: 4,
        inner_span: 8,
        hotspot_bytes: 4 << 10,
        chunk_bytes: 64 << 10,
        attempts: run.attempts,
        ..Options::new(if run.seed.is_multiple_of(2) { 16 } else { 8 })
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
