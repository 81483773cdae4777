//! Models of a client that dies in the middle of a hop, a split or a merge of hopscotch leaves, and of later writers
//! that finish this change.

use super::hops::NEXT;
use super::splits::{FULL, SPARSE};
use super::world::{build, options};
use crate::tree::mended::{deaths, survive, survived};
use crate::tree::world::{Do, Script, Shape};
use crate::{Case, Entry, How, Kind, Twin};
use Do::{Get, Insert, Remove, Update, Upsert};

const SHAPES: &[Shape] = &[
    (
        "hop, alone",
        survived(NEXT, &[(0, &[Insert(5)]), (1, &[Upsert(10), Update(7), Get(4)])]),
    ),
    (
        "hop, alone, remove",
        survived(NEXT, &[(0, &[Insert(5)]), (1, &[Remove(7), Get(7), Upsert(9)])]),
    ),
    (
        "hop, get absent",
        survived(NEXT, &[(0, &[Insert(5)]), (1, &[Get(10)]), (2, &[Update(7)])]),
    ),
    (
        "hop, update",
        survived(
            NEXT,
            &[(0, &[Insert(5)]), (1, &[Update(7)]), (2, &[Upsert(10), Get(7)])],
        ),
    ),
    (
        "split, alone",
        survived(FULL, &[(0, &[Insert(5)]), (1, &[Update(6), Update(4), Get(5)])]),
    ),
    (
        "split, get moved",
        survived(
            FULL,
            &[(0, &[Insert(5)]), (1, &[Get(6)]), (2, &[Update(6), Update(4)])],
        ),
    ),
    (
        "2 MN, split to the other, alone",
        Script {
            memory_nodes: 2,
            first_is_full: true,
            ..survived(FULL, &[(0, &[Insert(5)]), (1, &[Update(6), Update(4), Get(5)])])
        },
    ),
    (
        "merge, alone, from the left",
        Script {
            cold: &[1],
            ..survived(SPARSE, &[(0, &[Remove(4)]), (1, &[Update(2), Update(6), Get(5)])])
        },
    ),
    (
        "merge, alone, from the right",
        survived(SPARSE, &[(0, &[Remove(4)]), (1, &[Update(6), Update(2), Get(5)])]),
    ),
    (
        "merge, get moved",
        survived(
            SPARSE,
            &[(0, &[Remove(4)]), (1, &[Get(6)]), (2, &[Update(6), Update(2)])],
        ),
    ),
];

pub(crate) const ENTRY: Entry = Entry {
    name: "chime-mended",
    kind: Kind::Crash,
    source: "docs/protocol/chime.md H5, H9a, When a writer dies; docs/protocol/sherman.md S24a, S24b",
    about: "One client dies at any step of a hop, a split or a merge, and its WRITEs land in part, their lines in any \
        order. The survivor fences it, frees its locks and writes; other clients read and write all the time. Every \
        operation ends with the right result, and no leaf that the survivor has written stays unfinished or torn.",
    cases: || {
        let long = |c: Case| {
            if c.shape == "hop, update" { c.nightly() } else { c }
        };
        survive(SHAPES).into_iter().map(long).collect()
    },
    published: None,
    mutants: &[Twin {
        name: "forgets-doubt",
        about: "a writer waits for the rest of a WRITE although its lock says that the client is gone",
        cases: || {
            let [knobs, _] = deaths();
            vec![Case::fails(How::Livelock, "hop, alone", knobs)]
        },
    }],
    build: |s| {
        let mut options = options();
        options.flaws.leaf.forgets_doubt = s.mutant("forgets-doubt");
        build(SHAPES, s, options)
    },
};
