//! Tests of items of variable length: the script of every index, the costs, and that no block is lost.

use core::future::Future;
use core::future::poll_fn;
use core::task::Poll;
use std::collections::BTreeMap;

use crate::common::Tree;
use dm_index::{Applied, Exchange, IndexError, Key8, RangeIndex};
use dm_layout::Checksummed;
use dm_loopback::{Loopback, block_on};
use dm_testkit::{
    Family, HoldsItems, OutOfLines, Rng, TestKey, WorldKind, by_fours, conform, connect, counted, exchanges,
};
use dm_verbs::{Control, Counters, Env, Nanos, Verbs};
use sherman::{Items, NodeSize, Options, Prefix, ReclaimOptions, Sherman, leading_bytes};

/// Trees of items, with nodes of one size.
struct Blocks(NodeSize);

impl Family for Blocks {
    type Index<K: TestKey> = OutOfLines<Tree<K>>;
    fn index<K: TestKey>(&self, value_bytes: usize) -> Self::Index<K> {
        let options = Options {
            node: self.0,
            ..Options::items()
        };
        OutOfLines::new(Tree::new(options), value_bytes)
    }
}

impl<K: TestKey> HoldsItems for Tree<K> {
    fn items<'h, V: Verbs + Control>(
        tree: &'h Sherman<K>,
        v: &'h V,
        prefix: Prefix<K>,
    ) -> Result<Items<'h, V, impl Exchange<Key = K>>, IndexError> {
        tree.items(v, prefix)
    }
}

#[test]
fn items_pass_the_script_of_every_index_on_threads() {
    conform(&Blocks(NodeSize::Span(6)), WorldKind::LoopbackDelays);
}

#[test]
fn items_pass_the_script_of_every_index_in_virtual_time() {
    conform(&Blocks(NodeSize::Bytes(1024)), WorldKind::SimCx5);
}

#[test]
fn items_pass_the_script_on_cards_with_weak_capabilities() {
    for number in 0..dm_testkit::WEAK_WORLDS {
        conform(&Blocks(NodeSize::Span(6)), WorldKind::SimWeak(number));
    }
}

#[test]
fn values_are_compared_and_exchanged() {
    let pool = pool(2);
    let v = connect(&pool, 0);
    for node in [NodeSize::Span(6), NodeSize::Bytes(1024)] {
        let pool = self::pool(2);
        let v = connect(&pool, 0);
        let options = Options {
            node,
            ..Options::new(8)
        };
        block_on(async {
            let tree = Sherman::<Key8>::create_or_open(&v, &options)
                .await
                .expect("a tree");
            exchanges(&tree.client(&v)).await;
        });
    }
    block_on(async {
        let tree = Sherman::<Key8, Checksummed<Key8>>::create_or_open(&v, &Options::new(8)).await;
        exchanges(&tree.expect("a tree").client(&v)).await;
    });
}

fn pool(nodes: u16) -> Loopback {
    Loopback::builder()
        .nodes(nodes)
        .host_bytes(64 << 20)
        .build()
        .expect("a world")
}

/// Returns a word of up to five letters from an alphabet of three, often behind the same prefix of eight letters. So
/// words are often equal, adjacent, or prefixes of each other.
fn word(rng: &mut Rng) -> Vec<u8> {
    let front: &[u8] = if rng.below(2) == 0 { b"a common" } else { b"" };
    let tail = (0..rng.below(6)).map(|_| [0, b'a', b'b'][rng.below(3) as usize]);
    front.iter().copied().chain(tail.collect::<Vec<_>>()).collect()
}

#[test]
fn byte_strings_of_all_lengths_behave_as_in_a_map() {
    let pool = pool(2);
    let v = connect(&pool, 0);
    let options = Options {
        node: NodeSize::Span(4),
        ..Options::items()
    };
    block_on(async {
        let tree = Sherman::<Key8>::create_or_open(&v, &options)
            .await
            .expect("a tree");
        let items = tree.items(&v, leading_bytes).expect("a tree of items");
        let (mut model, mut rng) = (BTreeMap::new(), Rng::new(5, 0));
        for step in 0..6_000 {
            let key = word(&mut rng);
            let length = [0, 1, 30, 300, 5_000][rng.below(5) as usize];
            let value = vec![step as u8; length];
            let present = model.contains_key(&key);
            match rng.below(6) {
                0 => {
                    let expected = if present {
                        Applied::Present
                    } else {
                        Applied::Inserted
                    };
                    assert_eq!(items.insert(&key, &value).await, Ok(expected));
                    model.entry(key).or_insert(value);
                }
                1 => {
                    let expected = if present {
                        Applied::Replaced
                    } else {
                        Applied::Absent
                    };
                    assert_eq!(items.update(&key, &value).await, Ok(expected));
                    model.entry(key).and_modify(|old| *old = value);
                }
                2 => {
                    let expected = if present {
                        Applied::Replaced
                    } else {
                        Applied::Inserted
                    };
                    assert_eq!(items.upsert(&key, &value).await, Ok(expected));
                    model.insert(key, value);
                }
                3 => {
                    let expected = if present {
                        Applied::Removed
                    } else {
                        Applied::Absent
                    };
                    assert_eq!(items.remove(&key).await, Ok(expected));
                    model.remove(&key);
                }
                4 => {
                    let mut found = vec![9];
                    assert_eq!(items.get(&key, &mut found).await, Ok(present));
                    assert_eq!(found, model.get(&key).cloned().unwrap_or_default());
                }
                _ => {
                    let (limit, mut found) = (rng.below(80) as usize, Vec::new());
                    items.scan(&key, limit, &mut found).await.expect("a scan");
                    let expected: Vec<_> = model
                        .range(key..)
                        .take(limit)
                        .map(|(k, v)| (k.clone(), v.clone()))
                        .collect();
                    assert_eq!(found, expected, "step {step}");
                }
            }
        }
        assert!(model.len() > 100, "the map has many words: {}", model.len());
    });
}

fn small() -> Options {
    Options {
        node: NodeSize::Span(8),
        chunk_bytes: 256 << 10,
        // Collections run only when the test starts them, so that the memory does not depend on the clock.
        reclaim: ReclaimOptions {
            period: Nanos(u64::MAX),
            operations: 8,
            ..ReclaimOptions::new()
        },
        ..Options::items()
    }
}

#[test]
fn four_rounds_of_inserts_and_removes_lose_no_block() {
    for nodes in [1, 3] {
        let pool = pool(nodes);
        let v = connect(&pool, 0);
        block_on(async {
            let tree = Sherman::<Key8>::create_or_open(&v, &small())
                .await
                .expect("a tree");
            let items = tree.items(&v, by_fours).expect("a tree of items");
            // This creates the first leaf of the empty tree.
            items.upsert(b"x", b"").await.expect("an upsert");
            items.remove(b"x").await.expect("a remove");
            let empty = tree.allocated_bytes();
            let mut fetched = Vec::new();
            for round in 0..4 {
                for n in 0..1_500u64 {
                    let key = n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
                    items.insert(&key, &[1; 40]).await.expect("an insert");
                    let longer = vec![2; 40 + n as usize % 100];
                    items.update(&key, &longer).await.expect("an update");
                    if n % 20 == 0 {
                        tree.collect(&v).await.expect("a round");
                    }
                }
                for n in 0..1_500u64 {
                    let key = n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
                    assert_eq!(items.remove(&key).await, Ok(Applied::Removed));
                }
                for _ in 0..4 {
                    tree.collect(&v).await.expect("a round");
                }
                assert_eq!(
                    tree.allocated_bytes(),
                    empty,
                    "{nodes} memory nodes, round {round}"
                );
                fetched.push(tree.alloc_stats().fetched_bytes);
            }
            // In round 2, the free blocks may have other lengths than those that are needed. From round 3 on, the free
            // blocks suffice.
            assert_eq!(fetched[2..], [fetched[1]; 2], "no chunk in rounds 3 and 4");
            assert!(fetched[1] <= fetched[0] + (u64::from(nodes) * (256 << 10)));
        });
    }
}

/// Returns the round trips, READ bytes and written bytes since `before`.
fn cost(now: Counters, before: &mut Counters) -> (u64, u64, u64) {
    let c = now - core::mem::replace(before, now);
    (c.round_trips, c.bytes_read, c.bytes_written)
}

#[test]
fn costs() {
    let pool = counted().nodes(1).build().expect("a world");
    let v = connect(&pool, 0);
    block_on(async {
        let tree = Sherman::<Key8>::create_or_open(&v, &Options::items())
            .await
            .expect("a tree");
        let items = tree.items(&v, leading_bytes).expect("a tree of items");
        let mut n = 0u64;
        let all = items.bulk_load(0.7, || {
            n += 1;
            (n <= 2_000).then(|| ((2 * n).to_be_bytes().to_vec(), vec![7; 100]))
        });
        assert_eq!(all.await, Ok(2_000));
        tree.warm(&v).await.expect("inner nodes");
        let (key, new) = (1_000u64.to_be_bytes(), 1_001u64.to_be_bytes());
        items.update(&key, &[1; 100]).await.expect("an update");
        let mut before = v.meter().counters();
        let mut lap = || cost(v.meter().counters(), &mut before);
        let mut value = Vec::new();
        // A block has 24 bytes of lengths and checksum, the key, and 100 bytes of value, which take 3 lines.
        let (leaf, block) = (1024, 192);
        assert_eq!(items.get(&key, &mut value).await, Ok(true));
        assert_eq!(lap(), (2, leaf + block, 0));
        assert_eq!(items.get(&new, &mut value).await, Ok(false));
        assert_eq!(lap(), (1, leaf, 0));
        // The word in the leaf and the unlock take 8 bytes each. A new entry takes 17 bytes.
        let unlock = 8;
        assert_eq!(items.update(&key, &[2; 100]).await, Ok(Applied::Replaced));
        assert_eq!(lap(), (4, 2 * leaf + block, block + 8 + unlock));
        assert_eq!(items.insert(&new, &[3; 100]).await, Ok(Applied::Inserted));
        assert_eq!(lap(), (3, 2 * leaf, block + 17 + unlock));
        assert_eq!(items.insert(&new, &[3; 100]).await, Ok(Applied::Present));
        assert_eq!(lap(), (2, leaf + block, block));
        assert_eq!(items.remove(&new).await, Ok(Applied::Removed));
        assert_eq!(lap(), (4, 2 * leaf + block, 1 + unlock));
        let mut found = Vec::new();
        items.scan(&key, 32, &mut found).await.expect("a scan");
        assert_eq!((found.len(), lap().0), (32, 2));
    });
}

#[test]
fn a_dropped_operation_takes_effect_completely_or_not_at_all() {
    let pool = Loopback::builder()
        .host_bytes(64 << 20)
        .delays(2)
        .build()
        .expect("a world");
    let v = connect(&pool, 0);
    block_on(async {
        let tree = Sherman::<Key8>::create_or_open(&v, &small())
            .await
            .expect("a tree");
        let items = tree.items(&v, by_fours).expect("a tree of items");
        let keys: [&[u8]; 2] = [b"key 0", b"key 1"];
        items.upsert(keys[0], b"old").await.expect("an upsert");
        let mut ways = [0; 2];
        for polls in 0..60 {
            for key in keys {
                let before = read(&items, key).await;
                let value = format!("{polls}").into_bytes();
                let mut write = Box::pin(items.upsert(key, &value));
                let mut left = polls;
                let done = poll_fn(|cx| {
                    if left == 0 {
                        return Poll::Ready(None);
                    }
                    left -= 1;
                    write.as_mut().poll(cx).map(Some)
                })
                .await;
                drop(write);
                let now = read(&items, key).await;
                if done.is_some() {
                    assert_eq!(now, Some(value));
                    continue;
                }
                let happened = now.as_ref() == Some(&value);
                assert!(happened || now == before, "{polls} polls: {now:?}");
                ways[usize::from(happened)] += 1;
            }
        }
        assert!(ways[0] > 0, "no operation was dropped before it took effect");
        // No lock is held, so writes succeed.
        assert_eq!(items.upsert(keys[1], b"new").await, Ok(Applied::Replaced));
    });
}

async fn read<V: Verbs + Control, I: Exchange>(items: &Items<'_, V, I>, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    items.get(key, &mut value).await.expect("a get").then_some(value)
}

#[test]
fn bad_input_and_broken_blocks_are_named() {
    let pool = pool(1);
    let v = connect(&pool, 0);
    block_on(async {
        let plain = Sherman::<Key8>::create_or_open(&v, &Options::new(8))
            .await
            .expect("a tree");
        let refused = plain.items(&v, leading_bytes).map(drop);
        assert!(matches!(refused, Err(IndexError::BadInput { .. })), "{refused:?}");
        let other = Sherman::<Key8>::create_or_open(&v, &Options::items())
            .await
            .map(drop);
        assert!(other.is_err(), "a pool of 8-byte values is not a pool of items");
    });
    let pool = self::pool(1);
    let v = connect(&pool, 0);
    block_on(async {
        let tree = Sherman::<Key8>::create_or_open(&v, &Options::items())
            .await
            .expect("a tree");
        let items = tree.items(&v, leading_bytes).expect("a tree of items");
        let long = vec![0; 1 << 20];
        let refused = items.insert(b"long", &long).await;
        assert!(matches!(refused, Err(IndexError::BadInput { .. })), "{refused:?}");
        let most = (1 << 20) - 24 - 4;
        assert_eq!(items.insert(b"long", &long[..most]).await, Ok(Applied::Inserted));
        assert_eq!(read(&items, b"long").await, Some(long[..most].to_vec()));

        let client = tree.client(&v);
        let mut word = Vec::new();
        assert_eq!(client.get(&leading_bytes(b"long"), &mut word).await, Ok(true));
        let at = dm_indirect::Reference::decode(&word).expect("a reference").at();
        v.write(at.add(100), &[1])
            .await
            .expect("the memory node is there");
        let mut value = Vec::new();
        let broken = items.get(b"long", &mut value).await;
        assert!(
            matches!(broken, Err(IndexError::Corrupt { node, .. }) if node == at),
            "{broken:?}"
        );
        // A client that uses the tree without `Items` could store such a word, which points to no block.
        client
            .upsert(&leading_bytes(b"odd"), &[0xff; 8])
            .await
            .expect("an upsert");
        let broken = items.remove(b"odd").await;
        assert!(matches!(broken, Err(IndexError::Corrupt { .. })), "{broken:?}");
    });
}
