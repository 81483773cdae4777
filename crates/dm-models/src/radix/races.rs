//! Models of concurrent splits, growth, removals and merges.

use dm_explore::Knobs;
use dm_verbs::Capability;

use super::world::{build, options};
use crate::tree::world::{Do, Script, Shape, cold, plain, timeless, with};
use crate::{Case, Entry, How, Kind, Knob, Twin, matrix};
use Do::{Get, Insert, Remove, Scan, Update, Upsert};

/// The root's only slot leads to a node that branches at the last key byte and is full with two leaves. In all scripts
/// of this file, keys differ only in their last two bytes.
pub(super) const FULL: Script = Script {
    preload: &[1, 2],
    ..Script::EMPTY
};
/// The script `FULL`, but the node has four slots, and three of them are in use.
pub(super) const ROOM: Script = Script {
    preload: &[1, 2, 4],
    ..Script::EMPTY
};
/// A node with two leaves, the slot of a third leaf that was removed, and an empty slot.
pub(super) const SPARSE: Script = Script {
    preload: &[1, 2, 4],
    removed: &[4],
    ..Script::EMPTY
};
/// A node that branches at the second-last key byte and is full with two leaves.
pub(super) const APART: Script = Script {
    preload: &[0x101, 0x201],
    ..Script::EMPTY
};

const SHAPES: &[Shape] = &[
    (
        "leaf split, get",
        with(APART, &[(0, &[Insert(0x102)]), (1, &[Get(0x101), Get(0x102)])]),
    ),
    (
        "leaf split, insert",
        with(APART, &[(0, &[Insert(0x102)]), (1, &[Insert(0x103)])]),
    ),
    (
        "leaf split, same key",
        with(APART, &[(0, &[Insert(0x102)]), (1, &[Upsert(0x102)])]),
    ),
    (
        "leaf split, update",
        with(APART, &[(0, &[Insert(0x102)]), (1, &[Update(0x101)])]),
    ),
    (
        "leaf split, remove",
        with(APART, &[(0, &[Insert(0x102)]), (1, &[Remove(0x101)])]),
    ),
    (
        "header split, get",
        with(FULL, &[(0, &[Insert(0x101)]), (1, &[Get(1), Get(0x101)])]),
    ),
    (
        "header split, insert",
        with(FULL, &[(0, &[Insert(0x101)]), (1, &[Insert(0x201)])]),
    ),
    (
        "header split, insert, get",
        with(
            cold(FULL, &[2]),
            &[(0, &[Insert(0x101)]), (1, &[Insert(0x201)]), (2, &[Get(0x101)])],
        ),
    ),
    (
        "growth, get",
        with(FULL, &[(0, &[Insert(3)]), (1, &[Get(2), Get(3)])]),
    ),
    (
        "growth, insert",
        with(FULL, &[(0, &[Insert(3)]), (1, &[Insert(4)])]),
    ),
    (
        "growth, insert, get",
        with(FULL, &[(0, &[Insert(3)]), (1, &[Insert(3)]), (2, &[Get(3)])]),
    ),
    (
        "growth, leaf split",
        with(APART, &[(0, &[Insert(0x301)]), (1, &[Insert(0x102)])]),
    ),
    (
        // Both clients may freeze the same node, and one of them may freeze a slot that has changed since the other one
        // read it.
        "growth, leaf split and growth",
        with(
            APART,
            &[
                (0, &[Insert(0x301)]),
                (1, &[Insert(0x102), Insert(0x401), Get(0x102)]),
            ],
        ),
    ),
    (
        "growth, header split",
        with(FULL, &[(0, &[Insert(3)]), (1, &[Insert(0x101)])]),
    ),
    (
        "remove, insert",
        with(ROOM, &[(0, &[Remove(1)]), (1, &[Insert(1), Get(1)])]),
    ),
    (
        "remove, insert, insert",
        with(
            cold(ROOM, &[2]),
            &[(0, &[Remove(1)]), (1, &[Insert(3)]), (2, &[Insert(3)])],
        ),
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
        "merge, get",
        with(SPARSE, &[(0, &[Remove(1)]), (1, &[Get(1), Get(2)])]),
    ),
    (
        "merge, remove",
        with(SPARSE, &[(0, &[Remove(1)]), (1, &[Remove(2)])]),
    ),
    (
        "merge, header split",
        with(SPARSE, &[(0, &[Remove(1)]), (1, &[Insert(0x101)])]),
    ),
    (
        "scan, leaf split",
        Script {
            always: &[0x101, 0x201],
            ..with(APART, &[(0, &[Insert(0x102)]), (1, &[Scan(0)])])
        },
    ),
    (
        "scan, growth",
        Script {
            always: &[1, 2],
            ..with(FULL, &[(0, &[Insert(3)]), (1, &[Scan(1)])])
        },
    ),
    (
        "2 MN, leaf split, get",
        Script {
            memory_nodes: 2,
            ..with(APART, &[(0, &[Insert(0x102)]), (1, &[Get(0x102)])])
        },
    ),
    (
        "2 MN, growth, insert",
        Script {
            memory_nodes: 2,
            ..with(FULL, &[(0, &[Insert(3)]), (1, &[Insert(4)])])
        },
    ),
];

/// Returns knobs with the freedoms that affect a tree.
pub(super) fn knobs() -> Vec<Knobs> {
    matrix(
        &timeless(Knobs::weak()),
        &[Knob::CasThenRead, Knob::AtomicVsWrite],
    )
}

pub(crate) const ENTRY: Entry = Entry {
    name: "radix-races",
    kind: Kind::Tree,
    source: "SMART §4.1.2 and §4.5, docs/protocol/smart.md M1–M20",
    about: "Get, insert, update, upsert, remove and scan run at the same time on a radix tree, while leaves \
        and headers are split, nodes grow, and nodes with one child are removed.",
    cases: || {
        let mut cases: Vec<Case> = Vec::new();
        for &(shape, script) in SHAPES {
            // Only the locks of leaves depend on the card, and models with three clients are large.
            let locks = shape.contains("update") || shape == "leaf split, remove";
            let under = match locks && script.clients.len() < 3 {
                true => knobs(),
                false => plain().to_vec(),
            };
            cases.extend(under.into_iter().map(|k| Case::holds(shape, k)));
        }
        cases
    },
    published: None,
    mutants: &[Twin {
        name: "read-first",
        about: "lock-and-read of a leaf uses one chain on a card that may serve the READ first",
        cases: || {
            let knobs = timeless(Knobs::weak()).pretend(Capability::CasThenReadInOrder);
            vec![Case::fails(How::NotLinearizable, "remove, remove", knobs).or(How::Invariant)]
        },
    }],
    build: |s| {
        const MUTANT: &[Shape] = &[(
            "remove, remove",
            with(ROOM, &[(0, &[Remove(1)]), (1, &[Remove(1)])]),
        )];
        match s.mutant("read-first") {
            true => build(MUTANT, s, options()),
            false => build(SHAPES, s, options()),
        }
    },
};
