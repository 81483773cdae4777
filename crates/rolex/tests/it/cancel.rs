//! Tests of operations that are dropped at any poll. Splits, merges and visits are dropped too.

use dm_sim::{CostModel, Sim};
use dm_testkit::{Drops, drop_operations};
use rolex::{ChimeLearnedParts, Key8, Options, PublishedParts, RolexParts};

use crate::common::{Learns, Tree};

/// Returns options with small leaves, so that they split and merge, and few locks, so that leaves share them.
fn options<P: Learns>() -> Options {
    Options {
        span: 6,
        neighbourhood: 3,
        locks_per_node: 64,
        chunk_bytes: 64 << 10,
        attempts: 1 << 16,
        ..P::options(16)
    }
}

fn drops<P: Learns<Key = Key8>>() {
    for (seed, model) in [(1, CostModel::cx6_roce()), (2, CostModel::cx5_ib())] {
        let sim = Sim::builder(model).compute_nodes(2).memory_nodes(2).seed(seed);
        let drops = Drops {
            operations: 800,
            polls: 8,
            seed,
            key_of: Key8,
        };
        // Every second operation of a client ends in a visit, so visits are dropped as well.
        drop_operations(
            Tree::<P>::new(options::<P>()).visiting(2),
            &sim.build().expect("memory").into(),
            drops,
        );
    }
}

#[test]
fn dropped_operations_leave_nothing_behind() {
    drops::<RolexParts<Key8>>();
}

#[test]
fn dropped_operations_on_hopscotch_leaves_leave_nothing_behind() {
    drops::<ChimeLearnedParts<Key8>>();
}

#[test]
fn dropped_operations_as_published_leave_nothing_behind() {
    drops::<PublishedParts<Key8>>();
}
