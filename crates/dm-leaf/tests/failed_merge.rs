//! A merge over two memory nodes whose left node is cut off in the middle.

use core::pin::pin;
use core::task::{Context, Poll, Waker};

use dm_alloc::Allocator;
use dm_index::{Answer, NodeCopy, NodeStore, Stale};
use dm_layout::{FenceKeys, Key8, Slotted};
use dm_leaf::{NodeOptions, TwoLevel};
use dm_lock::{GlobalLockTable, LockOptions, Locks};
use dm_loopback::{Loopback, Trouble, block_on};
use dm_sync::Arc;

#[test]
fn a_merge_that_fails_halfway_loses_no_entry() {
    let troubles = [
        Trouble::Unreachable,
        Trouble::AnswersLost,
        Trouble::LostAfter(0),
        Trouble::LostAfter(1),
        Trouble::LostAfter(2),
    ];
    let mut failed = 0;
    for (polls, trouble) in (0..24).flat_map(|polls| troubles.map(|t| (polls, t))) {
        let world = Loopback::builder()
            .nodes(2)
            .delays(3)
            .seed(polls)
            .build()
            .expect("a world");
        let v = world.connect(0).expect("a client");
        let format = Slotted::<Key8>::with_span(8, 8).expect("a node");
        let locks = Locks::new(LockOptions::default(), GlobalLockTable::on_chip(2, 64));
        let leaves = TwoLevel::new(
            format,
            Arc::new(locks),
            Arc::new(Allocator::new(2, 0)),
            NodeOptions::default(),
        );
        let (low, high) = (
            FenceKeys::new(Key8(0), Some(Key8(10))),
            FenceKeys::new(Key8(10), None),
        );
        // The allocator takes turns: the right node lies on memory node 1, the left one on 0.
        let (left, right) = block_on(async {
            let a = leaves
                .create(&v, 0, low, &[(Key8(1), &[1; 8])])
                .await
                .expect("room");
            let b = leaves
                .create(&v, 0, high, &[(Key8(11), &[11; 8])])
                .await
                .expect("room");
            let mut copy = NodeCopy::new();
            leaves.copy(&v, a, &mut copy).await.expect("a node");
            copy.sibling = b;
            leaves.load(&v, &copy).await.expect("a node");
            (a, b)
        });
        assert_ne!(left.node(), right.node());
        {
            let between = Key8(10);
            let mut merging = pin!(leaves.merge(&v, left, right, 0, &between, None));
            let mut cx = Context::from_waker(Waker::noop());
            if (0..polls).any(|_| merging.as_mut().poll(&mut cx).is_ready()) {
                continue;
            }
            world.cut(left.node(), trouble);
            for _ in 0..1000 {
                if let Poll::Ready(done) = merging.as_mut().poll(&mut cx) {
                    failed += u32::from(done.is_err());
                    break;
                }
            }
        }
        world.restore(left.node());
        block_on(async {
            for (key, at) in [(1, left), (11, right)] {
                let (mut at, mut value) = (at, Vec::new());
                let mut hops = 0;
                loop {
                    match leaves
                        .get(&v, at, 0, &Key8(key), &mut value)
                        .await
                        .expect("no trouble")
                    {
                        Answer::Stale(Stale::Right(next)) if hops < 9 => (at, hops) = (next, hops + 1),
                        Answer::Done(true) => break,
                        other => {
                            panic!("{trouble:?} after {polls} polls: key {key}: {other:?} after {hops} hops")
                        }
                    }
                }
            }
        });
    }
    assert!(failed > 20, "only {failed} merges failed");
}
