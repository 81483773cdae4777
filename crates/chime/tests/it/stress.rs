//! Runs many clients on small leaves, and checks every answer. Entries hop, leaves split and merge, and gets read
//! single entries. `cargo test` runs a short version of each kind; `cargo xtask stress` runs the full size.

#![expect(clippy::print_stdout, reason = "a stress run prints its report")]

use chime::{Key8, KeyN, Options, Rdwc};
use dm_loopback::Loopback;
use dm_testkit::{Cards, Report, Stress, World, seats, stress};

use crate::common::Tree;

/// Returns options with leaves of 12 entries, so that they split and merge often. If values have two words or more, a
/// get which mixes two values is noticed. The hotspot buffer has room for some of the keys, so that hotspots are added
/// and replaced.
fn options(value_bytes: usize) -> Options {
    Options {
        span: 12,
        neighbourhood: 4,
        inner_span: 8,
        hotspot_bytes: 4 << 10,
        chunk_bytes: 64 << 10,
        ..Options::new(value_bytes)
    }
}

/// Returns a script that inserts and removes keys in waves, so that leaves split and merge, and their memory is reused.
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
    let met = report.meter;
    assert!(report.linearized.0 > 800 && met.splits > 2, "{report}");
    assert!(
        met.speculations > met.wrong_speculations && met.wrong_speculations > 0,
        "{report}"
    );
}

/// Runs 8 threads on 4 compute nodes, with two clients each, over 3 memory nodes.
fn loopback(script: &Stress, value_bytes: u64) {
    let world = Loopback::builder().nodes(3).host_bytes(2 << 30).seed(script.seed);
    let world = World::from(world.build().expect("memory"));
    let tree = Tree::<Key8>::new(options(value_bytes as usize));
    correct(stress(tree, &world, &seats(4, 8, 2), script));
}

#[test]
fn threads_on_loopback() {
    loopback(&Stress::new(120_000, 1), 16);
    loopback(&Stress::new(60_000, 5), 8);
    loopback(&waves(120_000, 3), 100);
}

/// Runs 48 clients on 3 compute nodes, over 2 memory nodes. The seed determines the testbed, the script, the keys, some
/// options, and whether memory nodes and compute nodes share machines.
fn simulated(seed: u64, operations: u64, cards: Cards) {
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
    let options = Options {
        rdwc: if seed % 4 == 2 { Rdwc::ON } else { Rdwc::OFF },
        ..options(if seed % 4 == 1 { 8 } else { 16 })
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
        simulated(seed, 30_000, Cards::Preset);
    }
}

/// The RNICs promise less than those of the presets, and clients may be suspended. The seed selects in which ways; with
/// seed 0, in all of them.
#[test]
fn weak_cards() {
    for seed in 0..5 {
        simulated(seed, 20_000, Cards::Weak);
    }
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress`"]
fn full_threads_on_loopback() {
    loopback(&Stress::new(20_000_000, 2), 16);
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress`"]
fn full_threads_that_grow_and_shrink_a_tree() {
    loopback(&waves(20_000_000, 4), 16);
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress`"]
fn full_simulated_testbeds() {
    for seed in 0..200 {
        simulated(seed, 100_000, Cards::Preset);
    }
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress --weak`"]
fn full_weak_cards() {
    for seed in 0..200 {
        simulated(seed, 20_000, Cards::Weak);
    }
}
