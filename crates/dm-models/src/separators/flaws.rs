//! A flaw of the published tree: T-D12.

use dm_explore::Knobs;

use super::world::{build, options};
use crate::tree::world::{Do, Script, Shape, cold, holds, plain, with};
use crate::{Case, Entry, How, Kind, Twin};
use Do::{Get, Insert, Update};

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

pub(crate) const T_D12: Entry = Entry {
    name: "T-D12",
    kind: Kind::Tree,
    source: "Dolphin's code, Tree.cpp, search 3.3",
    about: "A client that remembers nothing finds a key that is no separator itself, by the last one below it.",
    cases: || holds(T_D12_SHAPES),
    published: Some(Twin {
        name: "published",
        about: "a cold search follows a separator only if it is the key",
        cases: || fails(T_D12_SHAPES),
    }),
    mutants: &[],
    build: |s| {
        let mut options = options();
        options.separators.exact = s.published();
        build(T_D12_SHAPES, s, options)
    },
};

fn fails(shapes: &'static [Shape]) -> Vec<Case> {
    let case = |shape, k: Knobs| Case::fails(How::NotLinearizable, shape, k);
    let each = |&(shape, ..): &Shape| plain().into_iter().map(move |k| case(shape, k));
    shapes.iter().flat_map(each).collect()
}
