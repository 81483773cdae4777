//! Clients wait for the client that joins on behalf of their compute node. Only time limits the wait.

use core::future::{Future, poll_fn};
use core::task::Poll;
use std::cell::OnceCell;
use std::pin::Pin;
use std::rc::Rc;

use dm_alloc::{AllocError, Allocator, MemberArea, ReclaimOptions, rest};
use dm_sim::{CostModel, RunEnd, Sim};
use dm_sync::epoch::Epochs;
use dm_verbs::{Env, Nanos, NodeId, RemotePtr};

/// The shortest time limit of the wait for another client's join.
const LEAST: Nanos = Nanos::from_millis(10_000);

/// Makes a testbed with this lease, whose pauses last a millisecond.
fn testbed(lease: Nanos) -> Sim {
    let mut model = CostModel::cx5_ib();
    model.lease_ns = lease.0 as f64;
    model.pause_ns = 1e6;
    Sim::builder(model)
        .memory_bytes(1 << 20)
        .build()
        .expect("a testbed")
}

/// Polls `future` once. It must not be ready.
async fn poll_once(mut future: Pin<&mut impl Future>) {
    poll_fn(|cx| {
        assert!(
            future.as_mut().poll(cx).is_pending(),
            "it cannot wait within one poll"
        );
        Poll::Ready(())
    })
    .await;
}

/// Suspends a client that joins. The suspension begins after the answer to its first request and lasts for
/// `suspended`. Another client waits meanwhile. Returns the result of the waiting client and the time that it has
/// waited.
fn waits(lease: Nanos, suspended: Nanos) -> (Result<(), AllocError>, Nanos) {
    let sim = testbed(lease);
    let (v, w) = (sim.endpoint(0, 0), sim.endpoint(0, 1));
    let area = MemberArea {
        at: RemotePtr::new(NodeId(0), 8192).expect("a small offset"),
        slots: 2,
    };
    let options = ReclaimOptions {
        attempts: 2,
        ..ReclaimOptions::new()
    };
    let alloc = Rc::new(Allocator::new(1, 0).reclaiming(area, options));
    let waited = Rc::new(OnceCell::new());
    let (shared, told) = (alloc.clone(), waited.clone());
    sim.spawn_task(async move {
        let seat = Epochs::seat(alloc.epochs().expect("it reclaims"));
        let mut joining = Box::pin(alloc.prepare(&v, &seat));
        poll_once(joining.as_mut()).await;
        // The compute node learns its lease meanwhile.
        rest(&v, Nanos::from_millis(5)).await;
        poll_once(joining.as_mut()).await;
        rest(&v, suspended).await;
        joining.await.expect("a slot");
        assert!(seat.enter().is_some());
    });
    sim.spawn_task(async move {
        let seat = Epochs::seat(shared.epochs().expect("it reclaims"));
        // The other client begins to join first.
        rest(&w, Nanos::from_micros(1)).await;
        let since = w.now();
        let result = shared.prepare(&w, &seat).await;
        told.set((result, w.now() - since)).expect("it waits once");
    });
    assert_eq!(sim.run(), RunEnd::Finished);
    Rc::into_inner(waited)
        .and_then(OnceCell::into_inner)
        .expect("the tasks have ended")
}

#[test]
fn a_client_outlasts_a_join_that_is_suspended_for_long() {
    let suspended = Nanos(LEAST.0 / 10 * 9);
    let (result, waited) = waits(Nanos::from_millis(10), suspended);
    assert_eq!(result, Ok(()));
    assert!(waited >= suspended, "{waited:?}");
}

#[test]
fn a_client_waits_for_eight_long_leases() {
    let lease = Nanos::from_millis(5_000);
    let (result, waited) = waits(lease, Nanos(lease.0 * 7));
    assert_eq!(result, Ok(()));
    assert!(waited.0 >= lease.0 * 7, "{waited:?}");
    let (result, waited) = waits(lease, Nanos(lease.0 * 9));
    assert!(
        result.is_err() && waited.0 >= lease.0 * 8,
        "{result:?} after {waited:?}"
    );
}

#[test]
fn a_client_gives_up_waiting_for_a_join_that_does_not_end() {
    let (result, waited) = waits(Nanos::from_millis(10), Nanos(LEAST.0 * 2));
    let Err(AllocError::Contended(e)) = result else {
        panic!("{result:?} beside a client that joins")
    };
    assert!(e.attempts > 1_000, "{} attempts", e.attempts);
    assert!((LEAST..Nanos(LEAST.0 / 10 * 11)).contains(&waited), "{waited:?}");
}
