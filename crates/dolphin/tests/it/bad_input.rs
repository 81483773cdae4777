//! Tests that every error is typed and names its place, that nothing hangs or panics, and that no acknowledged write is
//! lost.

use dm_alloc::{AllocError, Superblock};
use dm_layout::{RADIX_HEAD_BYTES, RadixSlot, SingleLeaf, SlotWord};
use dm_loopback::{BuildError, Loopback, Trouble, block_on};
use dm_sim::{CostModel, Sim};
use dm_testkit::{
    Damage, IndexUnderTest, Job, World, connect, cut_off, cut_off_midway, damage, damage_worlds, failures,
    fill_up, load_for_damage, says,
};
use dm_verbs::{Control, Effect, Nanos, NodeId, RemotePtr, Verbs};
use dolphin::{Applied, Dolphin, IndexError, Key8, KeyN, NodeTypes, OpenError, Options, RangeIndex};

use crate::common::Tree;

/// Returns options with small leaves, chunks and budgets.
fn options() -> Options {
    Options {
        leaf_bytes: 256,
        types: NodeTypes::new(&[2, 4, 8, 256]).expect("ascending"),
        locks_per_node: 64,
        chunk_bytes: 4 << 10,
        attempts: 200,
        ..Options::new(16)
    }
}

async fn open<V: Verbs + Control>(v: &V) -> Dolphin<Key8> {
    Tree::<Key8>::new(options()).open(v).await.expect("a pool")
}

// ---- pools ----------------------------------------------------------------------------------------------------------

#[test]
fn a_world_without_memory_nodes_is_refused() {
    let refused = Loopback::builder().nodes(0).build().err();
    assert_eq!(refused, Some(BuildError::BadNodeCount { nodes: 0 }));
    let refused = Sim::builder(CostModel::cx5_ib()).memory_nodes(0).build();
    assert!(matches!(refused, Err(dm_sim::BuildError::NoNodes)));
}

#[test]
fn more_memory_nodes_than_a_slot_can_distinguish_are_refused() {
    let world = Loopback::builder().nodes(257).host_bytes(64 << 10).build();
    let world = world.expect("a world of small nodes");
    let v = connect(&world, 0);
    let refused = block_on(Dolphin::<Key8>::create_or_open(&v, &options())).expect_err("too many");
    let expected = AllocError::TooManyNodes {
        listed: 257,
        most: 256,
    };
    assert_eq!(refused, OpenError::Pool(expected));
    // A failed open must create nothing.
    let inspected = block_on(Superblock::inspect(&v)).err();
    assert!(
        matches!(inspected, Some(AllocError::NotFormatted { .. })),
        "{inspected:?}"
    );
}

#[test]
fn a_lock_table_larger_than_on_chip_memory_is_refused() {
    let world = Loopback::builder().nodes(2).chip_bytes(1 << 10).build();
    let world = world.expect("memory");
    let v = connect(&world, 0);
    let refused = block_on(Dolphin::<Key8>::create_or_open(&v, &Options::new(8))).expect_err("no room");
    let OpenError::Pool(AllocError::ChipTooSmall { node, wanted, has }) = &refused else {
        panic!("{refused}");
    };
    assert_eq!((*node, *wanted, *has), (NodeId(0), 8 * 32_768, 1 << 10));
    says(&refused, &["262144 bytes", "mn0", "1024"]);
    // A smaller table, or one in host memory, still fits.
    let fits = Options {
        locks_per_node: 128,
        ..Options::new(8)
    };
    assert!(block_on(Dolphin::<Key8>::create_or_open(&v, &fits)).is_ok());
}

/// Changes of layout options, one each.
const OTHERS: [fn(&mut Options); 6] = [
    |o| o.value_bytes = 8,
    |o| o.leaf_bytes = 320,
    |o| o.types = NodeTypes::SHIPPED,
    |o| o.shared_updates = false,
    |o| o.locks_per_node = 128,
    |o| o.members = 7,
];

#[test]
fn a_pool_of_another_geometry_or_kind_is_refused() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        let missing = Dolphin::<Key8>::open(&v, &options()).await.expect_err("no pool");
        assert!(
            matches!(missing, OpenError::Pool(AllocError::NotFormatted { word: 0, .. })),
            "{missing}"
        );
        says(&missing, &["no pool was created here", "mn0"]);
        let tree = open(&v).await;
        assert_eq!(
            tree.client(&v).insert(&Key8(1), &[1; 16]).await,
            Ok(Applied::Inserted)
        );
        for (nth, change) in OTHERS.into_iter().enumerate() {
            let mut other = options();
            change(&mut other);
            let opened = Dolphin::<Key8>::open(&v, &other).await;
            // The pool determines the number of locks and of members. A client that opens the pool adopts both numbers.
            let own = nth < 4;
            assert_eq!(opened.is_err(), own, "{nth}: {opened:?}");
            if let Err(refused) = opened {
                assert!(
                    matches!(refused, OpenError::Pool(AllocError::OtherDescriptor { .. })),
                    "{refused}"
                );
                says(&refused, &["another geometry", "differ from byte"]);
            }
        }
        let items = Options {
            shared_updates: true,
            ..Options::items()
        };
        let wider = Dolphin::<KeyN<24>>::open(&v, &options()).await.err();
        let items = Dolphin::<Key8>::open(&v, &items).await.err();
        for refused in [wider, items] {
            let refused = refused.expect("other keys, other values");
            assert!(matches!(refused, OpenError::Pool(_)), "{refused}");
        }
        let refused = tree.items(&v, dolphin::leading_bytes).err();
        assert!(
            matches!(refused, Some(IndexError::BadInput { .. })),
            "values are not references: {refused:?}"
        );
    });
}

#[test]
fn another_index_and_impossible_leaves_are_refused() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        for leaf_bytes in [0, 64, 100, 1 << 20] {
            let odd = Options {
                leaf_bytes,
                ..options()
            };
            let refused = Dolphin::<Key8>::create_or_open(&v, &odd)
                .await
                .expect_err("no leaf");
            assert!(
                matches!(refused, OpenError::Geometry(_)),
                "{leaf_bytes}: {refused}"
            );
        }
        let mut other = Dolphin::<Key8>::descriptor(&options());
        other.kind = u32::from_le_bytes(*b"else");
        Superblock::create_or_open(&v, &other)
            .await
            .expect("an empty pool");
        let refused = Dolphin::<Key8>::open(&v, &options()).await.expect_err("else's");
        assert!(
            matches!(refused, OpenError::Pool(AllocError::OtherKind { .. })),
            "{refused}"
        );
        says(&refused, &["else", "dlph"]);
    });
}

#[test]
fn refused_arguments_say_what_was_expected() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        let tree = open(&v).await;
        let client = tree.client(&v);
        let refused = client.insert(&Key8(1), &[1; 15]).await.expect_err("too short");
        let (found, expected) = (15, 16);
        assert_eq!(refused, IndexError::ValueLength { found, expected });
        assert_eq!(refused.effect(), Effect::None);
        says(&refused, &["15 bytes", "16 bytes"]);
        let mut keys = [Key8(2), Key8(2)].into_iter();
        let twice = client.bulk_load(0.5, |value| {
            value.extend_from_slice(&[0; 16]);
            keys.next()
        });
        says(&twice.await.expect_err("the same key twice"), &["ascend"]);
        assert_eq!(client.insert(&Key8(1), &[1; 16]).await, Ok(Applied::Inserted));
        let refused = client.bulk_load(0.5, |_| None).await.expect_err("an entry");
        assert!(matches!(refused, IndexError::NotEmpty { .. }), "{refused}");
        assert_eq!(client.get(&Key8(1), &mut Vec::new()).await, Ok(true));
    });
}

// ---- memory runs out or is lost -------------------------------------------------------------------------------------

#[test]
fn a_full_pool_loses_no_acknowledged_write() {
    let loopback = Loopback::builder().nodes(2).host_bytes(128 << 10).build();
    let sim = Sim::builder(CostModel::cx6_roce())
        .memory_nodes(2)
        .memory_bytes(128 << 10)
        .build();
    for world in [
        World::from(loopback.expect("memory")),
        World::from(sim.expect("memory")),
    ] {
        let filled = fill_up(Tree::<Key8>::new(options()), &world);
        assert!(filled.acknowledged > 1_000, "{filled:?}");
    }
}

/// Cuts off one of three memory nodes. More than `least` operations must succeed in each kind of trouble.
fn cut_off_one_of_three(options: Options, least: u64) {
    let lost = (0..4).map(Trouble::LostAfter);
    for trouble in [Trouble::Unreachable, Trouble::AnswersLost]
        .into_iter()
        .chain(lost)
    {
        // The node that is cut off has neither the superblock nor the root.
        let cut = cut_off(&Tree::<Key8>::new(options), trouble, |tree| {
            NodeId(if tree.root().node() == NodeId(2) { 1 } else { 2 })
        });
        assert!(cut.done > least && cut.failed > 50, "{trouble:?}: {cut:?}");
        assert!(trouble != Trouble::Unreachable || cut.blocked == 0, "{cut:?}");
    }
}

#[test]
fn a_cut_memory_node_affects_only_its_own_keys() {
    cut_off_one_of_three(options(), 100);
}

#[test]
fn a_cut_memory_node_under_approximate_hints_affects_only_its_own_keys() {
    let rough = Options {
        cache_bytes: 512,
        ..options()
    };
    // Fewer operations succeed, because some leaves must be searched, and their entries are on all three memory nodes.
    cut_off_one_of_three(rough, 80);
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

/// Returns the address in the root's slot for byte 0, which is the first byte of all keys, and whether it is the
/// address of an entry. It leads to the entry of the first leaf, or to a node above several entries.
async fn below<V: Verbs>(v: &V, tree: &Dolphin<Key8>) -> (RemotePtr, bool) {
    let slot = tree.root().add(RADIX_HEAD_BYTES as u64);
    let word = SlotWord::from_raw(v.word(slot).await.expect("no faults"));
    match word.decode().expect("a slot") {
        RadixSlot::Leaf { at, .. } => (RemotePtr::from_raw(at), true),
        RadixSlot::Inner { at, .. } => (RemotePtr::from_raw(at), false),
        other => panic!("{other:?}"),
    }
}

/// Returns the leaf to which an entry points.
async fn leaf_of<V: Verbs>(v: &V, entry: RemotePtr) -> RemotePtr {
    let layout = SingleLeaf::<Key8>::new(8).expect("small");
    let bytes = v
        .read(entry, layout.read_bytes() as u32)
        .await
        .expect("no faults");
    let value = layout.open(&bytes).expect("an entry").value;
    RemotePtr::from_raw(u64::from_le_bytes(*value.first_chunk().expect("an address")))
}

/// Damages `bytes` bytes at `at`. While they are damaged, each operation of a newly opened handle, whose cache is
/// empty, must return an error that names the address. After they are restored, a get and an update must succeed.
async fn named<V: Verbs + Control>(v: &V, at: RemotePtr, bytes: usize) {
    let image = v.read(at, bytes as u32).await.expect("no faults").to_vec();
    for garbage in [0, 0xff] {
        v.load(at, &vec![garbage; bytes]).expect("in range");
        let cold = open(v).await;
        for (nth, found) in failures(&cold.client(v), &Key8(5), &[2; 16])
            .await
            .into_iter()
            .enumerate()
        {
            let found = found
                .unwrap_or_else(|| panic!("operation {nth}: {garbage} at {at}: the operation must fail"));
            assert!(
                matches!(found, IndexError::Corrupt { node, .. } if node == at),
                "{garbage} at {at}, operation {nth}: {found}"
            );
            says(&found, &[&at.to_string(), "corrupt"]);
        }
    }
    v.load(at, &image).expect("in range");
    let cold = open(v).await;
    assert_eq!(cold.client(v).get(&Key8(5), &mut Vec::new()).await, Ok(true));
    let updated = cold.client(v).update(&Key8(5), &[3; 16]).await;
    assert_eq!(updated, Ok(Applied::Replaced), "the lock must be free");
}

#[test]
fn a_damaged_leaf_entry_or_radix_node_is_reported_with_its_address() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        let tree = open(&v).await;
        let client = tree.client(&v);
        assert_eq!(client.insert(&Key8(5), &[1; 16]).await, Ok(Applied::Inserted));
        let (entry, is_entry) = below(&v, &tree).await;
        assert!(is_entry, "one leaf, one separator");
        named(&v, leaf_of(&v, entry).await, 256).await;
        named(&v, entry, 64).await;
        for n in 10..100 {
            assert_eq!(client.insert(&Key8(n), &[1; 16]).await, Ok(Applied::Inserted));
        }
        let (node, is_entry) = below(&v, &tree).await;
        assert!(!is_entry, "many leaves, a node above their separators");
        named(&v, node, 64).await;
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
        let (first, _) = below(v, &known).await;
        assert_eq!(client.remove(&Key8(5)).await, Ok(Applied::Removed));
        load_for_damage(&client).await;
        // The test changes the root's first words, and the first blocks, which hold leaves, separators and nodes.
        let places = [(known.root(), 32), (first, 8 << 10), (first, 8 << 10)];
        damage(&tree, v, &known, &places).await
    }
}
