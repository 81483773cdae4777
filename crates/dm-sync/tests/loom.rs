//! Tests of the build for loom: a correct model passes, and its broken twin fails.
#![cfg(dm_loom)]

use dm_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use dm_sync::epoch::Epochs;
use dm_sync::gate::Gate;
use dm_sync::{Arc, Mutex, RwLock, thread};
use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicUsize, Ordering as StdOrdering};

/// Two threads add one each through a mutex; loom must visit more than one interleaving.
#[test]
fn sections_exclude_each_other() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    loom::model(|| {
        // Relaxed: a counter of runs, read after the model ended.
        RUNS.fetch_add(1, StdOrdering::Relaxed);
        let total = Arc::new(Mutex::new(0u64));
        let other = thread::spawn({
            let total = Arc::clone(&total);
            move || total.with(|t| *t += 1)
        });
        total.with(|t| *t += 1);
        other.join().expect("no panic");
        assert_eq!(total.with(|t| *t), 2);
    });
    assert!(RUNS.load(StdOrdering::Relaxed) >= 2, "loom explored nothing");
}

/// The mutant: load, then store. loom must find the lost update.
#[test]
#[should_panic(expected = "lost update")]
fn load_then_store_loses_an_update() {
    loom::model(|| {
        let total = Arc::new(AtomicU64::new(0));
        let bump = |total: &AtomicU64| {
            // Relaxed: the mutant's fault is the gap between the two accesses, not their order.
            let seen = total.load(Ordering::Relaxed);
            total.store(seen + 1, Ordering::Relaxed);
        };
        let other = thread::spawn({
            let total = Arc::clone(&total);
            move || bump(&total)
        });
        bump(&total);
        other.join().expect("no panic");
        assert_eq!(total.load(Ordering::Relaxed), 2, "lost update");
    });
}

/// Runs a writer that changes two cells together, and a reader of both, which uses this many `sections`.
fn pair_stays_equal(sections: u32) -> usize {
    let runs = std::sync::Arc::new(AtomicUsize::new(0));
    let counter = std::sync::Arc::clone(&runs);
    loom::model(move || {
        // Relaxed: a counter of runs, read after the model ended.
        counter.fetch_add(1, StdOrdering::Relaxed);
        let pair = Arc::new(RwLock::new((0u64, 0u64)));
        let reader = thread::spawn({
            let pair = Arc::clone(&pair);
            move || match sections {
                1 => pair.with_read(|p| assert_eq!(p.0, p.1, "torn pair")),
                _ => {
                    let first = pair.with_read(|p| p.0);
                    assert_eq!(first, pair.with_read(|p| p.1), "torn pair");
                }
            }
        });
        pair.with_write(|p| {
            p.0 += 1;
            p.1 += 1;
        });
        reader.join().expect("no panic");
    });
    runs.load(StdOrdering::Relaxed)
}

#[test]
fn a_read_section_sees_no_half_write() {
    assert!(pair_stays_equal(1) >= 2, "loom explored nothing");
}

/// The mutant: a reader that leaves the section between its two reads.
#[test]
#[should_panic(expected = "torn pair")]
fn two_read_sections_see_two_states() {
    pair_stays_equal(2);
}

/// The way in which a generation ends while operations begin.
#[derive(Clone, Copy)]
enum Ending {
    /// The compute node leaves the pool.
    Close,
    /// The compute node was considered dead, and joins again.
    Revoke,
}

/// Begins operations beside a client that ends the generation. If this client finds no running operation, it sets
/// `gone`, which no operation may see. `epochs` makes the shipped epochs, or a mutant. Prints the number of
/// interleavings.
fn begins_beside(ending: Ending, floor: usize, epochs: fn() -> Epochs) {
    let runs = StdArc::new(AtomicUsize::new(0));
    let counter = StdArc::clone(&runs);
    loom::model(move || {
        // Relaxed: a counter of runs, read after the model ended.
        counter.fetch_add(1, StdOrdering::Relaxed);
        let epochs = Arc::new(epochs());
        let gone = Arc::new(AtomicU32::new(0));
        let operation = thread::spawn({
            let (epochs, gone) = (Arc::clone(&epochs), Arc::clone(&gone));
            move || {
                let seat = Epochs::seat(&epochs);
                seat.enroll(0, 2);
                for _ in 0..2 {
                    let Some(_running) = seat.enter() else { return };
                    // SeqCst: this access represents a verb.
                    assert_eq!(gone.load(Ordering::SeqCst), 0, "gone under an operation");
                }
            }
        });
        let nobody = match ending {
            Ending::Close => epochs.close(),
            Ending::Revoke => {
                epochs.revoke();
                epochs.oldest().is_none()
            }
        };
        if nobody {
            // SeqCst: as above.
            gone.store(1, Ordering::SeqCst);
        }
        operation.join().expect("no panic");
    });
    let runs = runs.load(StdOrdering::Relaxed);
    println!("an operation beside an ending: {runs} interleavings");
    assert!(
        runs >= floor,
        "only {runs} interleavings, at least {floor} expected"
    );
}

#[test]
fn no_operation_runs_after_the_generation_has_ended() {
    begins_beside(Ending::Close, 30, Epochs::new);
}

#[test]
fn a_revocation_finds_the_running_operations() {
    begins_beside(Ending::Revoke, 30, Epochs::new);
}

#[test]
#[should_panic(expected = "gone under an operation")]
fn a_closing_without_fences_is_found() {
    begins_beside(Ending::Close, 1, Epochs::unordered);
}

#[test]
#[should_panic(expected = "gone under an operation")]
fn a_revoking_without_fences_is_found() {
    begins_beside(Ending::Revoke, 1, Epochs::unordered);
}

/// Runs two clients that share, beside a client that shuts the gate if `shuts` is set, and that resets the count if
/// `clear` returns true. If the reset happens during a share, the count wraps. Prints the number of interleavings.
fn resets_beside_shares(shuts: bool, clear: fn(&Gate) -> bool) {
    let runs = StdArc::new(AtomicUsize::new(0));
    let counter = StdArc::clone(&runs);
    loom::model(move || {
        // Relaxed: a counter of runs, read after the model ended.
        counter.fetch_add(1, StdOrdering::Relaxed);
        let gate = Arc::new(Gate::new(2));
        // The count of sharers in remote memory.
        let count = Arc::new(AtomicU32::new(0));
        let sharers = [0, 1].map(|client| {
            let (gate, count) = (Arc::clone(&gate), Arc::clone(&count));
            thread::spawn(move || {
                let Some(pass) = gate.enter(client) else { return };
                // SeqCst: these accesses represent verbs.
                count.fetch_add(1, Ordering::SeqCst);
                assert_ne!(count.fetch_sub(1, Ordering::SeqCst), 0, "the count wraps"); // SeqCst: as above.
                pass.done();
            })
        });
        if shuts {
            gate.shut();
        }
        if clear(&gate) {
            // SeqCst: as above.
            count.store(0, Ordering::SeqCst);
            gate.open();
        }
        for sharer in sharers {
            sharer.join().expect("no panic");
        }
    });
    println!("{} interleavings", runs.load(StdOrdering::Relaxed));
    assert!(runs.load(StdOrdering::Relaxed) >= 10, "loom explored nothing");
}

#[test]
fn no_client_shares_while_the_gate_is_shut_and_clear() {
    resets_beside_shares(true, |gate| gate.is_clear(0) && gate.is_clear(1));
}

/// The mutant: the gate is not shut.
#[test]
#[should_panic(expected = "the count wraps")]
fn an_open_gate_keeps_nobody_out() {
    resets_beside_shares(false, |gate| gate.is_clear(0) && gate.is_clear(1));
}

/// The mutant: one client is not waited for.
#[test]
#[should_panic(expected = "the count wraps")]
fn a_client_that_is_not_waited_for_still_shares() {
    resets_beside_shares(true, |gate| gate.is_clear(0));
}
