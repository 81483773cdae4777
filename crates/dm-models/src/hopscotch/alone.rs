//! Models of gets that read only one entry, at the place where their compute node found the key before.

use chime::Options;

use super::hops::NEXT;
use super::splits::{FULL, SPARSE};
use super::world::{build, options};
use crate::tree::world::{Do, Shape, holds, plain, with};
use crate::{Case, Entry, How, Kind, Twin};
use Do::{Get, Insert, Remove, Update};

/// If the first get finds the key, the second get reads only the slot where the key was.
const SHAPES: &[Shape] = &[
    (
        "remove, insert, update",
        with(
            NEXT,
            &[(0, &[Remove(7), Insert(7), Update(7)]), (1, &[Get(7), Get(7)])],
        ),
    ),
    (
        "hop, update",
        with(NEXT, &[(0, &[Insert(5), Update(7)]), (1, &[Get(7), Get(7)])]),
    ),
    (
        "hop, update, 3 clients",
        with(
            NEXT,
            &[(0, &[Insert(5)]), (1, &[Update(7)]), (2, &[Get(7), Get(7)])],
        ),
    ),
    (
        "split, update moved",
        with(FULL, &[(0, &[Insert(5), Update(6)]), (1, &[Get(6), Get(6)])]),
    ),
    (
        "merge, update moved",
        with(SPARSE, &[(0, &[Remove(4), Update(6)]), (1, &[Get(6), Get(6)])]),
    ),
    (
        "1x2 remove",
        with(NEXT, &[(0, &[Remove(7)]), (0, &[Get(7), Get(7)])]),
    ),
];

pub(crate) const ENTRY: Entry = Entry {
    name: "chime-alone",
    kind: Kind::Tree,
    source: "CHIME §4.3, docs/protocol/chime.md H8",
    about: "Gets read only the entry where their compute node found the key before, while the key is \
        updated, is removed, hops, and moves to another leaf by a split or a merge.",
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
        name: "absent",
        about: "a removed entry is accepted if it has the key's bytes",
        cases: || {
            let case = |shape| plain().map(|k| Case::fails(How::NotLinearizable, shape, k));
            ["1x2 remove", "split, update moved"]
                .into_iter()
                .flat_map(case)
                .collect()
        },
    }],
    build: |s| {
        let mut options = Options {
            // The hotspot buffer has room for one set.
            hotspot_bytes: 128,
            ..options()
        };
        options.flaws.hop.entry.takes_absent = s.mutant("absent");
        build(SHAPES, s, options)
    },
};
