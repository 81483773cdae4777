//! Many clients on small leaves, every answer checked: leaves split and merge, separators come and go, memory is used again.

use dm_loopback::Loopback;
use dm_sim::{CostModel, Sim};
use dm_testkit::{Report, Stress, World, seats, stress};
use dolphin::{Key8, Key32, Options, Rdwc};

use crate::common::Tree;

/// Leaves of about a dozen, so that they split and merge often; values of two words, so that they can tear. What is
/// remembered of separators has room for a part of them.
fn options(value_bytes: usize) -> Options {
    Options {
        leaf_bytes: (64 + 12 * (value_bytes + 34)).next_multiple_of(64),
        cache_bytes: 24 << 10,
        chunk_bytes: 64 << 10,
        ..Options::new(value_bytes)
    }
}

/// Keys come and go in waves, so that leaves merge as often as they split, and are used again.
fn waves(operations: u64, seed: u64) -> Stress {
    Stress {
        waves: 4,
        keys: operations / 40,
        ..Stress::new(operations, seed)
    }
}

fn correct(report: Report, waves: u64) {
    let report = report.expect_correct();
    let met = report.meter;
    assert!(report.linearized.0 > 500 && met.splits > 2, "{report}");
    assert!(met.cache_misses > 0, "{report}");
    assert!(met.merges > 0 || waves < 2, "{report}");
}

#[test]
fn threads_on_loopback() {
    for (script, value_bytes) in [(Stress::new(20_000, 1), 16), (waves(40_000, 3), 100)] {
        let world = Loopback::builder().nodes(3).host_bytes(1 << 30).seed(script.seed);
        let world = World::from(world.build().expect("memory"));
        let tree = Tree::<Key8>::new(options(value_bytes));
        correct(stress(tree, &world, &seats(4, 8, 2), &script), script.waves);
    }
}

#[test]
fn simulated_testbeds() {
    for seed in 0..2 {
        let model = match seed % 2 {
            0 => CostModel::cx5_ib(),
            _ => CostModel::cx6_roce(),
        };
        let sim = Sim::builder(model)
            .compute_nodes(3)
            .memory_nodes(2)
            .colocated(seed == 1)
            .seed(seed);
        let world = World::from(sim.build().expect("memory"));
        let script = match seed {
            0 => Stress::new(15_000, seed),
            _ => waves(15_000, seed),
        };
        let options = Options {
            rdwc: if seed == 1 { Rdwc::ON } else { Rdwc::OFF },
            ..options(16)
        };
        let seats = seats(3, 12, 4);
        let report = match seed {
            1 => stress(Tree::<Key32>::new(options), &world, &seats, &script),
            _ => stress(Tree::<Key8>::new(options), &world, &seats, &script),
        };
        correct(report, script.waves);
    }
}
