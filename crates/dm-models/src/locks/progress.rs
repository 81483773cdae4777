//! Models of the progress of clients: bounded bypass, and lock freedom.

use dm_explore::{Client, Counter, CounterOp, Knobs, Model, NoSpec};
use dm_verbs::{NodeId, RemotePtr, Verbs, Why};

use crate::{Case, Entry, How, Kind, Knob, Twin, matrix};

const SECTION: &str = "critical section";
const BUDGET: &str = "within the budget";
const SOUND: &str = "no faults in this model";

fn at(i: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), 64 * i).unwrap_or(RemotePtr::NULL)
}

fn knobs() -> Vec<Knobs> {
    matrix(&Knobs::weak(), &[Knob::CasThenRead, Knob::AtomicVsWrite])
}

/// A lock that serves clients in order, and one that does not.
pub(crate) const BYPASS: Entry = Entry {
    name: "bounded-bypass",
    kind: Kind::Lock,
    source: "by hand: a ticket lock, and a word that is tried by CAS",
    about: "Two clients take a ticket lock twice each. A client that has drawn its ticket is overtaken at \
        most once, by the client that drew before it.",
    cases: || knobs().into_iter().map(|k| Case::holds("", k)).collect(),
    published: None,
    mutants: &[Twin {
        name: "by-cas",
        about: "clients try a lock word until it is free: the same client may find it free again and again",
        cases: || {
            knobs()
                .into_iter()
                .map(|k| Case::fails(How::Bypass, "", k))
                .collect()
        },
    }],
    build: |s| {
        let by_cas = s.mutant("by-cas");
        let (next, serving) = (at(1), at(2));
        let mut model = Model::new(s.title.clone())
            .place(next, 8, "next ticket")
            .place(serving, 8, "now serving")
            .bypass(SECTION, 1);
        for (i, name) in ["A", "B"].into_iter().enumerate() {
            model = model.client(name, i as u16, move |c: Client<(), NoSpec>| async move {
                let v = c.verbs();
                for _ in 0..2 {
                    let mut ticket = 0;
                    if by_cas {
                        c.waits(SECTION);
                        let mut retry = v.retry(1000);
                        while v.cas(serving, 0, 1).await.expect(SOUND) != 0 {
                            retry.again(serving, Why::Raced).await.expect(BUDGET);
                        }
                    } else {
                        ticket = v.faa(next, 1).await.expect(SOUND);
                        c.waits(SECTION);
                        let mut retry = v.retry(1000);
                        while v.word(serving).await.expect(SOUND) != ticket {
                            retry.again(serving, Why::Raced).await.expect(BUDGET);
                        }
                    }
                    c.enter(SECTION);
                    c.leave(SECTION);
                    // If other clients try the word by CAS, the lock is released by CAS too, because a WRITE could be
                    // lost between the two steps of their CAS.
                    match by_cas {
                        true => drop(v.cas(serving, 1, 0).await.expect(SOUND)),
                        false => {
                            let next = (ticket + 1).to_le_bytes();
                            v.write(serving, &next).await.expect(SOUND);
                        }
                    }
                }
            });
        }
        Box::new(model)
    },
};

/// A counter on which a client that stops does not delay the others.
pub(crate) const LOCK_FREE: Entry = Entry {
    name: "lock-free",
    kind: Kind::Lock,
    source: "by hand: a counter by READ and CAS, and one under a lock word",
    about: "Two clients add to a counter: each reads it, and swaps it by CAS. If the CAS fails, the other \
        client's add has succeeded, so some operation always completes.",
    cases: || knobs().into_iter().map(|k| Case::holds("", k)).collect(),
    published: None,
    mutants: &[
        Twin {
            name: "locked",
            about: "the add runs under a lock: a client that finds the lock held waits for its holder",
            cases: || vec![Case::fails(How::NotLockFree, "", Knobs::weak())],
        },
        Twin {
            name: "announced",
            about: "each client announces its add by FAA, and withdraws it if the other client has announced \
                one too: both may do so for ever",
            cases: || {
                let all = [Knobs::weak(), Knobs::declared()];
                all.map(|k| Case::fails(How::NotLockFree, "", k)).into()
            },
        },
    ],
    build: |s| {
        let (locked, announced) = (s.mutant("locked"), s.mutant("announced"));
        let (count, lock) = (at(1), at(2));
        let mut model = Model::new(s.title.clone())
            .spec(Counter(0))
            .place(count, 8, "count")
            .place(lock, 8, "lock")
            .lock_free();
        for (i, name) in ["A", "B"].into_iter().enumerate() {
            model = model.client(name, i as u16, move |c: Client<(), Counter>| async move {
                let v = c.verbs();
                let add = async {
                    let mut retry = v.retry(1000);
                    while locked && v.cas(lock, 0, 1).await.expect(SOUND) != 0 {
                        retry.again(lock, Why::Raced).await.expect(BUDGET);
                    }
                    while announced && v.faa(lock, 1).await.expect(SOUND) != 0 {
                        v.faa(lock, u64::MAX).await.expect(SOUND);
                        retry.again(lock, Why::Raced).await.expect(BUDGET);
                    }
                    let old = loop {
                        let old = v.word(count).await.expect(SOUND);
                        if v.cas(count, old, old + 1).await.expect(SOUND) == old {
                            break old;
                        }
                        retry.again(count, Why::Raced).await.expect(BUDGET);
                    };
                    if locked {
                        v.cas(lock, 1, 0).await.expect(SOUND);
                    }
                    if announced {
                        v.faa(lock, u64::MAX).await.expect(SOUND);
                    }
                    old
                };
                c.op(CounterOp::Add(1), add).await;
            });
        }
        Box::new(model)
    },
};
