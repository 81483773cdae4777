//! Compute nodes die in the middle of everything, and others take over: every answer is checked. Every test run has a
//! few short runs; `cargo xtask stress --kills` does the full size.

#![expect(clippy::print_stdout, reason = "a stress run tells what it did")]

use std::time::Instant;

use crate::common::Tree;
use dm_loopback::Loopback;
use dm_testkit::{Cards, Kills, Moment, NoChecker, Report, Stress, World, stress_with_kills};
use dm_verbs::Nanos;
use sherman::{Key8, NodeSize, Options, ReclaimOptions, Variant};

/// Returns options with small nodes, so that they split and merge often.
fn options(variant: Variant) -> Options {
    variant.apply(Options {
        node: NodeSize::Bytes(256),
        chunk_bytes: 32 << 10,
        reclaim: ReclaimOptions {
            period: Nanos::from_micros(20),
            operations: 4,
            ..ReclaimOptions::new()
        },
        // Enough to wait for a lease on loopback, where an attempt takes a tenth of a microsecond.
        attempts: 1 << 26,
        ..Options::new(16)
    })
}

/// Returns a script that inserts and removes keys in waves, so that nodes merge as often as they split.
fn waves(operations: u64, seed: u64) -> Stress {
    Stress {
        waves: 4,
        keys: operations / 40,
        hot_percent: if seed.is_multiple_of(2) { 5 } else { 40 },
        ..Stress::new(operations, seed)
    }
}

const LEASE: Nanos = Nanos::from_millis(1);

fn simulated(kills: &Kills) -> Report {
    let seed = kills.script.seed;
    let variants = [Variant::Default, Variant::TwoLevel, Variant::PaperRtt];
    let variant = variants[seed as usize % variants.len()];
    let sim = Cards::Preset
        .testbed(seed)
        .compute_nodes(kills.compute_nodes_in_all())
        .memory_nodes(2)
        .lease(kills.lease);
    let world = World::from(sim.build().expect("memory"));
    let began = Instant::now();
    let report = stress_with_kills(Tree::<Key8>::new(options(variant)), &world, kills, NoChecker);
    println!("{variant}: {report}\n  in {:.1?}", began.elapsed());
    report.expect_correct()
}

#[test]
fn deaths_between_operations() {
    for seed in 0..4 {
        let kills = Kills {
            compute_nodes: 6,
            threads: 1,
            coroutines: 1,
            moment: Moment::BetweenOperations,
            ..Kills::new(waves(20_000, seed), 6, LEASE)
        };
        let report = simulated(&kills);
        assert!(
            report.killed.nodes == 6 && report.killed.expelled == 0,
            "{report}"
        );
    }
}

#[test]
#[ignore]
fn deaths_at_any_request() {
    for seed in 0..4 {
        let report = simulated(&Kills::new(waves(20_000, seed), 6, LEASE));
        assert!(
            report.killed.nodes == 6 && report.killed.expelled == 0,
            "{report}"
        );
    }
}

#[test]
fn deaths_between_operations_on_loopback() {
    let kills = Kills {
        compute_nodes: 6,
        threads: 1,
        coroutines: 1,
        moment: Moment::BetweenOperations,
        ..Kills::new(waves(100_000, 1), 6, Nanos::from_millis(200))
    };
    let world = Loopback::builder().nodes(2).lease(kills.lease).seed(1);
    let world = World::from(world.build().expect("memory"));
    let report = stress_with_kills(
        Tree::<Key8>::new(options(Variant::Default)),
        &world,
        &kills,
        NoChecker,
    );
    println!("{report}");
    let report = report.expect_correct();
    assert!(report.killed.nodes >= 6, "{report}");
}
