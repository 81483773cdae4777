//! Many clients on small nodes, every answer checked.

mod common;

use common::Tree;
use dm_layout::NodeTypes;
use dm_loopback::Loopback;
use dm_sim::{CostModel, Sim};
use dm_testkit::{Report, Stress, World, seats, stress};
use smart::{Key8, Key32, Options};

/// Small nodes, so that they are copied often; values of two words, so that they can tear.
fn options() -> Options {
    Options {
        types: NodeTypes::new(&[2, 4, 8, 256]).expect("ascending"),
        chunk_bytes: 64 << 10,
        ..Options::new(16)
    }
}

/// Keys come and go in waves, so that nodes shrink as often as they grow.
fn waves(operations: u64, seed: u64) -> Stress {
    Stress {
        waves: 4,
        keys: operations / 40,
        ..Stress::new(operations, seed)
    }
}

fn correct(report: Report) {
    let report = report.expect_correct();
    assert!(report.linearized.0 > 1_000 && report.meter.splits > 2, "{report}");
}

#[test]
fn threads_on_loopback() {
    for (script, cache_bytes) in [(Stress::new(200_000, 1), 1 << 30), (waves(200_000, 3), 32 << 10)] {
        let world = Loopback::builder().nodes(3).host_bytes(1 << 30).seed(script.seed);
        let tree = Tree::<Key8>::new(Options {
            cache_bytes,
            ..options()
        });
        correct(stress(
            tree,
            &World::from(world.build().expect("memory")),
            &seats(4, 8, 2),
            &script,
        ));
    }
}

#[test]
fn simulated_testbeds() {
    for seed in 0..4 {
        let model = if seed % 2 == 0 {
            CostModel::cx5_ib()
        } else {
            CostModel::cx6_roce()
        };
        let sim = Sim::builder(model)
            .compute_nodes(3)
            .memory_nodes(2)
            .colocated(seed == 1)
            .seed(seed);
        let world = World::from(sim.build().expect("memory"));
        let script = match seed {
            0 => Stress::new(30_000, seed),
            // Few keys, and most of the time the hot ones.
            1 => Stress {
                keys: 2_000,
                hot_percent: 40,
                ..Stress::new(30_000, seed)
            },
            _ => waves(30_000, seed),
        };
        let seats = seats(3, 12, 4);
        let report = match seed % 4 {
            3 => stress(Tree::<Key32>::new(options()), &world, &seats, &script),
            _ => stress(Tree::<Key8>::new(options()), &world, &seats, &script),
        };
        correct(report);
    }
}
