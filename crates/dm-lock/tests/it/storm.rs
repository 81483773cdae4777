//! Many threads and coroutines on few locks: no update is lost, and no lock stays held.

use crate::common::*;
use dm_lock::{Local, LockError, LockFlaws, LockOptions, Locks, ReleaseBy};
use dm_loopback::{Builder, Endpoint, block_on, run_all};
use dm_sync::{Fingerprint, thread};
use dm_verbs::{AtomicVsWrite, CasThenRead, Env, NodeId, RemotePtr, Verbs};

/// Returns options with an unlimited budget, because a holder may be descheduled for a long time on a busy machine.
fn patient() -> LockOptions {
    LockOptions {
        budget: u32::MAX,
        ..LockOptions::default()
    }
}

/// The number of coroutines that add to one counter.
const CLIENTS: u16 = 12;

/// Runs six clients of each of two compute nodes on this many threads. All of them add to one counter.
///
/// On a busy machine, each handover of a lock to another thread costs a time slice, so only runs with one thread make
/// many additions.
fn hot_counter(builder: Builder, options: LockOptions, threads: u16, each: u64) -> Bench {
    let bench = bench(builder, 2, options);
    thread::scope(|scope| {
        for t in 0..threads {
            let bench = &bench;
            scope.spawn(move || {
                let numbers = (t..CLIENTS).step_by(usize::from(threads));
                let clients: Vec<_> = numbers.map(|n| (n % 2, bench.client(n % 2))).collect();
                run_all(clients.iter().map(|(cn, v)| async move {
                    for _ in 0..each {
                        add(v, &bench.locks[usize::from(*cn)], node(0, 1)).await.unwrap();
                    }
                }));
            });
        }
    });
    assert_eq!(bench.inspect(node(0, 1)), u64::from(CLIENTS) * each);
    assert!(!bench.word(node(0, 1)).locked);
    let word = bench.inspect(bench.locks[0].word_at(node(0, 1)).unwrap());
    assert!(word == 0 || !options.flaws.lanes16, "a lane is held: {word:#x}");
    let idle = Locks::new(options, bench.locks[0].table().clone()).fingerprint();
    // Without masked CAS, the last known lock words are remembered.
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
    hot_counter(builder(), patient(), 4, 40);
    hot_counter(builder().delays(2), patient(), 4, 10);
    for seed in 1..=4 {
        hot_counter(builder().delays(3).seed(seed), patient(), 1, 1_000);
    }
}

#[test]
fn a_hot_counter_is_exact_whatever_is_missing_or_off() {
    let weakest = || {
        builder()
            .chip_bytes(0)
            .masked_atomics(false)
            .cas_then_read(CasThenRead::AnyLineFirst)
            .atomic_vs_write(AtomicVsWrite::Racy)
    };
    let locals = [Local::Off, Local::Spin, Local::Queue { handover_max: 0 }];
    let by_faa = LockOptions {
        release: ReleaseBy::Faa,
        combine: false,
        ..patient()
    };
    let lanes16 = LockOptions {
        flaws: LockFlaws {
            lanes16: true,
            ..Default::default()
        },
        ..patient()
    };
    for (threads, each) in [(4, 4), (1, 300)] {
        let delays = if threads == 1 { 3 } else { 0 };
        hot_counter(weakest().delays(delays), patient(), threads, each);
        for local in locals {
            let options = LockOptions { local, ..patient() };
            hot_counter(builder().delays(delays), options, threads, each);
        }
        hot_counter(builder().delays(delays), by_faa, threads, each);
        hot_counter(builder().delays(delays), lanes16, threads, each);
    }
}

/// Adds, and drops some additions after a few polls. Returns how many finished and how many were dropped.
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
                // The drop must happen even if nothing wakes the future.
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
        for (threads, rounds) in [(4, 30), (1, 150)] {
            drop_anywhere(seed, builder.clone(), options, threads, rounds);
        }
    }
}

/// Does the same as [`hot_counter`], but drops some additions.
fn drop_anywhere(seed: u64, builder: Builder, options: LockOptions, threads: u16, rounds: u32) {
    let bench = bench(builder.delays(3).seed(seed), 2, options);
    let counts: Vec<(u64, u64)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|t| {
                let bench = &bench;
                scope.spawn(move || {
                    let numbers = (t..CLIENTS).step_by(usize::from(threads));
                    let clients: Vec<_> = numbers.map(|n| (n % 2, bench.client(n % 2))).collect();
                    let counts = run_all(clients.iter().map(|(cn, v)| {
                        let locks = &bench.locks[usize::from(*cn)];
                        add_and_drop(v, locks, node(0, 1), rounds)
                    }));
                    assert!(
                        clients.iter().all(|(_, v)| v.operation().is_ok()),
                        "no undo failed"
                    );
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
    assert!(dropped > u64::from(rounds) / 2, "{dropped}");
    assert!(!bench.word(node(0, 1)).locked, "seed {seed}");
    // Both compute nodes can still take the lock, so no turn was lost.
    for (cn, locks) in bench.locks.iter().enumerate() {
        block_on(add(&bench.client(cn as u16), locks, node(0, 1))).unwrap();
    }
}

/// Moves one unit between two counters of a ring, under both locks. The sum stays the same.
async fn transfer(v: &Endpoint, locks: &Locks, from: RemotePtr, to: RemotePtr) -> Result<(), LockError> {
    let set = locks.lock_set(v, &[from, to]).await?;
    let (a, b) = (v.word(from), v.word(to));
    let (a, b) = (a.await?, b.await?);
    let take = v.chain(from.node()).write_word(from, a.wrapping_sub(1));
    let give = v.chain(to.node()).write_word(to, b.wrapping_add(1));
    set.write_back([take, give]).await
}

#[test]
fn sets_on_a_ring_never_deadlock_and_keep_the_sum() {
    for (seed, release) in [(1, ReleaseBy::Auto), (2, ReleaseBy::Faa)] {
        for (threads, each) in [(4, 20), (1, 150)] {
            sets_on_a_ring(seed, release, threads, each);
        }
    }
}

fn sets_on_a_ring(seed: u64, release: ReleaseBy, threads: u16, each: u32) {
    let bench = bench(
        builder().delays(2).seed(seed),
        2,
        LockOptions { release, ..patient() },
    );
    let ring: Vec<_> = (0..6).map(|i| node(i % 2, 1 + u64::from(i) / 2)).collect();
    thread::scope(|scope| {
        for t in 0..threads {
            let (bench, ring) = (&bench, &ring);
            scope.spawn(move || {
                let numbers = (t..8).step_by(usize::from(threads));
                let clients: Vec<_> = numbers.map(|n| (n % 2, bench.client(n % 2))).collect();
                run_all(clients.iter().map(|(cn, v)| async move {
                    for _ in 0..each {
                        let (i, step) = (v.rng(1) as usize % 6, 1 + v.rng(1) as usize % 5);
                        let locks = &bench.locks[usize::from(*cn)];
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
