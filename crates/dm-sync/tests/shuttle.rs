//! Tests of the build for shuttle. Some models have more threads than loom can run, and each has a broken twin that
//! must fail.
#![cfg(dm_shuttle)]

use dm_sync::atomic::{AtomicU64, Ordering};
use dm_sync::epoch::Epochs;
use dm_sync::schedules::{Witness, below, explore, must_fail};
use dm_sync::{Arc, Mutex, RwLock, thread};

/// Runs six threads that add through a mutex; the twin leaves the section between its read and its change.
fn adds(sections: u32) {
    let total = Arc::new(Mutex::new(0u64));
    let threads = [(); 6].map(|()| {
        let total = Arc::clone(&total);
        thread::spawn(move || {
            for _ in 0..5 {
                match sections {
                    1 => total.with(|t| *t += 1),
                    _ => {
                        let seen = total.with(|t| *t);
                        total.with(|t| *t = seen + 1);
                    }
                }
            }
        })
    });
    threads.into_iter().for_each(|t| t.join().expect("no panic"));
    assert_eq!(total.with(|t| *t), 30, "lost update");
}

#[test]
fn sections_exclude_each_other() {
    explore("sections", &[], || adds(1));
    must_fail("two sections", "lost update", || adds(2));
}

/// Runs four readers beside two writers of a pair that must stay equal; the twin reads in two sections.
fn pair_stays_equal(sections: u32) {
    static CHANGED: Witness = Witness::new("a pair that changed between two looks");
    let body = move || {
        let pair = Arc::new(RwLock::new((0u64, 0u64)));
        let threads: Vec<_> = (0..6)
            .map(|n| {
                let pair = Arc::clone(&pair);
                thread::spawn(move || {
                    for _ in 0..4 {
                        if n < 2 {
                            pair.with_write(|p| {
                                p.0 += 1;
                                p.1 += 1;
                            });
                            continue;
                        }
                        let (first, second) = pair.with_read(|p| *p);
                        let again = pair.with_read(|p| p.1);
                        assert_eq!(first, if sections == 1 { second } else { again }, "torn pair");
                        if again != second {
                            CHANGED.seen();
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().expect("no panic"));
    };
    match sections {
        1 => explore("readers and writers", &[&CHANGED], body),
        _ => must_fail("two read sections", "torn pair", body),
    }
}

#[test]
fn a_read_section_sees_no_half_write() {
    pair_stays_equal(1);
    pair_stays_equal(2);
}

/// Checks that a parked thread misses no wake-up, because it checks the flag after each wake-up. The twin parks twice
/// before it checks the flag again. Both wake-ups may be used up by then, and shuttle reports a deadlock.
fn told(looks_again: bool) {
    let flag = Arc::new(AtomicU64::new(0));
    let waiter = thread::spawn({
        let flag = Arc::clone(&flag);
        move || {
            // This wait may consume the token of either wake-up, so the flag must be checked after it.
            thread::park();
            // Relaxed: shuttle treats every access as SeqCst.
            while flag.load(Ordering::Relaxed) < 2 {
                thread::park();
                if !looks_again {
                    thread::park();
                }
            }
        }
    });
    for _ in 0..2 {
        // Relaxed: as above.
        flag.fetch_add(1, Ordering::Relaxed);
        waiter.thread().unpark();
    }
    waiter.join().expect("no panic");
}

#[test]
fn a_parked_thread_misses_no_wake_up() {
    explore("parked", &[], || told(true));
    must_fail("parked twice", "deadlock", || told(false));
}

/// Begins operations on four seats beside a client that ends the generation repeatedly. If this client finds no running
/// operation, it may remove memory on which operations rely. The twin searches for running operations before it ends
/// the generation, and not afterwards.
fn begins_beside_endings(ends_first: bool) {
    static LEFT: Witness = Witness::new("an ending that found nobody");
    static MET: Witness = Witness::new("an ending that found somebody");
    let body = move || {
        let epochs = Arc::new(Epochs::new());
        // The generation that began with the last removal. No operation of an earlier generation may run any more.
        let gone = Arc::new(AtomicU64::new(0));
        let threads = [(); 4].map(|()| {
            let (epochs, gone) = (Arc::clone(&epochs), Arc::clone(&gone));
            thread::spawn(move || {
                let seat = Epochs::seat(&epochs);
                for _ in 0..6 {
                    let generation = epochs.generation();
                    if !seat.is_enrolled(generation) || seat.is_due() {
                        seat.enroll(generation, 1 + below(3) as u32);
                    }
                    let Some(_running) = seat.enter() else { continue };
                    // Relaxed, all of them: shuttle treats every access as SeqCst.
                    assert!(
                        gone.load(Ordering::Relaxed) <= generation,
                        "gone under an operation"
                    );
                }
            })
        });
        for _ in 0..4 {
            let nobody = match ends_first {
                true => epochs.close(),
                false => {
                    let nobody = epochs.oldest().is_none();
                    if nobody {
                        epochs.revoke();
                    }
                    nobody
                }
            };
            if nobody {
                LEFT.seen();
                gone.store(epochs.generation(), Ordering::Relaxed);
            } else {
                MET.seen();
            }
        }
        threads.into_iter().for_each(|t| t.join().expect("no panic"));
        assert_eq!((epochs.seats(), epochs.oldest()), (0, None));
    };
    match ends_first {
        true => explore("endings", &[&LEFT, &MET], body),
        false => must_fail("a look before the ending", "gone under an operation", body),
    }
}

#[test]
fn no_operation_runs_after_the_generation_has_ended() {
    begins_beside_endings(true);
    begins_beside_endings(false);
}
