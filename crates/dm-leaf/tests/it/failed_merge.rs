//! Tests of a merge whose memory node is cut off midway, with a parent on the same or on another memory node.

use core::pin::pin;
use core::task::{Context, Poll, Waker};

use dm_alloc::Allocator;
use dm_index::{
    Answer, Applied, BulkLoad, Lead, Neighbours, NodeAccess, NodeCopies, NodeCopy, Restructure, Stale, Write,
};
use dm_layout::{FenceKeys, Key8, NodeRead, NodeShape, NodeState, Slotted};
use dm_leaf::{LeafFlaws, NodeOptions, TwoLevel};
use dm_lock::{GlobalLockTable, LockOptions, Locks};
use dm_loopback::{Endpoint, Loopback, Trouble, block_on};
use dm_sync::Arc;
use dm_verbs::{RemotePtr, Verbs};

/// Two leaves on one memory node, and their parent on the same memory node or on another.
struct Pool {
    world: Loopback,
    v: Endpoint,
    leaves: TwoLevel<Key8>,
    pair: Neighbours<Key8>,
}

impl Pool {
    fn new(seed: u64, together: bool, open_before_burial: bool) -> Self {
        let world = Loopback::builder()
            .nodes(2)
            .delays(3)
            .seed(seed)
            .build()
            .expect("the world is built");
        let v = world.connect(0).expect("the client connects");
        let options = LockOptions {
            budget: 64,
            ..LockOptions::default()
        };
        let locks = Locks::new(options, GlobalLockTable::on_chip(2, 64));
        let options = NodeOptions {
            attempts: 64,
            flaws: LeafFlaws {
                open_before_burial,
                ..LeafFlaws::default()
            },
            ..NodeOptions::default()
        };
        let leaves = TwoLevel::new(
            Slotted::<Key8>::with_span(8, 8).expect("the node is valid"),
            Arc::new(locks),
            Arc::new(Allocator::new(2, 0)),
            options,
        );
        // The allocator uses the memory nodes in turn. A block is reserved between the two leaves, so that both are on
        // memory node 0.
        let (left, right, parent) = block_on(async {
            let made = async |level, fences, entries: &[(Key8, &[u8])]| {
                let made = leaves.create(&v, level, fences, entries, false).await;
                made.expect("the pool has room").at
            };
            let low = FenceKeys::new(Key8(0), Some(Key8(10)));
            let a = made(0, low, &[(Key8(1), &[1; 8])]).await;
            let _elsewhere = leaves.reserve(&v).await.expect("the pool has room");
            let b = made(0, FenceKeys::new(Key8(10), None), &[(Key8(11), &[11; 8])]).await;
            let mut copy = NodeCopy::new();
            leaves.copy(&v, a, &mut copy).await.expect("the node is valid");
            copy.sibling = b;
            leaves.load(&v, &copy).await.expect("the node is valid");
            let (first, second) = (a.raw().to_le_bytes(), b.raw().to_le_bytes());
            if together {
                let _elsewhere = leaves.reserve(&v).await.expect("the pool has room");
            }
            let children = [(Key8(0), &first[..]), (Key8(10), &second)];
            (a, b, made(1, FenceKeys::ALL, &children).await)
        });
        assert!(left.node() == right.node() && together == (left.node() == parent.node()));
        let pair = Neighbours {
            level: 0,
            left,
            right,
            between: Key8(10),
            until: None,
            parent,
        };
        Self {
            world,
            v,
            leaves,
            pair,
        }
    }

    /// Polls the merge `polls` times, and then causes `trouble` on the memory node of the leaves. Returns `None` if the
    /// merge was complete by then. Otherwise returns whether it failed.
    fn merge(&self, polls: u64, trouble: Trouble) -> Option<bool> {
        let mut after = NodeCopy::new();
        let mut merging = pin!(self.leaves.merge(&self.v, &self.pair, &self.leaves, &mut after));
        let mut cx = Context::from_waker(Waker::noop());
        if (0..polls).any(|_| merging.as_mut().poll(&mut cx).is_ready()) {
            return None;
        }
        self.world.cut(self.pair.left.node(), trouble);
        let polled = (0..1000).find_map(|_| match merging.as_mut().poll(&mut cx) {
            Poll::Ready(done) => Some(done.is_err()),
            Poll::Pending => None,
        });
        Some(polled.unwrap_or(false))
    }

    /// Returns whether the right leaf is dead, and whether the parent has an entry for it.
    fn right(&self) -> (bool, bool) {
        let mut copy = NodeCopy::new();
        let mut is_alive =
            |at| block_on(self.leaves.copy(&self.v, at, &mut copy)).expect("the node is valid");
        let is_dead = !is_alive(self.pair.right);
        assert!(is_alive(self.pair.parent));
        (is_dead, copy.children().any(|(_, at)| at == self.pair.right))
    }

    /// Returns the number that names the other leaf of the merge in the right leaf's header, if the right leaf is
    /// frozen.
    fn frozen_by(&self) -> Option<u32> {
        let format = self.leaves.format();
        let image =
            block_on(self.v.read(self.pair.right, format.node_bytes() as u32)).expect("no verb fails");
        let header = format.header(&image).expect("the node is valid");
        (header.state == NodeState::Frozen).then_some(header.owner)
    }

    /// Returns the value of the key. The search begins at the leaf at `at`.
    async fn get(&self, key: u64, at: RemotePtr) -> Vec<u8> {
        let (mut at, mut value) = (Lead::hint(at), Vec::new());
        for _ in 0..9 {
            let got = self.leaves.get(&self.v, at, 0, &Key8(key), &mut value).await;
            match got.expect("no verb fails") {
                Answer::Stale(Stale::Right(next)) => at = next,
                Answer::Done(true) => return value,
                other => panic!("key {key}: {other:?}"),
            }
        }
        panic!("key {key} is nowhere")
    }

    /// Tries to write the key in the left leaf. Returns whether the left leaf accepted the write.
    async fn write_left(&self, key: u64, value: &[u8]) -> bool {
        let at = Lead::hint(self.pair.left);
        let write = Write::Update(value);
        let written = self.leaves.write(&self.v, at, 0, &Key8(key), write, None).await;
        matches!(written, Ok(Answer::Done(Applied::Replaced)))
    }
}

/// Cuts a merge off at every step. Then writes a key of the right leaf to the left leaf. Returns three numbers: how
/// many merges failed, how often the left leaf accepted the write, and how often a search from the right leaf still
/// found the old value after that.
fn fail_everywhere(open_before_burial: bool) -> (u32, u32, u32) {
    let lost = (0..=7).map(Trouble::LostAfter);
    let troubles: Vec<_> = [Trouble::Unreachable, Trouble::AnswersLost]
        .into_iter()
        .chain(lost)
        .collect();
    let (mut failed, mut written, mut stale, mut frozen, mut unlisted) = (0, 0, 0, 0, 0);
    for (polls, together) in (0..24).flat_map(|polls| [(polls, false), (polls, true)]) {
        for &trouble in &troubles {
            let pool = Pool::new(polls, together, open_before_burial);
            let Some(has_failed) = pool.merge(polls, trouble) else {
                continue;
            };
            pool.world.restore(pool.pair.left.node());
            failed += u32::from(has_failed);
            let (is_dead, is_shown) = pool.right();
            assert!(
                !(is_dead && is_shown),
                "{trouble:?} after {polls}, together: {together}"
            );
            unlisted += u32::from(!is_dead && !is_shown);
            if let Some(owner) = pool.frozen_by() {
                frozen += 1;
                assert_eq!(
                    u64::from(owner) * 64,
                    pool.pair.left.offset(),
                    "the right leaf must refer to the left one"
                );
            }
            block_on(async {
                assert_eq!(
                    pool.get(1, pool.pair.left).await,
                    [1; 8],
                    "{trouble:?} after {polls}"
                );
                assert_eq!(
                    pool.get(11, pool.pair.left).await,
                    [11; 8],
                    "{trouble:?} after {polls}"
                );
                assert_eq!(
                    pool.get(11, pool.pair.right).await,
                    [11; 8],
                    "{trouble:?} after {polls}"
                );
                if pool.write_left(11, &[12; 8]).await {
                    written += 1;
                    stale += u32::from(pool.get(11, pool.pair.right).await != [12; 8]);
                }
            });
        }
    }
    assert!(frozen > 0 && unlisted > 0);
    (failed, written, stale)
}

/// After a merge was dropped, either the right leaf is dead and the parent has no entry for it, or the right leaf is
/// live and the parent has its entry.
#[test]
fn a_merge_that_is_dropped_is_done_or_has_not_begun() {
    let (mut done, mut dropped) = (0, 0);
    for (polls, together) in (0..24).flat_map(|polls| [(polls, false), (polls, true)]) {
        let pool = Pool::new(polls, together, false);
        {
            let mut after = NodeCopy::new();
            let mut merging = pin!(pool.leaves.merge(&pool.v, &pool.pair, &pool.leaves, &mut after));
            let mut cx = Context::from_waker(Waker::noop());
            if (0..polls).any(|_| merging.as_mut().poll(&mut cx).is_ready()) {
                continue;
            }
        }
        let (is_dead, is_shown) = pool.right();
        assert_ne!(is_dead, is_shown, "dropped after {polls}, together: {together}");
        done += u32::from(is_dead && !together);
        dropped += 1;
    }
    assert!(done > 0 && dropped > 10, "{done} of {dropped}");
}

#[test]
fn a_merge_that_fails_halfway_loses_no_entry_and_leaves_no_old_one() {
    let (failed, written, stale) = fail_everywhere(false);
    assert!(
        failed > 100 && written > 20,
        "{failed} merges failed, and {written} left leaves accepted a write"
    );
    assert_eq!(stale, 0);
    // If the left leaf became live before the right leaf is dead, readers could find an old value.
    let (.., stale) = fail_everywhere(true);
    assert!(stale > 0);
}

/// Most neighbours of a bulk load can be merged, and the load is spread evenly over the memory nodes, even if it is
/// small.
#[test]
fn runs_of_a_bulk_load_grow_with_it() {
    let world = Loopback::builder()
        .nodes(3)
        .host_bytes(8 << 20)
        .build()
        .expect("the world is built");
    let v = world.connect(0).expect("the client connects");
    let locks = Locks::new(LockOptions::default(), GlobalLockTable::on_chip(3, 64));
    let leaves = TwoLevel::new(
        Slotted::<Key8>::with_node_bytes(1024, 8).expect("the node is valid"),
        Arc::new(locks),
        Arc::new(Allocator::new(3, 0).chunk_bytes(1 << 20)),
        NodeOptions::default(),
    );
    let (mut on, mut together, mut last) = ([0_u32; 3], 0, None);
    for all in 1..=10_000_u32 {
        let at = block_on(leaves.reserve(&v)).expect("the pool has room");
        on[usize::from(at.node().0)] += 1;
        together += u32::from(last == Some(at.node()));
        last = Some(at.node());
        let apart = on.iter().max().expect("there are three memory nodes")
            - on.iter().min().expect("there are three memory nodes");
        assert!(apart <= 1 + all / 16, "{on:?}");
    }
    assert!(
        together > 9_000,
        "{together} pairs of neighbours are on one memory node"
    );
}
