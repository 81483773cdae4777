//! Runs scripts of operations on one node of each format, or on a tree of tiny nodes, and compares with a `BTreeMap`.
//!
//! The first byte picks the node or the tree. Every three bytes after it (five for a tree) are an operation. Every byte
//! string is a valid script.
#![no_main]

use dm_layout::testing::{NodeModel, NodeOp, clustered_key_of, key_of};
use dm_layout::{Bookend, Checksummed, Key8, KeyBytes, KeyN, NodeFormat, Packed, Slotted};
use dm_loopback::{Loopback, block_on};
use dm_testkit::{TestKey, run_bytes};
use libfuzzer_sys::fuzz_target;
use sherman::{LeafFormat, NodeSize, Options, Sherman};

/// Maximum number of operations of a script for a node. Longer scripts are slower and find nothing new.
const OPS_MAX: usize = 400;

fn on_node<K: KeyBytes, F: NodeFormat<K>>(format: F, script: &[u8]) {
    on_node_of(format, key_of, script);
}

fn on_node_of<K: KeyBytes, F: NodeFormat<K>>(format: F, key_of: fn(u8) -> K, script: &[u8]) {
    let mut model = NodeModel::<K, F>::with_keys(format, key_of);
    for bytes in script.as_chunks::<3>().0.iter().take(OPS_MAX) {
        model.apply(NodeOp::from_bytes(*bytes));
    }
}

/// Runs a script on a tree. `loaded` is the number of keys that are loaded first, or `None` for an empty tree.
fn on_tree<K: TestKey, F: LeafFormat<K>>(value_bytes: usize, loaded: Option<u64>, script: &[u8]) {
    let world = Loopback::builder()
        .nodes(2)
        .host_bytes(1 << 20)
        .build()
        .expect("a small world");
    let v = world.connect(0).expect("the first client");
    let options = Options {
        node: NodeSize::Span(4),
        chunk_bytes: 1 << 15,
        ..Options::new(value_bytes)
    };
    block_on(async {
        let tree = Sherman::<K, F>::create_or_open(&v, &options)
            .await
            .expect("an empty pool");
        run_bytes(&tree.client(&v), loaded, script, async |_| {}).await;
    });
}

fuzz_target!(|data: &[u8]| {
    let Some((what, script)) = data.split_first() else {
        return;
    };
    // The tree starts empty, or with up to 15 loaded keys.
    let loaded = (*what >= 128).then_some(u64::from(what / 8 % 16));
    match what % 10 {
        0 => on_node(Slotted::<Key8>::with_span(8, 16).expect("a node"), script),
        1 => on_node(Slotted::<KeyN<32>>::with_span(4, 64).expect("a node"), script),
        2 => on_node(Checksummed::<Key8>::with_span(8, 8).expect("a node"), script),
        3 => on_node(Bookend::<Key8>::with_span(8, 8).expect("a node"), script),
        4 => on_tree::<Key8, Slotted<Key8>>(8, loaded, script),
        5 => on_tree::<KeyN<32>, Slotted<KeyN<32>>>(40, loaded, script),
        6 => on_tree::<Key8, Checksummed<Key8>>(8, loaded, script),
        7 => on_tree::<Key8, Slotted<Key8>>(0, loaded, script),
        8 => on_node_of(
            Packed::<Key8>::with_node_bytes(192, 8).expect("a node"),
            clustered_key_of,
            script,
        ),
        _ => on_node_of(
            Packed::<KeyN<32>>::with_node_bytes(320, 8).expect("a node"),
            clustered_key_of,
            script,
        ),
    }
});
