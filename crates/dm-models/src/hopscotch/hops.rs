//! Models of hops, removes, inserts and gets in one leaf.

use super::world::{build, options};
use crate::tree::world::{Do, Script, Shape, holds, plain, with};
use crate::{Case, Entry, How, Kind, Twin};
use Do::{Get, Insert, Remove, Scan, Update, Upsert};

/// Two leaves under a root. In the first leaf, 4 and 7 fill the neighbourhood of 5. Inserting 5 moves 7 from the first
/// line to the second line.
pub(super) const NEXT: Script = Script {
    preload: &[4, 7, 55, 53, 50],
    ..Script::EMPTY
};
/// The script `NEXT`, but key 10, which has the same home as 7, is in the slot to which 7 would move.
pub(super) const TAKEN: Script = Script {
    preload: &[4, 7, 55, 53, 50, 10],
    ..Script::EMPTY
};
/// Key 5 is in a slot behind one that has become free.
pub(super) const BEHIND: Script = Script {
    preload: &[4, 5, 55, 53, 50],
    removed: &[4],
    ..Script::EMPTY
};

const SHAPES: &[Shape] = &[
    (
        "hop, get",
        with(NEXT, &[(0, &[Insert(5)]), (1, &[Get(7), Get(5)])]),
    ),
    (
        "hop, get absent",
        with(NEXT, &[(0, &[Insert(5)]), (1, &[Get(10), Get(7)])]),
    ),
    ("hop, update", with(NEXT, &[(0, &[Insert(5)]), (1, &[Update(7)])])),
    (
        "hop, remove",
        with(NEXT, &[(0, &[Insert(5)]), (1, &[Remove(7), Get(7)])]),
    ),
    ("hop, insert", with(NEXT, &[(0, &[Insert(5)]), (1, &[Upsert(5)])])),
    ("hop, hop", with(NEXT, &[(0, &[Insert(5)]), (1, &[Insert(9)])])),
    (
        "hop, scan",
        Script {
            always: &[4, 7],
            ..with(NEXT, &[(0, &[Insert(5)]), (1, &[Scan(0)])])
        },
    ),
    (
        "remove, hop, get",
        with(TAKEN, &[(0, &[Remove(10), Insert(5)]), (1, &[Get(7)])]),
    ),
    (
        "remove, hop, get, 3 clients",
        with(TAKEN, &[(0, &[Remove(10)]), (1, &[Insert(5)]), (2, &[Get(7)])]),
    ),
    (
        "vacancy before the key",
        with(BEHIND, &[(0, &[Insert(5)]), (1, &[Remove(5), Get(5)])]),
    ),
    (
        "1x2 hop, update",
        with(NEXT, &[(0, &[Insert(5)]), (0, &[Update(7), Get(7)])]),
    ),
];

pub(crate) const ENTRY: Entry = Entry {
    name: "chime-hops",
    kind: Kind::Tree,
    source: "CHIME §4.1, docs/protocol/chime.md H1–H4",
    about: "Get, insert, update, upsert, remove and scan run on one leaf and read neighbourhoods, while \
        entries hop from line to line.",
    cases: || {
        let long = |c: Case| {
            if c.shape.contains("3 clients") {
                c.nightly()
            } else {
                c
            }
        };
        holds(SHAPES).into_iter().map(long).collect()
    },
    published: None,
    mutants: &[Twin {
        name: "uncounted",
        about: "a hop changes no count",
        cases: || {
            let case = |k| Case::fails(How::NotLinearizable, "hop, get", k);
            plain().into_iter().map(case).collect()
        },
    }],
    build: |s| {
        let mut options = options();
        options.flaws.hop.hop_uncounted = s.mutant("uncounted");
        build(SHAPES, s, options)
    },
};
