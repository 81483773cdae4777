//! Many threads and coroutines on few locks: nothing lost, nothing left held.

use crate::common::*;
use dm_lock::{Local, LockError, LockFlaws, LockOptions, Locks, ReleaseBy};
use dm_loopback::{Builder, Endpoint, block_on, run_all};
use dm_sync::{Fingerprint, thread};
use dm_verbs::{AtomicVsWrite, CasThenRead, Env, NodeId, RemotePtr, Verbs};

/// Threads are descheduled for long on a busy machine, and a holder with them.
fn patient() -> LockOptions {
    LockOptions {
        budget: u32::MAX,
        ..LockOptions::default()
    }
}

/// Two threads on each of two compute nodes, three coroutines on each thread, all adding to one counter.
fn hot_counter(builder: Builder, options: LockOptions, each: u64) -> Bench {
    let bench = bench(builder, 2, options);
    thread::scope(|scope| {
        for t in 0..4u16 {
            let bench = &bench;
            scope.spawn(move || {
                let clients: Vec<_> = (0..3).map(|_| bench.client(t % 2)).collect();
                run_all(clients.iter().map(|v| async move {
                    for _ in 0..each {
                        add(v, &bench.locks[usize::from(t % 2)], node(0, 1))
                            .await
                            .unwrap();
                    }
                }));
            });
        }
    });
    assert_eq!(bench.inspect(node(0, 1)), 12 * each);
    assert!(!bench.word(node(0, 1)).locked);
    let word = bench.inspect(bench.locks[0].word_at(node(0, 1)).unwrap());
    assert!(word == 0 || !options.flaws.lanes16, "a lane is held: {word:#x}");
    let idle = Locks::new(options, bench.locks[0].table().clone()).fingerprint();
    // Without masked CAS, what words were left as is remembered.
    let remembers = !bench.world.caps(NodeId(0)).masked_atomics;
    for locks in &bench.locks {
        let gone = locks.fingerprint() == idle || remembers;
        assert!(gone, "every local lock and waiter is gone");
        assert!(locks.local_bytes() < 64 << 10, "{}", locks.local_bytes());
    }
    bench
}

#[test]
fn a_hot_counter_is_exact_with_handover() {
    hot_counter(builder(), patient(), 2_000);
    hot_counter(builder().delays(2), patient(), 500);
}

#[test]
fn a_hot_counter_is_exact_whatever_is_missing_or_off() {
    let weakest = builder()
        .chip_bytes(0)
        .masked_atomics(false)
        .cas_then_read(CasThenRead::AnyLineFirst)
        .atomic_vs_write(AtomicVsWrite::Racy);
    hot_counter(weakest, patient(), 200);
    for local in [Local::Off, Local::Spin, Local::Queue { handover_max: 0 }] {
        hot_counter(builder(), LockOptions { local, ..patient() }, 200);
    }
    hot_counter(
        builder(),
        LockOptions {
            release: ReleaseBy::Faa,
            combine: false,
            ..patient()
        },
        200,
    );
    hot_counter(
        builder(),
        LockOptions {
            flaws: LockFlaws {
                lanes16: true,
                ..Default::default()
            },
            ..patient()
        },
        200,
    );
}

/// Adds, and drops some additions after a few polls. Tells how many finished and how many were dropped.
async fn add_and_drop(v: &Endpoint, locks: &Locks, at: RemotePtr, rounds: u32) -> (u64, u64) {
    let (mut done, mut dropped) = (0, 0);
    for _ in 0..rounds {
        let dice = v.rng(0);
        let polls = if dice.is_multiple_of(4) {
            dice / 4 % 9
        } else {
            u64::MAX
        };
        let mut adding = Box::pin(add(v, locks, at));
        let mut polled = 0;
        let outcome = core::future::poll_fn(|cx| {
            if polled == polls {
                return core::task::Poll::Ready(None);
            }
            polled += 1;
            match adding.as_mut().poll(cx) {
                core::task::Poll::Ready(result) => core::task::Poll::Ready(Some(result)),
                // A drop must come even if nobody wakes it.
                core::task::Poll::Pending if polls < u64::MAX => {
                    cx.waker().wake_by_ref();
                    core::task::Poll::Pending
                }
                core::task::Poll::Pending => core::task::Poll::Pending,
            }
        })
        .await;
        match outcome {
            Some(result) => {
                result.unwrap();
                done += 1;
            }
            None => dropped += 1,
        }
    }
    (done, dropped)
}

#[test]
fn futures_dropped_anywhere_lose_nothing_and_hold_nothing() {
    let weak = || {
        builder()
            .masked_atomics(false)
            .atomic_vs_write(AtomicVsWrite::Racy)
    };
    for (seed, builder, options) in [
        (1, builder(), patient()),
        (
            2,
            builder(),
            LockOptions {
                lock_and_read: false,
                combine: false,
                ..patient()
            },
        ),
        (3, weak(), patient()),
        (
            4,
            builder(),
            LockOptions {
                local: Local::Queue { handover_max: 1 },
                release: ReleaseBy::Faa,
                ..patient()
            },
        ),
        (
            5,
            builder(),
            LockOptions {
                local: Local::Off,
                ..patient()
            },
        ),
    ] {
        let bench = bench(builder.delays(3).seed(seed), 2, options);
        let counts: Vec<(u64, u64)> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4u16)
                .map(|t| {
                    let bench = &bench;
                    scope.spawn(move || {
                        let clients: Vec<_> = (0..3).map(|_| bench.client(t % 2)).collect();
                        let locks = &bench.locks[usize::from(t % 2)];
                        let counts = run_all(clients.iter().map(|v| add_and_drop(v, locks, node(0, 1), 150)));
                        assert!(clients.iter().all(|v| v.operation().is_ok()), "no undo failed");
                        counts
                    })
                })
                .collect();
            threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
        });
        let (done, dropped) = counts.iter().fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
        let value = bench.inspect(node(0, 1));
        assert!(
            (done..=done + dropped).contains(&value),
            "seed {seed}: {value} not in {done}..={}",
            done + dropped
        );
        assert!(dropped > 100, "{dropped}");
        assert!(!bench.word(node(0, 1)).locked, "seed {seed}");
        // Both compute nodes can still take it: no turn was lost.
        for (cn, locks) in bench.locks.iter().enumerate() {
            block_on(add(&bench.client(cn as u16), locks, node(0, 1))).unwrap();
        }
    }
}

/// Moves one between two counters of a ring, under both locks; the sum stays.
async fn transfer(v: &Endpoint, locks: &Locks, from: RemotePtr, to: RemotePtr) -> Result<(), LockError> {
    let set = locks.lock_set(v, &[from, to]).await?;
    let (a, b) = (v.word(from), v.word(to));
    let (a, b) = (a.await?, b.await?);
    let take = v.chain(from.node()).write_word(from, a.wrapping_sub(1));
    let give = v.chain(to.node()).write_word(to, b.wrapping_add(1));
    set.write_back([(from.node(), take), (to.node(), give)]).await
}

#[test]
fn sets_on_a_ring_never_deadlock_and_keep_the_sum() {
    for (seed, release) in [(1, ReleaseBy::Auto), (2, ReleaseBy::Faa)] {
        let bench = bench(
            builder().delays(2).seed(seed),
            2,
            LockOptions { release, ..patient() },
        );
        let ring: Vec<_> = (0..6).map(|i| node(i % 2, 1 + u64::from(i) / 2)).collect();
        thread::scope(|scope| {
            for t in 0..4u16 {
                let (bench, ring) = (&bench, &ring);
                scope.spawn(move || {
                    let clients: Vec<_> = (0..2).map(|_| bench.client(t % 2)).collect();
                    run_all(clients.iter().map(|v| async move {
                        for _ in 0..150 {
                            let (i, step) = (v.rng(1) as usize % 6, 1 + v.rng(1) as usize % 5);
                            let locks = &bench.locks[usize::from(t % 2)];
                            transfer(v, locks, ring[i], ring[(i + step) % 6]).await.unwrap();
                        }
                    }));
                });
            }
        });
        let sum = ring
            .iter()
            .fold(0, |sum: u64, &n| sum.wrapping_add(bench.inspect(n)));
        assert_eq!(sum, 0);
        assert!(ring.iter().all(|&n| !bench.word(n).locked));
    }
}
