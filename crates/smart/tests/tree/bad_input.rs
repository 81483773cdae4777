//! What goes wrong has a type and names its place; nothing hangs, nothing panics, no acknowledged write is lost.

use std::collections::BTreeMap;

use crate::common::Tree;
use dm_layout::{RadixSlot, SlotWord};
use dm_loopback::{Loopback, Trouble, block_on};
use dm_testkit::{IndexUnderTest, Rng, TestKey, value_of};
use dm_verbs::{Control, Effect, NodeId, RemotePtr, VerbErrorKind, Verbs};
use smart::{Applied, IndexError, Key8, Key32, NodeTypes, OpenError, Options, RangeIndex, Scan, Smart};

/// Small nodes and chunks, and budgets that end soon.
fn options() -> Options {
    Options {
        types: NodeTypes::new(&[2, 4, 8, 256]).expect("ascending"),
        chunk_bytes: 16 << 10,
        attempts: 50,
        ..Options::new(16)
    }
}

async fn open<V: Verbs + Control>(v: &V) -> Smart<Key8> {
    Tree::<Key8>::new(options()).open(v).await.expect("a pool")
}

fn says(error: &impl core::fmt::Display, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

fn is_full(e: &IndexError) -> bool {
    matches!(e, IndexError::OutOfMemory { nodes: 2, .. })
}

#[test]
fn a_full_pool_keeps_what_it_has() {
    let world = Loopback::builder().nodes(2).host_bytes(128 << 10).build();
    let world = world.expect("memory");
    let v = world.connect(0).expect("a client");
    block_on(async {
        let tree = open(&v).await;
        let client = tree.client(&v);
        let (mut there, mut refusals) = (BTreeMap::new(), 0);
        let mut rng = Rng::new(1, 0);
        while refusals < 100 {
            let key = Key8(rng.word());
            let done = client.insert(&key, &value_of(key.0, 16)).await;
            if let Err(e) = &done {
                assert!(is_full(e), "{e}");
                says(e, &["out of memory", "2 memory nodes"]);
                refusals += 1;
            }
            there.insert(key, done.is_ok());
        }
        let (mut value, mut present) = (Vec::new(), 0);
        for (key, acknowledged) in &there {
            let found = client.get(key, &mut value).await.expect("a READ needs no room");
            assert_eq!(found, *acknowledged, "{key:?}");
            assert!(!found || value == value_of(key.0, 16));
            present += usize::from(found);
        }
        let mut scan = Scan::new();
        assert_eq!(client.scan(&Key8(0), usize::MAX, &mut scan).await, Ok(()));
        assert!(present > 500 && scan.len() == present, "{present}");
        // What needs no room goes on.
        let known = there.iter().find(|(_, acknowledged)| **acknowledged);
        let key = known.map(|(key, _)| *key).expect("many");
        assert_eq!(client.update(&key, &[9; 16]).await, Ok(Applied::Replaced));
        assert_eq!(client.remove(&key).await, Ok(Applied::Removed));
        assert_eq!(client.get(&key, &mut value).await, Ok(false));
    });
}

#[test]
fn another_pool_and_other_arguments_are_refused() {
    let world = Loopback::builder().build().expect("memory");
    let v = world.connect(0).expect("a client");
    block_on(async {
        let missing = Smart::<Key8>::open(&v, &options()).await.expect_err("no pool");
        assert!(matches!(missing, OpenError::Pool(_)), "{missing}");
        let tree = open(&v).await;
        let wider = Options {
            value_bytes: 17,
            ..options()
        };
        let other = Smart::<Key8>::open(&v, &wider).await.expect_err("other values");
        assert!(matches!(other, OpenError::Pool(_)), "{other}");
        let other = Smart::<Key32>::open(&v, &options())
            .await
            .expect_err("other keys");
        assert!(matches!(other, OpenError::Pool(_)), "{other}");
        let huge = Smart::<Key8>::open(&v, &Options::new(1 << 20))
            .await
            .expect_err("no leaf");
        assert!(matches!(huge, OpenError::Geometry(_)), "{huge}");
        let client = tree.client(&v);
        let short = client.insert(&Key8(1), &[0; 15]).await.expect_err("too short");
        let (found, expected) = (15, 16);
        assert_eq!(short, IndexError::ValueLength { found, expected });
        assert_eq!(short.effect(), Effect::None);
        let mut keys = [Key8(2), Key8(2)].into_iter();
        let twice = client.bulk_load(0.5, |value| {
            value.extend_from_slice(&[0; 16]);
            keys.next()
        });
        says(&twice.await.expect_err("the same key twice"), &["ascend"]);
        let fill = client.bulk_load(0.0, |_| None).await.expect_err("no fill");
        assert!(matches!(fill, IndexError::BadInput { .. }), "{fill}");
    });
}

/// The leaf or node that the root's slot of `byte` points to.
async fn below<V: Verbs>(v: &V, tree: &Smart<Key8>, byte: u8) -> (RemotePtr, bool) {
    let slot = tree
        .root()
        .add(dm_layout::RADIX_HEAD_BYTES as u64 + 8 * u64::from(byte));
    let word = SlotWord::from_raw(v.word(slot).await.expect("no faults"));
    match word.decode().expect("a slot") {
        RadixSlot::Leaf { at, .. } => (RemotePtr::from_raw(at), true),
        RadixSlot::Inner { at, .. } => (RemotePtr::from_raw(at), false),
        other => panic!("{other:?} below {byte}"),
    }
}

#[test]
fn garbage_is_named() {
    let world = Loopback::builder().build().expect("memory");
    let v = world.connect(0).expect("a client");
    block_on(async {
        let tree = open(&v).await;
        let client = tree.client(&v);
        let (alone, first, second) = (Key8(1 << 56), Key8(2 << 56), Key8(2 << 56 | 9));
        for key in [alone, first, second] {
            assert_eq!(client.insert(&key, &[1; 16]).await, Ok(Applied::Inserted));
        }
        for (key, is_leaf) in [(alone, true), (first, false)] {
            let (at, leaf) = below(&v, &tree, (key.0 >> 56) as u8).await;
            assert_eq!(leaf, is_leaf);
            let image = v.read(at, 64).await.expect("no faults").to_vec();
            for garbage in [[0; 64], [0xff; 64]] {
                v.load(at, &garbage).expect("in range");
                // With nothing cached.
                let cold = open(&v).await;
                let client = cold.client(&v);
                let mut scan = Scan::new();
                for found in [
                    client.get(&key, &mut Vec::new()).await.err(),
                    client.update(&key, &[2; 16]).await.err(),
                    client.remove(&key).await.err(),
                    client.scan(&key, 10, &mut scan).await.err(),
                ] {
                    let found = found.expect("nothing of the kind is there");
                    let named = match &found {
                        IndexError::Corrupt { node, .. } => *node == at,
                        // All ones are a lock that is held.
                        IndexError::LockTimeout { .. } => is_leaf && garbage[0] == 0xff,
                        _ => false,
                    };
                    assert!(named, "{at}: {found}");
                }
            }
            v.load(at, &image).expect("in range");
            assert_eq!(client.get(&key, &mut Vec::new()).await, Ok(true));
            assert_eq!(client.update(&key, &[3; 16]).await, Ok(Applied::Replaced));
        }
    });
}

/// Any byte may change: an operation ends, with a typed error or an answer, and never by a panic.
#[test]
fn damaged_bytes_anywhere_end_in_an_error_or_an_answer() {
    let world = Loopback::builder().build().expect("memory");
    let v = world.connect(0).expect("a client");
    block_on(async {
        let tree = open(&v).await;
        let client = tree.client(&v);
        for n in 0..200 {
            assert_eq!(client.insert(&Key8(n * 7), &[1; 16]).await, Ok(Applied::Inserted));
        }
        // The root, and the blocks of the first chunks: nodes and leaves among each other.
        let (first, _) = below(&v, &tree, 0).await;
        let mut rng = Rng::new(4, 4);
        let mut errors = 0;
        for round in 0..2_000 {
            let at = match round % 3 {
                0 => tree.root().add(rng.below(24)),
                _ => first.add(rng.below(4 << 10)),
            };
            let old = v.read(at, 1).await.expect("no faults").to_vec();
            v.load(at, &[rng.word() as u8]).expect("in range");
            let key = Key8(rng.below(1_600));
            let fresh = (round % 2 == 0).then_some(open(&v).await);
            let client = fresh.as_ref().unwrap_or(&tree).client(&v);
            let mut scan = Scan::new();
            errors += match rng.below(5) {
                0 => u64::from(client.get(&key, &mut Vec::new()).await.is_err()),
                1 => u64::from(client.update(&key, &[2; 16]).await.is_err()),
                2 => u64::from(client.upsert(&key, &[3; 16]).await.is_err()),
                3 => u64::from(client.remove(&key).await.is_err()),
                _ => u64::from(client.scan(&key, 50, &mut scan).await.is_err()),
            };
            v.load(at, &old).expect("in range");
        }
        assert!(errors > 20, "{errors} operations met damage");
    });
}

#[test]
fn a_memory_node_that_is_cut_off_takes_only_its_own_keys_along() {
    const KEYS: u64 = 400;
    for trouble in [Trouble::Unreachable, Trouble::AnswersLost, Trouble::LostAfter(1)] {
        let world = Loopback::builder().nodes(3).build().expect("memory");
        let v = world.connect(0).expect("a client");
        let key = |n: u64| Key8(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        block_on(async {
            let tree = open(&v).await;
            let client = tree.client(&v);
            for n in 0..KEYS {
                let inserted = client.insert(&key(n), &value_of(n, 16)).await;
                assert_eq!(inserted, Ok(Applied::Inserted));
            }
            // Neither the superblock nor the root.
            let cut = NodeId(if tree.root().node() == NodeId(2) { 1 } else { 2 });
            world.cut(cut, trouble);
            let (mut there, mut gone) = (0, 0);
            let mut legal: Vec<Vec<u64>> = (0..KEYS).map(|n| vec![n]).collect();
            for n in 0..KEYS {
                match client.update(&key(n), &value_of(n + 1_000, 16)).await {
                    Ok(applied) => {
                        assert_eq!(applied, Applied::Replaced);
                        legal[n as usize] = vec![n + 1_000];
                        there += 1;
                    }
                    Err(e) => {
                        let IndexError::Verb(verb) = e else { panic!("{e}") };
                        let expected = match trouble {
                            Trouble::Unreachable => VerbErrorKind::Unreachable,
                            _ => VerbErrorKind::ConnectionLost,
                        };
                        assert_eq!((verb.kind, verb.at.node()), (expected, cut), "{e}");
                        if e.effect() != Effect::None {
                            legal[n as usize].push(n + 1_000);
                        }
                        gone += 1;
                    }
                }
            }
            assert!(
                there > KEYS / 4 && gone > KEYS / 8,
                "{trouble:?}: {there} there, {gone} gone"
            );
            world.restore(cut);
            // What the last dropped ticket suffered is still to be told.
            let _told = v.take_deferred();
            let mut value = Vec::new();
            for (n, legal) in (0..).zip(&legal) {
                assert_eq!(client.get(&key(n), &mut value).await, Ok(true), "{trouble:?}");
                let known = legal.iter().any(|seed| value == value_of(*seed, 16));
                assert!(known, "{trouble:?}, key {n}: {value:?} is none of {legal:?}");
            }
        });
    }
}

#[test]
fn keys_of_every_kind_are_ordinary() {
    // No key and no value is reserved.
    let world = Loopback::builder().build().expect("memory");
    let v = world.connect(0).expect("a client");
    block_on(async {
        let tree = open(&v).await;
        let client = tree.client(&v);
        let keys = [Key8(0), Key8(u64::MAX), Key8::nth(1)];
        for key in keys {
            assert_eq!(client.insert(&key, &[0xff; 16]).await, Ok(Applied::Inserted));
        }
        for key in keys {
            assert_eq!(client.remove(&key).await, Ok(Applied::Removed));
        }
    });
}
