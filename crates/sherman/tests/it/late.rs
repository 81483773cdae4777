//! Tests that memory is not reused while requests of an operation of unknown effect may still be in flight.

use dm_index::{Applied, IndexError, Key8, RangeIndex};
use dm_loopback::{Loopback, Trouble, block_on};
use dm_testkit::connect;
use dm_verbs::{Effect, Nanos, NodeId};
use sherman::{NodeSize, Options, ReclaimOptions, Sherman};

fn options() -> Options {
    Options {
        node: NodeSize::Span(8),
        // Collections run only when the test calls `collect`.
        reclaim: ReclaimOptions {
            period: Nanos(u64::MAX),
            ..ReclaimOptions::new()
        },
        ..Options::new(8)
    }
}

#[test]
fn an_operation_of_unknown_effect_stays_announced_until_a_read_behind_it() {
    let pool = Loopback::builder().nodes(1).build().expect("memory");
    let [v, w] = [0, 1].map(|_| connect(&pool, 0));
    let tree = block_on(Sherman::<Key8>::create_or_open(&w, &options())).expect("a tree");
    let rounds = || {
        for _ in 0..4 {
            block_on(tree.collect(&w)).expect("a round");
        }
        tree.alloc_stats().limbo_bytes
    };
    let (client, other) = (tree.client(&v), tree.client(&w));
    for i in 0..400 {
        let inserted = block_on(other.insert(&Key8(i), b"complete"));
        assert_eq!(inserted, Ok(Applied::Inserted));
    }
    let mut value = Vec::new();
    block_on(client.get(&Key8(1), &mut value)).expect("no trouble");
    pool.cut(NodeId(0), Trouble::AnswersLost);
    let failed = block_on(client.update(&Key8(1), b"unknown.")).map_err(|e: IndexError| e.effect());
    assert_eq!(failed, Err(Effect::Unknown));
    pool.cut(NodeId(0), Trouble::Unreachable);
    block_on(client.get(&Key8(1), &mut value)).expect_err("it is cut off");
    pool.restore(NodeId(0));
    // These keys are far from the leaf whose lock the failed operation may hold.
    for i in 200..400 {
        assert_eq!(block_on(other.remove(&Key8(i))), Ok(Applied::Removed));
    }
    assert!(rounds() > 0, "it may still land");
    drop(client);
    assert!(
        rounds() > 0,
        "its client has gone before it was known to have landed"
    );
    block_on(tree.client(&v).get(&Key8(1), &mut value)).expect("no trouble");
    assert_eq!(rounds(), 0);
}
