//! Models of hangs in which clients stay busy. Their protocols are written by hand, because dmkit ships none of them.

use dm_explore::{Client, Knobs, Model, NoSpec};
use dm_verbs::{NodeId, RemotePtr, Verbs, Why};

use crate::{Case, Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};

type C = Client<(), NoSpec>;

const SOURCE: &str = "by hand: what retry loops with atomics of their own hide from a search for deadlocks";

fn at(i: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), 64 * i).unwrap_or(RemotePtr::NULL)
}

fn knobs() -> Vec<Knobs> {
    matrix(&Knobs::weak(), &[Knob::CasThenRead, Knob::AtomicVsWrite])
}

fn holds(shapes: &[&'static str]) -> Vec<Case> {
    let all = shapes
        .iter()
        .flat_map(|s| knobs().into_iter().map(|k| Case::holds(s, k)));
    all.collect()
}

async fn faa(c: &C, word: RemotePtr, add: u64) -> u64 {
    c.verbs().faa(word, add).await.expect("no faults in this model")
}

async fn read(c: &C, word: RemotePtr) -> u64 {
    c.verbs().word(word).await.expect("no faults in this model")
}

async fn write(c: &C, word: RemotePtr, value: u64) {
    let done = c.verbs().write(word, &value.to_le_bytes()).await;
    done.expect("no faults in this model");
}

/// Two clients each wait for the other one.
pub(crate) const MUTUAL: Entry = Entry {
    name: "mutual-wait",
    kind: Kind::Lock,
    source: SOURCE,
    about: "Each of two clients announces that it is ready, and waits until the other client is ready. While \
        it waits, it repeats an FAA on its own word, so that it is never idle.",
    cases: || holds(&[""]),
    published: None,
    mutants: &[Twin {
        name: "after-you",
        about: "each client announces that it is ready only after the other client has done so",
        cases: || {
            knobs()
                .into_iter()
                .map(|k| Case::fails(How::Livelock, "", k))
                .collect()
        },
    }],
    build: |s| {
        let after_you = s.mutant("after-you");
        let mut model = Model::new(s.title.clone());
        for (i, name) in ["A", "B"].into_iter().enumerate() {
            let (mine, other, beat) = (at(1 + i as u64), at(2 - i as u64), at(3 + i as u64));
            model = model
                .place(mine, 8, format!("{name} is ready"))
                .place(beat, 8, format!("{name}'s beat"))
                .client(name, i as u16, move |c: C| async move {
                    if !after_you {
                        write(&c, mine, 1).await;
                    }
                    let mut retry = c.verbs().retry(1000);
                    while read(&c, other).await == 0 {
                        // The client toggles only one bit, to keep the number of states small.
                        faa(&c, beat, 1 << 63).await;
                        retry.again(other, Why::Raced).await.expect("within the budget");
                    }
                    if after_you {
                        write(&c, mine, 1).await;
                    }
                });
        }
        Box::new(model)
    },
};

/// Takes one unit of a count by FAA. If there was no unit, adds the unit again and retries.
async fn take(c: &C, count: RemotePtr) {
    let mut retry = c.verbs().retry(1000);
    while faa(c, count, u64::MAX).await.cast_signed() <= 0 {
        faa(c, count, 1).await;
        retry.again(count, Why::Raced).await.expect("within the budget");
    }
}

/// Clients that take a unit of a count by FAA, and undo this FAA if there was no unit.
pub(crate) const ALONE: Entry = Entry {
    name: "do-and-undo",
    kind: Kind::Lock,
    source: SOURCE,
    about: "A semaphore by FAA: a client takes one unit. If there was none, it returns the unit and tries \
        again. Every client returns its unit, so every client gets one.",
    cases: || holds(&["1 client", "2 clients"]),
    published: None,
    mutants: &[Twin {
        name: "kept",
        about: "no client returns its unit: a client that finds none left takes and returns one for ever, \
            alone",
        cases: || vec![Case::fails(How::Livelock, "2 clients", Knobs::weak())],
    }],
    build: |s| {
        let (kept, clients) = (s.mutant("kept"), if s.shape == "1 client" { 1 } else { 2 });
        let set = |v: dm_explore::Endpoint| async move {
            let done = v.write(at(1), &1u64.to_le_bytes()).await;
            done.expect("no faults in this model");
        };
        let mut model = Model::new(s.title.clone()).setup(set).place(at(1), 8, "left");
        for (i, name) in ["A", "B"].into_iter().enumerate().take(clients) {
            model = model.client(name, i as u16, move |c: C| async move {
                take(&c, at(1)).await;
                c.enter("with the only one");
                c.leave("with the only one");
                if !kept {
                    faa(&c, at(1), 1).await;
                }
            });
        }
        Box::new(model)
    },
};

/// The number that a writer adds to the lock word when it takes the lock. A reader adds one.
const WRITER: u64 = 1 << 32;

/// A lock that is released by FAA. In the broken twin, a writer releases it by WRITE, which overwrites changes that
/// other clients have made to the lock word meanwhile.
pub(crate) const BLIND: Entry = Entry {
    name: "blind-release",
    kind: Kind::Lock,
    source: SOURCE,
    about: "A reader-writer lock by FAA: one field counts writers, and another counts readers. A client that \
        finds the lock taken subtracts its own add, and tries again. The lock is released by FAA too.",
    cases: || holds(&["W R", "W W"]),
    published: None,
    mutants: &[Twin {
        name: "write",
        about: "the writer releases the lock by WRITE, which overwrites the count of a reader that then \
            subtracts its add: the count stays one too low, and no writer gets the lock again",
        cases: || {
            let serialised = Knobs::declared();
            vec![
                Case::fails(How::Livelock, "W R", Knobs::weak()),
                Case::fails(How::Livelock, "W R", serialised),
            ]
        },
    }],
    build: blind,
};

fn blind(s: &Setting<'_>) -> Box<dyn Explorable> {
    let by_write = s.mutant("write");
    let mut model = Model::new(s.title.clone()).place(at(1), 8, "lock");
    for (i, role) in s.shape.split(' ').enumerate() {
        let name = char::from(b'A' + i as u8).to_string();
        let writes = role == "W";
        model = model.client(name, i as u16, move |c: C| async move {
            let (add, in_the_way) = match writes {
                true => (WRITER, u64::MAX),
                false => (1, !(WRITER - 1)),
            };
            let mut retry = c.verbs().retry(1000);
            while faa(&c, at(1), add).await & in_the_way != 0 {
                faa(&c, at(1), add.wrapping_neg()).await;
                retry.again(at(1), Why::Raced).await.expect("within the budget");
            }
            c.enter("alone");
            c.leave("alone");
            match by_write && writes {
                true => write(&c, at(1), 0).await,
                false => drop(faa(&c, at(1), add.wrapping_neg()).await),
            }
        });
    }
    Box::new(model)
}
