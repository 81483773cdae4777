//! Kills compute nodes at any point of their work, and checks every answer of the compute nodes that take over. `cargo
//! test` runs a few short runs; `cargo xtask stress --kills` runs the full size.

use crate::common::{Tree, art, under_tables};
use dm_layout::NodeTypes;
use dm_testkit::{KillRun, full_kills_on_loopback, full_kills_simulated, short_kills};
use dm_verbs::Nanos;
use smart::{Key8, Options, ReclaimOptions};

/// Returns a tree with small nodes, so that they are copied often. Values have two words, so that a get which mixes two
/// values is noticed.
fn tree(run: KillRun) -> Tree<Key8> {
    Tree::new(Options {
        types: NodeTypes::new(&[2, 4, 8, 256]).expect("ascending"),
        chunk_bytes: 64 << 10,
        reclaim: ReclaimOptions {
            period: Nanos::from_micros(20),
            operations: 4,
            ..ReclaimOptions::new()
        },
        turn: Nanos::from_micros(100),
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

/// Returns the same tree with its locks in small tables, so that leaves and nodes share locks.
fn tree_under_tables(run: KillRun) -> Tree<Key8> {
    Tree::new(under_tables(Options {
        locks_per_node: 64,
        ..tree(run).options
    }))
}

/// Returns the tree of `tree_under_tables` with out-of-place updates.
fn tree_as_art(run: KillRun) -> Tree<Key8> {
    Tree::new(art(tree_under_tables(run).options))
}

#[test]
fn kills_of_out_of_place_updates() {
    for report in short_kills(tree_as_art) {
        println!("{report}");
    }
}

#[test]
fn kills_under_lock_tables() {
    for report in short_kills(tree_under_tables) {
        println!("{report}");
    }
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress --kills`"]
fn full_kills_on_simulated_testbeds() {
    full_kills_simulated(tree, |report| println!("{report}"));
    full_kills_simulated(tree_under_tables, |report| println!("{report}"));
    full_kills_simulated(tree_as_art, |report| println!("{report}"));
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress --kills`"]
fn full_kills_of_threads() {
    full_kills_on_loopback(tree, |report| println!("{report}"));
}
