//! Tests of splits over two memory nodes that are dropped at every moment. Requests that the splitting client has
//! posted may take effect late.

use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;
use std::cell::Cell;
use std::rc::Rc;

use dm_alloc::Allocator;
use dm_index::{Answer, Lead, NodeAccess, NodeCopies, NodeCopy, Restructure, Stale, Write};
use dm_layout::{Checksummed, FenceKeys, Hopscotch, Key8, NodeFormat, Slotted};
use dm_leaf::{NodeOptions, Nodes};
use dm_lock::{GlobalLockTable, LockOptions, Locks};
use dm_sim::{CostModel, Endpoint, RunEnd, Sim};
use dm_sync::Arc;
use dm_verbs::{Env, Nanos, NodeId, RemotePtr, Verbs};

type Leaves<F> = Nodes<Key8, F>;

fn leaves<F: NodeFormat<Key8>>(format: F) -> (Leaves<F>, Arc<Allocator>) {
    let locks = Locks::new(LockOptions::default(), GlobalLockTable::on_chip(2, 64));
    let alloc = Arc::new(Allocator::new(2, 0).chunk_bytes(4096));
    (
        Leaves::new(format, Arc::new(locks), alloc.clone(), NodeOptions::default()),
        alloc,
    )
}

/// Polls `work` for the time `limit`. Returns `None` if it is not complete by then. `idle` is a client that posts
/// nothing meanwhile. Its simulated CPU time measures the limit.
async fn within<T>(idle: &Endpoint, limit: Nanos, work: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
    let mut timer = pin!(idle.charge(limit));
    poll_fn(|cx| match core::pin::Pin::new(&mut *work).poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// Delays all further requests of this client to `node` by about 50 round trips.
fn hold_up(v: &Endpoint, node: NodeId) {
    let at = RemotePtr::new(node, 0).expect("an offset of zero");
    let mut chain = v.chain(node).many();
    for _ in 0..50 {
        chain = chain.fence().read(at, 64);
    }
    chain.post().detach();
}

async fn write<F: NodeFormat<Key8>>(v: &Endpoint, leaves: &Leaves<F>, at: RemotePtr, key: u64, value: u64) {
    let value = value.to_le_bytes();
    let mut at = Lead::linked(at);
    loop {
        match leaves
            .write(v, at, 0, &Key8(key), Write::Upsert(&value), None)
            .await
            .expect("no verb fails")
        {
            Answer::Stale(Stale::Right(right)) => at = right,
            Answer::Split(None, split) => at = Lead::hint(split.right),
            Answer::Stale(Stale::Elsewhere) => {
                panic!("neither the split leaf nor its sibling covers the key")
            }
            _ => return,
        }
    }
}

async fn get<F: NodeFormat<Key8>>(v: &Endpoint, leaves: &Leaves<F>, at: RemotePtr, key: u64) -> Option<u64> {
    let mut at = Lead::linked(at);
    let mut value = Vec::new();
    loop {
        match leaves
            .get(v, at, 0, &Key8(key), &mut value)
            .await
            .expect("no verb fails")
        {
            Answer::Stale(Stale::Right(right)) => at = right,
            Answer::Done(true) => return Some(u64::from_le_bytes(value.try_into().expect("eight bytes"))),
            _ => return None,
        }
    }
}

/// Begins a split, delays its requests to memory node 1 from the time `before` on, and drops it 700 ns later. Then
/// another client upserts the keys 1 to 5. Returns whether the split had linked the right node when it was dropped.
fn run<F: NodeFormat<Key8>>(format: F, before: Nanos, seed: u64) -> bool {
    let sim = Sim::builder(CostModel::cx5_ib())
        .memory_nodes(2)
        .memory_bytes(2 * 4096)
        .seed(seed)
        .build()
        .expect("the simulator is built");
    let node_bytes = format.node_bytes() as u32;
    let (leaves, alloc) = leaves(format);
    let store = Rc::new(leaves);
    let half_split = Rc::new(Cell::new(false));
    let seen = Rc::clone(&half_split);
    let (first, second) = (sim.endpoint(0, 0), sim.endpoint(0, 1));
    sim.spawn_task(async move {
        let entries = [1, 2, 3u64].map(|k| (Key8(k), k.to_le_bytes()));
        let entries = entries.each_ref().map(|(k, v)| (*k, &v[..]));
        let left = store
            .create(&first, 0, FenceKeys::ALL, &entries, false)
            .await
            .expect("the pool has room")
            .at;
        // The rest of this memory node is allocated, so that the right node is on the other memory node.
        while alloc
            .alloc(&first, node_bytes, Some(left))
            .await
            .expect("the pool has room")
            .node()
            == left.node()
        {}
        {
            let value = [4; 8];
            let at = Lead::hint(left);
            let mut split = pin!(store.write(&first, at, 0, &Key8(4), Write::Upsert(&value), None));
            if within(&second, before, &mut split).await.is_some() {
                return;
            }
            hold_up(&first, NodeId(1));
            if within(&second, Nanos(700), &mut split).await.is_some() {
                return;
            }
        }
        let mut copy = NodeCopy::new();
        store.copy(&second, left, &mut copy).await.expect("no verb fails");
        seen.set(copy.fences.high.is_some());
        for key in [5, 1, 2, 3, 4] {
            write(&second, &store, left, key, 100 + key).await;
        }
        // After this time, the requests that the first client left in flight have taken effect.
        second.charge(Nanos::from_micros(200)).await;
        for key in 1..=5 {
            let value = get(&second, &store, left, key).await;
            assert_eq!(value, Some(100 + key), "key {key}, dropped after {before:?}");
        }
    });
    assert_eq!(sim.run(), RunEnd::Finished, "dropped after {before:?}");
    half_split.get()
}

/// Drops the split at each of many moments. At least `least` times, the split must have linked the right node.
fn dropped_at_any_moment<F: NodeFormat<Key8> + Copy>(format: F, least: usize) {
    let linked = (0..140)
        .filter(|step| run(format, Nanos(50 * step), *step))
        .count();
    assert!(linked >= least, "only {linked} splits were dropped after linking");
}

#[test]
fn an_opening_that_lands_late_undoes_nothing() {
    dropped_at_any_moment(Slotted::with_span(3, 8).expect("a format"), 20);
}

/// The entry that causes a split is not written to the right node of another memory node before that node is open.
#[test]
fn an_entry_that_lands_late_overwrites_no_other_key() {
    dropped_at_any_moment(Hopscotch::new(3, 3, 8).expect("a format"), 20);
}

#[test]
fn nodes_that_are_written_whole_need_no_opening() {
    dropped_at_any_moment(Checksummed::with_span(3, 8).expect("a format"), 5);
}
