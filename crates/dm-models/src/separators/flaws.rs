//! The model of T-D12, a flaw of the published tree.

use dm_explore::Knobs;

use super::world::{build, options};
use crate::tree::world::{Do, Script, Shape, cold, holds, plain, with};
use crate::{Case, Entry, How, Kind, Twin};
use Do::{Get, Insert, Remove, Update};

/// Two leaves: keys 10 to 30, and keys from 40 on.
const TWO_LEAVES: Script = Script {
    preload: &[10, 20, 30, 40, 50, 60],
    ..Script::EMPTY
};

/// Shapes in which one compute node begins without cached separators. The first operation of its client gets key 50.
/// The key lies above the separator 40, and is no separator itself.
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

/// Shapes that cache all separators approximately. The cache of one client does not contain changes that the other one
/// makes.
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
    about: "A client without cached separators finds a key that is not itself a separator, by the last \
        separator below it. A client with approximate separators finds the key from its leaf or from a leaf \
        to the left.",
    cases: || [holds(T_D12_SHAPES), holds(ROUGH_SHAPES)].concat(),
    published: Some(Twin {
        name: "published",
        about: "a search without a cache follows a separator only if the separator is the key",
        cases: || fails(T_D12_SHAPES),
    }),
    mutants: &[],
    build: |s| {
        let mut options = options();
        options.separators.exact = s.published();
        if s.shape.starts_with("rough") {
            // The cache has no room for a whole node, but it has room for the approximate separators of two leaves.
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
