//! Many clients on small leaves, every answer checked, histories linearized: leaves split and the directory grows under
//! them, from an empty table on.

use dm_hopscotch::TableOptions;
use dm_index::{Key8, Key32};
use dm_loopback::Loopback;
use dm_sim::{CostModel, Sim};
use dm_testkit::{Mix, Report, Stress, World, seats, stress};

use crate::common::{Table, small};

/// Scans are whole tables: few of them.
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
    let report = report.expect_correct();
    assert!(report.linearized.0 > 1_000 && report.meter.splits > 2, "{report}");
}

#[test]
fn threads_on_loopback() {
    for (seed, value_bytes) in [(1, 16), (2, 100)] {
        let world = Loopback::builder().nodes(3).host_bytes(256 << 20).seed(seed);
        let world = World::from(world.build().expect("memory"));
        let table = Table::<Key8>::new(options(value_bytes));
        correct(stress(table, &world, &seats(4, 8, 2), &script(60_000, seed)));
    }
}

#[test]
fn simulated_testbeds() {
    for seed in 0..3 {
        let model = match seed % 2 {
            0 => CostModel::cx5_ib(),
            _ => CostModel::cx6_roce(),
        };
        let sim = Sim::builder(model).compute_nodes(3).memory_nodes(2).seed(seed);
        let world = World::from(sim.build().expect("memory"));
        let script = Stress {
            // Few keys at last, and most of the time the hot ones.
            keys: if seed == 1 { 2_000 } else { 10_000 },
            ..script(30_000, seed)
        };
        let script = Stress {
            hot_percent: if seed == 1 { 40 } else { script.hot_percent },
            ..script
        };
        let seats = seats(3, 12, 4);
        let report = match seed {
            2 => stress(Table::<Key32>::new(options(16)), &world, &seats, &script),
            _ => stress(Table::<Key8>::new(options(16)), &world, &seats, &script),
        };
        correct(report);
    }
}
