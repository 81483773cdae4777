//! Tests of dropped futures, lost connections and dead holders: afterwards the lock is free, or the error names its
//! owner.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use crate::common::*;
use dm_index::IndexError;
use dm_lock::local::{Handed, LocalLockTable};
use dm_lock::{
    Attempted, GlobalLockTable, Local, LockError, LockFlaws, LockId, LockOptions, LockWord, Locks, ReleaseBy,
};
use dm_loopback::{Trouble, block_on};
use dm_sync::Fingerprint;
use dm_verbs::{AtomicVsWrite, ClientId, Effect, Env, NodeId, RemotePtr, Transport, Verbs, Why};

fn small_budget() -> LockOptions {
    LockOptions {
        budget: 8,
        ..LockOptions::default()
    }
}

/// Options with or without data and unlock in one chain.
fn combining(combine: bool) -> LockOptions {
    LockOptions {
        combine,
        ..small_budget()
    }
}

#[test]
fn a_dead_holder_ends_in_an_error_with_place_and_owner() {
    let bench = bench(builder(), 2, small_budget());
    let dead = bench.world.connect_as(0, ClientId(77)).unwrap();
    let v = bench.client(1);
    let guard = lock(&dead, &bench.locks[0], node(0, 1));
    core::mem::forget(guard);
    let error = block_on(bench.locks[1].lock(&v, node(0, 1)))
        .map(|_| ())
        .unwrap_err();
    let LockError::Held(e) = error else {
        panic!("{error}")
    };
    let Why::LockHeld { word } = e.why else {
        panic!("{e}")
    };
    assert_eq!(
        (e.at, e.attempts),
        (
            bench.locks[0]
                .table()
                .word_at(bench.locks[0].lock_of(node(0, 1)).unwrap()),
            8
        )
    );
    assert_eq!(LockWord::unpack(word).owner, 77);
    assert!(error.to_string().contains("held by client 77"), "{error}");
    assert_eq!(v.meter().counters().lock_retries, 8);
    // The local turn was passed on: the next client of this compute node gets an error too, and does not hang.
    assert!(block_on(bench.locks[1].lock(&bench.client(1), node(0, 1))).is_err());
}

#[test]
fn locking_twice_is_an_error_not_a_hang() {
    for local in [Local::Queue { handover_max: 4 }, Local::Spin] {
        let bench = bench(
            builder(),
            1,
            LockOptions {
                local,
                ..small_budget()
            },
        );
        let v = bench.client(0);
        let guard = lock(&v, &bench.locks[0], node(0, 1));
        let again = block_on(bench.locks[0].lock(&v, node(0, 1))).map(|_| ());
        assert_eq!(again, Err(LockError::AlreadyHeld { place: guard.place() }));
        block_on(guard.release()).unwrap();
    }
}

#[test]
fn a_dropped_guard_unlocks() {
    for (builder, options) in [
        (builder(), LockOptions::default()),
        (
            builder(),
            LockOptions {
                release: ReleaseBy::Faa,
                local: Local::Off,
                ..LockOptions::default()
            },
        ),
        (builder().masked_atomics(false), LockOptions::default()),
        (
            builder().atomic_vs_write(AtomicVsWrite::Racy),
            LockOptions::default(),
        ),
        (
            builder(),
            LockOptions {
                flaws: LockFlaws {
                    lanes16: true,
                    ..Default::default()
                },
                ..Default::default()
            },
        ),
    ] {
        let bench = bench(builder, 1, options);
        let (v, w) = (bench.client(0), bench.client(0));
        drop(lock(&v, &bench.locks[0], node(0, 1)));
        drop(lock(&w, &bench.locks[0], node(0, 1)));
        drop(block_on(bench.locks[0].lock_set(&v, &[node(0, 1), node(1, 1), node(1, 2)])).unwrap());
        assert!(
            v.operation().is_ok() && w.operation().is_ok(),
            "the undo did not fail"
        );
        block_on(lock(&w, &bench.locks[0], node(0, 1)).release()).unwrap();
    }
}

/// Polls an addition `polls` times and drops it. Returns whether it had finished.
fn add_dropped(bench: &Bench, v: &dm_loopback::Endpoint, polls: usize) -> bool {
    let mut adding = Box::pin(add(v, &bench.locks[0], node(0, 1)));
    (0..polls).any(|_| poll(&mut adding).is_ready())
}

#[test]
fn dropped_after_any_number_of_polls_the_lock_is_free() {
    for masked in [true, false] {
        for combine in [true, false] {
            let builder = builder().delays(3).masked_atomics(masked).seed(9);
            let bench = bench(
                builder,
                1,
                LockOptions {
                    combine,
                    ..LockOptions::default()
                },
            );
            let v = bench.client(0);
            let (mut done, mut dropped) = (0, 0);
            for polls in (0..16).cycle().take(400) {
                match add_dropped(&bench, &v, polls) {
                    true => done += 1,
                    false => dropped += 1,
                }
                assert!(!bench.word(node(0, 1)).locked, "after {polls} polls");
            }
            let value = bench.inspect(node(0, 1));
            assert!(
                (done..=done + dropped).contains(&value),
                "{value} not in {done}..={}",
                done + dropped
            );
            assert!(done > 50 && dropped > 50, "{done} done, {dropped} dropped");
            assert!(v.operation().is_ok());
        }
    }
}

#[test]
fn a_waiter_that_goes_away_is_passed_over_wherever_it_stands() {
    for gone in 0..3 {
        let bench = bench(builder(), 1, LockOptions::default());
        let locks = &bench.locks[0];
        let clients = [0; 4].map(|cn| bench.client(cn));
        let at = node(0, 1);
        let guard = lock(&clients[0], locks, at);
        let mut waiting: Vec<_> = clients[1..].iter().map(|v| Box::pin(locks.lock(v, at))).collect();
        assert!(waiting.iter_mut().all(|w| poll(w).is_pending()));
        drop(waiting.remove(gone));
        block_on(guard.release()).unwrap();
        for w in waiting {
            block_on(block_on(w).unwrap().release()).unwrap();
        }
        assert_eq!(
            bench.word(at),
            LockWord {
                count: 1,
                ..LockWord::default()
            }
        );
    }
}

#[test]
fn a_lock_handed_to_a_client_that_went_away_is_unlocked_for_it() {
    let bench = bench(builder(), 1, LockOptions::default());
    let locks = &bench.locks[0];
    let clients = [0; 3].map(|cn| bench.client(cn));
    let at = node(0, 1);
    // The only waiter is dropped after its turn was granted, before it is polled again.
    let guard = lock(&clients[0], locks, at);
    let mut next = Box::pin(locks.lock(&clients[1], at));
    assert!(poll(&mut next).is_pending());
    block_on(guard.release()).unwrap();
    assert!(bench.word(at).locked, "handed over, not unlocked");
    drop(next);
    assert!(!bench.word(at).locked);
    // The next client first sees that the unlock of the word that names client 0 has landed, and then takes the lock.
    let before = clients[2].meter().counters();
    let guard = lock(&clients[2], locks, at);
    let cost = clients[2].meter().counters() - before;
    assert_eq!((cost.reads, cost.masked_cas), (1, 1));
    block_on(guard.release()).unwrap();
    let before = clients[2].meter().counters();
    block_on(lock(&clients[2], locks, at).release()).unwrap();
    assert_eq!(
        (clients[2].meter().counters() - before).reads,
        0,
        "once is enough"
    );
}

#[test]
fn the_waiter_goes_while_the_write_back_is_in_flight() {
    let bench = bench(builder().delays(5).seed(3), 1, LockOptions::default());
    let locks = &bench.locks[0];
    let (v, w) = (bench.client(0), bench.client(0));
    let at = node(0, 1);
    let mut taken_alone = 0;
    for polls in 1..20 {
        let guard = lock(&v, locks, at);
        let mut next = Box::pin(locks.lock(&w, at));
        assert!(poll(&mut next).is_pending());
        let mut writing = Box::pin(guard.write_back(v.chain(at.node()).write_word(at, polls)));
        let over = (0..polls).any(|_| poll(&mut writing).is_ready());
        drop(next);
        if !over {
            taken_alone += 1;
            block_on(writing).unwrap();
        }
        assert!(!bench.word(at).locked, "after {polls} polls");
        assert_eq!(bench.inspect(at), polls);
    }
    assert!(taken_alone > 0, "no write-back was ever in flight");
}

#[test]
fn an_unlock_left_behind_after_a_handover_is_waited_for() {
    // Client `a` takes the lock and hands it to client `b`. The future of `b` is dropped after it has posted data and
    // unlock. Before `a` may post a CAS again, `a` must see that the word has changed.
    let mut left_behind = 0;
    for seed in 0..8 {
        let bench = bench(builder().delays(4).seed(seed), 1, LockOptions::default());
        let locks = &bench.locks[0];
        let (a, b) = (bench.client(0), bench.client(0));
        let at = node(0, 1);
        let guard = lock(&a, locks, at);
        let mut next = Box::pin(locks.lock(&b, at));
        assert!(poll(&mut next).is_pending());
        block_on(guard.release()).unwrap();
        let guard = block_on(next).unwrap();
        let mut writing = Box::pin(guard.write_back(b.chain(at.node()).write_word(at, 5)));
        if poll(&mut writing).is_ready() {
            continue;
        }
        left_behind += 1;
        assert_eq!(bench.inspect(at), 5, "posted");
        drop(writing);
        let before = a.meter().counters();
        let guard = lock(&a, locks, at);
        let looked = a.meter().counters() - before;
        assert_eq!(
            (looked.reads, looked.masked_cas),
            (1, 1),
            "the word was looked at first"
        );
        block_on(guard.release()).unwrap();
    }
    assert!(left_behind > 2, "the answer was hardly ever late: {left_behind}");
}

#[test]
fn an_unsettled_word_outlives_a_waiter_that_was_granted_its_turn_and_went() {
    let table = LocalLockTable::new(4);
    let id = LockId {
        node: NodeId(0),
        high: 0,
        index: 7,
    };
    let mut turn = table.try_acquire(id, ClientId(1)).unwrap().unwrap();
    turn.set_unsettled(Some(77));
    let mut next = Box::pin(table.acquire(id, ClientId(2), |_: Handed| None));
    assert!(poll(&mut next).is_pending());
    turn.pass();
    drop(next);
    let mut turn = table.try_acquire(id, ClientId(3)).unwrap().unwrap();
    assert_eq!(turn.unsettled(), Some(77));
    // Once settled, the word is forgotten.
    turn.set_unsettled(None);
    turn.pass();
    let turn = table.try_acquire(id, ClientId(1)).unwrap().unwrap();
    assert_eq!(turn.unsettled(), None);
}

#[test]
fn a_lost_node_is_an_error_and_the_lock_is_free_afterwards() {
    let bench = bench(builder(), 1, LockOptions::default());
    let v = bench.client(0);
    let locks = &bench.locks[0];
    let at = node(0, 1);

    // No request reaches the memory node: there is no effect, and nothing to undo.
    bench.world.cut(NodeId(0), Trouble::Unreachable);
    match block_on(locks.lock(&v, at)).map(|_| ()) {
        Err(LockError::Verb(e)) => assert_eq!(e.effect, Effect::None),
        other => panic!("{other:?}"),
    }
    bench.world.restore(NodeId(0));
    assert!(v.operation().is_ok() && !bench.word(at).locked);

    // The lock's CAS took effect and its answer was lost. The undo is posted behind it, and its answer is lost as
    // well.
    bench.world.cut(NodeId(0), Trouble::AnswersLost);
    assert!(matches!(
        block_on(locks.lock_and_read(&v, at, at, 64)).map(|_| ()),
        Err(LockError::Verb(_))
    ));
    bench.world.restore(NodeId(0));
    assert!(!bench.word(at).locked, "the undo ran");
    assert!(
        v.operation().is_err(),
        "the undo's own lost answer is not swallowed"
    );

    // Data and unlock took effect, the answer was lost.
    let guard = lock(&v, locks, at);
    bench.world.cut(NodeId(0), Trouble::AnswersLost);
    let lost = block_on(guard.write_back(v.chain(at.node()).write_word(at, 9)));
    assert!(matches!(lost, Err(LockError::Verb(_))));
    bench.world.restore(NodeId(0));
    assert_eq!(
        (bench.inspect(at), bench.word(at).locked, bench.word(at).count),
        (9, false, 1),
        "released once"
    );
    let _ = v.take_deferred();

    // Only the data landed: the second unlock frees the lock.
    let guard = lock(&v, locks, at);
    bench.world.cut(NodeId(0), Trouble::LostAfter(1));
    assert!(block_on(guard.write_back(v.chain(at.node()).write_word(at, 10))).is_err());
    bench.world.restore(NodeId(0));
    assert_eq!((bench.inspect(at), bench.word(at).locked), (10, false));
    let _ = v.take_deferred();
    assert_eq!(block_on(add(&v, locks, at)), Ok(11));
}

#[test]
fn a_lock_that_others_change_before_each_attempt_ends_in_an_error_that_says_so() {
    let bench = bench(
        builder().masked_atomics(false).delays(100).seed(7),
        2,
        small_budget(),
    );
    let (v, w, at) = (bench.client(0), bench.client(1), node(0, 1));
    let mut payload = 0;
    let mut change = || {
        let mut guard = lock(&w, &bench.locks[1], at);
        payload += 2;
        guard.set_payload(payload);
        block_on(guard.release()).unwrap();
    };
    change();
    let mut locking = Box::pin(bench.locks[0].lock(&v, at));
    let mut posted = 0;
    let error = loop {
        if let core::task::Poll::Ready(answer) = poll(&mut locking) {
            break answer.map(|_| ()).unwrap_err();
        }
        // Each attempt expects the word that the one before it found.
        if posted != v.meter().counters().cas {
            posted = v.meter().counters().cas;
            change();
        }
    };
    assert!(
        matches!(error, LockError::Held(e) if e.why == Why::Raced && e.attempts == 8),
        "{error:?}"
    );
}

/// Four locks per word, in lanes of 16 bits.
#[test]
fn lanes_have_a_number_each_and_touch_no_other() {
    let options = LockOptions {
        flaws: LockFlaws {
            lanes16: true,
            ..LockFlaws::default()
        },
        ..LockOptions::default()
    };
    let bench = bench(builder(), 1, options);
    let (v, locks) = (bench.client(0), &bench.locks[0]);
    let tag = u64::from(v.client().0) + 1;
    let mut met = [0; 4];
    for i in 0..64 {
        let at = node(0, i);
        let (id, place) = (locks.lock_of(at).unwrap(), locks.word_at(at).unwrap());
        assert_eq!(place.offset(), 8 * u64::from(id.index / 4));
        let guard = lock(&v, locks, at);
        assert_eq!(bench.inspect(place), tag << (16 * (id.index % 4)));
        block_on(guard.release()).unwrap();
        assert_eq!(bench.inspect(place), 0);
        met[(id.index % 4) as usize] += 1;
        assert!(id.index < 4 * WORDS);
    }
    let beyond = (0..64).filter(|&i| locks.lock_of(node(0, i)).unwrap().index >= WORDS);
    assert!(met.iter().all(|n| *n > 4) && beyond.count() > 30, "{met:?}");
}

#[test]
fn a_fenced_client_locks_no_more_and_its_abandoned_lock_names_it() {
    let bench = bench(builder(), 2, small_budget());
    let (v, w) = (bench.client(0), bench.client(1));
    let at = node(0, 1);
    let guard = lock(&v, &bench.locks[0], at);
    block_on(dm_verbs::Control::call(
        &w,
        dm_verbs::ControlRequest::Fence { client: v.client() },
    ))
    .unwrap();
    assert!(matches!(
        block_on(guard.write_back(v.chain(at.node()).write_word(at, 1))),
        Err(LockError::Verb(dm_verbs::VerbError {
            kind: dm_verbs::VerbErrorKind::Fenced,
            ..
        }))
    ));
    assert_eq!(
        (bench.inspect(at), bench.word(at).owner),
        (0, v.client().0),
        "nothing of it took effect"
    );
    assert!(matches!(
        block_on(bench.locks[1].lock(&w, at)).map(|_| ()),
        Err(LockError::Held(_))
    ));
}

#[test]
fn a_lock_that_was_taken_over_is_reported_lost() {
    for release in [ReleaseBy::Auto, ReleaseBy::Faa] {
        let bench = bench(
            builder().atomic_vs_write(AtomicVsWrite::Racy),
            1,
            LockOptions {
                release,
                ..LockOptions::default()
            },
        );
        let v = bench.client(0);
        let guard = lock(&v, &bench.locks[0], node(0, 1));
        let other = LockWord {
            owner: 5,
            ..guard.word()
        }
        .pack();
        assert_eq!(
            block_on(v.cas(guard.place(), guard.word().pack(), other)),
            Ok(guard.word().pack())
        );
        let place = guard.place();
        let held = guard.word().pack();
        assert_eq!(
            block_on(guard.release()),
            Err(LockError::Lost {
                place,
                held,
                found: other
            })
        );
        assert_eq!(
            bench.inspect(place),
            other,
            "{release:?} left the other holder's word alone"
        );
    }
}

#[test]
fn equal_queues_have_equal_fingerprints() {
    fn shared<T: Send + Sync>(locks: &T) -> &T {
        locks
    }
    let bench = bench(builder(), 1, LockOptions::default());
    let locks = shared(&bench.locks[0]);
    let clients: Vec<_> = (0..3).map(|_| bench.client(0)).collect();
    let at = node(0, 1);
    let empty = locks.fingerprint();
    let with_queue = |order: [usize; 2]| {
        let guard = lock(&clients[0], locks, at);
        let mut waiting = order.map(|c| Box::pin(locks.lock(&clients[c], at)));
        assert!(waiting.iter_mut().all(|w| poll(w).is_pending()));
        let queued = locks.fingerprint();
        drop(waiting);
        let held = locks.fingerprint();
        drop(guard);
        assert_eq!(locks.fingerprint(), empty);
        (queued, held)
    };
    let first = with_queue([1, 2]);
    assert_eq!(
        with_queue([1, 2]),
        first,
        "other slots of the slab, the same state"
    );
    let turned = with_queue([2, 1]);
    assert_eq!(turned.1, first.1);
    assert!(
        turned.0 != first.0 && first.0 != first.1 && first.1 != empty,
        "what matters is in it"
    );
}

/// A client waits until an earlier unlock has landed, and is dropped while its own CAS is in flight. The next client
/// must not wait for that unlock again.
#[test]
fn an_unlock_that_has_landed_is_not_awaited_again() {
    let options = LockOptions {
        budget: 100,
        ..LockOptions::default()
    };
    for polls in 1.. {
        let bench = bench(builder().masked_atomics(false).delays(3), 1, options);
        let (locks, at) = (&bench.locks[0], node(0, 1));
        let clients = [0; 4].map(|compute_node| bench.client(compute_node));
        // The second client gets the lock by handover and drops it, so it unlocks a word that names the first client.
        let first = block_on(locks.lock(&clients[0], at)).unwrap();
        let mut second = Box::pin(locks.lock(&clients[1], at));
        assert!(poll(&mut second).is_pending());
        block_on(first.release()).unwrap();
        drop(block_on(second).unwrap());
        let mut third = Box::pin(locks.lock(&clients[2], at));
        let over = (0..polls).find_map(|_| match poll(&mut third) {
            Poll::Ready(guard) => Some(guard.map(drop)),
            Poll::Pending => None,
        });
        drop(third);
        let fourth = block_on(locks.lock(&clients[3], at));
        assert!(fourth.is_ok(), "{fourth:?} after {polls} polls");
        if let Some(held) = over {
            held.unwrap();
            assert!(polls > 2, "{polls} polls");
            break;
        }
    }
}

/// Nodes with their own locks may be anywhere in a memory node of any size. An address at which no such node can begin
/// comes from damaged data.
#[test]
fn every_node_with_its_own_lock_has_its_own_word_or_is_refused_with_its_address() {
    let bench = bench(builder(), 1, small_budget());
    let v = bench.client(0);
    let locks = Locks::new(small_budget(), GlobalLockTable::in_nodes(1, 56));
    // Both nodes are beyond 256 GiB, so this world does not have their memory.
    let far = [1 << 38, 1 << 40].map(|offset| RemotePtr::new(NodeId(0), offset).unwrap());
    for at in far {
        let guard = locks.approach(&v, at).unwrap();
        assert_eq!(guard.place(), at.add(56).into());
        let beyond = block_on(locks.lock(&v, at)).map(|_| ()).unwrap_err();
        assert!(
            matches!(beyond, LockError::Verb(e) if e.at == at.add(56).into()),
            "{beyond}"
        );
    }
    let at = node(0, 1).add(8);
    let refused = block_on(locks.lock(&v, at)).map(|_| ()).unwrap_err();
    assert_eq!(refused, LockError::NoLockWord { at });
    assert!(refused.to_string().contains(&at.to_string()), "{refused}");
    assert!(matches!(IndexError::from(refused), IndexError::Pool { at: place, .. } if place == at));
    let nowhere = RemotePtr::new(NodeId(1), 4096).unwrap();
    assert_eq!(
        locks.lock_of(nowhere),
        Err(LockError::NoLockTable { node: NodeId(1) })
    );
}

#[test]
fn a_set_writes_nothing_to_a_memory_node_on_which_it_has_no_lock() {
    for combine in [true, false] {
        let bench = bench(builder(), 1, combining(combine));
        let v = bench.client(0);
        let (here, there) = (node(0, 1), node(1, 1));
        let set = block_on(bench.locks[0].lock_set(&v, &[here])).unwrap();
        let chains = [here, there].map(|at| v.chain(at.node()).write_word(at, 7));
        let refused = block_on(set.write_back(chains)).unwrap_err();
        assert_eq!(refused, LockError::NotGuarded { node: NodeId(1) });
        assert!(refused.to_string().contains("mn1"), "{refused}");
        assert_eq!(IndexError::from(refused).effect(), Effect::None);
        assert_eq!((bench.inspect(here), bench.inspect(there)), (0, 0));
        assert!(!bench.word(here).locked);
        let empty = block_on(bench.locks[0].lock_set(&v, &[])).unwrap();
        let chain = v.chain(there.node()).write_word(there, 7);
        let answer = block_on(empty.write_back([chain]));
        assert_eq!(answer, Err(refused));
        assert_eq!(bench.inspect(there), 0);
    }
}

/// The unlock would be in the chain of the data or behind it, or there would be none because the lock is handed over.
#[test]
fn nothing_is_written_to_another_memory_node_than_that_of_the_lock() {
    for combine in [true, false] {
        let bench = bench(builder(), 1, combining(combine));
        let v = bench.client(0);
        let (here, there) = (node(0, 1), node(1, 1));
        let chain = || v.chain(there.node()).write_word(there, 7);
        let guard = lock(&v, &bench.locks[0], here);
        let wrong = catch_unwind(AssertUnwindSafe(|| block_on(guard.write_back(chain()))));
        assert!(wrong.is_err(), "combine: {combine}");
        let mut guard = lock(&v, &bench.locks[0], here);
        let wrong = catch_unwind(AssertUnwindSafe(|| block_on(guard.hand_on(Some(chain())))));
        assert!(wrong.is_err(), "combine: {combine}");
        // If the guard is dropped because of the panic, the old payload stays.
        guard.set_payload(7);
        let wrong = catch_unwind(AssertUnwindSafe(|| block_on(guard.write_back(chain()))));
        assert!(wrong.is_err(), "combine: {combine}");
        let word = bench.word(here);
        assert_eq!((word.payload, word.locked), (0, false), "combine: {combine}");
        assert_eq!(bench.inspect(there), 0);
    }
}

#[test]
fn nothing_is_written_to_another_memory_node_than_that_of_the_share() {
    for combine in [true, false] {
        let options = LockOptions {
            shared: true,
            ..combining(combine)
        };
        let bench = bench(builder(), 1, options);
        let v = bench.client(0);
        let (here, there) = (node(0, 1), node(1, 1));
        let (share, _) = block_on(bench.locks[0].share_and_read(&v, here, here, 64)).unwrap();
        let wrong = v.chain(there.node()).write_word(there, 7);
        let wrong = catch_unwind(AssertUnwindSafe(|| block_on(share.write_back(wrong))));
        assert!(wrong.is_err(), "combine: {combine}");
        assert_eq!(bench.inspect(there), 0);
        // The share was given back, so the lock can be taken alone.
        block_on(lock(&v, &bench.locks[0], here).release()).unwrap();
    }
}

#[test]
fn no_bytes_of_another_memory_node_are_read_under_a_lock() {
    let bench = bench(builder(), 1, small_budget());
    let (v, w) = (bench.client(0), bench.client(0));
    let (locks, at) = (&bench.locks[0], node(0, 1));
    let held = lock(&v, locks, at);
    let mut guard = locks.approach(&w, at).unwrap();
    let Ok(Attempted::Not(obstacle)) = block_on(guard.attempt(at, 64)) else {
        panic!("the lock is held")
    };
    let mut insisting = Box::pin(guard.insist(obstacle, node(1, 1), 64));
    let refused = poll(&mut insisting).map(|answer| answer.map(|_| ()));
    let wrong = LockError::NotGuarded { node: NodeId(1) };
    assert_eq!(refused, Poll::Ready(Err(wrong)), "it does not wait");
    drop(insisting);
    drop(guard);
    block_on(held.release()).unwrap();
    assert!(!bench.word(at).locked, "nobody waits any more");
}

#[test]
#[should_panic(expected = "a lock lies on the memory node of what it guards")]
fn a_second_read_is_of_the_memory_node_of_the_lock() {
    let bench = bench(builder(), 1, small_budget());
    let v = bench.client(0);
    let mut guard = bench.locks[0].approach(&v, node(0, 1)).unwrap();
    drop(guard.attempt(node(0, 1), 64).and_read(node(1, 1), 64));
}

#[test]
#[should_panic(expected = "a node's own lock word has none")]
fn a_node_with_its_own_lock_has_no_lanes() {
    let flaws = LockFlaws {
        lanes16: true,
        ..LockFlaws::default()
    };
    let options = LockOptions {
        flaws,
        ..LockOptions::default()
    };
    let _ = Locks::new(options, GlobalLockTable::in_nodes(1, 56));
}
