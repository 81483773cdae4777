//! A compute node that is at work is not taken for silent, whatever its clients wait for or give up.

use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;
use std::cell::Cell;
use std::rc::Rc;

use dm_alloc::{Allocator, Block, Class, MemberArea, ReclaimOptions};
use dm_sim::{CostModel, RunEnd, Sim};
use dm_sync::epoch::Epochs;
use dm_verbs::{Env, Nanos, NodeId, RemotePtr, Verbs};

const PERIOD: Nanos = Nanos::from_micros(100);
/// Of the model's control plane.
const LEASE: Nanos = Nanos::from_millis(10);

fn at(node: u16) -> RemotePtr {
    RemotePtr::new(NodeId(node), 8192).expect("a small offset")
}

fn allocator(compute_node: u16) -> Allocator {
    let area = MemberArea { at: at(0), slots: 2 };
    let options = ReclaimOptions {
        period: PERIOD,
        looks: 4,
        ..ReclaimOptions::new()
    };
    Allocator::new(2, compute_node).reclaiming(area, options)
}

fn testbed() -> Sim {
    Sim::builder(CostModel::cx5_ib())
        .compute_nodes(2)
        .memory_nodes(2)
        .memory_bytes(1 << 20)
        .build()
        .expect("a testbed")
}

/// Each piece of its work is over before a round trip to memory node 0 that was begun beside it.
#[test]
fn short_work_in_a_long_operation_does_not_make_a_compute_node_silent() {
    let sim = testbed();
    let (busy, other) = (sim.endpoint(0, 0), sim.endpoint(1, 0));
    let done = Rc::new(Cell::new(0));
    let count = Rc::clone(&done);
    sim.spawn_task(async move {
        let alloc = allocator(0);
        let seat = Epochs::seat(alloc.epochs().expect("it reclaims"));
        alloc.attend(&busy, &seat).await.expect("a slot");
        let _running = seat.enter().expect("enrolled");
        while busy.now() < Nanos(4 * LEASE.0) {
            let work = alloc.tending(&busy, busy.word(at(1)));
            work.await.expect("not fenced, for it works");
            count.set(count.get() + 1);
        }
    });
    sim.spawn_task(async move {
        let alloc = allocator(1);
        let seat = Epochs::seat(alloc.epochs().expect("it reclaims"));
        while other.now() < Nanos(4 * LEASE.0) {
            alloc.collect(&other, &seat).await.expect("no trouble");
            other.charge(PERIOD).await;
        }
    });
    assert_eq!(sim.run(), RunEnd::Finished);
    assert!(done.get() > 10_000, "{} pieces of work", done.get());
}

/// What the slot says.
async fn slot<V: Verbs>(v: &V) -> u64 {
    v.word(at(0).add(64)).await.expect("no trouble")
}

/// Polls `work` at most `polls` times; whether it is over.
async fn begun(work: impl Future, polls: u32) -> bool {
    let mut work = pin!(work);
    let mut left = polls;
    poll_fn(|cx| {
        left -= 1;
        match work.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if left > 0 => Poll::Pending,
            Poll::Pending => Poll::Ready(false),
        }
    })
    .await
}

#[test]
fn a_round_that_is_given_up_is_due_still_and_the_next_one_announces_behind_it() {
    let sim = testbed();
    let v = sim.endpoint(0, 0);
    sim.spawn_task(async move {
        let alloc = allocator(0);
        let seat = Epochs::seat(alloc.epochs().expect("it reclaims"));
        alloc.attend(&v, &seat).await.expect("a slot");
        let mut given_up = 0;
        for polls in 1..5 {
            v.charge(PERIOD).await;
            for i in 0..3 {
                // So that there is something to tag: one step more.
                let block = Block::fresh(at(1).add(u64::from(polls * 3 + i) * 64));
                alloc.retire(block, Class { bytes: 64, kind: 0 });
                let over = begun(alloc.tend(&v), polls).await;
                assert_eq!(alloc.is_due(&v), !over, "after {polls} polls");
                given_up += u32::from(!over);
            }
            let before = slot(&v).await;
            if alloc.is_due(&v) {
                alloc.tend(&v).await.expect("no trouble");
                assert_ne!(slot(&v).await, before, "given up after {polls} polls");
            }
        }
        assert!(given_up >= 6, "{given_up} rounds were given up");
        drop(seat);
        alloc.leave(&v);
        assert_eq!(slot(&v).await, 0, "nothing of it stays");
    });
    assert_eq!(sim.run(), RunEnd::Finished);
}
