//! Each published flaw, switched on alone, breaks what its description says; without it the same script passes.

use crate::common::*;
use dm_lock::{Local, LockError, LockFlaws, LockOptions};
use dm_loopback::block_on;
use dm_verbs::{MaskedCas, Verbs, Why};

/// Runs two clients. Client a holds the lock, and client b queues. Then a begins to write 1 back, and is polled once.
/// If b has the lock after that, returns the word in memory when a has ended; otherwise returns `None`.
fn handed_over_with(flaws: LockFlaws) -> Option<u64> {
    // The local step before the handover is the only await in `write_back` before the chain is posted.
    let bench = bench(
        builder().delays(6).seed(4),
        1,
        LockOptions {
            flaws,
            ..LockOptions::default()
        },
    );
    let locks = &bench.locks[0];
    let (a, b) = (bench.client(0), bench.client(0));
    let at = node(0, 1);
    let guard = lock(&a, locks, at);
    let mut next = Box::pin(locks.lock(&b, at));
    assert!(poll(&mut next).is_pending());
    let mut writing = Box::pin(guard.write_back(a.chain(at.node()).write_word(at, 1)));
    assert!(
        poll(&mut writing).is_pending(),
        "the completion of the WRITE is late"
    );
    let early = poll(&mut next).is_ready();
    block_on(writing).unwrap();
    early.then(|| bench.inspect(at))
}

#[test]
fn t_s3_the_lock_is_handed_over_while_the_write_back_is_not_done() {
    let flaws = LockFlaws {
        handover_before_write_back: true,
        ..LockFlaws::default()
    };
    assert!(
        handed_over_with(flaws).is_some(),
        "b has the lock while a's chain is in flight"
    );
    assert_eq!(
        handed_over_with(LockFlaws::default()),
        None,
        "b waits for a's completion"
    );
}

#[test]
fn t_s6_packed_tickets_let_two_in_and_then_nobody() {
    let flaws = LockFlaws {
        packed_tickets: Some(2),
        ..LockFlaws::default()
    };
    let options = LockOptions {
        flaws,
        budget: 16,
        ..LockOptions::default()
    };
    let at = node(0, 1);
    let run = |options: LockOptions| {
        let bench = bench(builder(), 1, options);
        let (v, w) = (bench.client(0), bench.client(0));
        for _ in 0..3 {
            block_on(lock(&v, &bench.locks[0], at).release()).unwrap();
        }
        // Drawing the fourth ticket changes the number that is being served. So a second client passes the local lock
        // while it is held, and reaches the remote lock (which still excludes it).
        let guard = lock(&v, &bench.locks[0], at);
        let mut taking = Box::pin(bench.locks[0].lock(&w, at));
        let second = (0..64).find_map(|_| match poll(&mut taking) {
            core::task::Poll::Ready(result) => Some(result.map(|_| ())),
            core::task::Poll::Pending => None,
        });
        drop(guard);
        drop(taking);
        let third = block_on(bench.locks[0].lock(&w, at)).map(|_| ());
        (second, third)
    };
    let (second, third) = run(options);
    // The second client tried the remote lock although a client of its own compute node holds the local one.
    assert!(
        matches!(second, Some(Err(LockError::Held(e))) if matches!(e.why, Why::LockHeld { .. })),
        "{second:?}"
    );
    // The lock is free, but no client passes the local lock any more.
    assert!(
        matches!(third, Err(LockError::Held(e)) if e.why == Why::Raced),
        "{third:?}"
    );

    let (second, third) = run(LockOptions {
        flaws: LockFlaws::default(),
        ..options
    });
    assert_eq!(
        (second, third),
        (None, Ok(())),
        "with a queue the second waits, and the third gets in"
    );
}

#[test]
fn t_s13_a_lane_released_by_write_beside_a_cas_is_lost_where_they_race() {
    // These are the steps of a card that does not serialise atomics with WRITEs. A CAS on lane 1 reads the word, the
    // release of lane 0 lands, and the CAS writes the word back.
    let take_lane_1 = MaskedCas {
        compare: 0,
        compare_mask: 0xFFFF_0000,
        swap: 7 << 16,
        swap_mask: 0xFFFF_0000,
    };
    let word = 5; // lane 0 held by client 4
    let read = word;
    let released = word & !0xFFFF;
    assert!(take_lane_1.matches(read));
    let written = take_lane_1.apply(read);
    assert_eq!(released, 0);
    assert_eq!(
        written & 0xFFFF,
        5,
        "lane 0 is held again, by somebody who has gone"
    );

    // On such a card, locks with lanes are released by an atomic, and release by WRITE is refused. Where atomics and
    // WRITEs are serialised, as here and in `storm.rs`, a WRITE releases a lane and loses nothing.
    let flaws = LockFlaws {
        lanes16: true,
        ..LockFlaws::default()
    };
    let options = LockOptions {
        flaws,
        local: Local::Off,
        ..LockOptions::default()
    };
    let bench = bench(builder(), 1, options);
    let v = bench.client(0);
    let guard = lock(&v, &bench.locks[0], node(0, 1));
    assert_eq!(
        (guard.word().owner, guard.word().locked),
        (dm_verbs::Env::client(&v).0, true)
    );
    let word = bench.inspect(guard.place());
    assert!(
        word != 0 && (0..4).any(|lane| word >> (16 * lane) <= 0xFFFF),
        "one lane of the word: {word:#x}"
    );
    block_on(guard.release()).unwrap();
    assert!(bench.locks[0].lock_of(node(0, 1)).unwrap().index < 4 * WORDS);
}
