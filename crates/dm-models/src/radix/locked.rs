//! Models of a radix tree whose locks are in lock tables: the locks of leaves, and those of inner nodes.

use dm_explore::Knobs;

use super::races::{APART, FULL, ROOM, SPARSE};
use super::world::{build, options};
use crate::tree::world::{Do, LOCKS, Script, Shape, holds, holds_under, plain, with};
use crate::{Case, Entry, How, Kind, Twin};
use Do::{Get, Insert, Remove, Update};
use smart::Options;

/// Returns options with `locks_per_node` locks for all leaves and inner nodes of a memory node.
const fn tables(locks_per_node: u32) -> Options {
    Options {
        rear_locks: false,
        locked_nodes: true,
        locks_per_node,
        ..options()
    }
}

const SHAPES: &[Shape] = &[
    (
        "leaf split, insert",
        with(APART, &[(0, &[Insert(0x102)]), (1, &[Insert(0x103)])]),
    ),
    (
        "leaf split, update",
        with(APART, &[(0, &[Insert(0x102)]), (1, &[Update(0x101)])]),
    ),
    (
        "header split, insert",
        with(FULL, &[(0, &[Insert(0x101)]), (1, &[Insert(0x201)])]),
    ),
    (
        "growth, insert",
        with(FULL, &[(0, &[Insert(3)]), (1, &[Insert(4), Get(3)])]),
    ),
    (
        "growth, leaf split",
        with(APART, &[(0, &[Insert(0x301)]), (1, &[Insert(0x102)])]),
    ),
    (
        // The second client may get its locks by handover.
        "1 CN, insert, insert",
        with(SPARSE, &[(0, &[Insert(3)]), (0, &[Insert(4)])]),
    ),
    (
        "remove, remove",
        with(ROOM, &[(0, &[Remove(1)]), (1, &[Remove(1)])]),
    ),
    (
        "merge, insert",
        with(SPARSE, &[(0, &[Remove(1)]), (1, &[Insert(3)])]),
    ),
    (
        "2 MN, growth, insert",
        Script {
            memory_nodes: 2,
            ..with(FULL, &[(0, &[Insert(3)]), (1, &[Insert(4)])])
        },
    ),
];

pub(crate) const RACES: Entry = Entry {
    name: "radix-locked",
    kind: Kind::Tree,
    source: "docs/protocol/smart.md M24, M25",
    about: "Splits, growth, removals and updates run at the same time on a radix tree in which a client \
        changes an inner node only under the node's lock. All leaves and inner nodes of a memory node have \
        the same lock. Every operation ends, and every result is right.",
    cases: || holds(SHAPES),
    published: None,
    mutants: &[Twin {
        name: "nested-locks",
        about: "a renewal swaps the parent's slot while it still holds the lock of the node that it froze",
        cases: || {
            plain()
                .map(|k| Case::fails(How::Check, "growth, insert", k).or(How::Stuck))
                .into()
        },
    }],
    build: |s| {
        let mut options = tables(1);
        options.flaws.inner.nested_locks = s.mutant("nested-locks");
        build(SHAPES, s, options)
    },
};

/// In these shapes a client dies. In all of them except the first one, the last client frees the dead client's locks.
const DEATHS: &[Shape] = &[
    (NO_SURVIVOR, with(FULL, &[(0, &[Insert(3)]), (1, &[Insert(4)])])),
    (
        "growth, survivor",
        survived(FULL, &[(0, &[Insert(3)]), (1, &[Insert(4), Get(1)])]),
    ),
    (
        "leaf split, survivor",
        survived(APART, &[(0, &[Insert(0x102)]), (1, &[Insert(0x103), Get(0x101)])]),
    ),
    (
        "removal, survivor",
        survived(SPARSE, &[(0, &[Remove(1)]), (1, &[Insert(3), Get(2)])]),
    ),
    (
        "update, survivor",
        survived(ROOM, &[(0, &[Update(1)]), (1, &[Update(1)])]),
    ),
];

/// In this shape nobody frees the locks of the client that dies.
const NO_SURVIVOR: &str = "growth, no survivor";

const fn survived(script: Script, clients: &'static [(u16, &'static [Do])]) -> Script {
    Script {
        survivor: true,
        ..with(script, clients)
    }
}

/// Shapes in which one client's future is dropped at any await. The dropped client must leave no lock held.
const DROPS: &[Shape] = &[
    (
        "growth, leaf split",
        with(APART, &[(0, &[Insert(0x301)]), (1, &[Insert(0x102)])]),
    ),
    (
        "removal, insert",
        with(SPARSE, &[(0, &[Remove(1)]), (1, &[Insert(3)])]),
    ),
    (
        "update, update",
        with(ROOM, &[(0, &[Update(1)]), (1, &[Update(1)])]),
    ),
    (
        "insert, insert",
        with(SPARSE, &[(0, &[Insert(3)]), (0, &[Insert(4)])]),
    ),
];

pub(crate) const CRASH: Entry = Entry {
    name: "radix-locked-crash",
    kind: Kind::Crash,
    source: "docs/protocol/smart.md M24, When a writer dies; docs/protocol/recovery.md V2, V3",
    about: "One client dies at any step of an insert, a split, a growth, a removal or an update under locks \
        in tables. Another client frees the dead client's locks, finishes what it needs, and gets the right \
        results. If nobody frees the locks, which the shape `growth, no survivor` must show, clients wait for ever.",
    cases: || {
        let mut cases = holds_under(&DEATHS[1..], |k| k.crashes(1));
        cases.extend(plain().map(|k| Case::fails(How::Stuck, NO_SURVIVOR, k.crashes(1))));
        cases
    },
    published: None,
    mutants: &[],
    build: |s| build(DEATHS, s, tables(LOCKS)),
};

pub(crate) const CANCEL: Entry = Entry {
    name: "radix-locked-cancel",
    kind: Kind::Crash,
    source: "docs/protocol/smart.md M24, Cancellation",
    about: "One client is dropped at any await of a growth, a removal or an update under locks in tables. No \
        lock stays held, and every result is right.",
    cases: || holds_under(DROPS, |k| k.cancels(1)),
    published: None,
    mutants: &[Twin {
        name: "gives-back-early",
        about: "a new leaf goes back to the allocator while its WRITE and its slot's CAS are in flight",
        cases: || {
            let case = |k: Knobs| {
                Case::fails(How::Invariant, "insert, insert", k.cancels(1)).or(How::NotLinearizable)
            };
            plain().map(case).into()
        },
    }],
    build: |s| {
        let mut options = tables(LOCKS);
        options.flaws.inner.gives_back_early = s.mutant("gives-back-early");
        build(DROPS, s, options)
    },
};
