//! Tests that every error is typed and names its place, that nothing hangs or panics, and that no acknowledged write is
//! lost.

use crate::common::{Tree, art, hash_cache, hybrid, optimistic, out_of_place, plain, under_tables};
use dm_layout::{RadixSlot, SlotWord};
use dm_loopback::{Loopback, Trouble, block_on};
use dm_testkit::{IndexUnderTest, Rng, TestKey, World, connect, cut_off, failures, fill_up, says};
use dm_verbs::{Control, Effect, NodeId, RemotePtr, Verbs};
use smart::{
    Applied, Compression, IndexError, Key8, KeyN, NodeTypes, OpenError, Options, RangeIndex, Scan, Smart,
};

/// Returns options with small nodes, chunks and budgets.
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

#[test]
fn a_full_pool_loses_no_acknowledged_write() {
    let world = Loopback::builder().nodes(2).host_bytes(128 << 10).build();
    let filled = fill_up(Tree::<Key8>::new(options()), &World::from(world.expect("memory")));
    // If an insert writes a leaf but finds no room for a node, the leaf is not reachable.
    assert!(
        filled.acknowledged > 500 && filled.present == filled.acknowledged,
        "{filled:?}"
    );
}

#[test]
fn another_pool_and_other_arguments_are_refused() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
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
        let other = Smart::<KeyN<24>>::open(&v, &options())
            .await
            .expect_err("other keys");
        assert!(matches!(other, OpenError::Pool(_)), "{other}");
        let huge = Smart::<Key8>::open(&v, &Options::new(1 << 20))
            .await
            .expect_err("no leaf");
        assert!(matches!(huge, OpenError::Geometry(_)), "{huge}");
        for skipping in [optimistic, hybrid] {
            let pool = Loopback::builder().build().expect("memory");
            let v = connect(&pool, 0);
            let both = Smart::<Key8>::create_or_open(&v, &hash_cache(skipping(options()))).await;
            let why = both.expect_err("no whole prefixes").to_string();
            assert!(why.contains("hash index") && why.contains("compression"), "{why}");
            // The pool is still empty, so other options can be chosen.
            open(&v).await;
        }
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

/// Returns the leaf or node that the root's slot of `byte` points to, and whether it is a leaf.
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
fn damaged_leaves_and_nodes_are_reported_with_their_addresses() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
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
                // This handle has an empty cache.
                let cold = open(&v).await;
                let client = cold.client(&v);
                for found in failures(&client, &key, &[2; 16]).await {
                    let found = found.expect("an operation on a damaged node must fail");
                    let named = match found {
                        IndexError::Corrupt { node, .. } => node == at,
                        // If all bits of a lock word are 1, the lock seems to be held.
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

/// Damages bytes at random places. Each operation must then end with a typed error or an answer, and never with a
/// panic.
#[test]
fn damaged_bytes_anywhere_end_in_an_error_or_an_answer() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        let tree = open(&v).await;
        let client = tree.client(&v);
        for n in 0..200 {
            assert_eq!(client.insert(&Key8(n * 7), &[1; 16]).await, Ok(Applied::Inserted));
        }
        // The test changes the root and the blocks of the first chunks, which hold both nodes and leaves.
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
        assert!(errors > 20, "{errors} operations found damage");
    });
}

#[test]
fn a_cut_memory_node_affects_only_its_own_keys() {
    let lost = (0..4).map(Trouble::LostAfter);
    for trouble in [Trouble::Unreachable, Trouble::AnswersLost]
        .into_iter()
        .chain(lost)
    {
        // The node that is cut off has neither the superblock nor the root.
        let cut = cut_off(&Tree::<Key8>::new(options()), trouble, |tree| {
            NodeId(if tree.root().node() == NodeId(2) { 1 } else { 2 })
        });
        assert!(cut.done > 100 && cut.failed > 50, "{trouble:?}: {cut:?}");
        assert!(trouble != Trouble::Unreachable || cut.blocked == 0, "{cut:?}");
    }
}

#[test]
fn keys_of_every_kind_are_ordinary() {
    // No key and no value is reserved.
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
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

#[test]
fn a_pool_of_other_techniques_is_refused() {
    let uncompressed = |options| Options {
        compression: Compression::NONE,
        ..options
    };
    let switches: [fn(Options) -> Options; 8] = [
        core::convert::identity,
        under_tables,
        out_of_place,
        art,
        plain,
        uncompressed,
        optimistic,
        hybrid,
    ];
    for (i, created) in switches.iter().enumerate() {
        let pool = Loopback::builder().build().expect("memory");
        let v = connect(&pool, 0);
        block_on(Smart::<Key8>::create_or_open(&v, &created(options()))).expect("an empty pool");
        for (j, opened) in switches.iter().enumerate() {
            let opened = block_on(Smart::<Key8>::create_or_open(&v, &opened(options())));
            assert_eq!(opened.is_ok(), i == j, "{i} opened as {j}: {:?}", opened.err());
        }
    }
}
