//! The models of one lock whose holder dies.

use dm_explore::{Client, Counter, Knobs, Model};
use dm_lock::LockWord;
use dm_sync::Fingerprint;
use dm_verbs::Verbs;

use super::world::{
    DEAD, Flaws, Home, MENDED, PAYLOAD, Shared, add, add_as_member, expel, get, without_doubt,
    without_payload,
};
use crate::locks::node;
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin, Variant};

pub(crate) const IN_TABLE: Entry = Entry {
    name: "takeover",
    kind: Kind::Crash,
    source: "docs/protocol/recovery.md V1–V3",
    about: "Clients of different members add to two words under a lock of the lock table. At any moment, and whether \
        it is dead or only slow, the member of A is expelled: it is fenced, and the table is swept. A may die \
        at any step before, and any part of its posted requests lands at any time until it is fenced. All other \
        clients get the lock. No add is lost, none counts twice, and a client that is fenced adds nothing \
        afterwards. The lock word keeps its payload, and says that the words are in doubt if they differ. In \
        `two expel` two members do this at the same time, and one of them may die instead of A. In \
        `handover`, A hands the lock to B on its compute node, whose member is expelled while the word names A.",
    cases: || {
        let mut cases = cases();
        cases.push(Case::holds("two expel", dying()));
        // The clients of one process die together. So in this shape no client dies; the member is only slow.
        for knobs in [Knobs::declared(), Knobs::weak()] {
            cases.push(Case::holds("handover", knobs));
        }
        cases
    },
    published: None,
    mutants: &[
        Twin {
            name: "sweep-before-fence",
            about: "the lock is freed before the dead client is fenced",
            cases: || vec![corrupting("2 members")],
        },
        Twin {
            name: "no-fence",
            about: "the dead client is not fenced",
            cases: || vec![corrupting("2 members")],
        },
        Twin {
            name: "no-doubt",
            about: "the freed word does not say that the words under the lock are in doubt",
            cases: || vec![Case::fails(How::Check, "2 members", dying())],
        },
        Twin {
            name: "payload-cleared",
            about: "the freed word has no payload",
            cases: || vec![Case::fails(How::Invariant, "2 members", dying())],
        },
    ],
    build: |s| build(s, Home::Table),
};

pub(crate) const IN_NODE: Entry = Entry {
    name: "takeover-in-node",
    kind: Kind::Crash,
    source: "docs/protocol/recovery.md V4",
    about: "The same with a lock word inside the node, which no sweep reaches: when the member is known to be \
        gone, a client that waits for the lock frees it.",
    cases,
    published: None,
    mutants: &[Twin {
        name: "no-fence",
        about: "the dead client is not fenced",
        cases: || vec![corrupting("2 members")],
    }],
    build: |s| build(s, Home::Node),
};

fn dying() -> Knobs {
    Knobs::declared().crashes(1)
}

fn cases() -> Vec<Case> {
    let mut cases = vec![Case::holds("2 members", Knobs::weak())];
    for knobs in [Knobs::declared(), Knobs::weak()] {
        cases.push(Case::holds("2 members", knobs.crashes(1)));
    }
    cases.push(Case::holds("2 members, a reader", dying()));
    cases
}

/// Returns a case that must fail: a late WRITE of the dead client lands while another client holds the lock. The search
/// decides which check fails first.
fn corrupting(shape: &'static str) -> Case {
    let case = Case::fails(How::Invariant, shape, dying());
    case.or(How::Check).or(How::NotLinearizable)
}

fn build(s: &Setting<'_>, home: Home) -> Box<dyn Explorable> {
    let flaws = Flaws {
        no_fence: s.mutant("no-fence"),
        sweep_before_fence: s.mutant("sweep-before-fence"),
        freed: match s.variant {
            Variant::Mutant("no-doubt") => without_doubt,
            Variant::Mutant("payload-cleared") => without_payload,
            _ => LockWord::freed,
        },
    };
    let word = home.word();
    let mut model = Model::new(s.title.clone())
        .setup(move |v| async move {
            let free = LockWord {
                payload: PAYLOAD,
                ..LockWord::default()
            };
            v.load(word, &free.pack().to_le_bytes()).expect("setting up");
        })
        .shared(move |on| Shared::of(home, on))
        .fingerprint(Fingerprint::fingerprint)
        .spec(Counter(0))
        .place(node(), 16, "words")
        .place(word, 8, "lock")
        .invariant("the words are equal, unless the lock is in doubt", move |end| {
            let (first, second) = (end.word(node()), end.word(node().add(8)));
            let lock = LockWord::unpack(end.word(word));
            let unknown = lock.locked || (lock.payload & 1 == 1 && end.ghost(MENDED) == 0);
            match first == second || unknown {
                true => Ok(()),
                false => Err(format!("{first} and {second}")),
            }
        })
        .invariant(
            "the lock is free or to be freed, and its payload survives",
            move |end| {
                let word = LockWord::unpack(end.word(word));
                let waits = home == Home::Node && word.member == DEAD;
                match word.payload & !1 == PAYLOAD && (waits || !word.locked) {
                    true => Ok(()),
                    false => Err(format!("it is {word}")),
                }
            },
        )
        .client("A", 0, |c: Client<Shared, Counter>| async move {
            add_as_member(&c).await;
        })
        .client("W", 1, |c: Client<Shared, Counter>| async move {
            add(&c).await;
        })
        .spared()
        .client("L", 1, move |c: Client<Shared, Counter>| async move {
            expel(&c, home, flaws).await;
        });
    if s.shape != "two expel" {
        model = model.spared();
    }
    model = match s.shape {
        "2 members" => model,
        "2 members, a reader" => model
            .client("R", 1, |c: Client<Shared, Counter>| async move { get(&c).await })
            .spared(),
        "two expel" => model
            .client("M", 2, move |c: Client<Shared, Counter>| async move {
                expel(&c, home, flaws).await;
            })
            .spared(),
        "handover" => model.client("B", 0, |c: Client<Shared, Counter>| async move {
            add_as_member(&c).await;
        }),
        other => unreachable!("no such shape: {other}"),
    };
    Box::new(model)
}
