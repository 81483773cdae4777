//! Many clients on small nodes, every answer checked: a short run of each kind always, the full size by
//! `cargo xtask stress`.

#![expect(clippy::print_stdout, reason = "a stress run tells what it did")]

mod common;

use std::time::Instant;

use common::Tree;
use dm_layout::Checksummed;
use dm_loopback::Loopback;
use dm_sim::{CostModel, Sim};
use dm_testkit::{Report, Stress, World, seats, stress};
use sherman::{Key8, NodeSize, Options, Variant};

/// Small nodes: about a thousand operations to a handful of splits. Values of two words, so that they can tear.
fn options(variant: Variant) -> Options {
    variant.apply(Options {
        node: NodeSize::Bytes(256),
        chunk_bytes: 32 << 10,
        ..Options::new(16)
    })
}

/// 8 threads of 4 compute nodes, two clients each, over 3 memory nodes. `host_bytes` is little more than needed: siblings
/// come to lie on other memory nodes when their own is full.
fn loopback(operations: u64, host_bytes: u64, seed: u64) -> Report {
    let world: World = Loopback::builder()
        .nodes(3)
        .host_bytes(host_bytes)
        .seed(seed)
        .build()
        .expect("memory")
        .into();
    let script = Stress::new(operations, seed);
    let began = Instant::now();
    let report = stress(
        Tree::<Key8>::new(options(Variant::Default)),
        &world,
        &seats(4, 8, 2),
        &script,
    );
    println!("{report}\n  in {:.1?}", began.elapsed());
    report.expect_correct()
}

/// 48 clients of 3 compute nodes over 2 memory nodes; testbed, placement and variant go by the seed.
fn simulated(seed: u64) {
    let model = if seed.is_multiple_of(2) {
        CostModel::cx5_ib()
    } else {
        CostModel::cx6_roce()
    };
    let sim = Sim::builder(model)
        .compute_nodes(3)
        .memory_nodes(2)
        .memory_bytes(800 << 10)
        .colocated(seed % 4 == 1)
        .seed(seed)
        .build()
        .expect("memory");
    let world = World::from(sim);
    // Every third run crowds the hot keys.
    let hot_percent = if seed % 3 == 2 { 40 } else { 5 };
    let script = Stress {
        keys: 20_000,
        hot_percent,
        preload: seed % 2 == 1,
        ..Stress::new(100_000, seed)
    };
    let variants = [
        Variant::Default,
        Variant::TwoLevel,
        Variant::PaperRtt,
        Variant::Hierarchical,
        Variant::Fg,
    ];
    let variant = variants[seed as usize % variants.len()];
    let seats = seats(3, 12, 4);
    let report = match variant {
        Variant::Hierarchical | Variant::Fg => stress(
            Tree::<Key8, Checksummed<Key8>>::new(options(variant)),
            &world,
            &seats,
            &script,
        ),
        _ => stress(Tree::<Key8>::new(options(variant)), &world, &seats, &script),
    };
    println!("{variant}: {report}");
    let report = report.expect_correct();
    assert_eq!(report.calls.total(), 100_000);
    assert!(
        report.meter.splits > 500 && report.linearized.0 > 2_000 && report.verified > 15_000,
        "{report}"
    );
}

#[test]
fn threads_on_loopback() {
    let report = loopback(1_000_000, 3 << 20, 1);
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
fn simulated_testbeds() {
    for seed in 0..5 {
        simulated(seed);
    }
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress`"]
fn full_threads_on_loopback() {
    let report = loopback(20_000_000, 60 << 20, 2);
    assert!(
        report.calls.total() >= 20_000_000 && report.meter.splits >= 100_000,
        "{report}"
    );
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress`"]
fn full_simulated_testbeds() {
    for seed in 0..200 {
        simulated(seed);
    }
}
