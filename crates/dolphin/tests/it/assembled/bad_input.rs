//! Tests that every error is typed and names its place, that nothing hangs or panics, and that no acknowledged write is
//! lost.

use dm_alloc::{AllocError, Superblock};
use dm_layout::NodeTypes;
use dm_loopback::{Loopback, Trouble, block_on};
use dm_sim::{CostModel, Sim};
use dm_testkit::{
    Damage, IndexUnderTest, Job, World, connect, cut_off, cut_off_midway, damage, damage_worlds, fill_up,
    load_for_damage, says,
};
use dm_verbs::{Control, Nanos, NodeId, Verbs};
use dolphin::{Key8, KeyN, OpenError};

use super::{Assembled, small};
use crate::tree::{ArtHopscotch, Shape};

/// Returns parameters with small nodes.
fn shape() -> Shape {
    Shape {
        types: NodeTypes::new(&[2, 4, 8, 256]).expect("ascending"),
        locks_per_node: 64,
        chunk_bytes: 4 << 10,
        attempts: 200,
        ..small(16)
    }
}

#[test]
fn another_shape_another_index_and_impossible_leaves_are_refused() {
    let world = Loopback::builder().nodes(2).build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        for (span, neighbourhood) in [(0, 4), (12, 0), (4, 8), (1 << 20, 8)] {
            let odd = Shape {
                span,
                neighbourhood,
                ..shape()
            };
            let refused = Assembled::<Key8>::new(odd).open(&v).await;
            assert!(
                refused.is_err(),
                "{span} entries, {neighbourhood} near each other"
            );
        }
    });
    let world = Loopback::builder().nodes(2).build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        ArtHopscotch::<Key8>::create_or_open(&v, &shape())
            .await
            .expect("an empty pool");
        let other = Shape { span: 16, ..shape() };
        let refused = ArtHopscotch::<Key8>::create_or_open(&v, &other)
            .await
            .expect_err("another span");
        assert!(
            matches!(refused, OpenError::Pool(AllocError::OtherDescriptor { .. })),
            "{refused}"
        );
        says(&refused, &["another geometry", "differ from byte"]);
        let there = Superblock::inspect(&v).await.expect("a pool");
        let another = ArtHopscotch::<KeyN<24>>::from_superblock(&v, &shape(), &there).await;
        assert!(
            matches!(another, Err(OpenError::Pool(_))),
            "other keys: {another:?}"
        );
    });
}

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
        let filled = fill_up(Assembled::<Key8>::new(shape()), &world);
        assert!(filled.acknowledged > 1_000, "{filled:?}");
    }
}

#[test]
fn a_cut_memory_node_affects_only_its_own_keys() {
    let lost = (0..4).map(Trouble::LostAfter);
    for trouble in [Trouble::Unreachable, Trouble::AnswersLost]
        .into_iter()
        .chain(lost)
    {
        // The node that is cut off has neither the superblock nor the root.
        let cut = cut_off(&Assembled::<Key8>::new(shape()), trouble, |index| {
            NodeId(if index.inner.art().root().node() == NodeId(2) {
                1
            } else {
                2
            })
        });
        assert!(cut.done > 100 && cut.failed > 50, "{trouble:?}: {cut:?}");
        assert!(trouble != Trouble::Unreachable || cut.blocked == 0, "{cut:?}");
    }
}

#[test]
fn a_simulated_memory_node_is_cut_off_at_any_moment_of_an_operation() {
    for (seed, model) in [(1, CostModel::cx5_ib()), (2, CostModel::cx6_roce())] {
        let sim = Sim::builder(model).memory_nodes(2).seed(seed).build();
        let (step, longest) = (Nanos(250), Nanos(15_000));
        let cut = cut_off_midway(
            Assembled::<Key8>::new(shape()),
            sim.expect("memory"),
            step,
            longest,
        );
        assert!(cut.done > 50 && cut.failed > 50, "{cut:?}");
    }
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
        let index = Assembled::<Key8>::new(Shape {
            members: 0,
            ..shape()
        });
        let known = index.open(v).await.expect("an empty pool");
        load_for_damage(&known.client(v)).await;
        // The test changes the root's first words, and the blocks after it, which hold leaves, separators and nodes.
        let root = known.inner.art().root();
        let places = [(root, 32), (root, 16 << 10), (root, 16 << 10)];
        damage(&index, v, &known, &places).await
    }
}
