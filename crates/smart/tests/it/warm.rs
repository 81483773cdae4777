//! Tests of the content of a cache before the first operation. If not all nodes fit, the cache keeps most of the nodes
//! that were read last. A cache can be copied to another compute node.

use dm_loopback::{Loopback, block_on};
use dm_testkit::connect;
use dm_verbs::Env;
use smart::{Key8, Options, RangeIndex, ReclaimOptions, Smart};

const KEYS: u64 = 20_000;

fn options(cache_bytes: u64) -> Options {
    Options {
        cache_bytes,
        reclaim: ReclaimOptions {
            operations: 8,
            ..ReclaimOptions::new()
        },
        ..Options::new(8)
    }
}

/// Returns key number `i`. Each group of eight keys is below one node, and the groups are scattered.
fn key(i: u64) -> Key8 {
    Key8(((i / 8).wrapping_mul(0x9E37_79B9_7F4A_7C15) & !0xff) | (i % 8))
}

fn pool(options: &Options) -> (Loopback, Smart<Key8>) {
    let pool = Loopback::builder()
        .nodes(1)
        .host_bytes(64 << 20)
        .build()
        .expect("memory");
    let v = connect(&pool, 0);
    let tree = block_on(Smart::create_or_open(&v, options)).expect("an empty pool");
    let mut keys: Vec<Key8> = (0..KEYS).map(key).collect();
    keys.sort_unstable();
    let mut keys = keys.into_iter();
    let load = |value: &mut Vec<u8>| {
        value.extend_from_slice(&[1; 8]);
        keys.next()
    };
    block_on(tree.client(&v).bulk_load(0.7, load)).expect("room");
    (pool, tree)
}

/// Gets each of these keys, and returns the number of cache misses.
fn misses(pool: &Loopback, cn: u16, tree: &Smart<Key8>, keys: impl Iterator<Item = u64>) -> u64 {
    let v = connect(pool, cn);
    let (client, mut value) = (tree.client(&v), Vec::new());
    for i in keys {
        assert_eq!(block_on(client.get(&key(i), &mut value)), Ok(true));
    }
    v.meter().counters().cache_misses
}

#[test]
fn the_last_warmed_keys_are_cached_and_the_cache_can_be_copied() {
    let (all, tree) = pool(&options(1 << 30));
    let v = connect(&all, 0);
    block_on(tree.warm(&v)).expect("inner nodes");
    assert_eq!(misses(&all, 0, &tree, 0..KEYS), 0);
    let whole = tree.cache_bytes();

    let half = options(whole / 2);
    let (pool, tree) = pool(&half);
    let v = connect(&pool, 0);
    block_on(tree.warm(&v)).expect("inner nodes");
    block_on(tree.warm_for(&v, (0..KEYS).rev().map(key))).expect("inner nodes");
    let metered = v.meter().counters();
    assert_eq!((metered.reads, metered.round_trips), (0, 0), "housekeeping");
    assert!(tree.cache_bytes() <= whole / 2);

    let v = connect(&pool, 1);
    let other = block_on(Smart::open(&v, &half)).expect("it is there");
    assert_eq!(block_on(other.adopt_cache(&v, &tree)), Ok(true));
    // Eviction visits one chunk after another, so it also evicts some of the nodes that were used last.
    let part = KEYS / 8;
    for (cn, tree) in [(0, &tree), (1, &other)] {
        let hot = misses(&pool, cn, tree, 0..part);
        let cold = misses(&pool, cn, tree, KEYS - part..KEYS);
        assert!(
            hot * 50 < part && cold > part / 16,
            "compute node {cn}: {hot}, {cold} of {part}"
        );
    }
}

#[test]
fn an_outdated_cache_is_not_copied() {
    let (pool, tree) = pool(&options(1 << 20));
    let v = connect(&pool, 0);
    block_on(tree.warm(&v)).expect("inner nodes");
    // No client of compute node 0 runs an operation any more, so the memory of its cached nodes may be reused.
    let v = connect(&pool, 1);
    let other = block_on(Smart::<Key8>::open(&v, &options(1 << 20))).expect("it is there");
    for i in 0..KEYS {
        block_on(other.client(&v).remove(&key(i))).expect("it is there");
    }
    for _ in 0..6 {
        block_on(other.collect(&v)).expect("a round");
    }
    assert_eq!(block_on(other.adopt_cache(&v, &tree)), Ok(false));
}
