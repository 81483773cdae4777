//! Tests of failed write-backs, whose errors must report the effect on the data, and of dropped write-backs, whose data
//! must land before the lock becomes free.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::cell::Cell;
use std::rc::Rc;

use dm_lock::{DOUBT, GlobalLockTable, LockError, LockOptions, LockPlace, Locks};
use dm_loopback::{Loopback, Trouble, block_on};
use dm_sim::{CostModel, RunEnd, Sim, Tearing};
use dm_verbs::{Effect, Env, Nanos, NodeId, RemotePtr, Verbs};

const DATA: u64 = 64 << 10;

fn data() -> RemotePtr {
    RemotePtr::new(NodeId(0), DATA).expect("a small offset")
}

/// The data has landed, and the unlock cannot be sent.
#[test]
fn an_unlock_that_fails_behind_its_data_does_not_claim_no_effect() {
    let mut met = 0;
    for seed in 0..16 {
        let world = Loopback::builder().delays(4).seed(seed).build().expect("a world");
        let v = world.connect(0).expect("a client");
        let options = LockOptions {
            combine: false,
            ..LockOptions::default()
        };
        let locks = Locks::new(options, GlobalLockTable::on_chip(1, 64));
        let guard = block_on(locks.lock(&v, data())).expect("a free lock");
        let chain = v.chain(NodeId(0)).write_word(data(), 7);
        let mut writing = pin!(guard.write_back(chain));
        if let Poll::Ready(done) = writing.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            done.expect("no trouble yet");
            continue;
        }
        world.cut(NodeId(0), Trouble::Unreachable);
        match block_on(writing) {
            Err(LockError::Verb(e)) => {
                met += 1;
                assert_ne!(e.overall(), Effect::None, "{e}");
            }
            // The unlock was posted before the node was cut off.
            other => other.expect("nothing else fails"),
        }
        world.restore(NodeId(0));
        assert_eq!(block_on(v.word(data())), Ok(7));
    }
    assert!(met > 0);
}

/// A holder is dropped while its write-back is in flight to the host, where an unlock on the chip may overtake it.
#[test]
fn a_dropped_holders_lock_is_not_free_before_its_data_has_landed() {
    const LEN: usize = 32 << 10;
    let seen = Rc::new(Cell::new(0));
    for step in 0..30 {
        let mut model = CostModel::cx5_ib();
        model.caps.host_before_chip = false;
        model.tearing = Tearing::Random;
        let sim = Sim::builder(model)
            .compute_nodes(2)
            .memory_bytes(1 << 20)
            .seed(step)
            .build()
            .expect("a testbed");
        let locks: Vec<_> = (0..2)
            .map(|_| {
                Rc::new(Locks::new(
                    LockOptions::default(),
                    GlobalLockTable::on_chip(1, 64),
                ))
            })
            .collect();
        let (first, second) = (Rc::clone(&locks[0]), Rc::clone(&locks[1]));
        let (v, idle) = (sim.endpoint(0, 0), sim.endpoint(0, 1));
        sim.spawn_task(async move {
            let guard = first.lock(&v, data()).await.expect("a free lock");
            let chain = v.chain(NodeId(0)).write(data(), &[1; LEN]);
            let mut writing = pin!(guard.write_back(chain));
            let mut timer = pin!(idle.charge(Nanos(100 * step)));
            core::future::poll_fn(|cx| match writing.as_mut().poll(cx) {
                Poll::Ready(_) => Poll::Ready(()),
                Poll::Pending => timer.as_mut().poll(cx),
            })
            .await;
        });
        let seen = Rc::clone(&seen);
        sim.spawn(1, 0, move |v| async move {
            // This client starts after the first one.
            v.charge(Nanos(2_500)).await;
            let guard = second.lock(&v, data()).await.expect("soon free");
            let (first, last) = (v.word(data()), v.word(data().add(LEN as u64 - 8)));
            let (first, last) = (first.await.expect("no trouble"), last.await.expect("no trouble"));
            assert_eq!(
                first, last,
                "step {step}: locked while data of the holder before was landing"
            );
            seen.set(seen.get() + u32::from(first != 0));
            guard.release().await.expect("no trouble");
        });
        assert_eq!(sim.run(), RunEnd::Finished);
    }
    assert!(seen.get() > 10, "only {} runs met data", seen.get());
}

/// If a set writes several chains to one memory node, its unlocks are posted behind the last of them.
#[test]
fn a_set_is_free_when_all_that_was_written_to_its_node_has_landed() {
    const LEN: usize = 256 << 10;
    let sim = Sim::builder(CostModel::cx5_ib())
        .compute_nodes(2)
        .memory_bytes(1 << 20)
        .build()
        .expect("a testbed");
    let locks = || Locks::new(LockOptions::default(), GlobalLockTable::on_chip(1, 64));
    let v = sim.endpoint(0, 0);
    sim.spawn_task(async move {
        let locks = locks();
        let set = locks.lock_set(&v, &[data()]).await.expect("a free lock");
        let small = v.chain(NodeId(0)).write_word(data(), 1);
        let large = v.chain(NodeId(0)).write(data().add(64), &[1; LEN]);
        set.write_back([small, large]).await.expect("no trouble");
    });
    sim.spawn(1, 0, move |v| async move {
        let locks = locks();
        // This client starts after the first one.
        v.charge(Nanos(2_500)).await;
        let guard = locks.lock(&v, data()).await.expect("soon free");
        let last = v.word(data().add(LEN as u64 + 56)).await.expect("no trouble");
        assert_eq!(
            last,
            u64::from_le_bytes([1; 8]),
            "locked before the data has landed"
        );
        guard.release().await.expect("no trouble");
    });
    assert_eq!(sim.run(), RunEnd::Finished);
}

/// A structural change that is dropped, or whose chain fails, leaves the lock word suspect (`DOUBT`). Other changes do
/// not.
#[test]
fn a_lost_structural_change_leaves_doubt() {
    let world = Loopback::builder().build().expect("a world");
    let v = world.connect(0).expect("a client");
    let locks = Locks::new(LockOptions::default(), GlobalLockTable::on_chip(1, 64));
    let lock = || block_on(locks.lock(&v, data())).expect("a free lock");
    let chain = || v.chain(NodeId(0)).write_word(data(), 7);
    let mut guard = lock();
    assert!(!guard.in_doubt());
    guard.doubt_if_lost();
    block_on(guard.write_back(chain())).expect("no trouble");
    let guard = lock();
    assert!(!guard.in_doubt(), "it came to its end");
    drop(guard);
    let mut guard = lock();
    assert!(!guard.in_doubt(), "nothing was begun");
    guard.doubt_if_lost();
    drop(guard);
    let guard = lock();
    assert!(guard.in_doubt());
    block_on(guard.write_back(chain())).expect("no trouble");
    let mut guard = lock();
    assert!(guard.in_doubt(), "it stays");
    guard.doubt_if_lost();
    drop(guard);
    let mut guard = lock();
    assert!(guard.in_doubt(), "doubt upon doubt is doubt");
    // A payload that already contains the bit keeps it, and one that does not gets it.
    for payload in [DOUBT | 6, 8] {
        guard.set_payload(payload);
        block_on(guard.release()).expect("no trouble");
        guard = lock();
        assert_eq!(guard.word().payload, DOUBT | payload);
    }
}

/// A destructor cannot await WRITEs. So if an atomic on the chip may overtake WRITEs to host memory, the destructor
/// posts a READ of host memory before the atomic.
#[test]
fn a_dropped_guard_reads_host_memory_if_the_chip_may_overtake_it() {
    for (on_chip, overtakes, reads) in [(true, true, 1), (true, false, 0), (false, true, 0)] {
        let mut model = CostModel::cx5_ib();
        model.caps.host_before_chip = !overtakes;
        let sim = Sim::builder(model)
            .memory_bytes(1 << 20)
            .build()
            .expect("a testbed");
        let table = match on_chip {
            true => GlobalLockTable::on_chip(1, 64),
            false => GlobalLockTable::new(vec![data().add(4096).into()], 64),
        };
        let options = LockOptions {
            place: match on_chip {
                true => LockPlace::Chip,
                false => LockPlace::Host,
            },
            ..LockOptions::default()
        };
        let (v, spent) = (sim.endpoint(0, 0), Rc::new(Cell::new(None)));
        let seen = Rc::clone(&spent);
        sim.spawn_task(async move {
            let locks = Locks::new(options, table);
            let guard = locks.lock(&v, data()).await.expect("a free lock");
            let before = v.meter().counters();
            drop(guard);
            let counted = v.meter().counters() - before;
            seen.set(Some((counted.reads, counted.masked_cas + counted.cas)));
            let guard = locks.lock(&v, data()).await.expect("a free lock");
            guard.release().await.expect("no trouble");
        });
        assert_eq!(sim.run(), RunEnd::Finished);
        assert_eq!(
            spent.get(),
            Some((reads, 1)),
            "on chip: {on_chip}, overtakes: {overtakes}"
        );
    }
}
