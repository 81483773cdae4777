//! Reads arbitrary bytes as a hopscotch leaf, by neighbourhood and by entry. Then moves entries in the leaf, splits it,
//! and checks whether the halves fit into one leaf again. Also reads the bytes as the leaf of a tree, and as a leaf or
//! the directory of a hash table. Each operation must return an answer or a typed error.
//!
//! The first byte picks the case, the second byte picks the key, and the rest is read.
#![no_main]

use chime::{Chime, Options};
use dm_alloc::Superblock;
use dm_hopscotch::{HashTable, TableOptions};
use dm_layout::testing::key_of;
use dm_layout::{
    HopGeometry, Hopscotch, Key8, KeyBytes, KeyN, NodeEdit, NodeRead, NodeShape, NodeSteps, NodeStructure,
    SplitBias, SplitRequest, ValueRef,
};
use dm_loopback::{Endpoint, Loopback, block_on};
use dm_testkit::TestKey;
use dm_verbs::{RemotePtr, Verbs};
use libfuzzer_sys::fuzz_target;
use sherman::{RangeIndex, Scan};

/// Reads parts of a leaf as readers do, and changes the whole leaf as writers do. If `sealed` is set, first makes the
/// versions of the leaf's lines agree, so that a reader accepts the leaf.
fn leaf<K: KeyBytes>(format: Hopscotch<K>, key: &K, bytes: &[u8], sealed: bool) {
    let mut node = bytes.to_vec();
    node.resize(format.node_bytes(), 0);
    if sealed && let Ok(header) = format.header(&node) {
        format.seal_head(&mut node, &header);
        format.seal_rest(&mut node, header.version);
    }
    let geometry = format.geometry();
    let reach = geometry.reach(format.home(key));
    let second = reach.second.clone().map_or(&[][..], |range| &node[range]);
    let parts = (&node[reach.first.clone()], second);
    for linked in [false, true] {
        let _any = format.near(&reach, parts, key, linked);
    }
    for number in 0..geometry.span() {
        let _any = format.alone(&node[geometry.entry(number)], key);
    }
    let Ok(header) = format.accept(&node) else { return };
    if !header.fences.contains(key) {
        return;
    }
    let value = vec![7; format.value_len()];
    let mut hopped = node.clone();
    if let Ok(dm_layout::Place::Full) = format.place(&node, key)
        && let Ok(Some(plan)) = format.plan_hops(&node, key, &geometry.all())
    {
        let entry = (key, ValueRef::from(&value[..]));
        format.hop(&mut hopped, &plan, entry, true, |_, _| {});
        let found = dm_layout::find(&format, &hopped, key).expect("an accepted leaf");
        assert_eq!(found, Some(plan.slot));
    }
    for bias in [SplitBias::Median, SplitBias::Ascending, SplitBias::Coarse] {
        split(&format, &node, key, (bias, &value));
    }
}

/// Splits an accepted leaf, and checks whether the halves fit into one leaf again.
fn split<K: KeyBytes>(format: &Hopscotch<K>, node: &[u8], key: &K, (bias, value): (SplitBias, &[u8])) {
    let absent = dm_layout::find(format, node, key) == Ok(None);
    let request = SplitRequest {
        right_address: 64,
        right_incarnation: 1,
        right_version: 1,
        owner: 1,
        new: absent.then(|| (*key, ValueRef::from(value))),
        bias,
    };
    let (mut left, mut right) = (node.to_vec(), vec![0; format.node_bytes()]);
    let Ok(Some(plan)) = format.prepare_split(node, &mut right, &request) else {
        return;
    };
    let steps = [
        format.announce_split(&mut left, &plan),
        format.clear_split(&mut left, &plan),
        format.finish_split(&mut left),
    ];
    if steps.iter().any(Result::is_err) || format.open(&mut right).is_err() {
        return;
    }
    let _any = format.merge_fits(&left, &right);
}

/// Makes a pool of one memory node.
fn pool() -> (Loopback, Endpoint) {
    let world = Loopback::builder()
        .nodes(1)
        .host_bytes(1 << 18)
        .build()
        .expect("a small world");
    let v = world.connect(0).expect("the first client");
    (world, v)
}

/// Runs operations. They must end, and may fail only with a typed error.
async fn operations(client: &impl RangeIndex<Key = Key8>, key: u8) {
    let key = Key8::nth(key.into());
    let mut value = Vec::new();
    let _any = client.get(&key, &mut value).await;
    let _any = client.upsert(&key, &[7; 8]).await;
    let _any = client.insert(&Key8(key.0 ^ 1 << 63), &[7; 8]).await;
    let _any = client.remove(&key).await;
    let _any = client.scan(&Key8(0), 64, &mut Scan::new()).await;
}

/// Runs operations on a tree whose root is a leaf with these bytes.
fn tree(key: u8, bytes: &[u8]) {
    let (_world, v) = pool();
    let options = Options {
        span: 12,
        neighbourhood: 4,
        inner_span: 4,
        chunk_bytes: 1 << 13,
        attempts: 16,
        members: 0,
        ..Options::new(8)
    };
    block_on(async {
        let tree = Chime::<Key8>::create_or_open(&v, &options)
            .await
            .expect("an empty pool");
        let client = tree.client(&v);
        client.insert(&Key8(1), &[1; 8]).await.expect("room");
        let root = v.word(Superblock::ROOT_WORD).await.expect("no faults");
        load(&v, RemotePtr::from_raw(root & !63), tree.geometry(), bytes);
        operations(&client, key).await;
        let cold = Chime::<Key8>::create_or_open(&v, &options)
            .await
            .expect("the same");
        operations(&cold.client(&v), key).await;
    });
}

/// Runs operations on a table in which a leaf, or the directory, has these bytes.
fn table(directory: bool, key: u8, bytes: &[u8]) {
    let (_world, v) = pool();
    let options = TableOptions {
        span: 12,
        neighbourhood: 4,
        chunk_bytes: 1 << 13,
        attempts: 16,
        ..TableOptions::new(8)
    };
    block_on(async {
        let table = HashTable::<Key8>::create_or_open(&v, &options)
            .await
            .expect("an empty pool");
        let client = table.client(&v);
        for n in 0..40 {
            client.insert(&Key8::nth(n), &[1; 8]).await.expect("room");
        }
        let root = v.word(table.root_word()).await.expect("no faults");
        let (at, slots) = (RemotePtr::from_raw(root & !63), 1 << (root & 63));
        assert!(slots > 1, "it has grown");
        if directory {
            let len = bytes.len().min(8 * slots);
            v.load(at, &bytes[..len]).expect("the directory lies in memory");
        } else {
            let leaf = v
                .word(at.add(8 * (usize::from(key) % slots) as u64))
                .await
                .expect("no faults");
            load(&v, RemotePtr::from_raw(leaf), table.geometry(), bytes);
        }
        operations(&client, key).await;
        let cold = HashTable::<Key8>::create_or_open(&v, &options)
            .await
            .expect("the same");
        operations(&cold.client(&v), key).await;
    });
}

fn load(v: &Endpoint, at: RemotePtr, geometry: &HopGeometry, bytes: &[u8]) {
    let len = bytes.len().min(geometry.node_bytes());
    v.load(at, &bytes[..len]).expect("a leaf lies in memory");
}

fuzz_target!(|data: &[u8]| {
    let [what, key, bytes @ ..] = data else { return };
    let sealed = what & 8 != 0;
    match what % 8 {
        0 => leaf(
            Hopscotch::<Key8>::new(12, 4, 8).expect("a node"),
            &key_of(*key),
            bytes,
            sealed,
        ),
        1 => leaf(
            Hopscotch::<Key8>::new(6, 3, 200).expect("a node"),
            &key_of(*key),
            bytes,
            sealed,
        ),
        2 => leaf(
            Hopscotch::<KeyN<32>>::new(7, 3, 8).expect("a node"),
            &key_of(*key),
            bytes,
            sealed,
        ),
        3 => leaf(
            Hopscotch::<Key8>::new(70, 5, 1).expect("a node"),
            &key_of(*key),
            bytes,
            sealed,
        ),
        4 | 5 => tree(*key, bytes),
        6 => table(false, *key, bytes),
        _ => table(true, *key, bytes),
    }
});
