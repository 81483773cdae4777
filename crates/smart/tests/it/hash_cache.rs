//! Compares a cache that is indexed by hashes of prefixes with the radix-indexed one.

use dm_loopback::{Loopback, block_on};
use dm_testkit::{Rng, connect};
use dm_verbs::Env;
use smart::{Applied, KeyN, Options, PrefixIndex, RangeIndex, Smart};

type Key = KeyN<32>;

const KEYS: usize = 6_000;
const BOTH: [PrefixIndex; 2] = [PrefixIndex::Radix, PrefixIndex::Hash];

/// Returns key number `i`, which looks like a mail address with the domain in front.
fn key(i: usize) -> Key {
    let domains = ["mail.example", "post.example", "letters.test"];
    let families = [
        "anders", "baker", "berg", "moreau", "okafor", "rossi", "silva", "smith",
    ];
    let number = i.wrapping_mul(7_919) % KEYS;
    let text = format!("{}@{}{number:04}", domains[i % 3], families[i / 3 % 8]);
    let mut key = [0; 32];
    key[..text.len()].copy_from_slice(text.as_bytes());
    KeyN(key)
}

fn options(cache_index: PrefixIndex, cache_bytes: u64) -> Options {
    Options {
        cache_index,
        cache_bytes,
        ..Options::new(8)
    }
}

/// Makes a pool with all keys. Returns it with a tree whose cache was warmed.
fn warmed(options: &Options) -> (Loopback, Smart<Key>) {
    let pool = Loopback::builder().nodes(1).host_bytes(64 << 20).build();
    let pool = pool.expect("memory");
    let v = connect(&pool, 0);
    let mut keys: Vec<Key> = (0..KEYS).map(key).collect();
    keys.sort_unstable();
    let mut keys = keys.into_iter();
    let tree = block_on(async {
        let tree = Smart::create_or_open(&v, options).await.expect("an empty pool");
        let load = |value: &mut Vec<u8>| {
            value.extend_from_slice(&[1; 8]);
            keys.next()
        };
        tree.client(&v).bulk_load(0.7, load).await.expect("room");
        tree.warm(&v).await.expect("inner nodes");
        tree
    });
    (pool, tree)
}

/// Returns the READs, round trips and cache misses of a get of each of these keys.
fn gets(pool: &Loopback, tree: &Smart<Key>, keys: impl IntoIterator<Item = usize>) -> (u64, u64, u64) {
    let v = connect(pool, 0);
    let (client, mut value) = (tree.client(&v), Vec::new());
    for i in keys {
        assert_eq!(block_on(client.get(&key(i), &mut value)), Ok(true));
    }
    let cost = v.meter().counters();
    (cost.reads, cost.round_trips, cost.cache_misses)
}

#[test]
fn with_all_nodes_cached_a_get_costs_the_same() {
    let [radix, hash] = BOTH.map(|index| {
        let (pool, tree) = warmed(&options(index, 1 << 30));
        assert_eq!(
            gets(&pool, &tree, 0..KEYS),
            (KEYS as u64, KEYS as u64, 0),
            "{index:?}"
        );
        tree.cache_bytes()
    });
    // The same nodes take more memory, because each of them has its whole prefix.
    assert!(hash * 10 > radix * 12, "{radix} B and {hash} B");
}

#[test]
fn in_the_same_memory_a_radix_index_answers_more_keys() {
    let (_, tree) = warmed(&options(PrefixIndex::Radix, 1 << 30));
    let whole = tree.cache_bytes();
    // Keys with low numbers are read more often.
    let mut rng = Rng::new(1, 0);
    let mut draw = || (0..4).fold(KEYS as u64, |most, _| rng.below(most) + 1) as usize - 1;
    let [first, then]: [Vec<usize>; 2] = [10_000, 20_000].map(|gets| (0..gets).map(|_| draw()).collect());
    for (part, percent) in [(2, 140), (4, 105)] {
        let [radix, hash] = BOTH.map(|index| {
            let (pool, tree) = warmed(&options(index, whole / part));
            gets(&pool, &tree, first.iter().copied());
            let (_, _, misses) = gets(&pool, &tree, then.iter().copied());
            assert!(tree.cache_bytes() <= whole / part);
            misses
        });
        assert!(
            hash * 100 > radix * percent,
            "a cache of 1/{part}: {radix} and {hash} misses"
        );
    }
}

/// A client whose cache has a node without the nodes above still grows and removes this node.
#[test]
fn nodes_without_a_cached_parent_grow_and_shrink() {
    for cache_bytes in [0, 1_500, 4_000, 1 << 20] {
        let (pool, tree) = warmed(&options(PrefixIndex::Hash, cache_bytes));
        let v = connect(&pool, 0);
        let (client, mut value) = (tree.client(&v), Vec::new());
        block_on(async {
            for i in (0..KEYS).filter(|i| i % 5 > 0) {
                assert_eq!(client.remove(&key(i)).await, Ok(Applied::Removed), "key {i}");
            }
            for i in 0..KEYS {
                let expected = if i % 5 == 0 {
                    Applied::Present
                } else {
                    Applied::Inserted
                };
                assert_eq!(client.insert(&key(i), &[2; 8]).await, Ok(expected), "key {i}");
            }
            for i in 0..KEYS {
                assert_eq!(client.get(&key(i), &mut value).await, Ok(true));
                assert_eq!(value, [if i % 5 == 0 { 1 } else { 2 }; 8]);
            }
            // A client retires the leaf of its last removal when it is dropped.
            drop(client);
            let report = tree.sweep(&v).await.expect("a sweep");
            assert_eq!(
                report.faults_and_leaks(0),
                Vec::<String>::new(),
                "{cache_bytes} bytes"
            );
        });
    }
}
