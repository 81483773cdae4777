//! A compute node at work is not treated as silent, whatever its clients wait for or drop. A dead compute node is
//! expelled in time.

use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use dm_alloc::{Allocator, Block, Class, MemberArea, ReclaimOptions};
use dm_sim::{CostModel, Endpoint, RunEnd, Sim};
use dm_sync::epoch::{Epochs, Seat};
use dm_verbs::{Env, Nanos, NodeId, RemotePtr, Verbs};

const PERIOD: Nanos = Nanos::from_micros(100);
/// Lease of the model's control plane.
const LEASE: Nanos = Nanos::from_millis(10);
const LOOKS: u32 = 4;

fn at(node: u16) -> RemotePtr {
    RemotePtr::new(NodeId(node), 8192).expect("a small offset")
}

fn allocator(compute_node: u16) -> Allocator {
    allocator_that_looks(compute_node, LOOKS)
}

fn allocator_that_looks(compute_node: u16, looks: u32) -> Allocator {
    let area = MemberArea { at: at(0), slots: 2 };
    let options = ReclaimOptions {
        period: PERIOD,
        looks,
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

/// Each piece of the work is one READ of 8 bytes. It ends before the chain of an announcement that was posted at the
/// same time.
#[test]
fn short_work_in_a_long_operation_does_not_make_a_compute_node_silent() {
    let sim = testbed();
    let (busy, other) = (sim.endpoint(0, 0), sim.endpoint(1, 0));
    let done = Rc::new(Cell::new(0));
    let count = Rc::clone(&done);
    sim.spawn_task(async move {
        let alloc = allocator(0);
        let seat = Epochs::seat(alloc.epochs().expect("it reclaims"));
        alloc.prepare(&busy, &seat).await.expect("a slot");
        let _running = seat.enter().expect("enrolled");
        while busy.now() < Nanos(4 * LEASE.0) {
            let work = alloc.while_announcing(&busy, busy.word(at(1)));
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

/// Returns the word and the beat of slot 0.
async fn slot<V: Verbs>(v: &V) -> (u64, u64) {
    let word = v.word(at(0).add(64)).await.expect("no trouble");
    (word, v.word(at(0).add(72)).await.expect("no trouble"))
}

/// Polls `work` at most `polls` times, and returns whether it is over.
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
        alloc.prepare(&v, &seat).await.expect("a slot");
        let mut given_up = 0;
        for polls in 1..5 {
            v.charge(PERIOD).await;
            for i in 0..3 {
                // A retired block must be tagged, so that the round has one more step.
                let block = Block::fresh(at(1).add(u64::from(polls * 3 + i) * 64));
                alloc.retire(block, Class { bytes: 64, kind: 0 });
                let over = begun(alloc.announce_if_due(&v), polls).await;
                assert_eq!(alloc.is_due(&v), !over, "after {polls} polls");
                given_up += u32::from(!over);
            }
            let before = slot(&v).await;
            if alloc.is_due(&v) {
                alloc.announce_if_due(&v).await.expect("no trouble");
                assert_ne!(slot(&v).await, before, "given up after {polls} polls");
            }
        }
        assert!(given_up >= 6, "{given_up} rounds were given up");
        drop(seat);
        alloc.leave(&v);
        assert_eq!(slot(&v).await.0, 0, "nothing of it stays");
    });
    assert_eq!(sim.run(), RunEnd::Finished);
}

/// Polls a round `polls` times, then leaves it pending for four leases.
async fn hold_up(v: &Endpoint, alloc: &Allocator, seat: &Seat, polls: u32) {
    let block = Block::fresh(at(1).add(64));
    alloc.retire(block, Class { bytes: 64, kind: 0 });
    let mut round = pin!(alloc.collect(v, seat));
    let mut left = polls;
    poll_fn(|cx| {
        left -= 1;
        match round.as_mut().poll(cx) {
            Poll::Pending if left > 0 => Poll::Pending,
            _ => Poll::Ready(()),
        }
    })
    .await;
    v.charge(Nanos(4 * LEASE.0)).await;
}

/// One client of a compute node is delayed in a round, at each of its steps, and the other client goes on.
#[test]
fn a_client_that_is_held_up_in_a_round_does_not_make_its_compute_node_silent() {
    for polls in 1..9 {
        let sim = testbed();
        let (held, busy, other) = (sim.endpoint(0, 0), sim.endpoint(0, 1), sim.endpoint(1, 0));
        let alloc = Rc::new(allocator(0));
        let done = Rc::new(Cell::new(0));
        let (shared, count) = (Rc::clone(&alloc), Rc::clone(&done));
        sim.spawn_task(async move {
            let seat = Epochs::seat(shared.epochs().expect("it reclaims"));
            shared.prepare(&held, &seat).await.expect("a slot");
            hold_up(&held, &shared, &seat, polls).await;
        });
        sim.spawn_task(async move {
            let seat = Epochs::seat(alloc.epochs().expect("it reclaims"));
            while busy.now() < Nanos(4 * LEASE.0) {
                busy.charge(Nanos(LEASE.0 / 2)).await;
                alloc
                    .prepare(&busy, &seat)
                    .await
                    .expect("not fenced, for it works");
                busy.word(at(1)).await.expect("not fenced, for it works");
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
        assert!(done.get() >= 8, "{} operations", done.get());
    }
}

/// Returns the time from a dead compute node's last announcement until its slot is free. The compute node that looks
/// has a client that begins an operation every `interval`. With `polls`, it has another client that is delayed in a
/// round after this number of polls. Returns `None` if the slot is not free when the run ends, after four leases.
fn time_to_free(polls: Option<u32>, interval: Nanos) -> Option<Nanos> {
    let sim = testbed();
    let (dead, held, busy) = (sim.endpoint(0, 0), sim.endpoint(1, 0), sim.endpoint(1, 1));
    let alloc = Rc::new(allocator(1));
    let announced = Rc::new(Cell::new(Nanos(0)));
    let freed = Rc::new(Cell::new(None));
    let last = Rc::clone(&announced);
    sim.spawn_task(async move {
        let alloc = allocator(0);
        let seat = Epochs::seat(alloc.epochs().expect("it reclaims"));
        alloc.prepare(&dead, &seat).await.expect("a slot");
        last.set(dead.now());
        assert_ne!(slot(&dead).await.0, 0, "it has the slot that is read below");
    });
    if let Some(polls) = polls {
        let alloc = Rc::clone(&alloc);
        sim.spawn_task(async move {
            // This client begins after the compute node that dies has joined.
            held.charge(Nanos(LEASE.0 / 16)).await;
            let seat = Epochs::seat(alloc.epochs().expect("it reclaims"));
            alloc.prepare(&held, &seat).await.expect("a slot");
            hold_up(&held, &alloc, &seat, polls).await;
        });
    }
    let when = Rc::clone(&freed);
    sim.spawn_task(async move {
        busy.charge(Nanos(LEASE.0 / 8)).await;
        let seat = Epochs::seat(alloc.epochs().expect("it reclaims"));
        while busy.now() < Nanos(4 * LEASE.0) && when.get().is_none() {
            alloc.prepare(&busy, &seat).await.expect("no trouble");
            if slot(&busy).await.0 == 0 {
                when.set(Some(busy.now()));
            }
            busy.charge(interval).await;
        }
    });
    assert_eq!(sim.run(), RunEnd::Finished);
    freed.get().map(|at| at - announced.get())
}

/// A dead member is found within the time that docs/protocol/reclaim.md states after R7.
#[test]
fn a_dead_compute_node_is_found_in_time_also_while_a_client_is_held_up_in_a_round() {
    // Nanoseconds allowed for the verbs of a gap.
    let verbs = 50_000;
    for interval in [PERIOD, Nanos(LEASE.0 / 16), Nanos(LEASE.0 / 8)] {
        for polls in [None].into_iter().chain((1..9).map(Some)) {
            let periods = if polls.is_some() { 2 } else { 1 };
            let gap = LEASE.0 / u64::from(LOOKS) + periods * PERIOD.0 + interval.0 + verbs;
            let most = Nanos(u64::from(LOOKS + 1) * gap);
            let found = time_to_free(polls, interval);
            assert!(
                found.is_some_and(|after| LEASE <= after && after <= most),
                "held up after {polls:?} polls, operations every {interval:?}: found after {found:?}, at most {most:?}"
            );
        }
    }
}

/// Once a member has been silent for three quarters of a lease, rounds are due four times as often, so that the member
/// is expelled soon after the end of the lease (R7a).
#[test]
fn a_compute_node_announces_more_often_before_it_expels_a_silent_one() {
    let sim = testbed();
    let (dead, busy) = (sim.endpoint(0, 0), sim.endpoint(1, 0));
    sim.spawn_task(async move {
        let alloc = allocator(0);
        let seat = Epochs::seat(alloc.epochs().expect("it reclaims"));
        alloc.prepare(&dead, &seat).await.expect("a slot");
    });
    // The announcements of the busy compute node in each sixteenth of a lease until the dead one is expelled, and in
    // one sixteenth after that.
    let counts = Rc::new(RefCell::new((Vec::new(), 0)));
    let found = Rc::clone(&counts);
    sim.spawn_task(async move {
        busy.charge(Nanos(LEASE.0 / 8)).await;
        let alloc = allocator(1);
        let seat = Epochs::seat(alloc.epochs().expect("it reclaims"));
        let beat = async || busy.word(at(0).add(128 + 8)).await.expect("no trouble");
        let work = async || {
            let (since, before) = (busy.now(), beat().await);
            while !busy.elapsed(since, Nanos(LEASE.0 / 16)) {
                alloc.prepare(&busy, &seat).await.expect("no trouble");
                busy.charge(Nanos(PERIOD.0 / 20)).await;
            }
            beat().await - before
        };
        let mut before = Vec::new();
        while slot(&busy).await.0 != 0 {
            before.push(work().await);
        }
        // The next counted look finds nobody silent.
        for _ in 0..16 / LOOKS + 1 {
            work().await;
        }
        *found.borrow_mut() = (before, work().await);
    });
    assert_eq!(sim.run(), RunEnd::Finished);
    let (before, after) = &*counts.borrow();
    let (first, most) = (before[1], *before.iter().max().expect("a lease"));
    let often = before.iter().filter(|n| **n > 3 * first).count();
    assert!((2..=6).contains(&often), "{before:?}");
    assert!(
        most > 3 * first && *after <= first + 1,
        "{before:?}, then {after}"
    );
}

/// Returns whether a compute node that announces itself twice per lease is fenced. The clients of another compute node
/// all look at it at the same moments.
fn is_fenced(clients: u16, looks: u32) -> bool {
    let sim = testbed();
    let working = sim.endpoint(0, 0);
    let fenced = Rc::new(Cell::new(false));
    let end = Nanos(8 * LEASE.0);
    let result = Rc::clone(&fenced);
    sim.spawn_task(async move {
        let alloc = allocator(0);
        let seat = Epochs::seat(alloc.epochs().expect("it reclaims"));
        while working.now() < end {
            if alloc.collect(&working, &seat).await.is_err() {
                result.set(true);
                return;
            }
            working.charge(Nanos(LEASE.0 / 2)).await;
        }
    });
    let alloc = Rc::new(allocator_that_looks(1, looks));
    for client in 0..clients {
        let (v, alloc) = (sim.endpoint(1, client), Rc::clone(&alloc));
        sim.spawn_task(async move {
            let seat = Epochs::seat(alloc.epochs().expect("it reclaims"));
            while v.now() < end {
                alloc.collect(&v, &seat).await.expect("no trouble");
                let part = Nanos(LEASE.0 / u64::from(LOOKS));
                let next = Nanos((v.now().0 / part.0 + 1) * part.0);
                v.charge(next - v.now()).await;
            }
        });
    }
    assert_eq!(sim.run(), RunEnd::Finished);
    fenced.get()
}

#[test]
fn looks_of_several_clients_at_the_same_time_count_as_one() {
    assert!(!is_fenced(8, LOOKS), "eight looks at one moment are no lease");
}

#[test]
fn no_looks_count_as_one_look_per_lease() {
    assert!(!is_fenced(1, 0), "a first look finds nobody silent");
}

#[test]
fn an_announcement_that_takes_longer_than_two_periods_is_not_begun_again() {
    let sim = testbed();
    let v = sim.endpoint(0, 0);
    sim.spawn_task(async move {
        let area = MemberArea { at: at(0), slots: 2 };
        let options = ReclaimOptions {
            period: Nanos(100),
            ..ReclaimOptions::new()
        };
        let alloc = Allocator::new(2, 0).reclaiming(area, options);
        let seat = Epochs::seat(alloc.epochs().expect("it reclaims"));
        alloc.prepare(&v, &seat).await.expect("a slot");
        let before = slot(&v).await.1;
        for _ in 0..10 {
            alloc
                .while_announcing(&v, v.word(at(1)))
                .await
                .expect("no trouble");
        }
        let beats = slot(&v).await.1 - before;
        assert!(
            (1..=10).contains(&beats),
            "{beats} announcements beside ten pieces of work"
        );
    });
    assert_eq!(sim.run(), RunEnd::Finished);
}

#[test]
fn clients_that_need_a_chunk_at_once_share_one_also_if_the_first_gives_up() {
    for polls in 1..4 {
        let sim = testbed();
        let alloc = Rc::new(Allocator::new(2, 0).chunk_bytes(64 << 10));
        let served = Rc::new(Cell::new(0));
        for client in 0..4 {
            let (v, alloc, served) = (sim.endpoint(0, client), Rc::clone(&alloc), Rc::clone(&served));
            sim.spawn_task(async move {
                let near = Some(at(1));
                if client == 0 {
                    begun(alloc.alloc(&v, 1024, near), polls).await;
                    return;
                }
                alloc.alloc(&v, 1024, near).await.expect("room");
                served.set(served.get() + 1);
            });
        }
        assert_eq!(sim.run(), RunEnd::Finished);
        assert_eq!(served.get(), 3, "after {polls} polls");
        assert!(
            alloc.stats().fetched_bytes <= 2 * (64 << 10),
            "{:?}",
            alloc.stats()
        );
    }
}
