//! Tests with many clients on several threads, and on one thread.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use dm_loopback::{Endpoint, Loopback, block_on, run_all};
use dm_verbs::{
    AtomicUnit, AtomicVsWrite, Control, ControlReply, ControlRequest, Env, LineOrder, NodeId, RemotePtr,
    VerbErrorKind, Verbs, Why,
};

fn at(offset: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), offset).expect("48 bits")
}

const COUNTER: u64 = 4096;
const LOCK: u64 = 8192;
const GUARDED: u64 = 12_288;

async fn lock(v: &Endpoint) {
    let mut retry = v.retry(u32::MAX);
    loop {
        let found = v
            .cas(at(LOCK), 0, u64::from(v.client().0))
            .await
            .expect("no faults");
        if found == 0 {
            return;
        }
        retry
            .again(at(LOCK), Why::LockHeld { word: found })
            .await
            .expect("an endless budget");
    }
}

/// Adds one to a counter by FAA, and one to another counter under a spin lock.
async fn add_twice(v: &Endpoint) {
    v.faa(at(COUNTER), 1).await.expect("no faults");
    lock(v).await;
    let old = v.word(at(GUARDED)).await.expect("no faults");
    let (guarded, lock) = (at(GUARDED), at(LOCK));
    v.chain(NodeId(0))
        .write_word(guarded, old + 1)
        .write_word(lock, 0)
        .await
        .expect("no faults");
}

#[test]
fn four_threads_count_exactly() {
    for unit in [AtomicUnit::Line, AtomicUnit::Word] {
        let world = Loopback::builder()
            .nodes(1)
            .atomic_unit(unit)
            .build()
            .expect("memory");
        std::thread::scope(|scope| {
            for node in 0..4 {
                let world = &world;
                scope.spawn(move || {
                    let v = world.connect(node).expect("an id");
                    block_on(async {
                        for _ in 0..2_000 {
                            add_twice(&v).await;
                        }
                    });
                });
            }
        });
        let v = world.connect(0).expect("an id");
        assert_eq!(block_on(v.word(at(COUNTER))), Ok(8_000));
        assert_eq!(block_on(v.word(at(GUARDED))), Ok(8_000));
    }
}

#[test]
fn a_thousand_coroutines_share_a_thread() {
    let world = Loopback::builder()
        .nodes(1)
        .delays(2)
        .seed(5)
        .build()
        .expect("memory");
    let clients: Vec<_> = (0..1000).map(|_| world.connect(0).expect("an id")).collect();
    let ids: std::collections::HashSet<_> = clients.iter().map(Env::client).collect();
    assert_eq!(ids.len(), 1000);
    run_all(clients.iter().map(|v| async move {
        for _ in 0..10 {
            v.faa(at(COUNTER), 1).await.expect("no faults");
            let lease = v.read(at(COUNTER), 64).await.expect("no faults");
            v.pause().await;
            drop(lease);
        }
        add_twice(v).await;
    }));
    assert_eq!(block_on(clients[0].word(at(COUNTER))), Ok(11_000));
    assert_eq!(block_on(clients[0].word(at(GUARDED))), Ok(1_000));
}

/// The writer fills each line with one repeated byte, and lines are not torn. The lines of one READ may come from two
/// WRITEs.
#[test]
fn lines_are_whole_whatever_the_order() {
    let world = Loopback::builder()
        .nodes(1)
        .read_lines(LineOrder::Any)
        .build()
        .expect("memory");
    std::thread::scope(|scope| {
        let writer = world.connect(0).expect("an id");
        scope.spawn(move || {
            block_on(async {
                for round in 0..20_000u32 {
                    writer
                        .write(at(4096), &[round as u8; 512])
                        .await
                        .expect("no faults");
                }
            });
        });
        let reader = world.connect(0).expect("an id");
        block_on(async {
            for _ in 0..20_000 {
                let lease = reader.read(at(4096), 512).await.expect("no faults");
                assert!(
                    lease.chunks(64).all(|line| line.iter().all(|b| *b == line[0])),
                    "torn: {lease:?}"
                );
            }
        });
    });
}

/// If atomics race with WRITEs, a WRITE during an atomic on its word is lost sooner or later. If they are serialised,
/// no WRITE is lost.
#[test]
fn racy_atomics_lose_writes_and_serialised_ones_do_not() {
    let lost = |order: AtomicVsWrite| {
        let world = Loopback::builder()
            .nodes(1)
            .atomic_vs_write(order)
            .build()
            .expect("memory");
        let stop = std::sync::Mutex::new(false);
        std::thread::scope(|scope| {
            let rival = world.connect(0).expect("an id");
            scope.spawn(|| {
                let rival = rival;
                while !*stop.lock().expect("no panic") {
                    // This CAS always fails. It must not change anything, unless failed CASes write back.
                    block_on(rival.cas(at(COUNTER), u64::MAX, 0))
                        .map(drop)
                        .expect("no faults");
                }
            });
            let v = world.connect(0).expect("an id");
            let lost = block_on(async {
                for round in 1..20_000u64 {
                    v.write(at(COUNTER), &round.to_le_bytes())
                        .await
                        .expect("no faults");
                    // The word is checked by an atomic, because an atomic waits until the rival's atomic in progress
                    // has written back.
                    if v.cas(at(COUNTER), u64::MAX, 0).await != Ok(round) {
                        return true;
                    }
                }
                false
            });
            *stop.lock().expect("no panic") = true;
            lost
        })
    };
    assert!(lost(AtomicVsWrite::Racy));
    assert!(!lost(AtomicVsWrite::Serialised));
}

/// Polls `future` at most `polls` times, and then drops it. Returns whether the future ended.
fn poll_and_drop(future: impl Future, polls: u64) -> bool {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    (0..polls).any(|_| matches!(Pin::as_mut(&mut future).poll(&mut cx), Poll::Ready(_)))
}

/// Dropping operations at any await leaves the client usable, and the counter within its bounds.
#[test]
fn dropped_futures_leave_the_client_usable() {
    let world = Loopback::builder()
        .nodes(1)
        .delays(3)
        .seed(11)
        .build()
        .expect("memory");
    let (mut done, mut dropped) = (0, 0);
    let v = world.connect(0).expect("an id");
    for round in 0..2_000u64 {
        let op = async {
            let lease = v.read(at(COUNTER), 256).await.expect("no faults");
            v.faa(at(COUNTER), 1).await.expect("no faults");
            let _late = v
                .chain(NodeId(0))
                .write(at(4160), &lease[..8])
                .read(at(COUNTER), 64)
                .await;
        };
        if poll_and_drop(op, round % 13) {
            done += 1
        } else {
            dropped += 1
        }
    }
    assert!(done > 300 && dropped > 300, "{done} done, {dropped} dropped");
    assert!(
        v.operation().is_ok(),
        "a dropped ticket without an error leaves none"
    );
    let count = block_on(v.word(at(COUNTER))).expect("no faults");
    assert!(
        (done..=done + dropped).contains(&count),
        "{count} of {done} to {}",
        done + dropped
    );
}

/// Fences a client on another thread while it works. After the answer, the client's counter does not change.
#[test]
fn a_fence_stops_a_client_while_it_works() {
    for _ in 0..20 {
        let world = Loopback::builder().nodes(1).build().expect("memory");
        let victim = world.connect(0).expect("an id");
        let other = world.connect(1).expect("an id");
        std::thread::scope(|scope| {
            let id = victim.client();
            let running = scope.spawn(move || {
                block_on(async {
                    let mut round = 0u64;
                    loop {
                        round += 1;
                        let line = [round; 8].map(u64::to_le_bytes);
                        if let Err(e) = victim.write(at(COUNTER), line.as_flattened()).await {
                            return (e.kind, round);
                        }
                    }
                })
            });
            while block_on(other.word(at(COUNTER))).expect("no faults") < 100 {
                std::thread::yield_now();
            }
            let fenced = block_on(other.call(ControlRequest::Fence { client: id }));
            let after = block_on(other.word(at(COUNTER))).expect("no faults");
            assert_eq!(fenced, Ok(ControlReply::Done));
            let (kind, last) = running.join().expect("no panic");
            assert_eq!(kind, VerbErrorKind::Fenced);
            assert_eq!(
                after,
                last - 1,
                "the last WRITE that succeeded came before the answer"
            );
            assert_eq!(block_on(other.word(at(COUNTER))), Ok(after));
        });
    }
}

#[test]
fn handles_and_endpoints_can_move_to_threads() {
    fn sendable<T: Send>() {}
    fn shareable<T: Send + Sync>() {}
    shareable::<Loopback>();
    sendable::<Endpoint>();
    sendable::<dm_loopback::Lease>();
}
