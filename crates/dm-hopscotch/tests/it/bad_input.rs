//! Tests of failures: each is a typed error that names its place, nothing hangs or panics, and no acknowledged write
//! is lost.

use std::collections::BTreeMap;

use dm_hopscotch::{HashTable, TableOptions};
use dm_index::{Applied, IndexError, Key8, RangeIndex};
use dm_leaf::OpenError;
use dm_loopback::{Loopback, Trouble, block_on};
use dm_testkit::{Job, Rng, damage_worlds, value_of};
use dm_verbs::{Control, NodeId, RemotePtr, Verbs};

use crate::common::{open, small};

fn options() -> TableOptions {
    TableOptions {
        chunk_bytes: 16 << 10,
        attempts: 200,
        ..small(16)
    }
}

#[test]
fn a_full_pool_loses_no_acknowledged_write() {
    let world = Loopback::builder().nodes(2).host_bytes(128 << 10).build();
    let world = world.expect("the world is built");
    let v = world.connect(0).expect("the client connects");
    block_on(async {
        let table = open(&v, options()).await;
        let client = table.client(&v);
        let (mut there, mut refusals, mut rng) = (BTreeMap::new(), 0, Rng::new(1, 0));
        while refusals < 100 {
            let key = Key8(rng.word());
            let inserted = client.insert(&key, &value_of(key.0, 16)).await;
            match inserted {
                Ok(Applied::Inserted) => {}
                Err(IndexError::OutOfMemory { nodes: 2, .. }) => refusals += 1,
                other => panic!("{other:?}"),
            }
            there.insert(key, inserted.is_ok());
        }
        let mut value = Vec::new();
        for (key, acknowledged) in &there {
            let found = client.get(key, &mut value).await.expect("a READ needs no memory");
            // A failed insert has had no effect, because there is no level above the leaves that it would have to
            // update after a split.
            assert_eq!(found, *acknowledged, "{key:?}");
            assert!(!found || value == value_of(key.0, 16));
        }
        assert!(there.len() > 1_000, "{}", there.len());
        let key = *there
            .iter()
            .find(|(_, there)| **there)
            .expect("a key was inserted")
            .0;
        assert_eq!(client.remove(&key).await, Ok(Applied::Removed));
        assert_eq!(client.insert(&key, &[9; 16]).await, Ok(Applied::Inserted));
    });
}

#[test]
fn a_pool_of_another_geometry_is_refused() {
    let world = Loopback::builder().build().expect("the world is built");
    let v = world.connect(0).expect("the client connects");
    block_on(async {
        drop(open(&v, options()).await);
        let changed: [fn(&mut TableOptions); 5] = [
            |o| o.value_bytes = 8,
            |o| o.span = 13,
            |o| o.neighbourhood = 5,
            |o| o.depth_max = 7,
            |o| o.depth_max = 33,
        ];
        for change in changed {
            let mut other = options();
            change(&mut other);
            assert!(HashTable::<Key8>::create_or_open(&v, &other).await.is_err());
        }
    });
}

/// A directory has at most 28 bits, so `depth_max` is at most 28.
#[test]
fn a_directory_deeper_than_its_limit_is_refused() {
    for (depth_max, refused) in [(27, false), (28, false), (29, true), (33, true)] {
        let world = Loopback::builder().build().expect("the world is built");
        let v = world.connect(0).expect("the client connects");
        let options = TableOptions {
            depth_max,
            ..options()
        };
        let table = block_on(HashTable::<Key8>::create_or_open(&v, &options));
        match table {
            Ok(_) => assert!(!refused, "{depth_max}"),
            Err(OpenError::Index(IndexError::BadInput { why })) => {
                assert!(refused && why.contains("depth_max"), "{depth_max}: {why}");
            }
            Err(other) => panic!("{depth_max}: {other}"),
        }
    }
}

#[test]
fn a_bulk_load_needs_ascending_keys_and_an_empty_table() {
    let world = Loopback::builder().build().expect("the world is built");
    let v = world.connect(0).expect("the client connects");
    block_on(async {
        let table = open(&v, options()).await;
        let client = table.client(&v);
        let load = async |fill, keys: &[u64]| {
            let mut keys = keys.iter().map(|n| Key8(*n));
            let next = |value: &mut Vec<u8>| {
                value.extend_from_slice(&[1; 16]);
                keys.next()
            };
            client.bulk_load(fill, next).await
        };
        for (fill, keys) in [(0.0, [1, 2]), (1.5, [1, 2]), (0.5, [2, 1])] {
            assert!(matches!(
                load(fill, &keys).await,
                Err(IndexError::BadInput { .. })
            ));
        }
        assert_eq!(load(0.5, &[1, 2, 9]).await, Ok(3));
        assert!(matches!(load(0.5, &[3]).await, Err(IndexError::NotEmpty { .. })));
        let mut scan = dm_index::Scan::new();
        assert_eq!(client.scan(&Key8(2), 5, &mut scan).await, Ok(()));
        assert_eq!(scan.keys(), [Key8(2), Key8(9)]);
    });
}

/// Returns a table that has grown, with the address and the number of slots of its directory.
async fn grown<V: Verbs + Control>(v: &V) -> (HashTable<Key8>, RemotePtr, u64) {
    let table = open(v, options()).await;
    let client = table.client(v);
    for n in 0..500 {
        assert_eq!(client.insert(&Key8(n), &[1; 16]).await, Ok(Applied::Inserted));
    }
    drop(client);
    let root = v.word(table.root_word()).await.expect("no verb fails");
    (table, RemotePtr::from_raw(root & !63), 1 << (root & 63))
}

#[test]
fn a_damaged_directory_is_reported_and_never_used() {
    let world = Loopback::builder().build().expect("the world is built");
    let v = world.connect(0).expect("the client connects");
    block_on(async {
        let (table, at, slots) = grown(&v).await;
        assert!(slots >= 64, "{slots}");
        let word = async |at| v.word(at).await.expect("no verb fails");
        let whole = v
            .read(at, slots as u32 * 8)
            .await
            .expect("no verb fails")
            .to_vec();
        let root = word(table.root_word()).await;
        let last = word(at.add(8 * (slots - 1))).await;
        // The bad words are: no address, a misaligned address, a leaf far to the right, and an address on a memory node
        // that does not exist. The last word is not an error, because it is the address of the first leaf, which begins
        // at or left of every slot's first key.
        for bad in [0, last | 8, last, 0x0009_0000_0000_1000, word(at).await] {
            v.load(at.add(8), &bad.to_le_bytes())
                .expect("the address is in range");
            let cold = open(&v, options()).await;
            let cold = cold.client(&v);
            let mut errors = 0;
            for n in 0..500 {
                match cold.get(&Key8(n), &mut Vec::new()).await {
                    Ok(found) => assert!(found, "{n} with {bad:#x}"),
                    Err(e) => {
                        assert!(
                            matches!(
                                e,
                                IndexError::Pool { .. } | IndexError::Verb(_) | IndexError::Exhausted(_)
                            ),
                            "{e}"
                        );
                        errors += 1;
                    }
                }
            }
            assert_eq!(errors == 0, bad == word(at).await, "{errors} with {bad:#x}");
            // A client that has a copy of the directory is not affected.
            assert_eq!(table.client(&v).get(&Key8(7), &mut Vec::new()).await, Ok(true));
            v.load(at, &whole).expect("the address is in range");
        }
        for bad in [root | 63, root ^ 1 << 20] {
            v.load(table.root_word(), &bad.to_le_bytes())
                .expect("the address is in range");
            let cold = open(&v, options()).await;
            let e = cold
                .client(&v)
                .get(&Key8(7), &mut Vec::new())
                .await
                .expect_err("the root word is damaged");
            assert!(!e.to_string().is_empty());
            v.load(table.root_word(), &root.to_le_bytes())
                .expect("the address is in range");
        }
    });
}

/// Changes bytes of leaves and of the directory. Each operation must end with a typed error or an answer, without a
/// panic.
#[test]
fn damaged_bytes_anywhere_end_in_an_error_or_an_answer() {
    for world in damage_worlds() {
        let errors = world.run_one(Damaging);
        assert!(errors > 50, "{errors}");
    }
}

/// A job that damages bytes, and returns how many operations ended in an error.
struct Damaging;

impl Job for Damaging {
    type Out = u64;

    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> u64 {
        let (_, at, slots) = grown(v).await;
        let mut rng = Rng::new(4, 4);
        let (mut errors, mut value) = (0, Vec::new());
        for _ in 0..600 {
            let near = match rng.below(2) {
                0 => at.add(8 * rng.below(slots) / 64 * 64),
                _ => {
                    let leaf = v.word(at.add(8 * rng.below(slots))).await.expect("no verb fails");
                    RemotePtr::from_raw(leaf).add(64 * rng.below(3))
                }
            };
            let before = v.read(near, 64).await.expect("no verb fails").to_vec();
            let mut damaged = before.clone();
            for _ in 0..1 + rng.below(3) {
                damaged[rng.below(64) as usize] ^= 1 << rng.below(8);
            }
            v.load(near, &damaged).expect("the address is in range");
            let cold = open(
                v,
                TableOptions {
                    attempts: 50,
                    ..options()
                },
            )
            .await;
            let cold = cold.client(v);
            for n in 0..10 {
                let key = Key8(50 * n + rng.below(50));
                errors += u64::from(cold.get(&key, &mut value).await.is_err());
            }
            errors += u64::from(cold.for_each(|_, _| {}).await.is_err());
            // The connection executes this READ after all requests that the clients have posted.
            v.word(near).await.expect("no verb fails");
            v.load(near, &before).expect("the address is in range");
        }
        errors
    }
}

/// A memory node is unreachable, or its answers are lost, or only the first requests of each chain take effect.
/// Operations that fail return an error, and acknowledged writes are present when the memory node is back.
#[test]
fn a_failing_memory_node_loses_no_acknowledged_write() {
    for (seed, trouble) in [
        (1, Trouble::Unreachable),
        (2, Trouble::AnswersLost),
        (3, Trouble::LostAfter(1)),
        (4, Trouble::LostAfter(2)),
        (5, Trouble::LostAfter(5)),
    ] {
        let world = Loopback::builder()
            .nodes(2)
            .delays(2)
            .seed(seed)
            .build()
            .expect("the world is built");
        let v = world.connect(0).expect("the client connects");
        block_on(async {
            let table = open(&v, options()).await;
            let client = table.client(&v);
            let (mut sure, mut failed, mut rng) = (Vec::new(), 0, Rng::new(seed, 0));
            for n in 0..1_500 {
                if n % 50 == 40 {
                    world.cut(NodeId(rng.below(2) as u16), trouble);
                }
                match client.insert(&Key8(n), &value_of(n, 16)).await {
                    Ok(_) => sure.push(n),
                    Err(_) => failed += 1,
                }
                if n % 50 == 45 {
                    world.restore(NodeId(0));
                    world.restore(NodeId(1));
                }
            }
            assert!(failed > 20, "{failed}");
            // Locks of operations that were cut off may stay held. Readers are not affected.
            let cold = open(&v, options()).await;
            let mut value = Vec::new();
            for n in sure {
                for client in [&client, &cold.client(&v)] {
                    // The error of an earlier, dropped operation may be reported first.
                    let mut found = client.get(&Key8(n), &mut value).await;
                    if found.is_err() {
                        found = client.get(&Key8(n), &mut value).await;
                    }
                    assert_eq!(found, Ok(true), "{n} after {trouble:?}");
                    assert_eq!(value, value_of(n, 16));
                }
            }
        });
    }
}
