//! Runs scripts of operations on a Dolphin tree of small leaves and radix nodes, and compares with a `BTreeMap`. Every
//! byte string is a valid script.
//!
//! The first byte picks the keys, the values and the leaves, whether the tree is loaded first, and whether memory is
//! reused.
#![no_main]

use dm_loopback::{Loopback, block_on};
use dm_testkit::{TestKey, run_bytes};
use dolphin::{Dolphin, Key8, KeyN, NodeTypes, Options};
use libfuzzer_sys::fuzz_target;

/// Number of operations between two collections, if memory is reclaimed.
const ROUND: usize = 8;

fn on_tree<K: TestKey>(options: Options, loaded: Option<u64>, script: &[u8]) {
    let world = Loopback::builder()
        .nodes(2)
        .host_bytes(1 << 20)
        .build()
        .expect("a small world");
    let v = world.connect(0).expect("the first client");
    block_on(async {
        let tree = Dolphin::<K>::create_or_open(&v, &options)
            .await
            .expect("an empty pool");
        let client = tree.client(&v);
        let round = async |i: usize| {
            if options.members > 0 && i % ROUND == 0 {
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
    let options = |value_bytes: usize, leaf_bytes: usize| Options {
        leaf_bytes,
        packed_keys: what & 2 != 0,
        types: NodeTypes::new(&[2, 4, 8, 256]).expect("ascending"),
        // The cache has room for only some of the separators.
        cache_bytes: 512,
        chunk_bytes: 1 << 15,
        members: if what & 4 != 0 { 4 } else { 0 },
        ..Options::new(value_bytes)
    };
    match what % 2 {
        0 => on_tree::<Key8>(options(8, 192), loaded, script),
        _ => on_tree::<KeyN<32>>(options(20, 320), loaded, script),
    }
});
