//! A flaw of the published tree: T-D12.

use dm_explore::Knobs;

use super::world::{build, options};
use crate::tree::world::{Do, Script, Shape, cold, holds, plain, with};
use crate::{Case, Entry, How, Kind, Twin};
use Do::{Get, Insert, Remove, Update};

/// Two leaves: 10 to 30, and from 40 on.
const TWO_LEAVES: Script = Script {
    preload: &[10, 20, 30, 40, 50, 60],
    ..Script::EMPTY
};

/// Nothing is remembered: a key behind a separator, again, and the separator itself.
const T_D12_SHAPES: &[Shape] = &[
    (
        "1x1",
        with(cold(TWO_LEAVES, &[0]), &[(0, &[Get(50), Get(50), Get(40)])]),
    ),
    (
        "2x1",
        with(
            cold(TWO_LEAVES, &[1]),
            &[(0, &[Update(50)]), (1, &[Get(50), Insert(70)])],
        ),
    ),
];

/// Everything is remembered, but roughly; of two, one knows of no leaf that comes, and of one that goes.
const ROUGH_SHAPES: &[Shape] = &[
    (
        "rough: split, get and update",
        with(TWO_LEAVES, &[(0, &[Insert(45)]), (1, &[Get(60), Update(60)])]),
    ),
    (
        "rough: split, insert",
        with(TWO_LEAVES, &[(0, &[Insert(45)]), (1, &[Insert(70), Get(70)])]),
    ),
    (
        "rough: merge, get and insert",
        with(
            TWO_LEAVES,
            &[(0, &[Remove(50), Remove(60)]), (1, &[Get(40), Insert(45)])],
        ),
    ),
];

pub(crate) const T_D12: Entry = Entry {
    name: "T-D12",
    kind: Kind::Tree,
    source: "Dolphin's code, Tree.cpp, search 3.3",
    about: "A client that remembers nothing finds a key that is no separator itself, by the last one below it; and one that \
            remembers separators roughly, from its leaf or one to the left.",
    cases: || [holds(T_D12_SHAPES), holds(ROUGH_SHAPES)].concat(),
    published: Some(Twin {
        name: "published",
        about: "a cold search follows a separator only if it is the key",
        cases: || fails(T_D12_SHAPES),
    }),
    mutants: &[],
    build: |s| {
        let mut options = options();
        options.separators.exact = s.published();
        if s.shape.starts_with("rough") {
            // Too little for an image in the cache, enough for a sketch of two leaves.
            options.cache_bytes = 400;
            return build(ROUGH_SHAPES, s, options);
        }
        build(T_D12_SHAPES, s, options)
    },
};

fn fails(shapes: &'static [Shape]) -> Vec<Case> {
    let case = |shape, k: Knobs| Case::fails(How::NotLinearizable, shape, k);
    let each = |&(shape, ..): &Shape| plain().into_iter().map(move |k| case(shape, k));
    shapes.iter().flat_map(each).collect()
}
