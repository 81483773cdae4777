//! Runs scripts of operations on one hopscotch node, on a CHIME tree of small nodes, or on a hash table of them, and
//! compares with a `BTreeMap`. Every byte string is a valid script.
//!
//! The first byte picks the index, with its sizes of keys and values. For a tree or a table, it also picks whether the
//! index is loaded first. For a tree it picks whether memory is reclaimed, and for a table the maximum depth of the
//! directory.
#![no_main]

use chime::{Chime, Options};
use dm_hopscotch::{HashTable, TableOptions};
use dm_layout::testing::{NodeModel, NodeOp};
use dm_layout::{Hopscotch, Key8, KeyBytes, KeyN};
use dm_loopback::{Endpoint, Loopback, block_on};
use dm_testkit::{TestKey, run_bytes};
use libfuzzer_sys::fuzz_target;

/// Maximum number of operations of a script for a node. Longer scripts are slower and find nothing new.
const OPS_MAX: usize = 400;
/// Number of operations between two collections, if memory is reclaimed.
const ROUND: usize = 8;

fn on_node<K: KeyBytes>(format: Hopscotch<K>, script: &[u8]) {
    let mut model = NodeModel::new(format);
    for bytes in script.as_chunks::<3>().0.iter().take(OPS_MAX) {
        model.apply(NodeOp::from_bytes(*bytes));
    }
}

fn pool() -> (Loopback, Endpoint) {
    let world = Loopback::builder()
        .nodes(2)
        .host_bytes(1 << 20)
        .build()
        .expect("a small world");
    let v = world.connect(0).expect("the first client");
    (world, v)
}

fn on_tree<K: TestKey>(value_bytes: usize, loaded: Option<u64>, reclaims: bool, script: &[u8]) {
    let (_world, v) = pool();
    let options = Options {
        span: 6,
        neighbourhood: 3,
        inner_span: 4,
        hotspot_bytes: 1 << 10,
        chunk_bytes: 1 << 15,
        members: if reclaims { 4 } else { 0 },
        ..Options::new(value_bytes)
    };
    block_on(async {
        let tree = Chime::<K>::create_or_open(&v, &options)
            .await
            .expect("an empty pool");
        let client = tree.client(&v);
        let round = async |i: usize| {
            if reclaims && i % ROUND == 0 {
                tree.collect(&v).await.expect("a round");
            }
        };
        run_bytes(&client, loaded, script, round).await;
    });
}

fn on_table<K: TestKey>(value_bytes: usize, loaded: Option<u64>, depth_max: u8, script: &[u8]) {
    let (_world, v) = pool();
    let options = TableOptions {
        span: 6,
        neighbourhood: 3,
        depth_max,
        hotspot_bytes: 1 << 10,
        chunk_bytes: 1 << 15,
        ..TableOptions::new(value_bytes)
    };
    block_on(async {
        let table = HashTable::<K>::create_or_open(&v, &options)
            .await
            .expect("an empty pool");
        run_bytes(&table.client(&v), loaded, script, async |_| {}).await;
    });
}

fuzz_target!(|data: &[u8]| {
    let Some((what, script)) = data.split_first() else {
        return;
    };
    // The index starts empty, or with up to 15 loaded keys.
    let loaded = (*what >= 128).then_some(u64::from(what / 8 % 16));
    let (reclaims, depth_max) = (what & 8 != 0, if what & 8 != 0 { 2 } else { 12 });
    match what % 8 {
        0 => on_node(Hopscotch::<Key8>::new(8, 3, 16).expect("a node"), script),
        1 => on_node(Hopscotch::<KeyN<32>>::new(6, 2, 64).expect("a node"), script),
        2 | 3 => on_tree::<Key8>(8, loaded, reclaims, script),
        4 => on_tree::<KeyN<32>>(40, loaded, reclaims, script),
        5 | 6 => on_table::<Key8>(8, loaded, depth_max, script),
        _ => on_table::<KeyN<32>>(40, loaded, depth_max, script),
    }
});
