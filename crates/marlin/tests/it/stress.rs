//! Runs many clients on small nodes, and checks every answer. Leaves split and merge, and blocks are reused. `cargo
//! test` runs a short version of each kind; `cargo xtask stress` runs the full size.

#![expect(clippy::print_stdout, reason = "a stress run prints its report")]

use dm_loopback::Loopback;
use dm_testkit::{Cards, Report, Stress, Testbed, World, seats, stress};
use dm_verbs::{Counters, Nanos};
use marlin::{DEFAULT_ATTEMPTS, Key8, KeyN, Options, Rdwc, ReclaimOptions};

use crate::common::Tree;

/// Returns options with small nodes, so that they split and merge often, and with values of two words.
fn options() -> Options {
    Options {
        node_bytes: 256,
        chunk_bytes: 64 << 10,
        // Collections are frequent, so that memory is reused while others read.
        reclaim: ReclaimOptions {
            period: Nanos::from_micros(20),
            operations: 4,
            ..ReclaimOptions::new()
        },
        ..Options::new(16)
    }
}

/// Returns a script that inserts and removes keys in waves, so that nodes split and merge.
fn waves(operations: u64, seed: u64) -> Stress {
    Stress {
        waves: 4,
        keys: operations / 40,
        ..Stress::new(operations, seed)
    }
}

fn correct(report: Report, script: &Stress) -> Counters {
    println!("{report}");
    let report = report.expect_correct();
    let met = report.meter;
    assert!(report.linearized.0 > 500 && met.splits > 2, "{report}");
    assert!(met.merges > 0 || script.waves < 2, "{report}");
    met
}

/// Runs 8 threads on 4 compute nodes, with two clients each, over 3 memory nodes.
fn loopback(script: &Stress) -> Counters {
    let world = Loopback::builder().nodes(3).host_bytes(2 << 30).seed(script.seed);
    let world = World::from(world.build().expect("memory"));
    let tree = Tree::<Key8>::new(options());
    correct(stress(tree, &world, &seats(4, 8, 2), script), script)
}

#[test]
fn threads_on_loopback() {
    loopback(&Stress::new(80_000, 1));
    loopback(&waves(80_000, 3));
}

/// Runs 48 clients on 3 compute nodes, over 2 memory nodes. The seed determines the testbed, the script, the options,
/// the keys, the outages, and whether memory nodes and compute nodes share machines.
fn simulated(seed: u64, operations: u64, cards: Cards) {
    let sim = cards
        .testbed(seed)
        .compute_nodes(3)
        .memory_nodes(2)
        .colocated(seed % 4 == 1);
    let outage = seed % 8 == 4 && cards == Cards::Preset;
    let world = Testbed::new(sim.build().expect("memory"), outage);
    let script = match seed % 4 {
        // Leaves are on both memory nodes from the start, so that some operations succeed during an outage. With an
        // outage, there are more keys than operations, because the block of any update may be on the memory node that is
        // cut off, and no client writes a key again after a failed write.
        0 => Stress {
            preload: true,
            keys: if outage { 2 * operations } else { operations / 5 },
            ..Stress::new(operations, seed)
        },
        // There are few keys, and many operations use the hot ones.
        1 => Stress {
            keys: 2_000,
            hot_percent: 40,
            ..Stress::new(operations, seed)
        },
        _ => waves(operations, seed),
    };
    let script = world.script(script);
    let options = Options {
        rdwc: if seed % 4 == 2 { Rdwc::ON } else { Rdwc::OFF },
        node_bytes: if seed % 4 == 3 { 448 } else { 256 },
        combine: !seed.is_multiple_of(5),
        // With fewer attempts, a client waits less for a client that itself waits for the memory node that is cut off.
        attempts: if outage { 1 << 14 } else { DEFAULT_ATTEMPTS },
        ..options()
    };
    let seats = seats(3, 12, 4);
    let report = match seed % 4 {
        3 => stress(Tree::<KeyN<24>>::new(options), &world, &seats, &script),
        _ => stress(Tree::<Key8>::new(options), &world, &seats, &script),
    };
    if !outage {
        correct(report, &script);
        return;
    }
    println!("{report}");
    let report = report.expect_correct();
    // After the cut, most writes to the memory node that is cut off fail, and no client writes their keys again.
    assert!(
        report.failed > 100 && report.verified > script.keys / 4,
        "{report}"
    );
}

#[test]
fn simulated_testbeds() {
    for seed in 0..5 {
        simulated(seed, 20_000, Cards::Preset);
    }
}

/// With seed 0, the RNICs promise as little as possible, and clients are suspended. Each other seed selects some of
/// these weaknesses.
#[test]
fn weak_cards() {
    for seed in 0..5 {
        simulated(seed, 15_000, Cards::Weak);
    }
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress`"]
fn full_threads_on_loopback() {
    let met = loopback(&Stress::new(20_000_000, 2));
    assert!(met.splits >= 100_000, "{met:?}");
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress`"]
fn full_threads_that_grow_and_shrink_a_tree() {
    let met = loopback(&waves(20_000_000, 4));
    assert!(met.merges >= 10_000, "{met:?}");
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
