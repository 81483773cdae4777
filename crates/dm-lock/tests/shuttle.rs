//! The local lock table under shuttle: five clients, and three locks in two shards. Clients wait, change their wakers,
//! are dropped while they wait, or try to take a lock without waiting. Each model has broken twins that must be found.
#![cfg(dm_shuttle)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};

use dm_lock::LockId;
use dm_lock::local::{Arrival, Handed, LocalLockTable, Turn};
use dm_sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use dm_sync::schedules::{Witness, below, block_on, explore, must_fail};
use dm_sync::{Arc, thread};
use dm_verbs::{ClientId, NodeId};

const CLIENTS: u16 = 5;
const LOCKS: u32 = 3;
const HANDOVERS_MAX: u32 = 2;
/// Number of times that each client tries to get a turn.
const TURNS: u32 = 7;

static HANDED: Witness = Witness::new("a lock handed over");
static BOUND: Witness = Witness::new("a bound on handovers reached");
static ORPHAN: Witness = Witness::new("a handed lock that its client never noticed");
static GIVEN_UP: Witness = Witness::new("a wait given up");
static OTHER_WAKER: Witness = Witness::new("a waiter with another waker");
static UNSETTLED: Witness = Witness::new("a turn that came with an unsettled word");

#[derive(Clone, Copy, PartialEq)]
enum Mutant {
    None,
    /// The holder hands the lock over before it has finished.
    LeavesLate,
    /// A client that is dropped after its turn was granted, before it is polled again, keeps the remote lock.
    OrphanForgets,
    /// The holder does not pass on the word of an unlock that was not awaited.
    Settles,
    /// A waiter gives up its place and queues again.
    QueuesAnew,
    /// A waiter sleeps, and its waker wakes nobody.
    SleepsUntold,
    /// The table allows one handover more than the limit.
    NoBound,
}

/// A remote lock and the data that it guards, as far as the local table is concerned.
// Relaxed, like all accesses here: shuttle treats every ordering as SeqCst anyway.
#[derive(Default)]
struct Remote {
    inside: AtomicU32,
    locked: AtomicU32,
    /// Handovers since the lock was taken from memory.
    run: AtomicU32,
    /// The payload of the last handover.
    payload: AtomicU32,
    /// The unsettled word that the next turn must receive; 0 if there is none.
    unsettled: AtomicU64,
    /// The number of turns that began.
    turns: AtomicU64,
}

struct Shared {
    table: LocalLockTable,
    remotes: [Remote; LOCKS as usize],
}

impl Remote {
    fn unlock(&self) {
        assert_eq!(self.locked.fetch_sub(1, Relaxed), 1, "unlocked twice");
    }

    /// Posts an unlock. In half of the cases its completion is not awaited; returns the unsettled word then.
    fn unlock_somehow(&self) -> Option<u64> {
        self.unlock();
        let word = below(2) * (1 + below(1 << 20));
        self.unsettled.store(word, Relaxed);
        (word > 0).then_some(word)
    }

    /// Unlocks for a client that was dropped after its turn was granted. Returns the unsettled word.
    fn orphaned(&self, handed: Handed, mutant: Mutant) -> Option<u64> {
        ORPHAN.seen();
        assert_eq!(handed.payload, self.payload.load(Relaxed), "another's handover");
        match mutant {
            Mutant::OrphanForgets => None,
            _ => self.unlock_somehow(),
        }
    }

    /// Acts as the holder: takes the remote lock unless it came with the turn, then releases it or hands it over.
    fn hold(&self, mut turn: Turn<'_>, arrival: Arrival, mutant: Mutant) {
        assert_eq!(self.inside.fetch_add(1, Relaxed), 0, "two are inside");
        self.turns.fetch_add(1, Relaxed);
        let told = turn.unsettled().unwrap_or(0);
        assert_eq!(
            told,
            self.unsettled.load(Relaxed),
            "an unsettled word was forgotten"
        );
        if told > 0 {
            UNSETTLED.seen();
            if below(4) == 0 {
                // The client gives up before it has taken the remote lock, so the unsettled word must go to the next
                // one.
                self.inside.fetch_sub(1, Relaxed);
                return turn.pass();
            }
            self.unsettled.store(0, Relaxed);
            turn.set_unsettled(None);
        }
        match arrival.handed {
            None => {
                assert_eq!(self.locked.fetch_add(1, Relaxed), 0, "taken while held");
                self.run.store(0, Relaxed);
            }
            Some(handed) => {
                HANDED.seen();
                assert!(arrival.waited, "handed to nobody who waited");
                assert_eq!(handed.payload, self.payload.load(Relaxed), "another's handover");
                let run = self.run.fetch_add(1, Relaxed) + 1;
                assert!(run <= HANDOVERS_MAX, "handed over too often in a row");
            }
        }
        self.leave(turn, mutant);
    }

    fn leave(&self, turn: Turn<'_>, mutant: Mutant) {
        if mutant != Mutant::LeavesLate {
            self.inside.fetch_sub(1, Relaxed);
        }
        let payload = self.payload.fetch_add(1, Relaxed) + 1;
        if !turn.can_hand_over() && self.run.load(Relaxed) == HANDOVERS_MAX {
            BOUND.seen();
        }
        let kept = match below(4) {
            0 => Err(turn),
            _ => turn.hand_over(Handed { raw: 1, payload }),
        };
        if let Err(mut turn) = kept {
            let word = self.unlock_somehow();
            if mutant != Mutant::Settles {
                turn.set_unsettled(word);
            }
            turn.pass();
        }
        if mutant == Mutant::LeavesLate {
            self.inside.fetch_sub(1, Relaxed);
        }
    }
}

/// Polls with a waker that wakes nobody.
fn untold<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Tries once to get a turn for `client`, in one of several ways.
fn acquire(shared: &Shared, client: u16, mutant: Mutant) {
    let index = below(u64::from(LOCKS)) as u32;
    let (id, remote) = (
        LockId {
            node: NodeId(0),
            high: 0,
            index,
        },
        &shared.remotes[index as usize],
    );
    let (table, client) = (&shared.table, ClientId(client));
    let enter = || table.acquire(id, client, |handed| remote.orphaned(handed, mutant));
    match below(6) {
        0 => {
            if let Some(turn) = table.try_acquire(id, client).unwrap() {
                let arrival = Arrival {
                    waited: false,
                    handed: None,
                };
                remote.hold(turn, arrival, mutant);
            }
        }
        // The client polls its future a few times, and drops it unless it gets the turn.
        1 | 2 => {
            let mut waits = enter();
            for _ in 0..=below(3) {
                if let Poll::Ready(got) = untold(&mut waits) {
                    let (turn, arrival) = got.unwrap();
                    return remote.hold(turn, arrival, mutant);
                }
                thread::yield_now();
            }
            GIVEN_UP.seen();
        }
        // The client polls its future once, and then sleeps until it is woken. Clients that queue behind it do not
        // overtake it.
        3 | 4 => {
            let mut waits = enter();
            if let Poll::Ready(got) = untold(&mut waits) {
                let (turn, arrival) = got.unwrap();
                return remote.hold(turn, arrival, mutant);
            }
            OTHER_WAKER.seen();
            let before = remote.turns.load(Relaxed);
            if mutant == Mutant::QueuesAnew {
                drop(waits);
                waits = enter();
            }
            let (turn, arrival) = match mutant {
                Mutant::SleepsUntold => block_on(core::future::poll_fn(|_| untold(&mut waits))).unwrap(),
                _ => block_on(waits).unwrap(),
            };
            let overtaken = remote.turns.load(Relaxed) - before;
            assert!(overtaken < u64::from(CLIENTS), "overtaken by {overtaken} turns");
            remote.hold(turn, arrival, mutant);
        }
        _ => {
            let (turn, arrival) = block_on(enter()).unwrap();
            remote.hold(turn, arrival, mutant);
        }
    }
}

fn clients(mutant: Mutant) {
    let bound = match mutant {
        Mutant::NoBound => HANDOVERS_MAX + 1,
        _ => HANDOVERS_MAX,
    };
    let shared = Arc::new(Shared {
        table: LocalLockTable::new(bound),
        remotes: Default::default(),
    });
    let threads: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || (0..TURNS).for_each(|_| acquire(&shared, client, mutant)))
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    for (index, remote) in (0..LOCKS).zip(&shared.remotes) {
        assert_eq!(remote.locked.load(Relaxed), 0, "the remote lock is left held");
        let id = LockId {
            node: NodeId(0),
            high: 0,
            index,
        };
        let turn = shared.table.try_acquire(id, ClientId(CLIENTS)).unwrap();
        let turn = turn.expect("a turn is lost");
        assert_eq!(turn.unsettled().unwrap_or(0), remote.unsettled.load(Relaxed));
    }
}

#[test]
fn five_clients_share_three_locks() {
    let witnesses = [&HANDED, &BOUND, &ORPHAN, &GIVEN_UP, &OTHER_WAKER, &UNSETTLED];
    explore("five clients", &witnesses, || clients(Mutant::None));
}

#[test]
fn mutants_are_noticed() {
    must_fail("leaves late", "two are inside", || clients(Mutant::LeavesLate));
    must_fail("forgets an orphan", "taken while held", || {
        clients(Mutant::OrphanForgets)
    });
    must_fail("says that it settled", "an unsettled word was forgotten", || {
        clients(Mutant::Settles);
    });
    must_fail("queues anew", "overtaken by", || clients(Mutant::QueuesAnew));
    must_fail("sleeps untold", "deadlock", || clients(Mutant::SleepsUntold));
    must_fail("no bound", "handed over too often", || clients(Mutant::NoBound));
}
