//! Models of a radix tree in which an update replaces the leaf.

use dm_explore::Knobs;

use super::races::{APART, FULL, ROOM, SPARSE};
use super::world::{build, options};
use crate::tree::world::{Do, Script, Shape, cold, holds, holds_under, plain, with};
use crate::{Case, Entry, How, Kind, Twin};
use Do::{Get, Insert, Remove, Scan, Update, Upsert};
use smart::Options;

/// Returns options with out-of-place updates.
const fn replacing() -> Options {
    Options {
        in_place: false,
        ..options()
    }
}

const SHAPES: &[Shape] = &[
    (
        "update, get",
        with(ROOM, &[(0, &[Update(1)]), (1, &[Get(1), Get(1)])]),
    ),
    (
        "update, update",
        with(ROOM, &[(0, &[Update(1)]), (1, &[Update(1), Get(1)])]),
    ),
    (
        "update, remove",
        with(ROOM, &[(0, &[Update(1)]), (1, &[Remove(1), Get(1)])]),
    ),
    (
        "update, insert",
        with(ROOM, &[(0, &[Update(1)]), (1, &[Insert(1), Upsert(1)])]),
    ),
    (
        "update, leaf split",
        with(APART, &[(0, &[Update(0x101)]), (1, &[Insert(0x102), Get(0x102)])]),
    ),
    (
        "update, leaf split, get",
        with(
            APART,
            &[(0, &[Update(0x101)]), (1, &[Insert(0x102)]), (2, &[Get(0x102)])],
        ),
    ),
    (
        "update, growth",
        with(FULL, &[(0, &[Update(1)]), (1, &[Insert(3), Get(1)])]),
    ),
    (
        "update, merge",
        with(SPARSE, &[(0, &[Update(2)]), (1, &[Remove(1), Get(2)])]),
    ),
    (
        "scan, update",
        Script {
            always: &[1, 2],
            ..with(FULL, &[(0, &[Update(1), Update(2)]), (1, &[Scan(1)])])
        },
    ),
    (
        "2 MN, update, leaf split",
        Script {
            memory_nodes: 2,
            ..with(APART, &[(0, &[Update(0x101)]), (1, &[Insert(0x102), Get(0x101)])])
        },
    ),
];

/// The insert takes its leaf from the allocator to which the update gives the old leaf back. A broken twin gives it
/// back too early.
const REUSE: &[Shape] = &[
    (
        "update and insert, get",
        with(ROOM, &[(0, &[Update(1), Insert(3)]), (1, &[Get(1)])]),
    ),
    (
        "update and insert, update",
        with(ROOM, &[(0, &[Update(1), Insert(3), Get(3)]), (1, &[Update(1)])]),
    ),
];

pub(crate) const RACES: Entry = Entry {
    name: "radix-out-of-place",
    kind: Kind::Tree,
    source: "docs/protocol/smart.md M26–M28",
    about: "Updates replace leaves, while other clients read, update, remove, split and scan the same leaves \
        and nodes through new and old caches. A reader that finds a replaced leaf continues at the leaf that \
        has replaced it.",
    cases: || holds(SHAPES).into_iter().chain(holds(REUSE)).collect(),
    published: None,
    mutants: &[
        Twin {
            name: "frees-at-once",
            about: "an update gives the old leaf back to the allocator, although another client is about to mark it",
            cases: || {
                plain()
                    .map(|k| Case::fails(How::NotLinearizable, "update and insert, update", k))
                    .into()
            },
        },
        Twin {
            name: "swings-once",
            about: "an update takes the failure of its CAS on the slot as proof that no slot leads to the old leaf, \
                although a split has moved the leaf to a new node",
            cases: || {
                plain()
                    .map(|k| Case::fails(How::Invariant, "update, leaf split", k))
                    .into()
            },
        },
    ],
    build: |s| {
        let mut options = replacing();
        options.flaws.inner.frees_at_once = s.mutant("frees-at-once");
        options.flaws.inner.swings_once = s.mutant("swings-once");
        match s.shape {
            "update and insert, get" | "update and insert, update" => build(REUSE, s, options),
            _ => build(SHAPES, s, options),
        }
    },
};

const T_M8_SHAPES: &[Shape] = &[(
    "3x1",
    // One reader has no cache, and the other one has the old leaf's address in its cache.
    with(
        cold(ROOM, &[1]),
        &[(0, &[Update(1)]), (1, &[Get(1)]), (2, &[Get(1)])],
    ),
)];

pub(crate) const T_M8: Entry = Entry {
    name: "T-M8",
    kind: Kind::Tree,
    source: "SMART's code, Tree.cpp:543",
    about: "An update replaces a leaf whose address another client has cached. A client with this cache must \
        not read the old value after a client without a cache has read the new one.",
    cases: || holds(T_M8_SHAPES),
    published: Some(Twin {
        name: "published",
        about: "the slot leads to the new leaf before the old leaf is marked",
        cases: || {
            plain()
                .map(|k| Case::fails(How::NotLinearizable, "3x1", k))
                .into()
        },
    }),
    mutants: &[],
    build: |s| {
        let mut options = replacing();
        options.flaws.inner.swings_first = s.published();
        build(T_M8_SHAPES, s, options)
    },
};

/// In this shape both clients are on one compute node, so both would die together.
const TOGETHER: &str = "1 CN, update, insert";

/// In these shapes a client dies, or is dropped. No client holds a lock.
const FAULTS: &[Shape] = &[
    (
        "update, update",
        with(ROOM, &[(0, &[Update(1)]), (1, &[Update(1)])]),
    ),
    (
        "update, get",
        with(ROOM, &[(0, &[Update(1)]), (1, &[Get(1), Get(1)])]),
    ),
    (
        "update, remove",
        with(ROOM, &[(0, &[Update(1)]), (1, &[Remove(1)])]),
    ),
    (
        "update, leaf split",
        with(APART, &[(0, &[Update(0x101)]), (1, &[Insert(0x102)])]),
    ),
    (
        "update, growth",
        with(FULL, &[(0, &[Update(1)]), (1, &[Insert(3)])]),
    ),
    (TOGETHER, with(SPARSE, &[(0, &[Update(1)]), (0, &[Insert(3)])])),
    (
        "2 MN, update, leaf split",
        Script {
            memory_nodes: 2,
            ..with(APART, &[(0, &[Update(0x101)]), (1, &[Insert(0x102)])])
        },
    ),
];

pub(crate) const CRASH: Entry = Entry {
    name: "radix-out-of-place-crash",
    kind: Kind::Crash,
    source: "docs/protocol/smart.md M26–M28, When a writer dies",
    about: "One client dies at any step of an out-of-place update, and any part of its posted requests lands. \
        No client waits for it: the next writer makes the slot lead to the new leaf, and every result is right.",
    cases: || {
        let mut cases = holds_under(FAULTS, |k| k.crashes(1));
        cases.retain(|case| case.shape != TOGETHER);
        cases
    },
    published: None,
    mutants: &[Twin {
        name: "renewal-waits",
        about: "a writer that finds a replaced leaf waits for the client that has replaced it",
        cases: || {
            plain()
                .map(|k| Case::fails(How::Stuck, "update, update", k.crashes(1)))
                .into()
        },
    }],
    build: |s| {
        let mut options = replacing();
        options.flaws.inner.renewal_waits = s.mutant("renewal-waits");
        build(FAULTS, s, options)
    },
};

pub(crate) const CANCEL: Entry = Entry {
    name: "radix-out-of-place-cancel",
    kind: Kind::Crash,
    source: "docs/protocol/smart.md M15, M26, Cancellation",
    about: "One client is dropped at any await of an out-of-place update. The update has happened as a whole or \
        not at all, and other clients use the blocks that it allocated only if no request of it can land there \
        any more.",
    cases: || holds_under(FAULTS, |k| k.cancels(1)),
    published: None,
    mutants: &[Twin {
        name: "gives-back-early",
        about: "a new leaf goes back to the allocator while its WRITE and the old leaf's CAS are in flight",
        cases: || {
            let case =
                |k: Knobs| Case::fails(How::Invariant, TOGETHER, k.cancels(1)).or(How::NotLinearizable);
            plain().map(case).into()
        },
    }],
    build: |s| {
        let mut options = replacing();
        options.flaws.inner.gives_back_early = s.mutant("gives-back-early");
        build(FAULTS, s, options)
    },
};
