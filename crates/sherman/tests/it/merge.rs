//! Tests that removes merge nodes and lower the root, and that no key is lost.

use std::collections::BTreeMap;

use dm_alloc::Superblock;
use dm_index::{Applied, Key8, RangeIndex, Scan};
use dm_loopback::{Loopback, block_on};
use dm_testkit::connect;
use dm_verbs::{Env, Verbs};
use sherman::{NodeSize, Options, Sherman};

fn small() -> Options {
    Options {
        node: NodeSize::Span(8),
        chunk_bytes: 1 << 16,
        ..Options::new(8)
    }
}

fn key(i: u64) -> Key8 {
    // The mapping is a bijection, so that neighbours are inserted and removed in scattered order.
    Key8(i.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// Grows a tree of several levels over two memory nodes, and empties it again. Checks the tree once in 500 removes too.
#[test]
fn a_tree_shrinks_as_it_grew() {
    const KEYS: u64 = 4_000;
    let pool = Loopback::builder().nodes(2).host_bytes(16 << 20).build().unwrap();
    let v = connect(&pool, 0);
    block_on(async {
        let tree = Sherman::<Key8>::create_or_open(&v, &small()).await.unwrap();
        let client = tree.client(&v);
        for i in 0..KEYS {
            assert_eq!(
                client.insert(&key(i), &i.to_le_bytes()).await.unwrap(),
                Applied::Inserted
            );
        }
        let splits = v.meter().counters().splits;
        let mut model: BTreeMap<Key8, u64> = (0..KEYS).map(|i| (key(i), i)).collect();
        let mut scan = Scan::new();
        for i in 0..KEYS {
            assert_eq!(client.remove(&key(i)).await.unwrap(), Applied::Removed);
            model.remove(&key(i));
            if i % 500 == 0 {
                client.scan(&Key8(0), KEYS as usize, &mut scan).await.unwrap();
                assert!(scan.keys().iter().eq(model.keys()), "after {i} removes");
            }
        }
        let merges = v.meter().counters().merges;
        assert!(merges * 10 > splits * 8, "{merges} merges after {splits} splits");
        client.scan(&Key8(0), 1, &mut scan).await.unwrap();
        assert!(scan.is_empty());
        // An empty tree is one leaf again: the level in the root word's low bits is 0.
        assert_eq!(
            v.word(Superblock::ROOT_WORD).await.unwrap() & 63,
            0,
            "the root is a leaf"
        );
        // The emptied tree works like a new one.
        for i in 0..KEYS {
            assert_eq!(
                client.upsert(&key(i), &i.to_le_bytes()).await.unwrap(),
                Applied::Inserted
            );
        }
        let mut value = Vec::new();
        for i in 0..KEYS {
            assert!(client.get(&key(i), &mut value).await.unwrap());
            assert_eq!(value, i.to_le_bytes());
        }
    });
}

/// A bulk-loaded tree shrinks too. Some nodes stay, because two neighbours on different memory nodes do not merge.
#[test]
fn a_loaded_tree_shrinks() {
    const KEYS: u64 = 6_000;
    let pool = Loopback::builder().nodes(3).host_bytes(16 << 20).build().unwrap();
    let v = connect(&pool, 0);
    block_on(async {
        let tree = Sherman::<Key8>::create_or_open(&v, &small()).await.unwrap();
        let client = tree.client(&v);
        let mut next = (0..KEYS).map(Key8);
        let loaded = client.bulk_load(0.8, |out| {
            let key = next.next()?;
            out.extend_from_slice(&key.0.to_le_bytes());
            Some(key)
        });
        assert_eq!(loaded.await, Ok(KEYS));
        let full = tree.allocated_bytes();
        for i in 0..KEYS {
            assert_eq!(client.remove(&Key8(i)).await.unwrap(), Applied::Removed);
        }
        let rest = tree.allocated_bytes();
        assert!(rest * 2 < full, "{rest} bytes of {full} are left");
        for i in 0..KEYS {
            let done = client.insert(&Key8(i), &i.to_le_bytes()).await.unwrap();
            assert_eq!(done, Applied::Inserted);
        }
        let mut scan = Scan::new();
        client.scan(&Key8(0), KEYS as usize, &mut scan).await.unwrap();
        assert!(scan.keys().iter().copied().eq((0..KEYS).map(Key8)));
    });
}

/// Threads of two compute nodes insert, scan, read and remove keys in one range. Each thread writes only its own keys.
#[test]
fn merges_beside_inserts_and_scans_lose_nothing() {
    const THREADS: u64 = 4;
    const KEYS: u64 = 300;
    const ROUNDS: u64 = 12;
    let pool = Loopback::builder().nodes(2).host_bytes(64 << 20).build().unwrap();
    let trees: Vec<_> = (0..2)
        .map(|cn| {
            let v = connect(&pool, cn);
            block_on(Sherman::<Key8>::create_or_open(&v, &small())).unwrap()
        })
        .collect();
    let merges: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|t| {
                let (pool, trees) = (&pool, &trees);
                scope.spawn(move || {
                    let cn = (t % 2) as u16;
                    let v = connect(pool, cn);
                    let client = trees[usize::from(cn)].client(&v);
                    let (mut value, mut scan) = (Vec::new(), Scan::new());
                    let mine = |i: u64| Key8(i * THREADS + t);
                    block_on(async {
                        for round in 0..ROUNDS {
                            for i in 0..KEYS {
                                let stamp = round << 32 | i;
                                let done = client.insert(&mine(i), &stamp.to_le_bytes()).await.unwrap();
                                assert_eq!(done, Applied::Inserted, "round {round}, key {:?}", mine(i));
                            }
                            client.scan(&Key8(0), usize::MAX, &mut scan).await.unwrap();
                            assert!(scan.keys().is_sorted_by(|a, b| a < b), "a scan ascends");
                            let seen = scan.keys().iter().filter(|k| k.0 % THREADS == t).count() as u64;
                            assert_eq!(
                                seen, KEYS,
                                "a key that is present throughout is found exactly once"
                            );
                            for i in 0..KEYS {
                                assert!(client.get(&mine(i), &mut value).await.unwrap());
                                assert_eq!(value, (round << 32 | i).to_le_bytes());
                                assert_eq!(client.remove(&mine(i)).await.unwrap(), Applied::Removed);
                            }
                        }
                    });
                    v.meter().counters().merges
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert!(merges > 500, "{merges} merges");
}
