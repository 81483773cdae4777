//! Tests of the cost of each way of locking, as the meter counts it: with all capabilities, and with each of them
//! missing.

use crate::common::*;
use dm_lock::{Local, LockError, LockOptions, LockPlace, LockWord, ReleaseBy};
use dm_loopback::{Builder, Endpoint, block_on};
use dm_verbs::{AtomicVsWrite, Capability, CasThenRead, Counters, Env, NodeId, Verbs};

/// Runs `f`, and returns its result and its cost: round trips, doorbells and verbs by kind.
fn cost<R>(v: &Endpoint, f: impl Future<Output = R>) -> (R, Counters) {
    let before = v.meter().counters();
    let result = block_on(f);
    (result, v.meter().counters() - before)
}

/// Returns the round trips and verbs of adding one under a lock that was used before.
fn adding(builder: Builder, options: LockOptions) -> (u64, u64) {
    let bench = bench(builder, 1, options);
    let v = bench.client(0);
    block_on(add(&v, &bench.locks[0], node(0, 1))).unwrap();
    let (new, cost) = cost(&v, add(&v, &bench.locks[0], node(0, 1)));
    assert_eq!((new, bench.inspect(node(0, 1))), (Ok(2), 2));
    let word = bench.word(node(0, 1));
    assert_eq!(
        word,
        LockWord {
            count: 2,
            ..LockWord::default()
        },
        "free, released twice"
    );
    (cost.round_trips, cost.verbs())
}

#[test]
fn an_update_is_two_round_trips_and_four_verbs() {
    assert_eq!(adding(builder(), LockOptions::default()), (2, 4));
}

#[test]
fn each_technique_that_is_off_costs_what_it_saves() {
    let on = LockOptions::default();
    assert_eq!(
        adding(
            builder(),
            LockOptions {
                lock_and_read: false,
                ..on
            }
        ),
        (3, 4)
    );
    assert_eq!(adding(builder(), LockOptions { combine: false, ..on }), (3, 4));
    assert_eq!(
        adding(
            builder(),
            LockOptions {
                lock_and_read: false,
                combine: false,
                ..on
            }
        ),
        (4, 4)
    );
    assert_eq!(
        adding(
            builder(),
            LockOptions {
                release: ReleaseBy::Faa,
                ..on
            }
        ),
        (2, 4)
    );
    assert_eq!(
        adding(
            builder(),
            LockOptions {
                local: Local::Off,
                ..on
            }
        ),
        (2, 4)
    );
    assert_eq!(
        adding(
            builder(),
            LockOptions {
                local: Local::Spin,
                ..on
            }
        ),
        (2, 4)
    );
    assert_eq!(
        adding(
            builder().chip_bytes(0),
            LockOptions {
                place: LockPlace::Host,
                ..on
            }
        ),
        (2, 4)
    );
}

#[test]
fn a_missing_promise_costs_round_trips_never_correctness() {
    let on = LockOptions::default();
    // The READ is posted after the lock is awaited.
    assert_eq!(
        adding(builder().cas_then_read(CasThenRead::AnyLineFirst), on),
        (3, 4)
    );
    // The lock is released by CAS in the same chain.
    assert_eq!(adding(builder().atomic_vs_write(AtomicVsWrite::Racy), on), (2, 4));
    // The first guess of the whole word is right, because this compute node released the word last.
    assert_eq!(adding(builder().masked_atomics(false), on), (2, 4));
    // Without a local table nothing is remembered. The guess misses the release count, so the chain [CAS, READ] is
    // posted twice.
    let off = LockOptions {
        local: Local::Off,
        ..on
    };
    assert_eq!(adding(builder().masked_atomics(false), off), (3, 6));
    // Every capability that the locks could use here is missing: [CAS], [READ], [WRITE, CAS].
    let weakest = builder()
        .chip_bytes(0)
        .masked_atomics(false)
        .cas_then_read(CasThenRead::AnyLineFirst)
        .atomic_vs_write(AtomicVsWrite::Racy);
    assert_eq!(adding(weakest, on), (3, 4));
}

#[test]
fn a_word_that_another_compute_node_released_is_guessed_wrong_once() {
    let bench = bench(builder().masked_atomics(false), 2, LockOptions::default());
    let at = node(0, 1);
    let (here, there) = (bench.client(0), bench.client(1));
    for (round, v, locks, expected) in [
        (1, &here, &bench.locks[0], (2, 4)),
        (2, &here, &bench.locks[0], (2, 4)),
        (3, &there, &bench.locks[1], (3, 6)),
        (4, &there, &bench.locks[1], (2, 4)),
        (5, &here, &bench.locks[0], (3, 6)),
        (6, &here, &bench.locks[0], (2, 4)),
    ] {
        let (new, cost) = cost(v, add(v, locks, at));
        assert_eq!((new, (cost.round_trips, cost.verbs())), (Ok(round), expected));
    }
}

#[test]
fn handed_over_an_update_is_two_round_trips_and_two_verbs() {
    let bench = bench(builder(), 1, LockOptions::default());
    let locks = &bench.locks[0];
    let clients = [0; 3].map(|cn| bench.client(cn));
    let at = node(0, 1);

    let first = lock(&clients[0], locks, at);
    let mut waiting: Vec<_> = clients[1..]
        .iter()
        .map(|v| Box::pin(locks.lock_and_read(v, at, at, 64)))
        .collect();
    assert!(waiting.iter_mut().all(|w| poll(w).is_pending()));
    block_on(first.write_back(clients[0].chain(at.node()).write_word(at, 10))).unwrap();
    let before = clients[1].meter().counters();

    let second = waiting.remove(0);
    let (guard, bytes) = block_on(second).unwrap();
    assert!(guard.handed_over());
    assert_eq!(count(&bytes), 10, "what the holder before wrote is seen");
    assert_eq!(
        guard.word().owner,
        clients[0].client().0,
        "the word names who took it from memory"
    );
    block_on(guard.write_back(clients[1].chain(at.node()).write_word(at, 11))).unwrap();
    let cost = clients[1].meter().counters() - before;
    assert_eq!(
        (
            cost.round_trips,
            cost.verbs(),
            cost.reads,
            cost.writes,
            cost.handovers
        ),
        (2, 2, 1, 1, 1)
    );

    // The last client that gets the lock by handover unlocks it: [READ], then [WRITE, WRITE unlock].
    let before = clients[2].meter().counters();
    let (guard, bytes) = block_on(waiting.remove(0)).unwrap();
    assert_eq!(count(&bytes), 11);
    block_on(guard.write_back(clients[2].chain(at.node()).write_word(at, 12))).unwrap();
    let cost = clients[2].meter().counters() - before;
    assert_eq!((cost.round_trips, cost.verbs()), (2, 3));
    assert_eq!(
        bench.word(at),
        LockWord {
            count: 1,
            ..LockWord::default()
        },
        "released in memory once"
    );
}

#[test]
fn handovers_in_a_row_are_bounded() {
    for max in [0, 1, 4] {
        let options = LockOptions {
            local: Local::Queue { handover_max: max },
            ..LockOptions::default()
        };
        let bench = bench(builder(), 1, options);
        let locks = &bench.locks[0];
        let clients: Vec<_> = (0..12).map(|_| bench.client(0)).collect();
        let at = node(0, 1);
        let mut waiting: Vec<_> = clients.iter().map(|v| Box::pin(locks.lock(v, at))).collect();
        let mut held = vec![match poll(&mut waiting[0]) {
            core::task::Poll::Ready(guard) => guard.unwrap(),
            core::task::Poll::Pending => panic!("the first is alone"),
        }];
        for w in &mut waiting[1..] {
            assert!(poll(w).is_pending());
        }
        let mut handed = Vec::new();
        for w in waiting.drain(..).skip(1) {
            block_on(held.remove(0).release()).unwrap();
            held.push(block_on(w).unwrap());
            handed.push(held[0].handed_over());
        }
        let expected: Vec<bool> = (1..12).map(|i| i % (max + 1) != 0).collect();
        assert_eq!(handed, expected, "max {max}");
    }
}

#[test]
fn releasing_unwritten_costs_one_verb_or_none() {
    let bench = bench(builder(), 1, LockOptions::default());
    let (v, w) = (bench.client(0), bench.client(0));
    let at = node(1, 3);
    let guard = lock(&v, &bench.locks[0], at);
    let (released, spent) = cost(&v, guard.release());
    assert_eq!((released, spent.round_trips, spent.verbs()), (Ok(()), 1, 1));

    let guard = lock(&v, &bench.locks[0], at);
    let mut next = Box::pin(bench.locks[0].lock(&w, at));
    assert!(poll(&mut next).is_pending());
    let (released, spent) = cost(&v, guard.release());
    assert_eq!((released, spent.verbs()), (Ok(()), 0));
    assert!(block_on(next).unwrap().handed_over());
}

#[test]
fn a_set_is_a_round_trip_per_lock_and_one_to_write_back() {
    let bench = bench(builder(), 1, LockOptions::default());
    let locks = &bench.locks[0];
    let v = bench.client(0);
    let (a, b) = (node(0, 1), node(1, 1));
    // This is a third node that shares a's lock.
    let twin = (2..)
        .map(|i| node(0, i))
        .find(|&n| locks.lock_of(n) == locks.lock_of(a))
        .unwrap();
    let (set, spent) = cost(&v, locks.lock_set(&v, &[b, twin, a]));
    let mut set = set.unwrap();
    assert_eq!((set.len(), spent.round_trips, spent.verbs()), (2, 2, 2));
    set.of(twin).unwrap().set_payload(7);
    assert!(set.of(node(0, 2)).is_none());
    let chains = [
        v.chain(a.node()).write_word(a, 1),
        v.chain(b.node()).write_word(b, 2),
    ];
    let (written, spent) = cost(&v, set.write_back(chains));
    assert_eq!(
        (written, spent.round_trips, spent.doorbells, spent.verbs()),
        (Ok(()), 1, 2, 4),
        "a WRITE and an unlock each; a chain counts when it is posted"
    );
    assert_eq!((bench.inspect(a), bench.inspect(b)), (1, 2));
    assert_eq!(
        bench.word(a),
        LockWord {
            count: 1,
            payload: 7,
            ..LockWord::default()
        }
    );
    assert_eq!(
        bench.word(b),
        LockWord {
            count: 1,
            ..LockWord::default()
        }
    );

    let set = block_on(locks.lock_set(&v, &[a, b])).unwrap();
    assert!(!set.is_empty());
    assert!(block_on(locks.lock_set(&v, &[])).unwrap().is_empty());
    let (released, spent) = cost(&v, set.release());
    assert_eq!((released, spent.round_trips, spent.verbs()), (Ok(()), 1, 2));

    // These options do not combine data and unlocks, and release by an atomic. So the set first writes and awaits all
    // data, including both chains to one memory node, and then posts all unlocks.
    let options = LockOptions {
        combine: false,
        release: ReleaseBy::Faa,
        ..LockOptions::default()
    };
    let apart = crate::common::bench(builder(), 1, options);
    let v = apart.client(0);
    let set = block_on(apart.locks[0].lock_set(&v, &[a, b])).unwrap();
    let chains = [a, node(0, 5), b].map(|n| v.chain(n.node()).write_word(n, 3));
    let (written, spent) = cost(&v, set.write_back(chains));
    assert_eq!((written, spent.round_trips, spent.verbs()), (Ok(()), 2, 5));
    assert!(!apart.word(a).locked && !apart.word(b).locked);
}

#[test]
fn the_payload_survives_holders_and_goes_along_with_a_handover() {
    let bench = bench(builder(), 1, LockOptions::default());
    let locks = &bench.locks[0];
    let (v, w) = (bench.client(0), bench.client(0));
    let at = node(0, 1);
    let mut guard = lock(&v, locks, at);
    guard.set_payload(0xABCC);
    let mut next = Box::pin(locks.lock(&w, at));
    assert!(poll(&mut next).is_pending());
    block_on(guard.write_back(v.chain(at.node()).write_word(at, 1))).unwrap();
    let mut guard = block_on(next).unwrap();
    assert_eq!(guard.word().payload, 0xABCC, "not in memory yet, but known");
    assert_eq!(bench.word(at).payload, 0);
    guard.set_payload(0xFFFF);
    drop(guard);
    assert_eq!(
        bench.word(at),
        LockWord {
            payload: 0xABCC,
            count: 1,
            ..LockWord::default()
        },
        "nothing was written"
    );
}

#[test]
fn the_staged_payload_is_written_with_the_unlock() {
    let by = |release, combine| LockOptions {
        release,
        combine,
        ..LockOptions::default()
    };
    for options in [
        by(ReleaseBy::Auto, true),
        by(ReleaseBy::Auto, false),
        by(ReleaseBy::Faa, true),
    ] {
        let bench = bench(builder(), 1, options);
        let locks = &bench.locks[0];
        let (v, at) = (bench.client(0), node(0, 1));
        let mut guard = lock(&v, locks, at);
        guard.set_payload(0xABCC);
        block_on(guard.write_back(v.chain(at.node()).write_word(at, 1))).unwrap();
        assert_eq!(bench.word(at).payload, 0xABCC, "{options:?}");
        let mut guard = lock(&v, locks, at);
        guard.set_payload(0xEE);
        block_on(guard.release()).unwrap();
        assert_eq!(bench.word(at).payload, 0xEE, "{options:?}");
        // The lock is handed over by a release.
        let w = bench.client(0);
        let mut guard = lock(&v, locks, at);
        guard.set_payload(0x12);
        let mut next = Box::pin(locks.lock(&w, at));
        assert!(poll(&mut next).is_pending());
        block_on(guard.release()).unwrap();
        let guard = block_on(next).unwrap();
        assert_eq!((guard.word().payload, bench.word(at).payload), (0x12, 0xEE));
        block_on(guard.release()).unwrap();
        assert_eq!(bench.word(at).payload, 0x12);
    }
}

#[test]
fn options_without_a_fallback_are_refused() {
    let options = LockOptions {
        release: ReleaseBy::Write,
        ..LockOptions::default()
    };
    let racy = bench(builder().atomic_vs_write(AtomicVsWrite::Racy), 1, options);
    let v = racy.client(0);
    match block_on(racy.locks[0].lock(&v, node(0, 0))) {
        Err(LockError::Refused(r)) => assert_eq!(r.missing, Capability::AtomicVsWriteSerialised),
        other => panic!("{other:?}"),
    }
    let caps = racy.world.caps(NodeId(0));
    assert_eq!(options.fit(&caps).release, ReleaseBy::Auto);
    assert!(options.fit(&caps).check(&caps).is_ok());
    let host = options.fit(&dm_verbs::Caps::default());
    assert_eq!(
        host,
        LockOptions {
            place: LockPlace::Host,
            lock_and_read: false,
            release: ReleaseBy::Auto,
            ..options
        }
    );
    assert!(LockOptions::default().needs().contains(&Capability::ChipMemory));
    let v = racy.client(0);
    let nowhere = dm_verbs::RemotePtr::new(NodeId(9), 4096).unwrap();
    let missing = block_on(racy.locks[0].lock(&v, nowhere)).map(|_| ());
    assert_eq!(missing, Err(LockError::NoLockTable { node: NodeId(9) }));
}
