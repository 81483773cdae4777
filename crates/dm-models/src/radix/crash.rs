//! Models of a client of a radix tree that dies, is dropped, or loses a queue pair in the middle of an operation.

use dm_explore::Knobs;

use super::races::{APART, FULL, ROOM, SPARSE};
use super::world::{build, options};
use crate::tree::world::{Do, Script, Shape, holds_under, plain, with};
use crate::{Case, Entry, How, Kind, Setting, Twin};
use Do::{Get, Insert, Remove, Update};

/// In these shapes no client waits for a lock, so all remaining clients must end.
const SHAPES: &[Shape] = &[
    ("insert", with(ROOM, &[(0, &[Insert(3)]), (1, &[Insert(3)])])),
    (
        "leaf split, insert",
        with(APART, &[(0, &[Insert(0x102)]), (1, &[Insert(0x103)])]),
    ),
    (
        "leaf split, get",
        with(APART, &[(0, &[Insert(0x102)]), (1, &[Get(0x101)])]),
    ),
    (
        "header split, insert",
        with(FULL, &[(0, &[Insert(0x101)]), (1, &[Insert(0x201)])]),
    ),
    (
        "header split, get",
        with(FULL, &[(0, &[Insert(0x101)]), (1, &[Get(1)])]),
    ),
    (
        "type switch, insert",
        with(FULL, &[(0, &[Insert(3)]), (1, &[Insert(4)])]),
    ),
    (
        "type switch, leaf split",
        with(APART, &[(0, &[Insert(0x301)]), (1, &[Insert(0x102)])]),
    ),
    (
        "type switch, get",
        with(FULL, &[(0, &[Insert(3)]), (1, &[Get(2)])]),
    ),
    (
        "removal, insert",
        with(SPARSE, &[(0, &[Remove(1)]), (1, &[Insert(3)])]),
    ),
    ("removal, get", with(SPARSE, &[(0, &[Remove(1)]), (1, &[Get(1)])])),
    (
        "2 MN, leaf split, insert",
        Script {
            memory_nodes: 2,
            ..with(APART, &[(0, &[Insert(0x102)]), (1, &[Insert(0x103)])])
        },
    ),
    (
        "2 MN, type switch, insert",
        Script {
            memory_nodes: 2,
            ..with(FULL, &[(0, &[Insert(3)]), (1, &[Insert(4)])])
        },
    ),
];

/// In these shapes a client is dropped, or its queue pair fails. Its locks are released, and other clients of its
/// compute node may use its blocks.
const CANCELS: &[Shape] = &[
    (
        "insert, insert",
        with(SPARSE, &[(0, &[Insert(3)]), (0, &[Insert(4)])]),
    ),
    (
        "leaf split, insert",
        with(APART, &[(0, &[Insert(0x102)]), (0, &[Insert(0x202)])]),
    ),
    (
        "header split, insert",
        with(FULL, &[(0, &[Insert(0x101)]), (1, &[Insert(0x201)])]),
    ),
    (
        "type switch, leaf split",
        with(APART, &[(0, &[Insert(0x301)]), (1, &[Insert(0x102)])]),
    ),
    (
        "update, update",
        with(ROOM, &[(0, &[Update(1)]), (1, &[Update(1)])]),
    ),
    (
        "removal, update",
        with(SPARSE, &[(0, &[Remove(1)]), (1, &[Update(1)])]),
    ),
    (
        "removal, insert",
        with(SPARSE, &[(0, &[Remove(1)]), (1, &[Insert(3)])]),
    ),
];

pub(crate) const CRASH: Entry = Entry {
    name: "radix-crash",
    kind: Kind::Crash,
    source: "docs/protocol/smart.md M14–M17, When a writer dies",
    about: "One client dies at any step of an insert, a leaf split, a header split, a change of a node's \
        type or a removal, and any part of its posted requests lands. Every client that needs the same node \
        ends with the right result, and no key is lost. No client waits for the dead client: other clients \
        finish a node replacement that it has begun.",
    cases: || holds_under(SHAPES, |k| k.crashes(1)),
    published: None,
    mutants: &[Twin {
        name: "renewal-waits",
        about: "a client that needs a frozen slot waits for the client that froze it",
        cases: || {
            plain()
                .map(|k| Case::fails(How::Stuck, "type switch, leaf split", k.crashes(1)))
                .into()
        },
    }],
    build: |s| {
        let mut options = options();
        options.flaws.inner.renewal_waits = s.mutant("renewal-waits");
        build(SHAPES, s, options)
    },
};

pub(crate) const FAIL: Entry = Entry {
    name: "radix-fails",
    kind: Kind::Crash,
    source: "docs/protocol/smart.md M14–M17; docs/protocol/reclaim.md R11",
    about: "A queue pair of one client fails at any step of an insert, an update, a leaf split, a header \
        split, a change of a node's type or a removal, and requests in flight land later, in part or never. \
        Every result is right, no key is lost, and other clients use the blocks that it allocated only if \
        no request of it can land there any more.",
    cases: || holds_under(CANCELS, |k| k.failures(1)),
    published: None,
    mutants: &[Twin {
        name: "gives-back-early",
        about: "a new leaf goes back to the allocator while its WRITE and its slot's CAS may still land",
        cases: || {
            let case = |k: Knobs| {
                Case::fails(How::Invariant, "insert, insert", k.failures(1)).or(How::NotLinearizable)
            };
            plain().map(case).into()
        },
    }],
    build: CANCEL.build,
};

pub(crate) const CANCEL: Entry = Entry {
    name: "radix-cancel",
    kind: Kind::Crash,
    source: "docs/protocol/smart.md M15, Cancellation",
    about: "One client is dropped at any await of an insert, an update, a leaf split, a header split, a change of a node's \
            type or a removal. The operation has happened as a whole or not at all, no lock stays held, and other clients use \
            the blocks that it allocated only if no request of it can land there any more.",
    cases: || holds_under(CANCELS, |k| k.cancels(1)),
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
    build: |s: &Setting<'_>| {
        let mut options = options();
        options.flaws.inner.gives_back_early = s.mutant("gives-back-early");
        build(CANCELS, s, options)
    },
};
