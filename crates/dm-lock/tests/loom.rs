//! The local lock table under loom: exclusion, no lost wake-up and no lost turn, over all interleavings of two threads,
//! and of three threads with at most two preemptions.
//!
//! Each model prints how many interleavings loom explored, and fails if there are fewer than a minimum, so a search
//! that was cut short fails. Loom aborts the process on a deadlock, so each mutant runs in a process of its own, which
//! the test that expects the failure starts.
#![cfg(dm_loom)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use core::task::{Context, Poll, Waker};
use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dm_lock::LockId;
use dm_lock::local::{Handed, LocalLockTable, Turn};
use dm_sync::atomic::{AtomicU32, Ordering as Modelled};
use dm_sync::{Arc, thread};
use dm_verbs::{ClientId, NodeId};

const ID: LockId = LockId {
    node: NodeId(0),
    high: 0,
    index: 0,
};

fn explore(name: &str, floor: usize, preemptions: Option<usize>, body: impl Fn() + Send + Sync + 'static) {
    // This counter is std's, because it belongs to the harness and not to the model.
    let runs = StdArc::new(AtomicUsize::new(0));
    let counted = StdArc::clone(&runs);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        // Relaxed: counted by one thread at a time, read when all have ended.
        counted.fetch_add(1, Ordering::Relaxed);
        body();
    });
    // Relaxed: as above.
    let runs = runs.load(Ordering::Relaxed);
    println!("{name}: {runs} interleavings");
    assert!(runs >= floor, "{name}: only {runs} interleavings");
}

/// The remote lock and the data that it guards, as far as the local table is concerned. It must never be held twice.
#[derive(Default)]
struct Remote {
    inside: AtomicU32,
    locked: AtomicU32,
}

impl Remote {
    /// Acts as the holder: takes the remote lock unless it came with the turn, then releases it or hands it over.
    fn hold(&self, turn: Turn<'_>, handed: Option<Handed>, mutant: Mutant) {
        // Relaxed, like all accesses here: the sections of the table order them, which is what the model checks.
        assert_eq!(self.inside.fetch_add(1, Modelled::Relaxed), 0, "two are inside");
        if handed.is_none() {
            assert_eq!(self.locked.fetch_add(1, Modelled::Relaxed), 0, "taken while held");
        }
        if mutant != Mutant::LeavesLate {
            self.inside.fetch_sub(1, Modelled::Relaxed);
        }
        match turn.hand_over(Handed { raw: 1, payload: 0 }) {
            Ok(()) => {}
            Err(turn) => {
                self.unlock();
                turn.pass();
            }
        }
        if mutant == Mutant::LeavesLate {
            self.inside.fetch_sub(1, Modelled::Relaxed);
        }
    }

    fn unlock(&self) {
        assert_eq!(self.locked.fetch_sub(1, Modelled::Relaxed), 1, "unlocked twice");
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Mutant {
    None,
    /// The holder hands the lock over before it has finished (T-S3, on one word).
    LeavesLate,
    /// A client that is dropped after its turn was granted, before it is polled again, keeps the remote lock.
    OrphanForgets,
}

fn one(table: &LocalLockTable, remote: &Remote, client: u16, mutant: Mutant) {
    let orphan = |_| {
        remote.unlock();
        None
    };
    let (turn, arrival) = loom::future::block_on(table.acquire(ID, ClientId(client), orphan)).unwrap();
    remote.hold(turn, arrival.handed, mutant);
}

/// Queues and polls once. If the client gets the turn, it acts as the holder; otherwise the future is dropped.
fn goes_away(table: &LocalLockTable, remote: &Remote, client: u16, mutant: Mutant) {
    let orphan = |_| {
        if mutant != Mutant::OrphanForgets {
            remote.unlock();
        }
        None
    };
    let mut acquire = Box::pin(table.acquire(ID, ClientId(client), orphan));
    if let Poll::Ready(got) = acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        let (turn, arrival) = got.unwrap();
        remote.hold(turn, arrival.handed, mutant);
    }
}

fn two(mutant: Mutant, other: fn(&LocalLockTable, &Remote, u16, Mutant)) {
    let shared = Arc::new((LocalLockTable::new(1), Remote::default()));
    let second = thread::spawn({
        let shared = Arc::clone(&shared);
        move || other(&shared.0, &shared.1, 2, mutant)
    });
    one(&shared.0, &shared.1, 1, mutant);
    second.join().unwrap();
    assert_eq!(
        shared.1.locked.load(Modelled::Relaxed),
        0,
        "the remote lock is left held"
    );
    assert!(
        shared.0.try_acquire(ID, ClientId(3)).unwrap().is_some(),
        "the turn is lost"
    );
}

#[test]
fn two_clients_exclude_each_other_and_both_get_in() {
    explore("two clients", 50, None, || two(Mutant::None, one));
}

#[test]
fn a_client_that_goes_away_loses_no_turn() {
    explore("one goes away", 30, None, || two(Mutant::None, goes_away));
}

#[test]
fn of_three_clients_one_goes_away() {
    explore("three clients, two preemptions", 200, Some(2), || {
        let shared = Arc::new((LocalLockTable::new(1), Remote::default()));
        let others = [(2, goes_away as fn(&_, &_, _, _)), (3, one)].map(|(client, run)| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || run(&shared.0, &shared.1, client, Mutant::None))
        });
        one(&shared.0, &shared.1, 1, Mutant::None);
        others.into_iter().for_each(|t| t.join().unwrap());
        // Relaxed: all threads have been joined.
        assert_eq!(
            shared.1.locked.load(Modelled::Relaxed),
            0,
            "the remote lock is left held"
        );
    });
}

/// Runs the ignored test `name` in a process of its own, and expects it to fail with `why`.
fn must_fail(name: &str, why: &str) {
    let exe = std::env::current_exe().unwrap();
    let child = std::process::Command::new(exe)
        .args(["--ignored", "--exact", name, "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr).into_owned() + &String::from_utf8_lossy(&child.stdout);
    assert!(!child.status.success(), "{name} was not noticed");
    assert!(said.contains(why), "{name} failed for another reason:\n{said}");
}

#[test]
fn mutants_are_noticed() {
    must_fail("mutant_gives_on_before_it_is_done", "two are inside");
    must_fail(
        "mutant_orphan_keeps_the_remote_lock",
        "the remote lock is left held",
    );
}

#[test]
#[ignore = "a mutant: run by mutants_are_noticed"]
fn mutant_gives_on_before_it_is_done() {
    explore("mutant", 1, None, || two(Mutant::LeavesLate, one));
}

#[test]
#[ignore = "a mutant: run by mutants_are_noticed"]
fn mutant_orphan_keeps_the_remote_lock() {
    explore("mutant", 1, None, || two(Mutant::OrphanForgets, goes_away));
}
