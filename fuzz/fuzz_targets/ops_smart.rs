//! Runs scripts of operations on a SMART tree of small nodes, and compares with a `BTreeMap`. Every byte string is a
//! valid script.
//!
//! The first byte picks the keys and the values, whether the tree is loaded first, and whether memory is reused.
#![no_main]

use dm_loopback::{Loopback, block_on};
use dm_testkit::{TestKey, run_bytes};
use libfuzzer_sys::fuzz_target;
use smart::{NodeTypes, Options, Smart};

/// Number of operations between two collections, if memory is reclaimed.
const ROUND: usize = 8;

fn on_tree<K: TestKey>(value_bytes: usize, loaded: Option<u64>, reclaims: bool, script: &[u8]) {
    let world = Loopback::builder()
        .nodes(2)
        .host_bytes(1 << 20)
        .build()
        .expect("a small world");
    let v = world.connect(0).expect("the first client");
    let options = Options {
        types: NodeTypes::new(&[2, 4, 8, 256]).expect("ascending"),
        chunk_bytes: 1 << 15,
        members: if reclaims { 4 } else { 0 },
        ..Options::new(value_bytes)
    };
    block_on(async {
        let tree = Smart::<K>::create_or_open(&v, &options)
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

fuzz_target!(|data: &[u8]| {
    let Some((what, script)) = data.split_first() else {
        return;
    };
    // The tree starts empty, or with up to 15 loaded keys.
    let loaded = (*what >= 128).then_some(u64::from(what / 8 % 16));
    let reclaims = what & 4 != 0;
    match what % 4 {
        0 => on_tree::<dm_layout::KeyN<32>>(40, loaded, reclaims, script),
        1 => on_tree::<dm_layout::Key8>(0, loaded, reclaims, script),
        _ => on_tree::<dm_layout::Key8>(8, loaded, reclaims, script),
    }
});
