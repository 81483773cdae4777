//! Tests of operations that are dropped at any poll. Splits, merges and their changes of separators are dropped too.

use dm_sim::{CostModel, Sim};
use dm_testkit::{Drops, drop_operations};
use dolphin::{Key8, Options};

use crate::common::Tree;

/// Returns options with small leaves, so that they split and merge, and few locks, so that leaves share them.
fn options() -> Options {
    Options {
        leaf_bytes: 256,
        locks_per_node: 64,
        chunk_bytes: 64 << 10,
        attempts: 1 << 16,
        ..Options::new(16)
    }
}

/// Returns key number `n`. A third of the keys are close together, a third are far apart, and a third are in between.
/// So leaves hold keys of several widths, and the width of the keys in a line changes.
fn key_of(n: u64) -> Key8 {
    let shift = [0, 20, 50];
    Key8(n << shift[(n % 3) as usize])
}

#[test]
fn dropped_operations_leave_nothing_behind() {
    for (seed, model) in [(1, CostModel::cx6_roce()), (2, CostModel::cx5_ib())] {
        let sim = Sim::builder(model).compute_nodes(2).memory_nodes(2).seed(seed);
        let drops = Drops {
            operations: 800,
            polls: 14,
            seed,
            key_of,
        };
        drop_operations(
            Tree::<Key8>::new(options()),
            &sim.build().expect("memory").into(),
            drops,
        );
    }
}
