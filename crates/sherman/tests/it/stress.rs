//! Runs many clients on small nodes, and checks every answer. `cargo test` runs a short version of each kind; `cargo
//! xtask stress` runs the full size.

#![expect(clippy::print_stdout, reason = "a stress run prints its report")]

use std::time::Instant;

use crate::common::Tree;
use dm_layout::Checksummed;
use dm_loopback::Loopback;
use dm_sim::{CostModel, Sim};
use dm_testkit::{Cards, Mix, Report, Stress, Testbed, World, seats, stress};
use dm_verbs::{Counters, Nanos};
use sherman::{Key8, KeyN, NodeSize, Options, Rdwc, ReclaimOptions, Variant};

/// Returns options with small nodes, so that a thousand operations cause some splits. Values have two words, so that a
/// get which mixes two values is noticed.
fn options(variant: Variant) -> Options {
    variant.apply(Options {
        node: NodeSize::Bytes(256),
        chunk_bytes: 32 << 10,
        // Collections are frequent, so that the memory of dead nodes is reused while others read.
        reclaim: ReclaimOptions {
            period: Nanos::from_micros(20),
            operations: 4,
            ..ReclaimOptions::new()
        },
        ..Options::new(16)
    })
}

/// Runs 8 threads on 4 compute nodes, with two clients each, over 3 memory nodes. `host_bytes` is little more than
/// needed, so a memory node may be full; a sibling is then placed on another memory node.
fn loopback(script: &Stress, host_bytes: u64) -> Report {
    let world: World = Loopback::builder()
        .nodes(3)
        .host_bytes(host_bytes)
        .seed(script.seed)
        .build()
        .expect("memory")
        .into();
    let began = Instant::now();
    let report = stress(
        Tree::<Key8>::new(options(Variant::Default)),
        &world,
        &seats(4, 8, 2),
        script,
    );
    println!("{report}\n  in {:.1?}", began.elapsed());
    report.expect_correct()
}

/// Returns a script that inserts and removes keys in waves, so that nodes split and merge.
fn waves(operations: u64, seed: u64) -> Stress {
    Stress {
        waves: 4,
        keys: operations / 40,
        ..Stress::new(operations, seed)
    }
}

/// Runs 48 clients on 3 compute nodes, over 2 memory nodes. The seed determines the testbed, the script, the variant,
/// whether there is an outage, and whether memory nodes and compute nodes share machines.
fn simulated(seed: u64, operations: u64, cards: Cards) {
    let variants = [
        Variant::Default,
        Variant::TwoLevel,
        Variant::PaperRtt,
        Variant::Hierarchical,
        Variant::Fg,
    ];
    let variant = variants[seed as usize % variants.len()];
    let shrinks = seed % 3 == 1;
    // The memory is little more than needed.
    let bytes = if shrinks { 1 << 20 } else { 840 << 10 };
    let bytes = match variant {
        // This variant has keys of 24 bytes, and two of them are fence keys. So a small node has room for only a few
        // entries.
        Variant::PaperRtt => bytes * 3,
        _ => bytes,
    };
    let sim = cards
        .testbed(seed)
        .compute_nodes(3)
        .memory_nodes(2)
        .memory_bytes(bytes)
        .colocated(seed % 4 == 1)
        .build()
        .expect("memory");
    // Loaded trees are on both memory nodes, so some operations succeed during an outage.
    let outage = seed % 7 == 3 && seed % 4 > 1 && !shrinks && cards == Cards::Preset;
    let world = Testbed::new(sim, outage);
    let script = match shrinks {
        true => waves(operations, seed),
        false => Stress {
            keys: operations / 5,
            // In every third run, many operations use the hot keys.
            hot_percent: if seed % 3 == 2 { 40 } else { 5 },
            ..Stress::new(operations, seed)
        },
    };
    let script = world.script(Stress {
        preload: seed % 4 > 1,
        ..script
    });
    let seats = seats(3, 12, 4);
    let options = Options {
        // With fewer attempts, a client waits less for a client that itself waits for the memory node that is cut off.
        attempts: if outage {
            1 << 14
        } else {
            sherman::DEFAULT_ATTEMPTS
        },
        ..options(variant)
    };
    let report = match variant {
        Variant::Hierarchical | Variant::Fg => stress(
            Tree::<Key8, Checksummed<Key8>>::new(options),
            &world,
            &seats,
            &script,
        ),
        Variant::PaperRtt => stress(Tree::<KeyN<24>>::new(options), &world, &seats, &script),
        _ => stress(Tree::<Key8>::new(options), &world, &seats, &script),
    };
    println!("{variant}: {report}");
    let report = report.expect_correct();
    assert_eq!(report.calls.total(), operations);
    if outage {
        // After the cut, most writes to the memory node that is cut off fail, and no client writes their keys again.
        assert!(
            report.failed > 100 && report.verified > script.keys / 2,
            "{report}"
        );
        return;
    }
    assert!(
        report.meter.splits > 150 && report.linearized.0 > 2_000 && report.verified > script.keys * 9 / 10,
        "{report}"
    );
    assert!(!shrinks || report.meter.merges > 150, "{report}");
}

#[test]
fn threads_on_loopback() {
    let report = loopback(&Stress::new(1_000_000, 1), 3 << 20);
    assert!(
        report.calls.total() == 1_000_000 && report.meter.splits > 5_000,
        "{report}"
    );
    assert!(
        report.linearized.0 > 30_000 && report.verified > 90_000,
        "{report}"
    );
}

#[test]
fn threads_that_grow_and_shrink_a_tree() {
    let report = loopback(&waves(1_000_000, 3), 8 << 20);
    assert!(
        report.meter.splits > 3_000 && report.meter.merges > 2_000,
        "{report}"
    );
    assert!(
        report.linearized.0 > 20_000 && report.verified > 13_000,
        "{report}"
    );
}

#[test]
fn simulated_testbeds() {
    for seed in 0..6 {
        simulated(seed, 100_000, Cards::Preset);
    }
}

/// Nodes have four entries, so parents split and merge together with their children, at the same separators.
#[test]
fn simulated_trees_of_tiny_nodes() {
    let mut merges = 0;
    for seed in 0..8 {
        let sim = Sim::builder(CostModel::cx5_ib())
            .compute_nodes(3)
            .memory_nodes(2)
            .seed(seed);
        let world = World::from(sim.build().expect("memory"));
        let script = Stress {
            waves: 5,
            keys: 600,
            ..Stress::new(20_000, seed)
        };
        let tiny = Options {
            node: NodeSize::Span(4),
            ..options(Variant::Default)
        };
        let report = stress(Tree::<Key8>::new(tiny), &world, &seats(3, 12, 4), &script).expect_correct();
        merges += report.meter.merges;
    }
    assert!(merges > 2_000, "{merges}");
}

/// Runs clients that share operations, half of them on a few hot keys. Checks every answer, including delegated ones.
fn shared(world: &World, seats: &[dm_testkit::Seat], operations: u64, seed: u64) -> Report {
    let script = Stress {
        keys: 4_000,
        hot_keys: 6,
        hot_percent: 50,
        mix: Mix {
            get: 40,
            update: 25,
            upsert: 25,
            insert: 5,
            remove: 4,
            scan: 1,
        },
        ..Stress::new(operations, seed)
    };
    let rdwc = Rdwc {
        locks: 64,
        ..Rdwc::ON
    };
    let tree = Options {
        rdwc,
        ..options(Variant::Default)
    };
    let report = stress(Tree::<Key8>::new(tree), world, seats, &script).expect_correct();
    let Counters {
        delegated,
        combined,
        went_alone,
        ..
    } = report.meter;
    println!("{report}\n  {delegated} delegated, {combined} combined, {went_alone} alone");
    report
}

#[test]
fn clients_that_share_on_loopback() {
    let world = Loopback::builder()
        .nodes(2)
        .host_bytes(1 << 30)
        .delays(2)
        .seed(5)
        .build()
        .expect("memory")
        .into();
    let report = shared(&world, &seats(2, 4, 6), 60_000, 5);
    assert!(
        report.meter.delegated > 300 && report.meter.combined > 300 && report.linearized.0 > 10_000,
        "{report}"
    );
}

#[test]
fn clients_that_share_on_simulated_testbeds() {
    for seed in 0..3 {
        let sim = Sim::builder(CostModel::cx5_ib())
            .compute_nodes(3)
            .memory_nodes(2)
            .seed(seed);
        let world = World::from(sim.build().expect("memory"));
        let report = shared(&world, &seats(3, 12, 4), 60_000, seed);
        assert!(
            report.meter.delegated > 500 && report.meter.combined > 2_000,
            "{report}"
        );
        assert!(report.linearized.0 > 10_000, "{report}");
    }
}

/// With seed 0, the RNICs promise as little as possible, and clients are suspended. Each other seed selects some of
/// these weaknesses.
#[test]
fn weak_cards() {
    for seed in 0..5 {
        simulated(seed, 100_000, Cards::Weak);
    }
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress`"]
fn full_threads_on_loopback() {
    let report = loopback(&Stress::new(20_000_000, 2), 60 << 20);
    assert!(
        report.calls.total() >= 20_000_000 && report.meter.splits >= 100_000,
        "{report}"
    );
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress`"]
fn full_threads_that_grow_and_shrink_a_tree() {
    let report = loopback(&waves(20_000_000, 4), 64 << 20);
    assert!(
        report.meter.splits >= 100_000 && report.meter.merges >= 50_000,
        "{report}"
    );
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
        simulated(seed, 100_000, Cards::Weak);
    }
}
