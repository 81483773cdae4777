//! A merge whose memory node is cut off in the middle; the parent lies on another.

use core::pin::pin;
use core::task::{Context, Poll, Waker};

use dm_alloc::Allocator;
use dm_index::{Answer, Lead, Neighbours, NodeCopy, NodeStore, Stale};
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
        // The allocator takes turns: both leaves lie on memory node 0, their parent on 1.
        let (left, right, parent) = block_on(async {
            let a = leaves
                .create(&v, 0, low, &[(Key8(1), &[1; 8])], false)
                .await
                .expect("room")
                .at;
            let _elsewhere = leaves.reserve(&v).await.expect("room");
            let b = leaves
                .create(&v, 0, high, &[(Key8(11), &[11; 8])], false)
                .await
                .expect("room")
                .at;
            let mut copy = NodeCopy::new();
            leaves.copy(&v, a, &mut copy).await.expect("a node");
            copy.sibling = b;
            leaves.load(&v, &copy).await.expect("a node");
            let (first, second) = (a.raw().to_le_bytes(), b.raw().to_le_bytes());
            let children = [(Key8(0), &first[..]), (Key8(10), &second)];
            let parent = leaves
                .create(&v, 1, FenceKeys::ALL, &children, false)
                .await
                .expect("room");
            (a, b, parent.at)
        });
        assert!(left.node() == right.node() && left.node() != parent.node());
        {
            let pair = Neighbours {
                level: 0,
                left,
                right,
                between: Key8(10),
                until: None,
                parent,
            };
            let mut after = NodeCopy::new();
            let mut merging = pin!(leaves.merge(&v, &pair, &leaves, &mut after));
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
                let (mut at, mut value) = (Lead::hint(at), Vec::new());
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

/// A bulk load's neighbours can be merged, and no memory node has much more of it than another, however small it is.
#[test]
fn runs_of_a_bulk_load_grow_with_it() {
    let world = Loopback::builder()
        .nodes(3)
        .host_bytes(8 << 20)
        .build()
        .expect("a world");
    let v = world.connect(0).expect("a client");
    let locks = Locks::new(LockOptions::default(), GlobalLockTable::on_chip(3, 64));
    let leaves = TwoLevel::new(
        Slotted::<Key8>::with_node_bytes(1024, 8).expect("a node"),
        Arc::new(locks),
        Arc::new(Allocator::new(3, 0).chunk_bytes(1 << 20)),
        NodeOptions::default(),
    );
    let (mut on, mut together, mut last) = ([0_u32; 3], 0, None);
    for all in 1..=10_000_u32 {
        let at = block_on(leaves.reserve(&v)).expect("room");
        on[usize::from(at.node().0)] += 1;
        together += u32::from(last == Some(at.node()));
        last = Some(at.node());
        let apart = on.iter().max().expect("three") - on.iter().min().expect("three");
        assert!(apart <= 1 + all / 16, "{on:?}");
    }
    assert!(together > 9_000, "{together} pairs of neighbours lie together");
}
