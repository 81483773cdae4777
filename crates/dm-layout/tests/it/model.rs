//! Compares every format except hopscotch nodes with a plain map, compares remote bytes with the image, and reads
//! arbitrary bytes.

use dm_layout::testing::{NodeModel, NodeOp, clustered_key_of, key_of, read_everything};
use dm_layout::{
    Bookend, Checksummed, FenceKeys, Key8, KeyBytes, KeyN, Leaf, NodeFormat, NodeInit, Packed, Slotted,
};
use proptest::prelude::*;

/// Runs a generic function on every shipped kind of format and entry, except hopscotch nodes.
macro_rules! on_every_format {
    ($run:ident ( $($argument:expr),* )) => {{
        $run::<Key8, _>(&Slotted::with_node_bytes(1024, 8).unwrap(), $($argument),*);
        $run::<Key8, _>(&Slotted::tiny(8).unwrap(), $($argument),*);
        $run::<Key8, _>(&Slotted::with_span(8, 16).unwrap().with_version_bits(2).unwrap(), $($argument),*);
        $run::<Key8, _>(&Slotted::with_span(7, 13).unwrap(), $($argument),*);
        $run::<Key8, _>(&Slotted::with_span(5, 0).unwrap(), $($argument),*);
        $run::<Key8, _>(&Slotted::with_span(5, 200).unwrap(), $($argument),*);
        // The geometries of inner nodes.
        $run::<Key8, _>(&Slotted::marked_with_node_bytes(1024, 4).unwrap(), $($argument),*);
        $run::<KeyN<32>, _>(&Slotted::marked_with_node_bytes(256, 4).unwrap(), $($argument),*);
        $run::<Key8, _>(&Slotted::marked_with_node_bytes(192, 9).unwrap(), $($argument),*);
        // The geometries of leaves whose values a CAS can change.
        $run::<Key8, _>(&Slotted::words_with_node_bytes(1024).unwrap(), $($argument),*);
        $run::<KeyN<16>, _>(&Slotted::words_with_span(7).unwrap(), $($argument),*);
        $run::<KeyN<32>, _>(&Slotted::with_span(6, 8).unwrap(), $($argument),*);
        $run::<KeyN<32>, _>(&Slotted::with_span(4, 64).unwrap().with_version_bits(3).unwrap(), $($argument),*);
        // These have all shapes, some shapes or one shape; one line of entries; or a low fence key in its own line.
        $run::<Key8, _>(&Packed::with_node_bytes(1024, 8).unwrap(), $($argument),*);
        $run::<Key8, _>(&Packed::with_node_bytes(256, 8).unwrap(), $($argument),*);
        $run::<Key8, _>(&Packed::with_node_bytes(128, 16).unwrap(), $($argument),*);
        $run::<Key8, _>(&Packed::with_node_bytes(192, 30).unwrap(), $($argument),*);
        $run::<Key8, _>(&Packed::with_node_bytes(192, 0).unwrap(), $($argument),*);
        $run::<Key8, _>(&Packed::with_node_bytes(192, 54).unwrap(), $($argument),*);
        $run::<KeyN<32>, _>(&Packed::with_node_bytes(320, 8).unwrap(), $($argument),*);
        $run::<KeyN<32>, _>(&Packed::with_node_bytes(256, 13).unwrap(), $($argument),*);
        // Leaves of either format.
        $run::<Key8, _>(&Leaf::with_node_bytes(192, 8, true).unwrap(), $($argument),*);
        $run::<Key8, _>(&Leaf::with_node_bytes(320, 100, true).unwrap(), $($argument),*);
        $run::<Key8, _>(&Bookend::with_span(8, 8).unwrap(), $($argument),*);
        $run::<KeyN<32>, _>(&Bookend::with_span(5, 40).unwrap(), $($argument),*);
        $run::<Key8, _>(&Checksummed::with_span(8, 8).unwrap(), $($argument),*);
        $run::<KeyN<32>, _>(&Checksummed::with_span(5, 40).unwrap(), $($argument),*);
    }};
}

fn run_ops<K: KeyBytes, F: NodeFormat<K>>(format: &F, ops: &[[u8; 3]], clustered: bool) {
    let mut model = match clustered {
        true => NodeModel::with_keys(format.clone(), clustered_key_of),
        false => NodeModel::new(format.clone()),
    };
    for op in ops {
        model.apply(NodeOp::from_bytes(*op));
    }
}

fn read_any<K: KeyBytes, F: NodeFormat<K>>(format: &F, seed: &[u8], flips: &[(usize, u8)]) {
    let key = key_of(seed[0]);
    // These bytes may be too few for a node, too many, or as many as a node has.
    read_everything(format, &seed[1..], &key);
    let mut noise: Vec<u8> = seed.iter().copied().cycle().take(format.node_bytes()).collect();
    read_everything(format, &noise, &key);
    // A valid node with a few changed bytes reaches more code than random bytes.
    let init = NodeInit::live(0, FenceKeys::ALL);
    let value = vec![3; format.value_len()];
    for key_of in [key_of, clustered_key_of] {
        let taken = |count: &u8| format.takes(&K::MIN, &mut (0..*count).map(key_of));
        let count = (0..format.capacity() as u8)
            .rev()
            .find(taken)
            .expect("none at least");
        let entries = (0..count).map(|k| (key_of(k), value.as_slice().into()));
        format.build(&mut noise, &init, entries);
        flip(format, &mut noise, flips, &key);
    }
}

fn flip<K: KeyBytes, F: NodeFormat<K>>(format: &F, noise: &mut [u8], flips: &[(usize, u8)], key: &K) {
    for (at, byte) in flips {
        noise[at % format.node_bytes()] = *byte;
        read_everything(format, noise, key);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nodes_behave_as_maps(ops in prop::collection::vec(any::<[u8; 3]>(), 1..120)) {
        // There are only 28 keys, including both extremes, so that operations collide.
        let ops: Vec<_> = ops.iter().map(|[op, key, value]| [*op, key % 14 * 19 + key / 128 * 8, *value]).collect();
        on_every_format!(run_ops(&ops, false));
    }

    #[test]
    fn nodes_behave_as_maps_of_clustered_keys(ops in prop::collection::vec(any::<[u8; 3]>(), 1..120)) {
        let ops: Vec<_> = ops.iter().map(|[op, key, value]| [*op, key & 0xdb, *value]).collect();
        on_every_format!(run_ops(&ops, true));
    }

    #[test]
    fn wide_key_spaces_fill_nodes(ops in prop::collection::vec(any::<[u8; 3]>(), 100..300)) {
        run_ops::<Key8, _>(&Slotted::with_node_bytes(1024, 8).unwrap(), &ops, false);
        run_ops::<Key8, _>(&Packed::with_node_bytes(1024, 8).unwrap(), &ops, true);
        run_ops::<KeyN<32>, _>(&Packed::with_node_bytes(1024, 8).unwrap(), &ops, true);
    }

    #[test]
    fn decoding_is_total(
        seed in prop::collection::vec(any::<u8>(), 2..300),
        flips in prop::collection::vec((any::<usize>(), any::<u8>()), 1..12),
    ) {
        on_every_format!(read_any(&seed, &flips));
    }
}
