//! Flaws of the published leaf: T-C1 and T-C2.

use super::hops::{BEHIND, NEXT, TAKEN};
use super::world::{build, options};
use crate::tree::world::{Do, Shape, holds, plain, with};
use crate::{Case, Entry, How, Kind, Twin};
use Do::{Get, Insert, Remove};

const T_C1_SHAPES: &[Shape] = &[("1x1", with(BEHIND, &[(0, &[Insert(5), Get(5)])]))];
const T_C2_SHAPES: &[Shape] = &[
    ("2x1", with(NEXT, &[(0, &[Insert(5)]), (1, &[Get(7)])])),
    (
        "2x1, with a remove",
        with(TAKEN, &[(0, &[Remove(10), Insert(5)]), (1, &[Get(7)])]),
    ),
];

fn fails(shapes: &'static [Shape]) -> Vec<Case> {
    let case = |shape, k| Case::fails(How::NotLinearizable, shape, k).or(How::Invariant);
    let each = |&(shape, _): &Shape| plain().into_iter().map(move |k| case(shape, k));
    shapes.iter().flat_map(each).collect()
}

pub(crate) const T_C1: Entry = Entry {
    name: "T-C1",
    kind: Kind::Tree,
    source: "CHIME's code, Tree.cpp:412",
    about: "An insert of a key that lies behind a slot that has come free finds it.",
    cases: || holds(T_C1_SHAPES),
    published: Some(Twin {
        name: "published",
        about: "the insert looks from the home to the first vacancy alone",
        cases: || fails(T_C1_SHAPES),
    }),
    mutants: &[],
    build: |s| {
        let mut options = options();
        options.flaws.near.stops_at_vacancy = s.published();
        build(T_C1_SHAPES, s, options)
    },
};

pub(crate) const T_C2: Entry = Entry {
    name: "T-C2",
    kind: Kind::Tree,
    source: "CHIME §4.1.2",
    about: "A key that hops while a reader fetches its neighbourhood, lines in any order, is found all the same, also if \
            another of its home was removed to make room.",
    cases: || holds(T_C2_SHAPES),
    published: Some(Twin {
        name: "published",
        about: "a hop changes no version of the leaf",
        cases: || {
            // Cards that serve lines in any order.
            let any = |c: &Case| c.knobs.read_lines == dm_verbs::LineOrder::Any;
            fails(T_C2_SHAPES).into_iter().filter(any).collect()
        },
    }),
    mutants: &[],
    build: |s| {
        let mut options = options();
        options.flaws.hop_unversioned = s.published();
        build(T_C2_SHAPES, s, options)
    },
};
