//! A scan whose compute node has cached nodes that another compute node has split many times since.

use dm_index::{Applied, Key8, RangeIndex, Scan};
use dm_loopback::{Endpoint, block_on};
use dm_testkit::counted;
use dm_verbs::Env;
use sherman::{NodeSize, Options, Sherman};

#[test]
fn a_scan_that_begins_far_to_the_left_searches_again() {
    let pool = counted().nodes(1).build().expect("memory");
    let [v, w] = [0, 1].map(|number| pool.connect(number).expect("a client"));
    let options = Options {
        node: NodeSize::Span(8),
        ..Options::new(8)
    };
    let open = |v: &Endpoint| block_on(Sherman::<Key8>::create_or_open(v, &options)).expect("a tree");
    let (old, new) = (open(&v), open(&w));
    let (client, other) = (old.client(&v), new.client(&w));
    let insert = |key: u64| block_on(other.insert(&Key8(key), &key.to_le_bytes()));
    assert!((0..20).all(|key| insert(key) == Ok(Applied::Inserted)));
    // The first compute node caches the only inner node, which covers all keys.
    assert_eq!(block_on(client.get(&Key8(19), &mut Vec::new())), Ok(true));
    assert!((20..8_000).all(|key| insert(key) == Ok(Applied::Inserted)));

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
