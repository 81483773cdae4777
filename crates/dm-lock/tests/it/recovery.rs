//! Locks of members of a pool: which client frees the lock of a dead member, and which client may get a lock by
//! handover.

use std::task::Poll;

use crate::common::*;
use dm_lock::{DOUBT, LockError, LockOptions, LockWord};
use dm_loopback::{Trouble, block_on};
use dm_sync::Arc;
use dm_sync::roster::Roster;
use dm_verbs::{Control, ControlRequest, Env, NodeId, Why};

/// The member that dies.
const DEAD: u16 = 3;

/// Makes a world whose compute nodes have a roster each.
fn members(
    builder: dm_loopback::Builder,
    compute_nodes: usize,
    options: LockOptions,
) -> (Bench, Vec<Arc<Roster>>) {
    let bench = bench(builder, compute_nodes, options);
    let rosters: Vec<_> = (0..compute_nodes).map(|_| Arc::new(Roster::default())).collect();
    let locks = bench.locks.into_iter().zip(&rosters);
    let locks = locks.map(|(locks, roster)| locks.in_roster(Arc::clone(roster)));
    let bench = Bench {
        locks: locks.collect(),
        ..bench
    };
    (bench, rosters)
}

fn small_budget() -> LockOptions {
    LockOptions {
        budget: 8,
        ..LockOptions::default()
    }
}

#[test]
fn a_waiting_client_asks_about_a_dead_member_and_then_frees_its_lock() {
    for masked in [true, false] {
        let (bench, rosters) = members(builder().masked_atomics(masked), 2, small_budget());
        let (dead, v, at) = (bench.client(0), bench.client(1), node(0, 1));
        rosters[0].enlist(dead.client().0, DEAD);
        core::mem::forget(lock(&dead, &bench.locks[0], at));
        assert_eq!((bench.word(at).locked, bench.word(at).member), (true, DEAD));
        // A waiting client asks twice, each time before a READ of the slots.
        for fenced in [vec![], vec![DEAD]] {
            let held = block_on(bench.locks[1].lock(&v, at)).map(drop);
            assert!(matches!(held, Err(LockError::Held(_))), "{held:?}");
            let answered = rosters[1].answer(&rosters[1].questions(), 100, [].into_iter());
            assert_eq!(answered, fenced);
        }
        rosters[1].bury(DEAD);
        let before = v.meter().counters();
        let guard = lock(&v, &bench.locks[1], at);
        let spent = v.meter().counters() - before;
        // One CAS finds the lock held, the next one frees it, and the last one takes it.
        let expected = if masked { (2, 1) } else { (0, 3) };
        assert_eq!((spent.masked_cas, spent.cas), expected);
        assert_eq!((spent.freed_locks, spent.lock_retries), (1, 0));
        assert!(guard.in_doubt());
        block_on(guard.release()).unwrap();
        let free = LockWord {
            count: 2,
            payload: DOUBT,
            ..LockWord::default()
        };
        assert_eq!(bench.word(at), free);
    }
}

/// Two clients find the lock of a dead member. The slower one finds that the other one holds it now, and waits.
#[test]
fn a_client_that_frees_a_lock_too_late_waits_for_the_new_holder() {
    let (bench, rosters) = members(builder().delays(100).seed(7), 3, small_budget());
    let (dead, slow, fast) = (bench.client(0), bench.client(1), bench.client(2));
    let at = node(0, 1);
    rosters[0].enlist(dead.client().0, DEAD);
    core::mem::forget(lock(&dead, &bench.locks[0], at));
    rosters[1].bury(DEAD);
    rosters[2].bury(DEAD);
    let mut waiting = Box::pin(bench.locks[1].lock(&slow, at));
    assert!(poll(&mut waiting).is_pending());
    let guard = lock(&fast, &bench.locks[2], at);
    let error = block_on(waiting).map(drop).unwrap_err();
    let LockError::Held(e) = error else {
        panic!("{error}")
    };
    let Why::LockHeld { word } = e.why else {
        panic!("{e}")
    };
    assert_eq!(LockWord::unpack(word), guard.word());
    let [slow, fast] = [&slow, &fast].map(|v| v.meter().counters());
    // Each of the slow client's 8 attempts finds the lock held, the first one by the dead member and the others by the
    // new holder. The CAS that should free the lock fails, and its result shows the new holder too, so no attempt
    // follows at once.
    assert_eq!((slow.masked_cas, slow.cas, slow.lock_retries), (8, 1, 8));
    assert_eq!((slow.freed_locks, fast.freed_locks), (0, 1));
}

/// A lock word names the member whose death frees the lock. So the lock must not be handed to a client that is fenced
/// with another member.
#[test]
fn a_lock_is_handed_over_only_within_its_member() {
    for (holder, next, handed) in [
        (3, 3, true),
        (3, 4, false),
        (3, 0, false),
        (0, 4, true),
        (0, 0, true),
    ] {
        let (bench, rosters) = members(builder(), 1, LockOptions::default());
        let (v, w, at) = (bench.client(0), bench.client(0), node(0, 1));
        rosters[0].enlist(v.client().0, holder);
        rosters[0].enlist(w.client().0, next);
        let guard = lock(&v, &bench.locks[0], at);
        let mut waiting = Box::pin(bench.locks[0].lock(&w, at));
        assert!(poll(&mut waiting).is_pending());
        block_on(guard.release()).unwrap();
        assert_eq!(bench.word(at).locked, handed, "from {holder} to {next}");
        let guard = block_on(waiting).unwrap();
        assert_eq!(guard.handed_over(), handed, "from {holder} to {next}");
        assert_eq!(bench.word(at).member, if handed { holder } else { next });
    }
}

/// Before a client waits for others, all requests of its ended shares must have landed. Otherwise the counts of dead
/// sharers could not be reset, and the client might wait for this reset for ever.
#[test]
fn a_client_settles_its_dropped_shares_before_it_waits() {
    let shared = LockOptions {
        shared: true,
        ..small_budget()
    };
    // Requests of a fenced client never land, so its shares count as settled. If a memory node does not answer, the
    // requests may still land there.
    for (fence, cut, reads, clear) in [
        (false, None, 2, true),
        (true, None, 2, true),
        (false, Some(0), 1, false),
        (false, Some(1), 2, false),
    ] {
        let (bench, rosters) = members(builder(), 1, shared);
        let (v, w, at) = (bench.client(0), bench.client(0), node(0, 1));
        let (gate, client) = (rosters[0].gate(), v.client().0);
        let guard = lock(&w, &bench.locks[0], at);
        let settling = |unsettled| {
            let before = v.meter().counters().reads;
            let mut waiting = Box::pin(bench.locks[0].lock(&v, at));
            assert_eq!(gate.unsettled(client), unsettled);
            assert!(matches!(poll(&mut waiting), Poll::Pending));
            v.meter().counters().reads - before
        };
        assert_eq!(settling(0), 0, "nothing is to be settled");
        let other = node(0, 2);
        assert_ne!(bench.locks[0].word_at(other), bench.locks[0].word_at(at));
        drop(block_on(bench.locks[0].share_and_read(&v, other, other, 64)).unwrap());
        if fence {
            block_on(w.call(ControlRequest::Fence { client: v.client() })).unwrap();
        }
        if let Some(node) = cut {
            bench.world.cut(NodeId(node), Trouble::Unreachable);
        }
        assert_eq!(settling(1), reads, "{fence}, {cut:?}");
        assert_eq!(gate.is_clear(client), clear, "{fence}, {cut:?}");
        (0..2).for_each(|node| bench.world.restore(NodeId(node)));
        drop(guard);
    }
}

#[test]
fn a_lock_tells_whether_anybody_holds_it() {
    let bench = bench(builder(), 1, LockOptions::default());
    let (v, w, at) = (bench.client(0), bench.client(0), node(0, 1));
    let held = |at| block_on(bench.locks[0].is_held(&w, at));
    assert_eq!(held(at), Ok(false));
    let guard = lock(&v, &bench.locks[0], at);
    assert_eq!(held(at), Ok(true));
    drop(guard);
    assert_eq!(held(at), Ok(false));
    assert!(matches!(
        held(node(9, 1)),
        Err(LockError::NoLockTable { node: NodeId(9) })
    ));
}
