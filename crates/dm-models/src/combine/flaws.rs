//! The flaws of read delegation and write combining as published: T-R1, T-R2, T-R3.

use dm_combine::RdwcFlaws;
use dm_explore::Knobs;
use dm_history::KvOp::{Get, Update};

use super::world::{Script, one_lock, script};
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};

const SHAPES: &[(&str, Script)] = &[
    (
        "2+1 writers",
        Script {
            loaded: &[1],
            clients: &[
                (0, &[Update(1, 101)]),
                (0, &[Update(1, 102)]),
                (1, &[Get(1), Get(1)]),
            ],
        },
    ),
    (
        "3+0 two keys",
        Script {
            loaded: &[1, 2],
            clients: &[
                (0, &[Update(1, 101)]),
                (0, &[Update(1, 102)]),
                (0, &[Update(2, 201)]),
            ],
        },
    ),
    (
        "2+1 readers",
        Script {
            loaded: &[1],
            clients: &[(0, &[Get(1)]), (0, &[Get(1)]), (1, &[Update(1, 101)])],
        },
    ),
];

fn knobs() -> [Knobs; 2] {
    [Knobs::weak(), Knobs::declared()]
}

pub(crate) const T_R1: Entry = Entry {
    name: "T-R1",
    kind: Kind::Combine,
    source: "SMART's and CHIME's code, local lock table; reported to SMART by a user",
    about: "A write joins another write of its key, whose value has already been read, and returns together \
        with it. Its own value was never written: a client that has seen the other write's value still sees \
        it afterwards.",
    cases: || knobs().map(|k| Case::holds("2+1 writers", k)).into(),
    published: Some(Twin {
        name: "published",
        about: "the window of combining stays open until the leader gives its lock back",
        cases: || {
            knobs()
                .map(|k| Case::fails(How::NotLinearizable, "2+1 writers", k))
                .into()
        },
    }),
    mutants: &[],
    build,
};

pub(crate) const T_R2: Entry = Entry {
    name: "T-R2",
    kind: Kind::Combine,
    source: "SMART's and CHIME's code, local lock table",
    about: "A follower has passed the check of the lock's key, and is delayed before it stores its value in \
        the lock's buffer. Meanwhile the lock is taken for another key, and its leader writes the value in \
        the buffer under that key.",
    cases: || knobs().map(|k| Case::holds("3+0 two keys", k)).into(),
    published: Some(Twin {
        name: "published",
        about: "one buffer for a lock's whole life",
        cases: || {
            knobs()
                .map(|k| Case::fails(How::Invariant, "3+0 two keys", k))
                .into()
        },
    }),
    mutants: &[],
    build,
};

pub(crate) const T_R3: Entry = Entry {
    name: "T-R3",
    kind: Kind::Combine,
    source: "SMART §4.2.2 and code; asked about by a user",
    about: "A get joins a READ of its key that is in flight. The READ was served before the update of \
        another compute node, and this update had returned before the get began. So the get returns an \
        outdated value.",
    cases: || knobs().map(|k| Case::holds("2+1 readers", k)).into(),
    published: Some(Twin {
        name: "published",
        about: "a client that finds the lock taken waits for the READ of the client that took it",
        cases: || {
            knobs()
                .map(|k| Case::fails(How::NotLinearizable, "2+1 readers", k))
                .into()
        },
    }),
    mutants: &[],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    // Each shape shows one flaw.
    let published = |shape| s.published() && s.shape == shape;
    let flaws = RdwcFlaws {
        joins_after_sample: published("2+1 writers"),
        buffer_of_lock: published("3+0 two keys"),
        joins_earlier_read: published("2+1 readers"),
        ..RdwcFlaws::NONE
    };
    Box::new(script(SHAPES, s.shape).model(s.title.clone(), one_lock(flaws)))
}
