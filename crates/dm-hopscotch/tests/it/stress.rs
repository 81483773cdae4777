//! Runs many clients on small leaves, beginning with an empty table. Leaves split and the directory grows meanwhile.
//! Every answer is checked, and the histories must be linearizable. `cargo test` runs a short version of each test;
//! `cargo xtask stress` runs the full size, with `--weak` for weak cards.

#![expect(clippy::print_stdout, reason = "a stress run prints its report")]

use dm_hopscotch::TableOptions;
use dm_index::{Key8, KeyN};
use dm_loopback::Loopback;
use dm_testkit::{Cards, Mix, Report, Stress, World, seats, stress};

use crate::common::{Table, small};

/// Returns a stress run without scans, because each scan reads the whole table.
fn script(operations: u64, seed: u64) -> Stress {
    Stress {
        mix: Mix {
            scan: 0,
            ..Mix::DEFAULT
        },
        ..Stress::new(operations, seed)
    }
}

fn options(value_bytes: usize) -> TableOptions {
    TableOptions {
        span: 12,
        neighbourhood: 4,
        hotspot_bytes: 4 << 10,
        ..small(value_bytes)
    }
}

fn correct(report: Report) {
    println!("{report}");
    let report = report.expect_correct();
    assert!(report.linearized.0 > 800 && report.meter.splits > 2, "{report}");
}

/// Runs 8 threads on 4 compute nodes, with two clients each, over 3 memory nodes.
fn loopback(script: &Stress, value_bytes: usize, host_bytes: u64) {
    let world = Loopback::builder().nodes(3).host_bytes(host_bytes);
    let world = World::from(world.seed(script.seed).build().expect("the world is built"));
    let table = Table::<Key8>::new(options(value_bytes));
    correct(stress(table, &world, &seats(4, 8, 2), script));
}

#[test]
fn threads_on_loopback() {
    loopback(&script(60_000, 1), 16, 256 << 20);
    loopback(&script(60_000, 2), 100, 256 << 20);
}

/// Runs 48 clients on 3 compute nodes, over 2 memory nodes. The seed determines the testbed, the size and the number of
/// keys, and the share of hot keys.
fn simulated(seed: u64, operations: u64, cards: Cards) {
    let sim = cards.testbed(seed).compute_nodes(3).memory_nodes(2);
    let world = World::from(sim.build().expect("the world is built"));
    let all = script(operations, seed);
    let script = match seed % 3 {
        // There are few keys, and many operations use the hot ones.
        1 => Stress {
            keys: 2_000,
            hot_percent: 40,
            ..all
        },
        _ => Stress {
            keys: operations / 3,
            ..all
        },
    };
    let seats = seats(3, 12, 4);
    let report = match seed % 3 {
        2 => stress(Table::<KeyN<20>>::new(options(16)), &world, &seats, &script),
        _ => stress(Table::<Key8>::new(options(16)), &world, &seats, &script),
    };
    correct(report);
}

#[test]
fn simulated_testbeds() {
    for seed in 0..3 {
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
    loopback(&script(20_000_000, 2), 16, 2 << 30);
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
