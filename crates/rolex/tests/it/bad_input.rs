//! Tests that every error is typed and names its place, that nothing hangs or panics, and that no acknowledged write is
//! lost.

use core::marker::PhantomData;

use dm_alloc::Superblock;
use dm_loopback::{Loopback, Trouble, block_on};
use dm_sim::{CostModel, Sim};
use dm_testkit::{
    Damage, IndexUnderTest, Job, World, connect, cut_off, cut_off_midway, damage, damage_worlds, failures,
    fill_up, load_for_damage, says,
};
use dm_verbs::{Control, Effect, Nanos, NodeId, RemotePtr, Verbs};
use rolex::{
    Applied, IndexError, Key8, KeyN, OpenError, Options, Published, PublishedParts, RangeIndex, Rolex,
    RolexParts, Scan,
};

use crate::common::{Learns, Tree};

/// Returns options with small leaves, chunks and budgets.
fn options() -> Options {
    Options {
        span: 6,
        neighbourhood: 3,
        locks_per_node: 64,
        chunk_bytes: 4 << 10,
        attempts: 200,
        ..Options::new(16)
    }
}

type Whole = Tree<RolexParts<Key8>>;

async fn open<V: Verbs + Control>(v: &V) -> Rolex<Key8> {
    Rolex::create_or_open(v, &options()).await.expect("a pool")
}

// ---- pools ----------------------------------------------------------------------------------------------------------

#[test]
fn a_pool_has_no_more_memory_nodes_than_a_table_can_address() {
    let most = Rolex::<Key8>::descriptor(&options()).nodes_max;
    assert_eq!(most, dm_index::CHILD_NODES_MAX);
}

/// Changes of one option each. A client with one of the first two is refused. The other options may differ between
/// clients, or are read from the pool.
const OTHERS: [fn(&mut Options); 5] = [
    |o| o.value_bytes = 8,
    |o| o.span = 7,
    |o| o.error = 1,
    |o| o.locks_per_node = 128,
    |o| o.members = 7,
];

#[test]
fn a_pool_of_another_geometry_or_kind_is_refused() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        let missing = Rolex::<Key8>::open(&v, &options()).await.expect_err("no pool");
        says(&missing, &["no pool was created here", "mn0"]);
        let index = open(&v).await;
        assert_eq!(
            index.client(&v).insert(&Key8(1), &[1; 16]).await,
            Ok(Applied::Inserted)
        );
        for (nth, change) in OTHERS.into_iter().enumerate() {
            let mut other = options();
            change(&mut other);
            let opened = Rolex::<Key8>::open(&v, &other).await;
            assert_eq!(opened.is_err(), nth < 2, "{nth}: {opened:?}");
            if let Err(refused) = opened {
                says(&refused, &["another geometry", "differ from byte"]);
            }
        }
        let wider = Rolex::<KeyN<24>>::open(&v, &options()).await.err();
        let items = Options {
            span: 6,
            ..Options::items()
        };
        let items = Rolex::<Key8>::open(&v, &items).await.err();
        for refused in [wider, items] {
            let refused = refused.expect("other keys, other values");
            assert!(matches!(refused, OpenError::Pool(_)), "{refused}");
        }
        let hopscotch = rolex::ChimeLearned::<Key8>::open(&v, &options()).await.err();
        says(&hopscotch.expect("another index"), &["rolx", "chln"]);
        let refused = index.items(&v, rolex::leading_bytes).err();
        assert!(
            matches!(refused, Some(IndexError::BadInput { .. })),
            "{refused:?}"
        );
    });
}

#[test]
fn impossible_leaves_and_refused_arguments_say_what_was_expected() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        for span in [0, 1, 1 << 20] {
            let odd = Options { span, ..options() };
            let refused = Rolex::<Key8>::create_or_open(&v, &odd)
                .await
                .expect_err("no leaf");
            assert!(matches!(refused, OpenError::Geometry(_)), "{span}: {refused}");
        }
        let index = open(&v).await;
        let client = index.client(&v);
        let refused = client.insert(&Key8(1), &[1; 15]).await.expect_err("too short");
        let (found, expected) = (15, 16);
        assert_eq!(refused, IndexError::ValueLength { found, expected });
        assert_eq!(refused.effect(), Effect::None);
        let mut keys = [Key8(2), Key8(2)].into_iter();
        let twice = client.bulk_load(0.5, |value| {
            value.extend_from_slice(&[0; 16]);
            keys.next()
        });
        says(&twice.await.expect_err("the same key twice"), &["ascend"]);
        assert_eq!(client.insert(&Key8(1), &[1; 16]).await, Ok(Applied::Inserted));
        let refused = client.bulk_load(0.5, |_| None).await.expect_err("an entry");
        assert!(matches!(refused, IndexError::NotEmpty { .. }), "{refused}");
    });
}

// ---- memory runs out or is lost -------------------------------------------------------------------------------------

#[test]
fn a_full_pool_loses_no_acknowledged_write() {
    let loopback = Loopback::builder().nodes(2).host_bytes(256 << 10).build();
    let sim = Sim::builder(CostModel::cx6_roce())
        .memory_nodes(2)
        .memory_bytes(256 << 10)
        .build();
    for world in [
        World::from(loopback.expect("memory")),
        World::from(sim.expect("memory")),
    ] {
        let filled = fill_up(Whole::new(options()).visiting(300), &world);
        assert!(filled.acknowledged > 1_000, "{filled:?}");
    }
}

/// If there is no room for a table, the old one stays, and the compute node knows all leaves nevertheless.
#[test]
fn a_full_pool_has_no_new_table() {
    let world = Loopback::builder().nodes(1).host_bytes(256 << 10).build();
    let world = world.expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        let index = open(&v).await;
        let client = index.client(&v);
        let mut key = 0;
        while client.insert(&Key8(key), &[1; 16]).await.is_ok() {
            key += 1;
        }
        let word = v.word(Superblock::ROOT_WORD).await;
        let leaves = index.retrain(&v).await.expect("a missing table is no error");
        assert!(leaves > 100, "{leaves}");
        assert_eq!(v.word(Superblock::ROOT_WORD).await, word);
        let mut value = Vec::new();
        for key in (0..key).map(Key8) {
            assert_eq!(client.get(&key, &mut value).await, Ok(true));
        }
    });
}

/// An operation fails if the key's leaf is on the memory node that is cut off, or if a left neighbour that leads to it
/// is. Every error names the node, and no acknowledged write is lost.
#[test]
fn a_cut_memory_node_is_named_and_loses_nothing() {
    // The superblock and the root word are not on this node.
    let cut = cut_off(&Whole::new(options()), Trouble::Unreachable, |_| NodeId(2));
    assert!(cut.failed > 50 && cut.blocked == 0, "{cut:?}");
    let published = Tree::<PublishedParts<Key8>>::new(options());
    let cut = cut_off(&published, Trouble::Unreachable, |_| NodeId(2));
    assert!(cut.failed > 50 && cut.blocked == 0, "{cut:?}");
}

#[test]
fn a_simulated_memory_node_is_cut_off_at_any_moment_of_an_operation() {
    for (seed, model) in [(1, CostModel::cx5_ib()), (2, CostModel::cx6_roce())] {
        let sim = Sim::builder(model).memory_nodes(2).seed(seed).build();
        let (step, longest) = (Nanos(250), Nanos(15_000));
        let cut = cut_off_midway(Whole::new(options()), sim.expect("memory"), step, longest);
        println!("{cut:?}");
        assert!(cut.done > 50 && cut.failed > 50, "{cut:?}");
    }
}

// ---- damaged bytes --------------------------------------------------------------------------------------------------

/// The bits of a root word that are not part of the address.
const ROOT_MARKS: u64 = 63;

async fn root<V: Verbs>(v: &V) -> RemotePtr {
    RemotePtr::from_raw(v.word(Superblock::ROOT_WORD).await.expect("no faults") & !ROOT_MARKS)
}

#[test]
fn a_damaged_leaf_or_table_is_reported_with_its_address() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        let index = open(&v).await;
        let client = index.client(&v);
        assert_eq!(client.insert(&Key8(1), &[1; 16]).await, Ok(Applied::Inserted));
        let leaf = root(&v).await;
        let image = v.read(leaf, 192).await.expect("no faults").to_vec();
        for garbage in [vec![0; 192], vec![0xff; 192]] {
            v.load(leaf, &garbage).expect("in range");
            for found in failures(&client, &Key8(1), &[2; 16]).await {
                let found = found.expect("no leaf is there");
                assert!(
                    matches!(found, IndexError::Corrupt { node, .. } if node == leaf),
                    "{found}"
                );
                says(&found, &[&leaf.to_string(), "corrupt"]);
            }
        }
        v.load(leaf, &image).expect("in range");
        assert_eq!(index.retrain(&v).await, Ok(1));
        let table = root(&v).await;
        assert_ne!(table, leaf);
        v.load(table, &[0xff; 64]).expect("in range");
        // This compute node has a copy of the table, and another one has none.
        assert_eq!(client.get(&Key8(1), &mut Vec::new()).await, Ok(true));
        let other = open(&v).await;
        let found = other.client(&v).get(&Key8(1), &mut Vec::new()).await;
        let found = found.expect_err("no table is there");
        assert!(
            matches!(found, IndexError::Corrupt { node, .. } if node == table),
            "{found}"
        );
    });
}

/// The first leaf is damaged. An operation on a key of another leaf gives its answer, even if it also reads the damaged
/// leaf. A get of a key of the damaged leaf returns an error.
#[test]
fn a_damaged_leaf_of_a_run_is_no_error_of_another_key() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        let index = Published::<Key8>::create_or_open(&v, &Options::published(8)).await;
        let index = index.expect("a pool");
        let client = index.client(&v);
        assert_eq!(client.insert(&Key8(0), &[1; 8]).await, Ok(Applied::Inserted));
        let first = root(&v).await;
        for key in (1..200).map(Key8) {
            assert_eq!(client.insert(&key, &[1; 8]).await, Ok(Applied::Inserted));
        }
        assert!(index.retrain(&v).await.expect("no faults") > 10);
        v.load(first, &[0xff; 192]).expect("in range");
        let mut value = Vec::new();
        let found = client
            .get(&Key8(0), &mut value)
            .await
            .expect_err("no leaf is there");
        assert!(
            matches!(found, IndexError::Corrupt { node, .. } if node == first),
            "{found}"
        );
        for key in (20..200).map(Key8) {
            assert_eq!(client.get(&key, &mut value).await, Ok(true), "{key:?}");
            assert_eq!(
                client.update(&key, &[2; 8]).await,
                Ok(Applied::Replaced),
                "{key:?}"
            );
            // A new client expects fuller leaves. So the leaves of its first batch have fewer entries than the scan
            // needs, and the client also reads the leaves beside those of the scan.
            let mut found = Scan::new();
            let scanned = index.client(&v).scan(&key, 100, &mut found).await;
            assert_eq!(
                (scanned, found.len() as u64),
                (Ok(()), 100.min(200 - key.0)),
                "{key:?}"
            );
        }
    });
}

/// Damages bytes at random places. Each operation must then end with a typed error or an answer, and never with a
/// panic.
#[test]
fn damaged_bytes_anywhere_end_in_an_error_or_an_answer() {
    for world in damage_worlds() {
        let met = world.run_one(Damaging::<RolexParts<Key8>>(PhantomData));
        assert!(met.read > 50 && met.written > 50, "{met:?}");
    }
}

/// An operation also reads other leaves than the key's leaf. Damage in those leaves is not an error of the operation.
#[test]
fn damaged_bytes_of_a_run_end_in_an_error_or_an_answer() {
    for world in damage_worlds() {
        let met = world.run_one(Damaging::<PublishedParts<Key8>>(PhantomData));
        assert!(met.read > 50 && met.written > 50, "{met:?}");
    }
}

struct Damaging<P>(PhantomData<fn() -> P>);

impl<P: Learns<Key = Key8>> Job for Damaging<P> {
    type Out = Damage;

    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Damage {
        // The test opens many handles and uses each for only a few operations. The pool has no members, so that no
        // handle is expelled as silent.
        let tree = Tree::<P>::new(Options {
            members: 0,
            ..options()
        });
        let known = tree.open(v).await.expect("an empty pool");
        let client = Tree::<P>::client(&known, v);
        assert_eq!(client.insert(&Key8(5), &[1; 16]).await, Ok(Applied::Inserted));
        let first = root(v).await;
        assert_eq!(client.remove(&Key8(5)).await, Ok(Applied::Removed));
        load_for_damage(&client).await;
        known.handle.retrain(v).await.expect("no faults");
        // The test changes the table and the leaves.
        let places = [(root(v).await, 1024), (first, 8 << 10), (first, 8 << 10)];
        damage(&tree, v, &known, &places).await
    }
}
