//! Tests that memory is not reused while requests of an operation of unknown effect may still be in flight.

use dm_index::IndexError;
use dm_loopback::{Loopback, Trouble, block_on};
use dm_testkit::connect;
use dm_verbs::{Effect, Nanos, NodeId};
use smart::{Applied, Key8, Options, RangeIndex, ReclaimOptions, Smart};

fn options() -> Options {
    Options {
        // Collections run only when the test calls `collect`.
        reclaim: ReclaimOptions {
            period: Nanos(u64::MAX),
            ..ReclaimOptions::new()
        },
        ..Options::new(8)
    }
}

#[test]
fn a_refused_read_does_not_prove_that_earlier_requests_have_landed() {
    let pool = Loopback::builder().nodes(1).build().expect("memory");
    let [v, w] = [0, 1].map(|_| connect(&pool, 0));
    let tree = block_on(Smart::<Key8>::create_or_open(&w, &options())).expect("a tree");
    let rounds = || {
        for _ in 0..5 {
            block_on(tree.collect(&w)).expect("a round");
        }
        tree.alloc_stats().limbo_bytes
    };
    let client = tree.client(&v);
    block_on(client.insert(&Key8(1), b"complete")).expect("no trouble");
    pool.cut(NodeId(0), Trouble::AnswersLost);
    let failed = block_on(client.insert(&Key8(2), b"unknown.")).map_err(|e: IndexError| e.effect());
    assert_eq!(failed, Err(Effect::Unknown));
    pool.cut(NodeId(0), Trouble::Unreachable);
    let mut value = Vec::new();
    block_on(client.get(&Key8(1), &mut value)).expect_err("it is cut off");
    pool.restore(NodeId(0));
    let other = tree.client(&w);
    for i in 100..110 {
        let inserted = block_on(other.insert(&Key8(i << 32), b"soon out"));
        assert_eq!(inserted, Ok(Applied::Inserted));
    }
    for i in 100..110 {
        assert_eq!(block_on(other.remove(&Key8(i << 32))), Ok(Applied::Removed));
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
