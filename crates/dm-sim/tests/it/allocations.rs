//! Tests that a simulation allocates nothing per verb, and nothing per dropped request to the control plane, after its
//! pools have grown.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use dm_sim::{CostModel, Sim};
use dm_verbs::{Control, ControlRequest, Env, Nanos, NodeId, RemotePtr, Verbs};

std::thread_local! {
    /// Number of allocations of this thread. Other tests run on other threads, so a global counter would include
    /// theirs.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller keeps alloc's contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: `place` came from `System.alloc` with this layout, by the caller's contract.
        unsafe { System.dealloc(place, layout) }
    }
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller keeps realloc's contract.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn nothing_is_allocated_per_verb() {
    let sim = Sim::builder(CostModel::cx5_ib())
        .compute_nodes(4)
        .seed(9)
        .build()
        .unwrap();
    for c in 0..64u16 {
        sim.spawn(c % 4, c / 4, |v| async move {
            while v.now() < Nanos::from_millis(2) {
                let r = v.rng(0);
                let at = RemotePtr::new(NodeId(0), 4096 + (r >> 44 << 3)).unwrap();
                let (_, lease) = v.chain(NodeId(0)).cas(at, 0, r).read(at, 700).await.unwrap();
                v.write(at, &lease).await.unwrap();
                v.word(at).await.unwrap();
                v.pause().await;
            }
        });
    }
    sim.run_until(Nanos::from_millis(1));
    let (warm, verbs) = (ALLOCATIONS.with(Cell::get), sim.verbs());
    sim.run_until(Nanos(1_900_000));
    let grown = ALLOCATIONS.with(Cell::get) - warm;
    let verbs = sim.verbs() - verbs;
    println!("{grown} allocations in {verbs} verbs");
    // The pools may still grow a little.
    assert!(
        verbs > 10_000 && grown <= 8,
        "{grown} allocations in {verbs} verbs"
    );
}

#[test]
fn a_dropped_request_to_the_control_plane_leaves_nothing_behind() {
    let sim = Sim::builder(CostModel::cx5_ib()).build().unwrap();
    sim.spawn(0, 0, |v| async move {
        while v.now() < Nanos::from_millis(100) {
            let mut call = pin!(v.call(ControlRequest::Join));
            let sent = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(sent.is_pending());
            v.charge(Nanos::from_micros(20)).await;
        }
    });
    sim.run_until(Nanos::from_millis(1));
    let warm = ALLOCATIONS.with(Cell::get);
    sim.run_until(Nanos::from_millis(99));
    let grown = ALLOCATIONS.with(Cell::get) - warm;
    assert_eq!(grown, 0, "allocations in 4,900 dropped requests");
}
