//! Runs many clients on small nodes, and checks every answer. `cargo test` runs a short version of each kind; `cargo
//! xtask stress` runs the full size.

#![expect(clippy::print_stdout, reason = "a stress run prints its report")]

use crate::common::{Tree, art, out_of_place, under_tables};
use dm_layout::NodeTypes;
use dm_loopback::Loopback;
use dm_testkit::{Cards, Report, Stress, World, seats, stress};
use dm_verbs::Nanos;
use smart::{Compression, Key8, KeyN, Options, ReclaimOptions};

/// Returns options with small nodes, so that they are copied often. Values have two words, so that a get which mixes
/// two values is noticed.
fn options() -> Options {
    Options {
        types: NodeTypes::new(&[2, 4, 8, 256]).expect("ascending"),
        chunk_bytes: 64 << 10,
        // Collections are frequent, so that memory is reused while others read.
        reclaim: ReclaimOptions {
            period: Nanos::from_micros(20),
            operations: 4,
            ..ReclaimOptions::new()
        },
        turn: Nanos::from_micros(100),
        ..Options::new(16)
    }
}

/// Returns a script that inserts and removes keys in waves, so that nodes grow and shrink.
fn waves(operations: u64, seed: u64) -> Stress {
    Stress {
        waves: 4,
        keys: operations / 40,
        ..Stress::new(operations, seed)
    }
}

fn correct(report: Report) {
    println!("{report}");
    let report = report.expect_correct();
    assert!(report.linearized.0 > 800 && report.meter.splits > 0, "{report}");
}

/// Returns options with small nodes, as in the paper's ART. All inner nodes share few locks.
fn contended_art() -> Options {
    art(Options {
        locks_per_node: 64,
        ..options()
    })
}

/// Runs 8 threads on 4 compute nodes, with two clients each, over 3 memory nodes.
fn loopback(script: &Stress, cache_bytes: u64, host_bytes: u64, options: Options) {
    let world = Loopback::builder().nodes(3).host_bytes(host_bytes);
    let world = world.seed(script.seed).build().expect("memory");
    let tree = Tree::<Key8>::new(Options {
        cache_bytes,
        ..options
    });
    correct(stress(tree, &World::from(world), &seats(4, 8, 2), script));
}

#[test]
fn threads_on_loopback() {
    loopback(&Stress::new(200_000, 1), 1 << 30, 1 << 30, options());
    loopback(&waves(200_000, 3), 32 << 10, 1 << 30, options());
    loopback(&waves(100_000, 5), 32 << 10, 1 << 30, art(options()));
}

/// Runs 48 clients on 3 compute nodes, over 2 memory nodes. The seed determines the testbed, the script, the keys, and
/// whether memory nodes and compute nodes share machines.
fn simulated(seed: u64, operations: u64, cards: Cards, options: Options) {
    let sim = cards
        .testbed(seed)
        .compute_nodes(3)
        .memory_nodes(2)
        .colocated(seed % 4 == 1);
    let world = World::from(sim.build().expect("memory"));
    let script = match seed % 4 {
        0 => Stress::new(operations, seed),
        // There are few keys, and many operations use the hot ones.
        1 => Stress {
            keys: 2_000,
            hot_percent: 40,
            ..Stress::new(operations, seed)
        },
        _ => waves(operations, seed),
    };
    let seats = seats(3, 12, 4);
    let report = match seed % 4 {
        3 => stress(Tree::<KeyN<24>>::new(options), &world, &seats, &script),
        _ => stress(Tree::<Key8>::new(options), &world, &seats, &script),
    };
    correct(report);
}

#[test]
fn simulated_testbeds() {
    for seed in 0..4 {
        simulated(seed, 30_000, Cards::Preset, options());
    }
}

/// Few locks are shared by all leaves and nodes.
#[test]
fn under_lock_tables() {
    for seed in 0..2 {
        let few = Options {
            locks_per_node: 64,
            ..options()
        };
        simulated(seed, 20_000, Cards::Preset, under_tables(few));
        simulated(seed + 2, 20_000, Cards::Weak, under_tables(few));
        simulated(seed + 2, 20_000, Cards::Preset, contended_art());
    }
}

#[test]
fn out_of_place_updates() {
    for seed in 0..4 {
        simulated(seed, 20_000, Cards::Preset, out_of_place(options()));
        simulated(seed, 20_000, Cards::Weak, out_of_place(options()));
    }
}

/// Runs trees with every kind of path compression except the default: paths have more nodes with one child, or headers
/// lack key bytes.
#[test]
fn path_compressions() {
    for compression in [Compression::NONE, Compression::OPTIMISTIC, Compression::HYBRID] {
        let kind = Options {
            compression,
            ..options()
        };
        for seed in 0..4 {
            simulated(seed, 20_000, Cards::Preset, kind);
            simulated(seed, 20_000, Cards::Weak, art(kind));
        }
        loopback(&waves(50_000, 7), 32 << 10, 1 << 30, kind);
    }
}

/// With seed 0, the RNICs promise as little as possible, and clients are suspended. Each other seed selects some of
/// these weaknesses.
#[test]
fn weak_cards() {
    for seed in 0..5 {
        simulated(seed, 20_000, Cards::Weak, options());
    }
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress`"]
fn full_threads_on_loopback() {
    loopback(&Stress::new(20_000_000, 2), 1 << 30, 2 << 30, options());
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress`"]
fn full_threads_that_grow_and_shrink_a_tree() {
    loopback(&waves(20_000_000, 4), 1 << 20, 1 << 30, options());
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress`"]
fn full_threads_on_art() {
    let options = Options {
        // An attempt takes nanoseconds here, and a node's lock may be held by a thread that waits for a core.
        attempts: 1 << 30,
        ..art(options())
    };
    loopback(&waves(5_000_000, 6), 1 << 20, 1 << 30, options);
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress`"]
fn full_simulated_testbeds() {
    for seed in 0..200 {
        simulated(seed, 100_000, Cards::Preset, options());
    }
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress`"]
fn full_simulated_art() {
    for seed in 0..100 {
        simulated(seed, 100_000, Cards::Preset, contended_art());
    }
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress --weak`"]
fn full_weak_cards() {
    for seed in 0..200 {
        simulated(seed, 20_000, Cards::Weak, options());
    }
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress --weak`"]
fn full_weak_cards_for_art() {
    for seed in 0..100 {
        simulated(seed, 20_000, Cards::Weak, contended_art());
    }
}
