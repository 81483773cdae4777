//! Runs many clients, and checks every answer. `cargo test` runs a short version of each kind; `cargo xtask stress`
//! runs the full size.

#![expect(clippy::print_stdout, reason = "a stress run prints its report")]

use dm_loopback::Loopback;
use dm_testkit::{Cards, Report, Stress, Testbed, World, seats, stress};
use dm_verbs::Counters;
use dolphin::{Key8, KeyN};

use super::{Assembled, small};
use crate::stress::waves;

fn correct(report: Report, script: &Stress) -> Counters {
    println!("{report}");
    let report = report.expect_correct();
    let met = report.meter;
    assert!(report.linearized.0 > 500 && met.splits > 2, "{report}");
    assert!(met.merges > 0 || script.waves < 2, "{report}");
    met
}

/// Runs 8 threads on 4 compute nodes, with two clients each, over 3 memory nodes.
fn loopback(script: &Stress, value_bytes: usize) -> Counters {
    let world = Loopback::builder().nodes(3).host_bytes(2 << 30).seed(script.seed);
    let world = World::from(world.build().expect("memory"));
    let index = Assembled::<Key8>::new(small(value_bytes));
    correct(stress(index, &world, &seats(4, 8, 2), script), script)
}

#[test]
fn threads_on_loopback() {
    loopback(&Stress::new(60_000, 1), 16);
    loopback(&waves(60_000, 3), 100);
}

/// Runs 48 clients on 3 compute nodes, over 2 memory nodes. The seed determines the testbed, the script, the keys, and
/// whether memory nodes and compute nodes share machines.
fn simulated(seed: u64, operations: u64, cards: Cards) {
    let sim = cards
        .testbed(seed)
        .compute_nodes(3)
        .memory_nodes(2)
        .colocated(seed % 4 == 1);
    let world = Testbed::new(sim.build().expect("memory"), false);
    let script = match seed % 3 {
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
        3 => stress(Assembled::<KeyN<24>>::new(small(16)), &world, &seats, &script),
        _ => stress(Assembled::<Key8>::new(small(16)), &world, &seats, &script),
    };
    correct(report, &script);
}

#[test]
fn simulated_testbeds() {
    for seed in 0..4 {
        simulated(seed, 20_000, Cards::Preset);
    }
}

/// The RNICs promise less than those of the presets, and clients may be suspended. The seed selects in which ways; with
/// seed 0, in all of them.
#[test]
fn weak_cards() {
    for seed in 0..5 {
        simulated(seed, 15_000, Cards::Weak);
    }
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress`"]
fn full_threads_on_loopback() {
    let met = loopback(&Stress::new(20_000_000, 2), 16);
    assert!(met.splits >= 100_000, "{met:?}");
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress`"]
fn full_threads_that_grow_and_shrink_a_tree() {
    let met = loopback(&waves(20_000_000, 4), 16);
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
        simulated(seed, 15_000, Cards::Weak);
    }
}
