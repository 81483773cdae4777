//! Tests that every error is typed and names its place, that nothing hangs or panics, and that no acknowledged write is
//! lost.

use std::collections::BTreeMap;

use crate::common::Tree;
use crate::locks;
use dm_alloc::{AllocError, Descriptor, LockHome, LockPlan, Superblock};
use dm_index::{Applied, IndexError, RangeIndex, Scan};
use dm_loopback::{BuildError, Loopback, Trouble, block_on};
use dm_sim::{CostModel, RunEnd, Sim};
use dm_sync::{Arc, Mutex};
use dm_testkit::{
    AnyEndpoint, IndexUnderTest, Job, Rng, Seat, TestKey, World, connect, cut_off, failures, fill_up, says,
    seats, value_of,
};
use dm_verbs::{AtomicUnit, Capability, Control, Effect, Env, Nanos, NodeId, RemotePtr, Verbs};
use sherman::{Key8, KeyN, NodeSize, OpenError, Options, Sherman, Variant};

/// Returns options with small nodes, chunks and budgets.
fn options() -> Options {
    Options {
        node: NodeSize::Bytes(256),
        locks_per_node: 64,
        chunk_bytes: 16 << 10,
        attempts: 2_000,
        ..Options::new(16)
    }
}

async fn open<V: Verbs + Control>(v: &V, options: Options) -> Sherman<Key8> {
    Tree::<Key8>::new(options).open(v).await.expect("a pool")
}

#[test]
fn a_world_that_tears_lines_is_refused_by_name() {
    let world = Loopback::builder()
        .atomic_unit(AtomicUnit::Word)
        .build()
        .expect("a world");
    let v = connect(&world, 0);
    let refused = block_on(Sherman::<Key8>::create_or_open(&v, &Options::new(8)));
    match refused {
        Err(OpenError::Refused(e)) => assert_eq!(e.missing, Capability::LineAtomicity),
        other => panic!("opened: {:?}", other.is_ok()),
    }
}

#[test]
fn a_world_without_memory_nodes_is_refused() {
    let refused = Loopback::builder().nodes(0).build().err();
    assert_eq!(refused, Some(BuildError::BadNodeCount { nodes: 0 }));
    says(&refused.expect("just seen"), &["0 memory nodes"]);
    let refused = Sim::builder(CostModel::cx5_ib()).memory_nodes(0).build();
    assert!(matches!(refused, Err(dm_sim::BuildError::NoNodes)));
}

#[test]
fn too_many_memory_nodes_for_near_children_are_refused_and_six_bytes_suffice() {
    let world = Loopback::builder()
        .nodes(33)
        .host_bytes(1 << 20)
        .build()
        .expect("a world");
    let v = connect(&world, 0);
    let options = Options {
        chunk_bytes: 64 << 10,
        locks_per_node: 64,
        ..Options::new(8)
    };
    let refused = block_on(Sherman::<Key8>::create_or_open(&v, &options)).err();
    let expected = AllocError::TooManyNodes { listed: 33, most: 32 };
    assert_eq!(refused, Some(OpenError::Pool(expected)));
    // A failed open must create nothing.
    let far = Options {
        far_children: true,
        ..options
    };
    let tree = block_on(Sherman::<Key8>::create_or_open(&v, &far)).expect("a pool");
    let client = tree.client(&v);
    let keys: Vec<u64> = (0..3_000).collect();
    for key in &keys {
        block_on(client.insert(&Key8(*key), &key.to_le_bytes())).expect("room for it");
    }
    let other = block_on(Sherman::<Key8>::open(&v, &options)).err();
    let other = other.expect("another geometry");
    assert!(
        matches!(other, OpenError::Pool(AllocError::OtherDescriptor { .. })),
        "{other}"
    );
}

// ---- memory runs out --------------------------------------------------------------------------------------------

/// Returns whether the error is that no memory node had room.
fn is_full(e: &IndexError) -> bool {
    matches!(e, IndexError::OutOfMemory { nodes: 2, .. })
}

#[test]
fn a_full_pool_loses_no_acknowledged_write() {
    let loopback = Loopback::builder()
        .nodes(2)
        .host_bytes(128 << 10)
        .build()
        .expect("memory");
    let sim = Sim::builder(CostModel::cx5_ib())
        .memory_nodes(2)
        .memory_bytes(128 << 10)
        .build()
        .expect("memory");
    for world in [World::from(loopback), World::from(sim)] {
        let filled = fill_up(Tree::<Key8>::new(options()), &world);
        assert!(filled.acknowledged > 1_000, "{filled:?}");
        assert_eq!(locks::held(&world), Vec::<String>::new());
    }
}

#[test]
fn a_bulk_load_that_does_not_fit_is_refused() {
    let world = Loopback::builder()
        .nodes(2)
        .host_bytes(128 << 10)
        .build()
        .expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        let tree = open(&v, options()).await;
        let mut numbers = 0..1_000_000;
        let client = tree.client(&v);
        let refused = client.bulk_load(1.0, |value| {
            value.extend_from_slice(&[1; 16]);
            numbers.next().map(Key8)
        });
        let refused = refused.await.expect_err("a million entries in 256 KiB");
        assert!(is_full(&refused), "{refused}");
    });
}

// ---- on-chip memory, formats ------------------------------------------------------------------------------------

#[test]
fn a_lock_table_larger_than_on_chip_memory_is_refused() {
    let world = Loopback::builder()
        .nodes(2)
        .chip_bytes(1 << 10)
        .build()
        .expect("memory");
    let v = connect(&world, 0);
    let refused = block_on(Sherman::<Key8>::create_or_open(&v, &Options::new(8))).expect_err("no room");
    let OpenError::Pool(AllocError::ChipTooSmall { node, wanted, has }) = &refused else {
        panic!("{refused}");
    };
    assert_eq!((*node, *wanted, *has), (NodeId(0), 8 * 32_768, 1 << 10));
    says(&refused, &["262144 bytes", "mn0", "1024"]);
    // A smaller lock table, or one in host memory, still fits.
    let fits = Options {
        locks_per_node: 128,
        ..Options::new(8)
    };
    assert!(block_on(Sherman::<Key8>::create_or_open(&v, &fits)).is_ok());
}

#[test]
fn a_pool_of_another_geometry_or_kind_is_refused() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        let missing = Sherman::<Key8>::open(&v, &Options::new(8))
            .await
            .expect_err("an empty pool");
        assert!(
            matches!(missing, OpenError::Pool(AllocError::NotFormatted { word: 0, .. })),
            "{missing}"
        );
        says(&missing, &["no pool was created here", "mn0"]);
        let tree = open(&v, Options::new(8)).await;
        assert_eq!(
            tree.client(&v).insert(&Key8(1), &[1; 8]).await,
            Ok(Applied::Inserted)
        );
        let others = [
            Sherman::<Key8>::create_or_open(&v, &Options::new(16)).await.err(),
            Sherman::<KeyN<24>>::create_or_open(&v, &Options::new(8))
                .await
                .err(),
            Sherman::<Key8>::open(
                &v,
                &Options {
                    node: NodeSize::Span(8),
                    ..Options::new(8)
                },
            )
            .await
            .err(),
            Sherman::<Key8, dm_layout::Checksummed<Key8>>::open(&v, &Options::new(8))
                .await
                .err(),
        ];
        for other in others {
            let other = other.expect("another layout");
            assert!(
                matches!(other, OpenError::Pool(AllocError::OtherDescriptor { .. })),
                "{other}"
            );
            says(&other, &["another geometry", "differ from byte"]);
        }
        // Each client chooses its techniques. So every variant with the same layout can open the pool.
        let paper = Variant::PaperRtt.apply(Options::new(8));
        assert!(Sherman::<Key8>::open(&v, &paper).await.is_ok());
        let odd = Options {
            node: NodeSize::Bytes(100),
            ..Options::new(8)
        };
        let impossible = Sherman::<Key8>::open(&v, &odd)
            .await
            .expect_err("no whole number of lines");
        assert!(matches!(impossible, OpenError::Geometry(_)), "{impossible}");
    });
}

#[test]
fn another_index_or_a_damaged_superblock_is_refused() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        let locks = LockPlan {
            home: LockHome::Host,
            per_node: 16,
        };
        let other = Descriptor {
            locks,
            ..Descriptor::of(b"else", [])
        };
        Superblock::create_or_open(&v, &other)
            .await
            .expect("an empty pool");
        let refused = Sherman::<Key8>::open(&v, &Options::new(8))
            .await
            .expect_err("another kind");
        assert!(
            matches!(refused, OpenError::Pool(AllocError::OtherKind { .. })),
            "{refused}"
        );
        says(&refused, &["else", "shrm"]);
    });
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        drop(open(&v, options()).await);
        let page = |at| RemotePtr::new(NodeId(0), at).expect("in range");
        let mut refused = 0;
        for at in (0..4096).step_by(8) {
            let word = v.word(page(at)).await.expect("no faults");
            v.write(page(at), &(word ^ 0x00ff_0000_0000_ff00).to_le_bytes())
                .await
                .expect("no faults");
            match Sherman::<Key8>::open(&v, &options()).await {
                Err(OpenError::Pool(e)) => {
                    assert!(!e.to_string().is_empty());
                    refused += 1;
                }
                Err(other) => panic!("superblock damaged at {at}: {other}"),
                // These bytes are unused, or are the root word, which the checksum does not cover.
                Ok(_) => {}
            }
            v.write(page(at), &word.to_le_bytes()).await.expect("no faults");
        }
        assert!(refused > 10, "{refused} words were found to be damaged");
        assert!(
            Sherman::<Key8>::open(&v, &options()).await.is_ok(),
            "the superblock is restored"
        );
    });
}

// ---- arguments --------------------------------------------------------------------------------------------------

#[test]
fn refused_arguments_say_what_was_expected() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        let tree = open(&v, options()).await;
        let client = tree.client(&v);
        let refused = client.insert(&Key8(1), &[1; 15]).await.expect_err("too short");
        assert_eq!(
            refused,
            IndexError::ValueLength {
                found: 15,
                expected: 16
            }
        );
        assert_eq!(refused.effect(), Effect::None);
        says(&refused, &["15 bytes", "16 bytes"]);
        let mut keys = [Key8(2), Key8(2)].into_iter();
        let twice = client.bulk_load(0.5, |value| {
            value.extend_from_slice(&[0; 16]);
            keys.next()
        });
        says(
            &twice.await.expect_err("the same key twice"),
            &["ascend strictly"],
        );
        assert_eq!(client.insert(&Key8(1), &[1; 16]).await, Ok(Applied::Inserted));
        let refused = client
            .bulk_load(0.5, |_| None)
            .await
            .expect_err("there is an entry");
        assert!(matches!(refused, IndexError::NotEmpty { .. }), "{refused}");
        says(&refused, &["has entries", "mn"]);
        assert_eq!(
            client.get(&Key8(1), &mut Vec::new()).await,
            Ok(true),
            "and it is still there"
        );
    });
}

// ---- damaged nodes ----------------------------------------------------------------------------------------------

/// Offset of a node's sibling pointer.
const SIBLING: u64 = 8;
/// The bits of a root word that are not part of the address.
const ROOT_LEVEL: u64 = 63;

async fn root<V: Verbs>(v: &V) -> RemotePtr {
    RemotePtr::from_raw(v.word(Superblock::ROOT_WORD).await.expect("no faults") & !ROOT_LEVEL)
}

#[test]
fn a_damaged_node_is_reported_with_its_address() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        let tree = open(&v, options()).await;
        let client = tree.client(&v);
        assert_eq!(client.insert(&Key8(1), &[1; 16]).await, Ok(Applied::Inserted));
        let leaf = root(&v).await;
        let image = v.read(leaf, 256).await.expect("no faults").to_vec();
        for garbage in [vec![0; 256], vec![0xff; 256]] {
            v.load(leaf, &garbage).expect("in range");
            for found in failures(&client, &Key8(1), &[2; 16]).await {
                let found = found.expect("no node is there");
                assert!(
                    matches!(found, IndexError::Corrupt { node, .. } if node == leaf),
                    "{found}"
                );
                says(&found, &[&leaf.to_string(), "corrupt"]);
            }
        }
        v.load(leaf, &image).expect("in range");
        assert_eq!(client.get(&Key8(1), &mut Vec::new()).await, Ok(true));
    });
    assert_eq!(
        locks::held(&world.into()),
        Vec::<String>::new(),
        "the client that found the damage released the lock"
    );
}

/// Damages bytes at random places. Each operation must then end with a typed error or an answer, and never with a
/// panic.
#[test]
fn damaged_bytes_anywhere_end_in_an_error_or_an_answer() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        let options = Options {
            attempts: 50,
            ..options()
        };
        let tree = open(&v, options).await;
        let client = tree.client(&v);
        let mut first = RemotePtr::NULL;
        for n in 0..200 {
            assert_eq!(client.insert(&Key8(n), &[1; 16]).await, Ok(Applied::Inserted));
            if n == 0 {
                first = root(&v).await;
            }
        }
        let mut rng = Rng::new(4, 4);
        let mut errors = 0;
        let root = root(&v).await;
        for round in 0..3_000 {
            // Picks one of the first leaves, or the root.
            let node = if round % 3 == 0 {
                root
            } else {
                first.add(256 * rng.below(8))
            };
            let before = v.read(node, 256).await.expect("no faults").to_vec();
            let mut damaged = before.clone();
            for _ in 0..1 + rng.below(3) {
                let at = rng.below(256) as usize;
                // The sibling pointer is not changed here, because another test covers pointers that form a circle.
                if !(8..16).contains(&at) {
                    damaged[at] ^= 1 << rng.below(8);
                }
            }
            v.load(node, &damaged).expect("in range");
            // This handle has an empty cache, so it reads inner nodes.
            let cold = open(&v, options).await;
            let cold = cold.client(&v);
            let key = Key8(rng.below(200));
            let mut scan = Scan::new();
            let ends = [
                cold.get(&key, &mut Vec::new()).await.err(),
                cold.scan(&key, 50, &mut scan).await.err(),
            ];
            for e in ends.into_iter().flatten() {
                assert!(!e.to_string().is_empty());
                errors += 1;
            }
            v.load(node, &before).expect("in range");
        }
        assert!(errors > 300, "{errors}");
        let mut scan = Scan::new();
        assert_eq!(client.scan(&Key8(0), 500, &mut scan).await, Ok(()));
        assert_eq!(scan.len(), 200, "the nodes are restored");
    });
}

/// A leaf points to itself, or two leaves point to each other. A client that follows the pointers begins again at the
/// root after a bounded number of steps.
#[test]
fn a_client_in_a_circle_of_siblings_restarts_at_the_root() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        // These handles use the first leaf as the root until they read the root word again.
        let mut stale = Vec::new();
        for _ in 0..4 {
            stale.push(open(&v, options()).await);
        }
        assert_eq!(
            stale[0].client(&v).insert(&Key8(0), &[1; 16]).await,
            Ok(Applied::Inserted)
        );
        for tree in &stale {
            assert_eq!(tree.client(&v).get(&Key8(0), &mut Vec::new()).await, Ok(true));
        }
        let first = root(&v).await;
        let other = open(&v, options()).await;
        for n in 1..100 {
            assert_eq!(
                other.client(&v).insert(&Key8(n), &[1; 16]).await,
                Ok(Applied::Inserted)
            );
        }
        let second = RemotePtr::from_raw(v.word(first.add(SIBLING)).await.expect("no faults"));
        for (from, trees) in [first, second].into_iter().zip(stale.chunks(2)) {
            let right = v.word(from.add(SIBLING)).await.expect("no faults");
            // The leaf points to itself, or two leaves point to each other.
            v.load(from.add(SIBLING), &first.raw().to_le_bytes())
                .expect("in range");
            let mut value = Vec::new();
            assert_eq!(trees[0].client(&v).get(&Key8(99), &mut value).await, Ok(true));
            let updated = trees[1].client(&v).update(&Key8(99), &[2; 16]).await;
            assert_eq!(updated, Ok(Applied::Replaced));
            v.load(from.add(SIBLING), &right.to_le_bytes()).expect("in range");
        }
    });
}

// ---- nodes that do not answer -----------------------------------------------------------------------------------

/// Number of keys that are loaded first. The tree's leaves are then on all memory nodes.
const LOADED: u64 = 400;

struct Load;

impl Job for Load {
    type Out = Sherman<Key8>;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Sherman<Key8> {
        let tree = open(v, options()).await;
        let mut numbers = 0..LOADED;
        let client = tree.client(v);
        let loaded = client.bulk_load(0.7, |value| {
            let n = numbers.next()?;
            value.extend_from_slice(&value_of(n, 16));
            Some(Key8::nth(n))
        });
        assert_eq!(loaded.await, Ok(LOADED));
        drop(client);
        tree
    }
}

#[test]
fn a_cut_memory_node_affects_only_its_own_keys() {
    let lost = (0..4).map(Trouble::LostAfter);
    for trouble in [Trouble::Unreachable, Trouble::AnswersLost]
        .into_iter()
        .chain(lost)
    {
        // The superblock and the root are not on this node.
        let cut = cut_off(&Tree::<Key8>::new(options()), trouble, |_| NodeId(2));
        assert!(cut.done > 100 && cut.failed > 50, "{trouble:?}: {cut:?}");
        assert!(trouble != Trouble::Unreachable || cut.blocked == 0, "{cut:?}");
    }
}

/// Clients that write while a memory node is cut off, and the possible contents of each client's keys.
struct Through {
    tree: Sherman<Key8>,
    legal: Mutex<BTreeMap<u64, Vec<u64>>>,
    clients: u64,
}

impl Job for Through {
    type Out = (u64, u64);
    async fn run<V: Verbs + Control>(&self, number: usize, v: &V) -> (u64, u64) {
        let client = self.tree.client(v);
        let mut rng = Rng::new(3, number as u64);
        let (mut done, mut failed) = (0, 0);
        for i in 0..150 {
            let n = rng.below(LOADED / self.clients) * self.clients + number as u64;
            let seed = 10_000 + (number as u64) * 1_000 + i;
            let result = client.update(&Key8::nth(n), &value_of(seed, 16)).await;
            match result {
                Ok(applied) => {
                    assert_eq!(applied, Applied::Replaced);
                    self.legal.with(|legal| legal.insert(n, vec![seed]));
                    done += 1;
                }
                Err(e) => {
                    assert!(
                        matches!(
                            e,
                            IndexError::Verb(_) | IndexError::LockTimeout { .. } | IndexError::Exhausted(_)
                        ),
                        "{e}"
                    );
                    says(&e, &["mn2"]);
                    self.legal
                        .with(|legal| legal.entry(n).or_insert_with(|| vec![n]).push(seed));
                    failed += 1;
                }
            }
        }
        (done, failed)
    }
}

struct LookThrough(Arc<Through>);

impl Job for LookThrough {
    type Out = ();
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) {
        let client = self.0.tree.client(v);
        let legal = self.0.legal.with(|legal| legal.clone());
        let mut value = Vec::new();
        for n in 0..LOADED {
            let legal = legal.get(&n).cloned().unwrap_or_else(|| vec![n]);
            assert_eq!(client.get(&Key8::nth(n), &mut value).await, Ok(true), "key {n}");
            let known = legal.iter().any(|seed| value_of(*seed, 16) == value);
            assert!(
                known,
                "key {n}: {value:?} is none of the possible values {legal:?}"
            );
        }
    }
}

#[test]
fn a_simulated_node_is_cut_off_and_restored_under_load() {
    for seed in 0..6 {
        let sim = Sim::builder(CostModel::cx5_ib())
            .compute_nodes(2)
            .memory_nodes(3)
            .seed(seed)
            .build();
        let world = World::from(sim.expect("memory"));
        let tree = world.run_one(Load);
        let World::Sim(sim) = &world else {
            unreachable!("made of a simulation")
        };
        let seats: Vec<Seat> = seats(1, 4, 4);
        let job = Arc::new(Through {
            tree,
            legal: Mutex::new(BTreeMap::new()),
            clients: seats.len() as u64,
        });
        let now = sim.now();
        sim.cut_off(NodeId(2), now + Nanos::from_micros(60));
        sim.restore(NodeId(2), now + Nanos::from_millis(40));
        let ends = world.run(&seats, &job);
        let (done, failed) = ends.iter().fold((0, 0), |(d, f), end| (d + end.0, f + end.1));
        assert!(
            done > 500 && failed > 50,
            "seed {seed}: {done} done, {failed} failed"
        );
        world.run_one(LookThrough(job));
    }
}

// ---- holders that die -------------------------------------------------------------------------------------------

#[test]
fn a_dead_lock_holder_is_named() {
    let mut found = 0;
    for seed in 0..20 {
        let sim = Sim::builder(CostModel::cx5_ib())
            .compute_nodes(2)
            .seed(seed)
            .build()
            .expect("memory");
        let world = World::from(sim);
        let tree = std::rc::Rc::new(world.run_one(Load));
        let World::Sim(sim) = &world else {
            unreachable!("made of a simulation")
        };
        let writer = std::rc::Rc::clone(&tree);
        let victim = std::rc::Rc::new(std::cell::Cell::new(0));
        let name = std::rc::Rc::clone(&victim);
        let task = sim.spawn(0, 0, move |v| async move {
            let v = AnyEndpoint::Sim(v);
            name.set(v.client().0);
            let client = writer.client(&v);
            loop {
                let _ = client.update(&Key8::nth(7), &[1; 16]).await;
            }
        });
        sim.run_for(Nanos(50_000 + 333 * seed));
        assert!(sim.crash(task));
        assert_eq!(sim.run(), RunEnd::Finished);
        let held = locks::held(&world);
        if held.is_empty() {
            continue;
        }
        assert_eq!(held.len(), 1, "{held:?}");
        let result = std::rc::Rc::new(std::cell::Cell::new(None));
        let (tree, out) = (std::rc::Rc::clone(&tree), std::rc::Rc::clone(&result));
        sim.spawn(1, 0, move |v| async move {
            let v = AnyEndpoint::Sim(v);
            // This handle belongs to another compute node, so it has its own cache.
            let cold = open(&v, options()).await;
            let client = cold.client(&v);
            let mut value = Vec::new();
            assert_eq!(
                client.get(&Key8::nth(7), &mut value).await,
                Ok(true),
                "readers go on"
            );
            out.set(Some(client.update(&Key8::nth(7), &[2; 16]).await));
            drop(tree);
        });
        assert_eq!(sim.run(), RunEnd::Finished);
        match result.take() {
            Some(Err(e @ IndexError::LockTimeout { owner, attempts, .. })) => {
                assert_eq!((owner, attempts), (victim.get(), 2_000));
                says(&e, &[&format!("client {owner}"), "2000 attempts", "mn0"]);
                found += 1;
            }
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(found > 3, "{found} of 20 died holding the lock");
}
