//! Models of a lock that several clients may share, and that one client may hold alone or beside sharers.

use dm_explore::{Client, Counter, Endpoint, Knobs, Retries};
use dm_lock::{Attempted, Guard, LockError, LockFlaws, LockOptions, LockPlace, Locks};
use dm_verbs::{Capability, RemotePtr, Transport, Verbs};

use super::counter::{guarded, lock_word, node};
use crate::{Case, Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};

/// Maximum number of sharers.
const MAX: usize = 2;
/// Bytes of the protected memory: the sum, one word for each sharer, and a word for clients that hold the lock beside
/// sharers, all in one line.
const LEN: usize = 16 + 8 * MAX;

fn data() -> (RemotePtr, u32, &'static str) {
    (node(), LEN as u32, "sum and words")
}

pub(crate) const ENTRY: Entry = Entry {
    name: "shared",
    kind: Kind::Lock,
    source: "Dolphin (MSST 2024), the spear lock; docs/protocol/lock.md L14–L17, L19",
    about: "Clients that share a lock (S) add to their own words; clients that hold it beside sharers (B) add to one \
        word, which only they change; a client that holds it alone (E) moves all these words into a sum. No add is lost or counted twice, even if a client is dropped at any await. \
        At the end the lock is free and not shared.",
    cases: || {
        let turned = [Knob::CasThenRead, Knob::AtomicVsWrite, Knob::ChipOrder];
        let all = matrix(&Knobs::weak(), &turned);
        let mut cases: Vec<Case> = all.into_iter().map(|k| Case::holds("E S", k)).collect();
        let weakly = Knobs {
            host_before_chip: false,
            ..Knobs::weak()
        };
        for knobs in [Knobs::weak(), Knobs::declared(), weakly] {
            let cancelled = knobs.clone().cancels(1);
            cases.push(Case::holds("E S", cancelled));
        }
        for knobs in [Knobs::weak(), Knobs::declared()] {
            cases.push(Case::holds("E S, host", knobs.clone().cancels(1)));
            cases.push(Case::holds("E S S", knobs.clone()));
            cases.push(Case::holds("E E S, one compute node", knobs.clone()));
            cases.push(Case::holds("B E", knobs.clone().cancels(1)));
            cases.push(Case::holds("B S", knobs.clone().cancels(1)));
            cases.push(Case::holds("B B", knobs.clone()));
            cases.push(Case::holds("E B S", knobs.clone()));
            cases.push(Case::holds("E B, one compute node", knobs));
        }
        cases
    },
    published: None,
    mutants: &[
        Twin {
            name: "blind-release",
            about: "the client that holds the lock alone releases it by WRITE, which overwrites a share \
                taken meanwhile",
            cases: || vec![Case::fails(How::Check, "E S", Knobs::declared()).or(How::Invariant)],
        },
        Twin {
            name: "moves-beside",
            about: "the client that moves the words does not exclude sharers",
            cases: || vec![Case::fails(How::Invariant, "E S", Knobs::declared())],
        },
        Twin {
            name: "read-first",
            about: "the FAA of the share and the READ are in one chain, on a card that may serve the READ \
                first",
            cases: || {
                let knobs = Knobs::weak().pretend(Capability::CasThenReadInOrder);
                vec![Case::fails(How::Invariant, "E S", knobs)]
            },
        },
    ],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let options = options(s);
    let clients: Vec<char> = s.shape.chars().filter(|c| matches!(c, 'E' | 'S' | 'B')).collect();
    let adds = clients.iter().filter(|c| **c != 'E').count() as u64;
    let apart = !s.shape.ends_with("one compute node");
    // A dropped client may have added, or not.
    let least = adds.saturating_sub(u64::from(s.knobs.cancels));
    let alone = !s.mutant("moves-beside");
    let word = lock_word(options.place);
    let mut model = guarded(&s.title, options, data())
        .invariant("every add counts once", move |end| {
            let sum: u64 = (0..LEN as u64 / 8).map(|i| end.word(node().add(8 * i))).sum();
            match (least..=adds).contains(&sum) {
                true => Ok(()),
                false => Err(format!("{sum} of {adds}")),
            }
        })
        .invariant("nothing is shared or held", move |end| free(end.word(word)));
    let mut sharer = 0;
    for (i, role) in clients.into_iter().enumerate() {
        let name = char::from(b'A' + i as u8).to_string();
        let on = if apart { i as u16 } else { 0 };
        let own = node().add(8 + 8 * sharer);
        sharer += u64::from(role == 'S');
        model = model.client(name, on, move |c: Client<Locks, Counter>| async move {
            let done = match role {
                'S' => add(&c, own).await,
                'B' => add_beside(&c).await,
                _ => sweep(&c, alone).await,
            };
            c.check(done.is_ok(), || format!("{done:?}"));
        });
    }
    Box::new(model)
}

fn options(s: &Setting<'_>) -> LockOptions {
    LockOptions {
        shared: true,
        place: match s.shape.ends_with("host") {
            true => LockPlace::Host,
            false => LockPlace::Chip,
        },
        flaws: LockFlaws {
            blind_release: s.mutant("blind-release"),
            ..LockFlaws::default()
        },
        ..LockOptions::default()
    }
}

fn free(word: u64) -> Result<(), String> {
    match (word >> 48, word & 1) {
        (0, 0) => Ok(()),
        (sharers, held) => Err(format!("{sharers} share it, held: {held}")),
    }
}

fn word_of(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b))
}

/// Adds one to this client's own word, while it shares the lock.
async fn add(c: &Client<Locks, Counter>, own: RemotePtr) -> Result<(), LockError> {
    let v = c.verbs();
    let (share, bytes) = c.shared().share_and_read(v, node(), own, 8).await?;
    let new = word_of(&bytes, 0) + 1;
    share.write_back(v.chain(own.node()).write_word(own, new)).await
}

/// Adds one to the last word, while it holds the lock beside sharers.
async fn add_beside(c: &Client<Locks, Counter>) -> Result<(), LockError> {
    let v = c.verbs();
    let own = node().add(LEN as u64 - 8);
    let (guard, bytes) = hold(c, own, 8, false).await?;
    let new = word_of(&bytes, 0) + 1;
    guard.write_back(v.chain(own.node()).write_word(own, new)).await
}

/// Takes the lock, alone or beside sharers, and READs `len` bytes at `at` under it.
async fn hold(
    c: &Client<Locks, Counter>,
    at: RemotePtr,
    len: u32,
    alone: bool,
) -> Result<(Guard<'_, Endpoint>, <Endpoint as Transport>::Lease), LockError> {
    let mut guard = c.shared().approach(c.verbs(), node())?;
    if !alone {
        guard = guard.beside_sharers();
    }
    let bytes = match guard.attempt(at, len).await? {
        Attempted::Locked(bytes) => bytes.expect("an acquisition with a READ gives bytes"),
        Attempted::Not(obstacle) => guard.insist(obstacle, at, len).await?,
    };
    Ok((guard, bytes))
}

/// Moves all words into the sum, while it holds the lock. Without `alone`, it holds the lock beside sharers, which is
/// the mistake of a twin.
async fn sweep(c: &Client<Locks, Counter>, alone: bool) -> Result<(), LockError> {
    let v = c.verbs();
    let (guard, bytes) = hold(c, node(), LEN as u32, alone).await?;
    let sum: u64 = (0..LEN / 8).map(|i| word_of(&bytes, 8 * i)).sum();
    let mut swept = [0; LEN];
    swept[..8].copy_from_slice(&sum.to_le_bytes());
    guard
        .write_back(v.chain(node().node()).write(node(), &swept))
        .await
}

pub(crate) const DIES: Entry = Entry {
    name: "sharer-dies",
    kind: Kind::Crash,
    source: "docs/protocol/lock.md L14, L17",
    about: "One client shares a lock, another holds it alone (E) or beside sharers (B), and one of them dies at any step. \
        The other client gets the lock, or gets an error that names the lock; a client that shares the lock with B always \
        gets it, and B gets it although the sharer died. No finished add is lost, and no client holds the lock alone while \
        a share is counted.",
    cases: || {
        let turned = [Knob::CasThenRead, Knob::ChipOrder];
        let dying = matrix(&Knobs::weak(), &turned).into_iter().map(|mut knobs| {
            knobs.retries = Retries::Bounded(2);
            Case::holds("E S", knobs.crashes(1))
        });
        let mut cases: Vec<Case> = dying.collect();
        for mut knobs in [Knobs::weak(), Knobs::declared()] {
            knobs.retries = Retries::Bounded(2);
            cases.push(Case::holds("B S", knobs.crashes(1)));
        }
        cases
    },
    published: None,
    mutants: &[Twin {
        name: "no-budget",
        about: "the client that holds the lock waits for the last sharer without a budget",
        cases: || vec![Case::fails(How::Stuck, "E S", Knobs::weak().crashes(1))],
    }],
    build: build_faulty,
};

pub(crate) const FAILS: Entry = Entry {
    name: "sharer-fails",
    kind: Kind::Crash,
    source: "docs/protocol/lock.md L14, L17, L18",
    about: "One client shares a lock, another holds it alone. The queue pair of one of them fails at any \
        step, and requests in flight land later, in part or never. The other client gets the lock, or gets \
        an error that names the lock (a share whose effect is unknown stays counted). No finished add is \
        lost, and none counts twice.",
    cases: || {
        let turned = [Knob::CasThenRead, Knob::AtomicVsWrite, Knob::ChipOrder];
        let failing = matrix(&Knobs::weak(), &turned).into_iter().map(|mut knobs| {
            knobs.retries = Retries::Bounded(2);
            Case::holds("E S", knobs.failures(1))
        });
        failing.collect()
    },
    published: None,
    mutants: &[Twin {
        name: "no-budget",
        about: "the client that holds the lock waits for the last sharer without a budget",
        cases: || vec![Case::fails(How::Stuck, "E S", Knobs::weak().failures(1))],
    }],
    build: build_faulty,
};

fn build_faulty(s: &Setting<'_>) -> Box<dyn Explorable> {
    let options = options(s);
    let (fails, beside) = (s.knobs.failures > 0, s.shape == "B S");
    let mut model =
        guarded(&s.title, options, data()).invariant("a finished add counts, and counts once", move |end| {
            let sum: u64 = (0..LEN as u64 / 8).map(|i| end.word(node().add(8 * i))).sum();
            let (least, most) = match beside {
                true => (end.outputs(0).len() + end.outputs(1).len(), 2),
                false => (end.outputs(1).len(), 1),
            };
            match (least as u64..=most).contains(&sum) {
                true => Ok(()),
                false => Err(format!("{sum}, {least} finished")),
            }
        });
    for (i, role) in ["A", "B"].into_iter().enumerate() {
        model = model.client(role, i as u16, move |c: Client<Locks, Counter>| async move {
            let done = match i {
                0 if beside => add_beside(&c).await,
                0 => sweep(&c, true).await,
                _ => add(&c, node().add(8)).await,
            };
            if (beside || i == 1) && done.is_ok() {
                c.output(1);
            }
            let known = match done {
                Ok(()) => true,
                Err(LockError::Verb(_)) => fails,
                Err(e) => !beside && names(e),
            };
            c.check(known, || format!("{done:?}"));
        });
    }
    Box::new(model)
}

/// Returns whether the error contains the lock's address.
fn names(e: LockError) -> bool {
    let word = lock_word(LockPlace::Chip);
    match e {
        LockError::Shared { place, .. } => place == word,
        LockError::Held(e) => e.at == word,
        _ => false,
    }
}
