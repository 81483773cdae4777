//! Tests that every error is typed and names its place, that nothing hangs or panics, and that no acknowledged write is
//! lost.

use dm_alloc::{AllocError, Superblock};
use dm_loopback::{Loopback, Trouble, block_on};
use dm_sim::{CostModel, Sim};
use dm_testkit::{
    Damage, IndexUnderTest, Job, World, connect, cut_off, cut_off_midway, damage, damage_worlds, failures,
    fill_up, load_for_damage, says,
};
use dm_verbs::{Control, Effect, Nanos, NodeId, RemotePtr, Verbs};
use marlin::{Applied, IndexError, Key8, KeyN, Marlin, OpenError, Options, RangeIndex};

use crate::common::Tree;

/// Returns options with small nodes, chunks and budgets.
fn options() -> Options {
    Options {
        node_bytes: 256,
        locks_per_node: 64,
        chunk_bytes: 4 << 10,
        attempts: 200,
        ..Options::new(16)
    }
}

async fn open<V: Verbs + Control>(v: &V) -> Marlin<Key8> {
    Tree::<Key8>::new(options()).open(v).await.expect("a pool")
}

// ---- pools ----------------------------------------------------------------------------------------------------------

#[test]
fn more_memory_nodes_than_a_reference_can_distinguish_are_refused() {
    let world = Loopback::builder().nodes(257).host_bytes(64 << 10).build();
    let world = world.expect("a world of small nodes");
    let v = connect(&world, 0);
    let refused = block_on(Marlin::<Key8>::create_or_open(&v, &options())).expect_err("too many");
    let (listed, most) = (257, 256);
    assert_eq!(
        refused,
        OpenError::Pool(AllocError::TooManyNodes { listed, most })
    );
}

/// Changes of one option each. A client with one of the first three is refused. The other options are read from the
/// pool.
const OTHERS: [fn(&mut Options); 5] = [
    |o| o.value_bytes = 8,
    |o| o.node_bytes = 320,
    |o| o.shared = false,
    |o| o.locks_per_node = 128,
    |o| o.members = 7,
];

#[test]
fn a_pool_of_another_geometry_or_kind_is_refused() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        let missing = Marlin::<Key8>::open(&v, &options()).await.expect_err("no pool");
        says(&missing, &["no pool was created here", "mn0"]);
        let tree = open(&v).await;
        assert_eq!(
            tree.client(&v).insert(&Key8(1), &[1; 16]).await,
            Ok(Applied::Inserted)
        );
        for (nth, change) in OTHERS.into_iter().enumerate() {
            let mut other = options();
            change(&mut other);
            let opened = Marlin::<Key8>::open(&v, &other).await;
            // The pool determines the number of locks and of members. A client that opens the pool adopts both numbers.
            assert_eq!(opened.is_err(), nth < 3, "{nth}: {opened:?}");
            if let Err(refused) = opened {
                says(&refused, &["another geometry", "differ from byte"]);
            }
        }
        let items = Options {
            node_bytes: 256,
            ..Options::items()
        };
        let wider = Marlin::<KeyN<24>>::open(&v, &options()).await.err();
        let items = Marlin::<Key8>::open(&v, &items).await.err();
        for refused in [wider, items] {
            let refused = refused.expect("other keys, other values");
            assert!(matches!(refused, OpenError::Pool(_)), "{refused}");
        }
        let refused = tree.items(&v, marlin::leading_bytes).err();
        assert!(
            matches!(refused, Some(IndexError::BadInput { .. })),
            "{refused:?}"
        );
        let mut other = Marlin::<Key8>::descriptor(&options());
        other.kind = u32::from_le_bytes(*b"else");
        let refused = Superblock::create_or_open(&v, &other).await.expect_err("mrln");
        says(&refused, &["else", "mrln"]);
    });
}

#[test]
fn impossible_nodes_and_refused_arguments_say_what_was_expected() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        for node_bytes in [0, 64, 100, 1 << 20] {
            let odd = Options {
                node_bytes,
                ..options()
            };
            let refused = Marlin::<Key8>::create_or_open(&v, &odd)
                .await
                .expect_err("no node");
            assert!(
                matches!(refused, OpenError::Geometry(_)),
                "{node_bytes}: {refused}"
            );
        }
        let tree = open(&v).await;
        let client = tree.client(&v);
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
        let filled = fill_up(Tree::<Key8>::new(options()), &world);
        assert!(filled.acknowledged > 1_000, "{filled:?}");
    }
}

/// An operation fails if the key's leaf or value is on the memory node that is cut off. A write also fails if its new
/// block would be there. Every error names the node, and no acknowledged write is lost.
#[test]
fn a_cut_memory_node_is_named_and_loses_nothing() {
    // The superblock and the root are not on this node.
    let cut = cut_off(&Tree::<Key8>::new(options()), Trouble::Unreachable, |_| NodeId(2));
    assert!(cut.failed > 50 && cut.blocked == 0, "{cut:?}");
}

#[test]
fn a_simulated_memory_node_is_cut_off_at_any_moment_of_an_operation() {
    for (seed, model) in [(1, CostModel::cx5_ib()), (2, CostModel::cx6_roce())] {
        let sim = Sim::builder(model).memory_nodes(2).seed(seed).build();
        let (step, longest) = (Nanos(250), Nanos(15_000));
        let cut = cut_off_midway(Tree::<Key8>::new(options()), sim.expect("memory"), step, longest);
        println!("{cut:?}");
        assert!(cut.done > 50 && cut.failed > 50, "{cut:?}");
    }
}

// ---- damaged bytes --------------------------------------------------------------------------------------------------

/// The bits of a root word that are not part of the address.
const ROOT_LEVEL: u64 = 63;

async fn root<V: Verbs>(v: &V) -> RemotePtr {
    RemotePtr::from_raw(v.word(Superblock::ROOT_WORD).await.expect("no faults") & !ROOT_LEVEL)
}

#[test]
fn a_damaged_node_or_block_is_reported_with_its_address() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        let tree = open(&v).await;
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
        // The only entry is in the first slot behind the header. The lowest bit of its word is 1.
        let word = (24..64).step_by(8).map(|at| &image[at..at + 8]);
        let named = word
            .filter(|word| word[0] & 1 == 1)
            .find_map(|word| dm_indirect::referred(word).ok());
        let (block, _) = named.expect("the leaf refers to a block");
        let image = v.read(block, 64).await.expect("no faults").to_vec();
        v.load(block, &[0xff; 64]).expect("in range");
        let found = client.get(&Key8(1), &mut Vec::new()).await.expect_err("no block");
        assert!(
            matches!(found, IndexError::Corrupt { node, .. } if node == block),
            "{found}"
        );
        v.load(block, &image).expect("in range");
        assert_eq!(client.get(&Key8(1), &mut Vec::new()).await, Ok(true));
        assert_eq!(client.update(&Key8(1), &[3; 16]).await, Ok(Applied::Replaced));
    });
}

/// Damages bytes at random places. Each operation must then end with a typed error or an answer, and never with a
/// panic.
#[test]
fn damaged_bytes_anywhere_end_in_an_error_or_an_answer() {
    for world in damage_worlds() {
        let met = world.run_one(Damaging);
        assert!(met.read > 50 && met.written > 50, "{met:?}");
    }
}

struct Damaging;

impl Job for Damaging {
    type Out = Damage;

    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Damage {
        // The test opens many handles and uses each for only a few operations. The pool has no members, so that no
        // handle is expelled as silent.
        let tree = Tree::<Key8>::new(Options {
            members: 0,
            ..options()
        });
        let known = tree.open(v).await.expect("an empty pool");
        let client = known.client(v);
        assert_eq!(client.insert(&Key8(5), &[1; 16]).await, Ok(Applied::Inserted));
        let first = root(v).await;
        assert_eq!(client.remove(&Key8(5)).await, Ok(Applied::Removed));
        load_for_damage(&client).await;
        // The test changes the root, and the first blocks, which hold leaves and values.
        let places = [(root(v).await, 256), (first, 8 << 10), (first, 8 << 10)];
        damage(&tree, v, &known, &places).await
    }
}
