//! Shared locks: their costs, which client waits for which, and dropped sharers.

use core::task::Poll;

use crate::common::*;
use dm_lock::{
    Attempted, GlobalLockTable, Guard, Local, LockError, LockOptions, LockPlace, LockWord, Locks, Share,
};
use dm_loopback::{Builder, Endpoint, Trouble, block_on, run_all};
use dm_sync::roster::Roster;
use dm_sync::{Arc, thread};
use dm_verbs::{AtomicVsWrite, Capability, CasThenRead, Effect, Env, NodeId, RemotePtr, Transport, Verbs};

fn shared() -> LockOptions {
    LockOptions {
        shared: true,
        budget: 8,
        ..LockOptions::default()
    }
}

fn join<'a>(v: &'a Endpoint, locks: &'a Locks, at: RemotePtr) -> Share<'a, Endpoint> {
    block_on(locks.share_and_read(v, at, at, 64)).unwrap().0
}

/// Adds one to `at`, a word that only one client uses, under a share of `node`'s lock.
async fn add_shared<V: Verbs>(v: &V, locks: &Locks, node: RemotePtr, at: u64) -> Result<(), LockError> {
    let (share, bytes) = locks.share_and_read(v, node, node, 64).await?;
    let new = count(&bytes[at as usize..]) + 1;
    share
        .write_back(v.chain(node.node()).write_word(node.add(at), new))
        .await
}

/// Returns the number of sharers, and whether the lock is held.
fn state(bench: &Bench, at: RemotePtr) -> (u32, bool) {
    let word = bench.word(at);
    (word.payload >> 16, word.locked)
}

/// Round trips, and the numbers of FAAs, masked CASes, READs and WRITEs.
type Cost = (u64, [u64; 4]);

/// Returns the cost of a change under a share, and of a change by a holder.
fn costs(builder: Builder, options: LockOptions) -> (Cost, Cost) {
    let bench = bench(builder, 1, options);
    let (v, at) = (bench.client(0), node(0, 1));
    let lap = |before| {
        let c = v.meter().counters() - before;
        (c.round_trips, [c.faa, c.masked_cas, c.reads, c.writes])
    };
    let before = v.meter().counters();
    block_on(add_shared(&v, &bench.locks[0], at, 8)).unwrap();
    let share = lap(before);
    let before = v.meter().counters();
    assert_eq!(block_on(add(&v, &bench.locks[0], at)), Ok(1));
    assert_eq!((state(&bench, at), bench.inspect(at.add(8))), ((0, false), 1));
    (share, lap(before))
}

#[test]
fn a_share_costs_what_a_lock_does() {
    let both = |trips| ((trips, [2, 0, 1, 1]), (trips, [0, 2, 1, 1]));
    let racy = builder().atomic_vs_write(AtomicVsWrite::Racy);
    assert_eq!(costs(builder(), shared()), both(2));
    assert_eq!(costs(racy, shared()), both(2));
    let unordered = builder().cas_then_read(CasThenRead::AnyLineFirst);
    assert_eq!(costs(unordered, shared()), both(3));
    let apart = LockOptions {
        combine: false,
        ..shared()
    };
    assert_eq!(costs(builder(), apart), both(3));
    let host = LockOptions {
        place: LockPlace::Host,
        ..shared()
    };
    assert_eq!(costs(builder().chip_bytes(0), host), both(2));
}

#[test]
fn without_masked_atomics_it_is_refused_by_name() {
    let bench = bench(builder().masked_atomics(false), 1, shared());
    let v = bench.client(0);
    let caps = v.caps(NodeId(0));
    let refused = block_on(bench.locks[0].lock(&v, node(0, 1))).map(|_| ());
    assert!(
        matches!(refused, Err(LockError::Refused(r)) if r.missing == Capability::MaskedAtomics),
        "{refused:?}"
    );
    assert!(shared().needs().contains(&Capability::MaskedAtomics) && !shared().fit(&caps).shared);
}

#[test]
fn sharers_wait_for_no_sharer_and_a_holder_for_all() {
    let bench = bench(builder(), 2, shared());
    let (a, b, w) = (bench.client(0), bench.client(0), bench.client(1));
    let at = node(0, 1);
    let first = join(&a, &bench.locks[0], at);
    let second = join(&b, &bench.locks[0], at);
    assert_eq!(state(&bench, at), (2, false));
    let mut adding = Box::pin(add(&w, &bench.locks[1], at));
    assert!(poll(&mut adding).is_pending());
    assert_eq!(state(&bench, at), (2, true), "nobody new comes in");
    // The holder, whose first READ was too early, sees what was written under a share.
    block_on(first.write_back(a.chain(NodeId(0)).write_word(at, 41))).unwrap();
    assert!(poll(&mut adding).is_pending(), "the other still shares it");
    let mut late = Box::pin(add_shared(&a, &bench.locks[0], at, 8));
    assert!(poll(&mut late).is_pending());
    assert_eq!(state(&bench, at), (1, true), "it took its share back");
    block_on(second.leave()).unwrap();
    assert_eq!(block_on(adding), Ok(42));
    block_on(late).unwrap();
    assert_eq!((bench.inspect(at.add(8)), state(&bench, at)), (1, (0, false)));
}

/// Takes the lock of `at` beside sharers, with a READ.
async fn beside<'a>(
    v: &'a Endpoint,
    locks: &'a Locks,
    at: RemotePtr,
) -> Result<Guard<'a, Endpoint>, LockError> {
    let mut guard = locks.approach(v, at)?.beside_sharers();
    if let Attempted::Not(obstacle) = guard.attempt(at, 64).await? {
        guard.insist(obstacle, at, 64).await?;
    }
    Ok(guard)
}

#[test]
fn a_holder_beside_sharers_waits_for_no_sharer_and_no_sharer_waits_for_it() {
    let bench = bench(builder(), 2, shared());
    let (a, b, w) = (bench.client(0), bench.client(0), bench.client(1));
    let at = node(0, 1);
    let first = join(&a, &bench.locks[0], at);
    let before = w.meter().counters();
    let guard = block_on(beside(&w, &bench.locks[1], at)).unwrap();
    let paid = w.meter().counters() - before;
    assert_eq!((paid.round_trips, paid.masked_cas, paid.reads), (1, 1, 1));
    assert_eq!(state(&bench, at), (1, true));
    let second = join(&b, &bench.locks[0], at);
    assert_eq!((b.meter().counters().faa, state(&bench, at)), (1, (2, true)));
    // It excludes holders of both kinds.
    let mut other = Box::pin(beside(&a, &bench.locks[0], at));
    assert!(poll(&mut other).is_pending());
    drop(other);
    let mut adding = Box::pin(add(&b, &bench.locks[0], at));
    assert!(poll(&mut adding).is_pending());
    block_on(guard.write_back(w.chain(NodeId(0)).write_word(at.add(16), 7))).unwrap();
    block_on(first.leave()).unwrap();
    assert!(poll(&mut adding).is_pending(), "it still waits for a sharer");
    block_on(second.leave()).unwrap();
    assert_eq!(block_on(adding), Ok(1));
    // The word does not show whether the last holder held the lock alone or beside sharers.
    let word = bench.word(at);
    assert_eq!(
        (word.locked, word.payload, bench.inspect(at.add(16))),
        (false, 0, 7)
    );
}

#[test]
fn a_dropped_holder_beside_sharers_leaves_the_word_of_a_free_lock() {
    for polls in 0..6 {
        let bench = bench(builder().delays(2).seed(polls), 2, shared());
        let (v, w, at) = (bench.client(0), bench.client(1), node(0, 1));
        let share = join(&w, &bench.locks[1], at);
        {
            let mut taking = Box::pin(beside(&v, &bench.locks[0], at));
            let held = (0..polls).find_map(|_| match poll(&mut taking) {
                Poll::Ready(guard) => Some(guard),
                Poll::Pending => None,
            });
            drop(held);
        }
        block_on(share.leave()).unwrap();
        // Two holders follow, which exclude sharers.
        assert_eq!(block_on(add(&w, &bench.locks[1], at)), Ok(1));
        assert_eq!(block_on(add(&v, &bench.locks[0], at)), Ok(2));
        let word = bench.word(at);
        assert_eq!((word.locked, word.payload), (false, 0), "after {polls} polls");
    }
}

#[test]
fn a_holder_beside_sharers_hands_nothing_over_but_may_get_a_lock() {
    let bench = bench(builder(), 1, shared());
    let (v, w, at) = (bench.client(0), bench.client(0), node(0, 1));
    let guard = block_on(beside(&v, &bench.locks[0], at)).unwrap();
    let mut adding = Box::pin(add(&w, &bench.locks[0], at));
    assert!(poll(&mut adding).is_pending());
    block_on(guard.release()).unwrap();
    assert_eq!(state(&bench, at), (0, false), "it was released in memory");
    assert_eq!(block_on(adding), Ok(1));
    // A lock that was taken alone and handed over stays alone.
    let alone = lock(&v, &bench.locks[0], at);
    let mut next = Box::pin(beside(&w, &bench.locks[0], at));
    assert!(poll(&mut next).is_pending());
    block_on(alone.release()).unwrap();
    let next = block_on(next).unwrap();
    assert!(next.handed_over());
    let mut share = Box::pin(bench.locks[0].share_and_read(&v, at, at, 64));
    assert!(poll(&mut share).is_pending());
    assert_eq!(state(&bench, at), (0, true), "it took its share back");
    block_on(next.release()).unwrap();
    block_on(block_on(share).unwrap().0.leave()).unwrap();
    assert_eq!(state(&bench, at), (0, false));
}

#[test]
fn an_exchange_under_a_share_tells_what_it_found() {
    for (options, trips) in [
        (shared(), 2),
        (
            LockOptions {
                combine: false,
                ..shared()
            },
            3,
        ),
    ] {
        let bench = bench(builder(), 1, options);
        let (v, at) = (bench.client(0), node(0, 1));
        let before = v.meter().counters();
        let share = join(&v, &bench.locks[0], at);
        assert_eq!(block_on(share.exchange(at.add(8), 0, 5)), Ok(0));
        let paid = v.meter().counters() - before;
        assert_eq!(
            (paid.round_trips, paid.cas, paid.faa, paid.reads),
            (trips, 1, 2, 1)
        );
        let share = join(&v, &bench.locks[0], at);
        assert_eq!(block_on(share.exchange(at.add(8), 0, 6)), Ok(5), "it failed");
        assert_eq!((bench.inspect(at.add(8)), state(&bench, at)), (5, (0, false)));
    }
}

#[test]
fn a_dead_sharer_ends_in_an_error_with_the_place_and_a_dead_holder_too() {
    let bench = bench(builder(), 2, shared());
    let (v, w, at) = (bench.client(0), bench.client(1), node(0, 1));
    core::mem::forget(join(&v, &bench.locks[0], at));
    let place = bench.locks[0].word_at(at).unwrap();
    for _ in 0..2 {
        let error = block_on(bench.locks[1].lock(&w, at)).map(|_| ()).unwrap_err();
        let (sharers, attempts) = (1, 8);
        assert_eq!(
            error,
            LockError::Shared {
                place,
                sharers,
                attempts
            }
        );
        assert!(error.to_string().contains(&place.to_string()), "{error}");
        let error = dm_index::IndexError::from(error);
        assert!(
            matches!(error, dm_index::IndexError::Lock { lock, .. } if lock == place),
            "{error}"
        );
        assert_eq!(state(&bench, at), (1, false), "it is not held");
    }
    // Others share it as before.
    block_on(add_shared(&w, &bench.locks[1], at, 8)).unwrap();
    // The holder of another lock dies.
    let at = node(1, 1);
    core::mem::forget(lock(&v, &bench.locks[0], at));
    let error = block_on(add_shared(&w, &bench.locks[1], at, 8));
    assert!(matches!(error, Err(LockError::Held(_))), "{error:?}");
    assert_eq!(state(&bench, at).0, 0);
}

#[test]
fn dropped_after_any_number_of_polls_nothing_is_shared_or_held() {
    for combine in [true, false] {
        let options = LockOptions { combine, ..shared() };
        let bench = bench(builder().delays(3).seed(7), 1, options);
        let (v, w, at) = (bench.client(0), bench.client(0), node(0, 1));
        let (mut done, mut dropped) = (0, 0);
        for polls in (0..16).cycle().take(400) {
            // In every other round, another client holds the lock while this client tries to share it, and then shares
            // it while this client tries to hold it.
            let other = polls % 2 == 1;
            let held = other.then(|| lock(&w, &bench.locks[0], at));
            let mut sharing = Box::pin(add_shared(&v, &bench.locks[0], at, 8));
            let over = (0..polls / 2).any(|_| poll(&mut sharing).is_ready());
            drop((sharing, held));
            let share = other.then(|| join(&w, &bench.locks[0], at));
            let mut adding = Box::pin(add(&v, &bench.locks[0], at));
            let _ = (0..polls / 2).any(|_| poll(&mut adding).is_ready());
            drop((adding, share));
            assert_eq!(state(&bench, at), (0, false), "after {polls} polls");
            done += u64::from(over);
            dropped += u64::from(!over);
        }
        let value = bench.inspect(at.add(8));
        assert!((done..=done + dropped).contains(&value), "{value}");
        assert!(done > 50 && dropped > 50, "{done} done, {dropped} dropped");
        assert!(v.operation().is_ok() && w.operation().is_ok());
    }
}

#[test]
fn a_share_is_never_given_back_twice() {
    let bench = bench(builder(), 1, shared());
    let (v, locks, at) = (bench.client(0), &bench.locks[0], node(0, 1));
    let cut = |trouble| bench.world.cut(NodeId(0), trouble);
    let restored = |shares| {
        bench.world.restore(NodeId(0));
        assert_eq!(state(&bench, at), (shares, false));
        let _ = v.take_deferred();
    };
    // No request reaches the memory node, so there is nothing to give back.
    cut(Trouble::Unreachable);
    let error = block_on(add_shared(&v, locks, at, 8));
    assert!(matches!(error, Err(LockError::Verb(e)) if e.overall() == Effect::None));
    restored(0);
    // The data and the release of the share have landed, but the answer is lost. The share is not released a second
    // time.
    let share = join(&v, locks, at);
    cut(Trouble::AnswersLost);
    let lost = block_on(share.write_back(v.chain(NodeId(0)).write_word(at, 9)));
    assert!(matches!(lost, Err(LockError::Verb(_))));
    restored(0);
    // The answer to the share itself is lost. It is unknown whether the share was taken, so it stays counted.
    cut(Trouble::AnswersLost);
    assert!(block_on(add_shared(&v, locks, at, 8)).is_err());
    restored(1);
}

#[test]
fn a_share_whose_leave_failed_is_given_back_where_it_certainly_was_not() {
    let bench = bench(builder(), 1, shared());
    let (v, locks, at) = (bench.client(0), &bench.locks[0], node(0, 1));
    // The answer is lost, but the share was given back.
    let share = join(&v, locks, at);
    bench.world.cut(NodeId(0), Trouble::AnswersLost);
    assert!(block_on(share.leave()).is_err());
    bench.world.restore(NodeId(0));
    assert_eq!(state(&bench, at), (0, false));
    let _ = v.take_deferred();
    // The data is refused, so nothing of the chain was sent.
    let share = join(&v, locks, at);
    let beyond = RemotePtr::new(NodeId(0), 1 << 40).unwrap();
    let refused = block_on(share.write_back(v.chain(NodeId(0)).write_word(beyond, 9)));
    assert!(
        matches!(refused, Err(LockError::Verb(e)) if e.overall() == Effect::None),
        "{refused:?}"
    );
    assert_eq!(state(&bench, at), (0, false));
}

/// The READ behind the share is refused, and the share was taken.
#[test]
fn a_share_without_its_read_is_given_back() {
    let bench = bench(builder(), 1, shared());
    let (v, at) = (bench.client(0), node(0, 1));
    let beyond = RemotePtr::new(NodeId(0), 1 << 40).unwrap();
    let refused = block_on(bench.locks[0].share_and_read(&v, at, beyond, 64)).map(drop);
    assert!(
        matches!(refused, Err(LockError::Verb(e)) if e.index == 1 && e.effect == Effect::None),
        "{refused:?}"
    );
    assert_eq!(state(&bench, at), (0, false));
}

/// No atomic can overtake the data here, so a dropped guard or share posts no READ before its atomic.
#[test]
fn a_dropped_guard_posts_no_read_if_no_atomic_can_overtake_its_data() {
    for chip in [0, 1 << 18] {
        let options = match chip {
            0 => LockOptions {
                place: LockPlace::Host,
                ..shared()
            },
            _ => shared(),
        };
        let bench = bench(builder().chip_bytes(chip), 1, options);
        let (v, at) = (bench.client(0), node(0, 1));
        let (guard, share_at) = (lock(&v, &bench.locks[0], at), node(1, 1));
        let share = join(&v, &bench.locks[0], share_at);
        let before = v.meter().counters();
        drop((guard, share));
        let c = v.meter().counters() - before;
        assert_eq!((c.masked_cas, c.faa, c.reads), (1, 1, 0));
        assert_eq!(
            (state(&bench, at), state(&bench, share_at)),
            ((0, false), (0, false))
        );
    }
}

#[test]
fn a_word_that_was_overwritten_is_reported_lost() {
    let bench = bench(builder(), 1, shared());
    let (v, at) = (bench.client(0), node(0, 1));
    let share = join(&v, &bench.locks[0], at);
    block_on(v.write(share.place(), &LockWord::default().pack().to_le_bytes())).unwrap();
    assert!(matches!(block_on(share.leave()), Err(LockError::Lost { .. })));
    assert_eq!(state(&bench, at), (0, false), "nobody shares it for ever");
}

#[test]
fn a_refused_share_is_not_released_after_the_node_is_back() {
    let bench = bench(builder().delays(3).seed(7), 1, shared());
    let (v, at) = (bench.client(0), node(0, 1));
    for _ in 0..20 {
        bench.world.cut(NodeId(0), Trouble::Unreachable);
        let mut sharing = Box::pin(bench.locks[0].share_and_read(&v, at, at, 64));
        let answered = poll(&mut sharing).is_ready();
        bench.world.restore(NodeId(0));
        drop(sharing);
        assert_eq!(state(&bench, at), (0, false), "answered: {answered}");
        let _ = v.take_deferred();
    }
}

#[test]
fn a_sharer_gives_up_behind_a_stream_of_holders() {
    let bench = bench(builder().delays(1_000).seed(7), 2, shared());
    let (v, w, at) = (bench.client(0), bench.client(1), node(0, 1));
    let mut held = Some(lock(&w, &bench.locks[1], at));
    let mut sharing = Box::pin(bench.locks[0].share_and_read(&v, at, at, 64));
    let (mut looks, mut holders) = (0, 1);
    let error = loop {
        if let Poll::Ready(answer) = poll(&mut sharing) {
            break answer.map(|_| ()).unwrap_err();
        }
        // Each FAA comes with one READ, and each wait takes one further READ. So after each READ the test frees the
        // lock or takes it again: each FAA finds the lock held, and each wait finds it free.
        if looks != v.meter().counters().reads {
            looks = v.meter().counters().reads;
            if held.take().is_none() {
                held = Some(lock(&w, &bench.locks[1], at));
                holders += 1;
            }
        }
    };
    assert!(
        matches!(error, LockError::Held(e) if e.attempts == 16),
        "{error:?}"
    );
    assert_eq!(holders, 16);
    drop(held);
    assert_eq!(state(&bench, at), (0, false));
}

/// While the shares of a dead client are being given back, sharing is forbidden. A client waits by READs until it may
/// share again.
#[test]
fn a_client_waits_until_it_may_share() {
    let bench = bench(builder(), 1, shared());
    let (v, at) = (bench.client(0), node(0, 1));
    let roster = Arc::new(Roster::default());
    let locks = Locks::new(shared(), GlobalLockTable::on_chip(1, 64)).in_roster(roster.clone());
    assert!(!locks.is_shut(&v));
    roster.gate().shut();
    assert!(locks.is_shut(&v));
    let refused = block_on(locks.share_and_read(&v, at, at, 64)).map(drop);
    assert!(matches!(refused, Err(LockError::Held(_))), "{refused:?}");

    let before = v.meter().counters();
    {
        let mut waiting = Box::pin(locks.until_open(&v, at));
        assert!(poll(&mut waiting).is_pending());
        roster.gate().open();
        block_on(waiting).unwrap();
    }
    let counted = v.meter().counters() - before;
    assert_eq!((counted.reads, counted.faa, counted.cas), (1, 0, 0));
    block_on(join(&v, &locks, at).leave()).unwrap();

    // If the gate stays shut, the wait ends with an error.
    roster.gate().shut();
    let stuck = block_on(locks.until_open(&v, at));
    assert!(
        matches!(stuck, Err(LockError::Held(e)) if e.attempts == 1 << 12),
        "{stuck:?}"
    );
}

/// Sharers add to words of their own; holders move the amounts that they find there to a sum.
#[test]
fn nothing_is_lost_between_sharers_and_holders() {
    for local in [Local::Queue { handover_max: 4 }, Local::Off] {
        // On a busy machine, each handover of a lock to another thread costs a time slice.
        sharers_and_holders(builder(), local, 4, 40);
        sharers_and_holders(builder().delays(2), local, 1, 500);
    }
}

/// Runs four sharers and four holders on this many threads.
fn sharers_and_holders(builder: Builder, local: Local, threads: u16, each: u64) {
    let options = LockOptions {
        local,
        budget: u32::MAX,
        ..shared()
    };
    let (bench, at) = (bench(builder, 2, options), node(0, 1));
    thread::scope(|scope| {
        for t in 0..threads {
            let bench = &bench;
            scope.spawn(move || {
                let numbers = (t..8).step_by(usize::from(threads));
                let clients: Vec<_> = numbers.map(|n| (n, bench.client(n % 2))).collect();
                run_all(clients.iter().map(|(n, v)| async move {
                    let locks = &bench.locks[usize::from(n % 2)];
                    for _ in 0..each {
                        if *n < 4 {
                            let own = 8 + 8 * u64::from(*n);
                            let mut added = add_shared(v, locks, at, own).await;
                            while let Err(LockError::Held(_)) = added {
                                added = add_shared(v, locks, at, own).await;
                            }
                            added.unwrap();
                            continue;
                        }
                        let (guard, bytes) = locks.lock_and_read(v, at, at, 64).await.unwrap();
                        let sum: u64 = (0..5).map(|i| count(&bytes[8 * i..])).sum();
                        let mut swept = [0; 40];
                        swept[..8].copy_from_slice(&sum.to_le_bytes());
                        guard
                            .write_back(v.chain(NodeId(0)).write(at, &swept))
                            .await
                            .unwrap();
                    }
                }));
            });
        }
    });
    let sum: u64 = (0..5).map(|i| bench.inspect(at.add(8 * i))).sum();
    assert_eq!((sum, state(&bench, at)), (4 * each, (0, false)));
}
