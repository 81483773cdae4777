//! Tests that the simulated world obeys the contract of `dm-verbs`.
#![expect(clippy::unwrap_used, reason = "a test panics")]

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use dm_sim::{CostModel, QueueKind, RunEnd, Sim, SimBuilder};
use dm_verbs::{
    ChipPtr, ClientId, Control, ControlReply, ControlRequest, Effect, Env, Nanos, NodeId, RemotePtr, Space,
    VerbErrorKind, Verbs,
};

const N0: NodeId = NodeId(0);

fn host(offset: u64) -> RemotePtr {
    RemotePtr::new(N0, offset).unwrap()
}
fn chip(offset: u64) -> ChipPtr {
    ChipPtr::new(N0, offset).unwrap()
}
fn bed() -> SimBuilder {
    Sim::builder(CostModel::cx5_ib())
        .compute_nodes(4)
        .memory_nodes(2)
        .memory_bytes(1 << 20)
        .seed(1)
}
fn word(sim: &Sim, at: usize) -> u64 {
    sim.with_memory(N0, Space::Host, |m| {
        u64::from_le_bytes(m[at..at + 8].try_into().unwrap())
    })
    .unwrap()
}

/// Runs 64 clients of 4 nodes that mix the verbs on both memory nodes, with waits of a nanosecond to two seconds.
fn mixed(seed: u64, queue: QueueKind) -> (u64, u64) {
    let sim = bed().seed(seed).queue(queue).build().unwrap();
    for c in 0..64u16 {
        sim.spawn(c % 4, c / 8, |v| async move {
            for _ in 0..200 {
                let r = v.rng(0);
                let at = RemotePtr::new(NodeId((r >> 60 & 1) as u16), 4096 + (r & 0xFFF8)).unwrap();
                if r >> 34 & 0xF == 0 {
                    let (before, wait) = (v.now(), Nanos(1 << (r >> 38 & 0x1F)));
                    v.charge(wait).await;
                    assert!(v.now() >= before + wait);
                }
                match r >> 32 & 3 {
                    0 => drop(v.read(at, 1000).await.unwrap()),
                    1 => v.write(at, &[7; 300]).await.unwrap(),
                    2 => drop(v.chain(at.node()).cas(at, 0, r).read(at, 700).await.unwrap()),
                    _ => drop(v.faa(at, 1).await.unwrap()),
                }
            }
        });
    }
    assert_eq!(sim.run(), RunEnd::Finished);
    (sim.digest(), sim.verbs())
}

#[test]
fn equal_seeds_give_equal_runs_with_either_queue() {
    let a = mixed(5, QueueKind::Wheel);
    assert_eq!(a, mixed(5, QueueKind::Wheel));
    assert_eq!(a, mixed(5, QueueKind::Heap), "the wheel is exact");
    assert_ne!(a.0, mixed(6, QueueKind::Wheel).0);
}

/// Runs 64 clients whose READs lie within one line or cross lines, behind their own WRITEs. The READs are posted alone,
/// or in chains if `chained` is set.
fn lone_or_chained(chained: bool) -> (u64, u64) {
    let sim = bed().build().unwrap();
    for c in 0..64u16 {
        sim.spawn(c % 4, c / 8, move |v| async move {
            for _ in 0..200 {
                let r = v.rng(0);
                let at = RemotePtr::new(NodeId((r >> 60 & 1) as u16), 4096 + (r & 0x3FF)).unwrap();
                let before = v.write(at, &[r as u8; 200][..1 + (r >> 20) as usize % 200]);
                let len = 1 + (r >> 32) as u32 % 80;
                let read = if chained {
                    v.chain(at.node()).read(at, len).await
                } else {
                    v.read(at, len).await
                };
                assert_eq!(read.unwrap().len(), len as usize);
                before.await.unwrap();
            }
        });
    }
    assert_eq!(sim.run(), RunEnd::Finished);
    (sim.digest(), sim.verbs())
}

#[test]
fn a_lone_read_takes_as_long_as_a_chain_of_one() {
    assert_eq!(lone_or_chained(false), lone_or_chained(true));
}

#[test]
fn idle_latencies_are_those_of_the_model() {
    let sim = Sim::builder(CostModel::cx5_ib()).seed(3).build().unwrap();
    let times = Rc::new(RefCell::new([0u64; 6]));
    let out = Rc::clone(&times);
    sim.spawn(0, 0, |v| async move {
        for _ in 0..64 {
            let mut at = v.now();
            let mut lap = |i: usize| {
                out.borrow_mut()[i] += (v.now() - at).0;
                at = v.now();
            };
            v.read(host(4096), 64).await.unwrap();
            lap(0);
            v.read(host(4096), 1024).await.unwrap();
            lap(1);
            v.write(host(4096), &[1; 8]).await.unwrap();
            lap(2);
            v.write(host(4096), &[1; 1024]).await.unwrap();
            lap(3);
            v.cas(host(4096), 0, 1).await.unwrap();
            lap(4);
            v.cas(chip(0), 0, 1).await.unwrap();
            lap(5);
        }
    });
    sim.run();
    let means = times.borrow().map(|t| t as f64 / 64_000.0);
    println!("idle µs: READ64 READ1K WRITE8 WRITE1K CAS on-chip CAS = {means:.2?}");
    for (got, want) in means.into_iter().zip([2.2, 2.4, 1.8, 2.2, 2.2, 1.8]) {
        assert!((got - want).abs() < 0.1, "{got} against {want}");
    }
}

#[test]
fn chains_execute_in_order_and_answers_are_numbered_without_writes() {
    let sim = bed().build().unwrap();
    sim.spawn(0, 0, |v| async move {
        let at = host(8192);
        let (old, lease) = v
            .chain(N0)
            .write(at, &[9; 200])
            .faa(at.add(192), 1)
            .read(at, 200)
            .await
            .unwrap();
        assert_eq!(old, u64::from_le_bytes([9; 8]));
        assert_eq!((lease[0], lease[192], lease.len()), (9, 10, 200));
        v.chain(N0)
            .write_word(at, 3)
            .write_word(chip(64), 4)
            .await
            .unwrap();
        assert_eq!(
            (v.word(at).await.unwrap(), v.word(chip(64)).await.unwrap()),
            (3, 4)
        );
        let c = v.meter().counters();
        assert_eq!((c.doorbells, c.round_trips, c.verbs()), (4, 4, 7));
    });
    assert_eq!(sim.run(), RunEnd::Finished);
}

#[test]
fn a_fence_waits_for_the_answers_before_it() {
    let time = |fence: bool| {
        let sim = bed().build().unwrap();
        sim.spawn(0, 0, move |v| async move {
            let c = v.chain(N0).read(host(4096), 64);
            let c = if fence { c.fence() } else { c };
            c.write_word(host(4096), 1).await.unwrap();
            v.word(host(4096)).await.unwrap();
        });
        assert_eq!(sim.run(), RunEnd::Finished);
        sim.now().0
    };
    assert!(time(true) > time(false) + 1_000, "{} {}", time(true), time(false));
}

#[test]
fn concurrent_adds_are_exact_and_dropped_tasks_leave_nothing_behind() {
    let sim = bed().build().unwrap();
    let done = Rc::new(Cell::new(0u64));
    let tasks: Vec<_> = (0..40u16)
        .map(|c| {
            let done = Rc::clone(&done);
            sim.spawn(c % 4, c, |v| async move {
                for _ in 0..100 {
                    v.faa(host(4096), 1).await.unwrap();
                    done.set(done.get() + 1);
                }
            })
        })
        .collect();
    sim.run_until(Nanos::from_micros(20));
    assert_eq!(sim.live_tasks(), 40);
    for t in &tasks[..20] {
        assert!(sim.cancel(*t));
        assert!(!sim.cancel(*t), "once");
    }
    assert_eq!(sim.run(), RunEnd::Finished);
    let value = word(&sim, 4096);
    assert!(
        value > done.get() && value <= done.get() + 20,
        "requests in flight still land: {value} {}",
        done.get()
    );
}

#[test]
fn a_crashed_client_posts_nothing_more() {
    struct Undo(dm_sim::Endpoint);
    impl Drop for Undo {
        fn drop(&mut self) {
            self.0.write(host(4096), &[0; 8]).detach();
        }
    }
    let hold = |crash: bool| {
        let sim = bed().build().unwrap();
        let task = sim.spawn(0, 0, |v| async move {
            let guard = Undo(v);
            guard.0.cas(host(4096), 0, 77).await.unwrap();
            std::future::pending::<()>().await;
        });
        assert_eq!(sim.run(), RunEnd::Stuck { tasks: 1 });
        assert!(if crash { sim.crash(task) } else { sim.cancel(task) });
        assert_eq!(sim.run(), RunEnd::Finished);
        word(&sim, 4096)
    };
    assert_eq!((hold(false), hold(true)), (0, 77));
}

#[test]
fn foreign_wakers_work() {
    use std::task::Poll;
    struct Through(std::task::Waker);
    impl std::task::Wake for Through {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.wake_by_ref();
        }
    }
    let sim = bed().build().unwrap();
    sim.spawn(0, 0, |v| async move {
        let mut ticket = std::pin::pin!(v.faa(host(4096), 5));
        std::future::poll_fn(|cx| {
            let waker = std::task::Waker::from(std::sync::Arc::new(Through(cx.waker().clone())));
            ticket.as_mut().poll(&mut std::task::Context::from_waker(&waker))
        })
        .await
        .unwrap();
        let mut pause = std::pin::pin!(v.pause());
        std::future::poll_fn(|cx| {
            let waker = std::task::Waker::from(std::sync::Arc::new(Through(cx.waker().clone())));
            match pause.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        assert_eq!(v.word(host(4096)).await.unwrap(), 5);
    });
    assert_eq!(sim.run(), RunEnd::Finished);
}

#[test]
fn coroutines_of_one_thread_share_its_cpu() {
    let span = |threads: u16| {
        let sim = bed().build().unwrap();
        for c in 0..4 {
            sim.spawn(0, c % threads, |v| async move {
                for _ in 0..10 {
                    v.charge(Nanos(1_000)).await;
                }
            });
        }
        sim.run();
        sim.now().0
    };
    assert!((40_000..42_000).contains(&span(1)), "{}", span(1));
    assert!((10_000..12_000).contains(&span(4)), "{}", span(4));
}

#[test]
fn forbidden_requests_return_the_matching_error() {
    let sim = bed().build().unwrap();
    sim.spawn(0, 0, |v| async move {
        let kind = |r: Result<u64, dm_verbs::VerbError>| r.unwrap_err().kind;
        assert_eq!(kind(v.cas(host(4), 0, 1).await), VerbErrorKind::Misaligned);
        assert_eq!(
            kind(v.word(host(1 << 20)).await),
            VerbErrorKind::OutOfBounds { size: 1 << 20 }
        );
        assert_eq!(
            kind(v.faa(chip(256 << 10), 1).await),
            VerbErrorKind::OutOfBounds { size: 256 << 10 }
        );
        let nowhere = RemotePtr::new(NodeId(9), 0).unwrap();
        assert_eq!(kind(v.word(nowhere).await), VerbErrorKind::NoSuchNode);
        assert_eq!(
            v.read(host(0), 0).await.unwrap_err().kind,
            VerbErrorKind::BadLength { len: 0 }
        );
        // An abandoned chain has no effect. An error of a dropped ticket is returned by the client's next operation.
        drop(v.chain(N0).write(host(1 << 21), b"x"));
        let _ = v.operation().unwrap();
        v.write(host(1 << 21), b"x").detach();
        v.word(host(0)).await.unwrap();
        assert!(v.operation().is_err());
        assert!(v.load(host(1 << 20), b"x").is_err());
        v.load(host(128), b"image").unwrap();
        assert_eq!(&*v.read(host(128), 5).await.unwrap(), b"image");
    });
    assert_eq!(sim.run(), RunEnd::Finished);
    assert_eq!(sim.meter().housekeeping_bytes, 6);
}

#[test]
fn requests_that_cannot_be_carried_out_are_refused_as_in_every_world() {
    for chip_bytes in [0, 256 << 10] {
        let mut model = CostModel::cx5_ib();
        model.caps.chip_bytes = chip_bytes;
        let sim = Sim::builder(model).memory_bytes(1 << 20).build().unwrap();
        sim.spawn(
            0,
            0,
            |v| async move { dm_verbs::testing::check_refusals(&v).await },
        );
        assert_eq!(sim.run(), RunEnd::Finished);
    }
}

#[test]
fn a_node_that_is_cut_off_answers_with_typed_errors() {
    let sim = bed().build().unwrap();
    sim.cut_off(N0, Nanos::from_micros(100));
    sim.restore(N0, Nanos::from_micros(900));
    sim.spawn(0, 0, |v| async move {
        let mut landed = 0;
        let lost = loop {
            match v.faa(host(4096), 1).await {
                Ok(old) => landed = old + 1,
                Err(e) => break e,
            }
        };
        assert_eq!(
            (lost.kind, lost.effect, lost.at),
            (VerbErrorKind::Unreachable, Effect::Unknown, host(4096).into())
        );
        let read = v.read(host(4096), 8).await.unwrap_err();
        assert_eq!(
            (read.kind, read.effect, read.overall()),
            (VerbErrorKind::Unreachable, Effect::None, Effect::None)
        );
        assert!(
            v.call(ControlRequest::Describe { node: N0 }).await.is_ok(),
            "the node is reachable again"
        );
        let now = v.word(host(4096)).await.unwrap();
        assert!(
            now == landed || now == landed + 1,
            "a request with unknown effect may have landed or not: {now} {landed}"
        );
        let other = RemotePtr::new(NodeId(1), 4096).unwrap();
        v.write(other, b"fine").await.unwrap();
    });
    assert_eq!(sim.run(), RunEnd::Finished);
}

#[test]
fn the_control_plane_hands_out_chunks_and_fences() {
    let sim = bed().build().unwrap();
    let task = sim.spawn(1, 0, |v| async move {
        loop {
            if let Err(e) = v.faa(host(4096), 1).await {
                assert_eq!((e.kind, e.effect), (VerbErrorKind::Fenced, Effect::None));
                break;
            }
        }
        assert!(v.call(ControlRequest::Join).await.is_err());
    });
    sim.spawn(0, 0, |v| async move {
        let before = v.now();
        let a = v.chunk(N0, 10_000).await.unwrap();
        assert!(v.now() - before > Nanos(3_000), "an RPC");
        let b = v.chunk(N0, 10_000).await.unwrap();
        assert_eq!((a.offset(), b.offset()), (4096, 4096 + 12_288));
        assert!(v.chunk(N0, 1 << 20).await.is_err());
        v.call(ControlRequest::Fence { client: ClientId(1) })
            .await
            .unwrap();
        let sealed = v.word(host(4096)).await.unwrap();
        v.charge(Nanos::from_micros(50)).await;
        assert_eq!(
            v.word(host(4096)).await.unwrap(),
            sealed,
            "nothing lands after the answer"
        );
    });
    assert_eq!(sim.run(), RunEnd::Finished);
    assert!(!sim.cancel(task));
}

#[test]
fn a_colocated_pair_shares_one_card() {
    let sim = bed().colocated(true).build().unwrap();
    sim.spawn(
        0,
        0,
        |v| async move { v.write(host(4096), &[1; 100]).await.unwrap() },
    );
    sim.run();
    let card = sim.memory_nic(N0);
    assert_eq!(card, sim.compute_nic(0));
    assert_eq!((card.messages_out, card.messages_in, card.writes), (1, 1, 1));
    assert_eq!((card.bytes_in, card.bytes_out), (142 + 30, 142 + 30));
}

/// A colocated compute node without a memory node has a card, but not the card of a memory node.
#[test]
#[should_panic(expected = "memory nodes are numbered below 2")]
fn a_machine_without_memory_has_no_card_of_a_memory_node() {
    let sim = bed().colocated(true).build().unwrap();
    assert_eq!(sim.compute_nic(2), sim.compute_nic(3));
    sim.memory_nic(NodeId(2));
}

#[test]
fn a_lease_has_the_requested_length() {
    let lease = |bed: SimBuilder| {
        let sim = bed.build().unwrap();
        let found = Rc::new(Cell::new(Nanos(0)));
        let told = Rc::clone(&found);
        sim.spawn(0, 0, |v| async move {
            let ControlReply::Joined(membership) = v.call(ControlRequest::Join).await.unwrap() else {
                panic!("the answer to another request");
            };
            told.set(membership.lease);
        });
        assert_eq!(sim.run(), RunEnd::Finished);
        found.get()
    };
    assert_eq!(lease(bed()), Nanos::from_millis(10));
    assert_eq!(
        lease(bed().lease(Nanos::from_micros(700))),
        Nanos::from_micros(700)
    );
}
