//! Tests of a compute node with cached nodes that another compute node has split many times since.

use dm_index::{Applied, Key8, RangeIndex, Scan};
use dm_loopback::{Loopback, block_on};
use dm_testkit::{AnyEndpoint, connect, counted};
use dm_verbs::Env;
use sherman::{NodeSize, Options, Sherman};

/// A pool with clients of two compute nodes.
fn pool() -> (Loopback, [AnyEndpoint; 2]) {
    let pool = counted().nodes(1).build().expect("memory");
    let clients = [0, 1].map(|number| connect(&pool, number));
    (pool, clients)
}

/// Opens the tree, whose nodes are small.
fn open(v: &AnyEndpoint) -> Sherman<Key8> {
    let options = Options {
        node: NodeSize::Span(8),
        ..Options::new(8)
    };
    block_on(Sherman::create_or_open(v, &options)).expect("a tree")
}

fn insert(client: &impl RangeIndex<Key = Key8>, key: u64) {
    let done = block_on(client.insert(&Key8(key), &key.to_le_bytes()));
    assert_eq!(done, Ok(Applied::Inserted));
}

#[test]
fn a_scan_that_begins_far_to_the_left_searches_again() {
    let (_pool, [v, w]) = pool();
    let (old, new) = (open(&v), open(&w));
    let (client, other) = (old.client(&v), new.client(&w));
    (0..20).for_each(|key| insert(&other, key));
    // The first compute node caches the only inner node, which covers all keys.
    assert_eq!(block_on(client.get(&Key8(19), &mut Vec::new())), Ok(true));
    (20..8_000).for_each(|key| insert(&other, key));

    let before = v.meter().counters().reads;
    let mut scan = Scan::new();
    block_on(client.scan(&Key8(7_900), 50, &mut scan)).expect("no trouble");
    let keys: Vec<u64> = scan.iter().map(|(key, _)| key.0).collect();
    assert_eq!(keys, (7_900..7_950).collect::<Vec<_>>());
    // The tree has 2,000 leaves. A step takes at least two READs and at most five. After 64 steps, the scan searches its
    // key again.
    let reads = v.meter().counters().reads - before;
    assert!(reads > 64 * 2 && reads < 64 * 5 + 40, "{reads} READs");
}

#[test]
fn a_scan_from_a_root_that_was_a_leaf_reads_batches_of_leaves() {
    let (_pool, [v, w]) = pool();
    let (old, new) = (open(&v), open(&w));
    let (client, other) = (old.client(&v), new.client(&w));
    insert(&other, 0);
    // The first compute node caches the root, which is the only leaf.
    assert_eq!(block_on(client.get(&Key8(0), &mut Vec::new())), Ok(true));
    (1..8_000).for_each(|key| insert(&other, key));

    let before = v.meter().counters();
    let mut scan = Scan::new();
    block_on(client.scan(&Key8(0), usize::MAX, &mut scan)).expect("no trouble");
    assert_eq!(scan.len(), 8_000);
    // Each of the 2,000 leaves is read once, four in one round trip, because ascending inserts leave inner nodes half
    // full. Before each four, the scan reads an inner node, and sometimes inner nodes above it.
    let cost = v.meter().counters() - before;
    assert!(cost.reads < 2_000 + 700, "{} READs", cost.reads);
    assert!(cost.round_trips < 1_200, "{} round trips", cost.round_trips);
}

#[test]
fn a_separator_whose_parent_is_far_to_the_right_is_inserted_after_another_descent() {
    let (pool, [v, w]) = pool();
    let (old, new) = (open(&v), open(&w));
    let (client, other) = (old.client(&v), new.client(&w));
    (0..20).for_each(|i| insert(&other, i * 10_000));
    // The first compute node caches the only inner node. The last leaf of the tree stays where it is, but splits put
    // about 500 nodes between this inner node and the parent of the last leaf.
    let last = 190_000;
    assert_eq!(block_on(client.get(&Key8(last), &mut Vec::new())), Ok(true));
    (1..8_000).for_each(|key| insert(&other, key));

    let before = v.meter().counters();
    // The leaf has 8 slots, so it is split once or twice.
    (1..9).for_each(|i| insert(&client, last + i));
    let cost = v.meter().counters() - before;
    let (locks, reads) = (cost.cas + cost.masked_cas, cost.reads);
    // After 64 steps, each of which locks a node, the client descends from the root.
    assert!(locks > 64 && locks < 64 + 30, "{locks} locks");
    assert!(reads < 2 * 64 + 100, "{reads} READs");
    // The separator is in its parent: from an empty cache, both halves of the leaf are found by equally many READs.
    let found_by = |key: u64| {
        let v = connect(&pool, 2);
        let tree = open(&v);
        let before = v.meter().counters().reads;
        assert_eq!(
            block_on(tree.client(&v).get(&Key8(key), &mut Vec::new())),
            Ok(true)
        );
        v.meter().counters().reads - before
    };
    assert_eq!(found_by(last), found_by(last + 8));
}
