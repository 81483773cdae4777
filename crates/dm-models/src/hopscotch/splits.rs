//! Models of leaves that split and merge while readers with stale caches read neighbourhoods.

use dm_explore::Knobs;

use super::world::{build, options};
use crate::tree::world::{Do, Script, Shape, holds, plain, with};
use crate::{Case, Entry, How, Kind, Twin};
use Do::{Get, Insert, Remove, Update, Upsert};

/// Two leaves under a root. The first one is full. Inserting 5 splits it before 5, so that 6 moves.
pub(super) const FULL: Script = Script {
    preload: &[2, 4, 7, 1, 50, 6],
    ..Script::EMPTY
};
/// Three leaves under a root: 2 and 4; 5 and 6; 7 and 50.
pub(super) const SPARSE: Script = Script {
    preload: &[2, 4, 7, 1, 50, 6, 5],
    removed: &[1],
    ..Script::EMPTY
};

const SHAPES: &[Shape] = &[
    (
        "split, get moved",
        with(FULL, &[(0, &[Insert(5)]), (1, &[Get(6)])]),
    ),
    (
        "split, get new",
        with(FULL, &[(0, &[Insert(5)]), (1, &[Get(5), Get(4)])]),
    ),
    // The first get may read the whole node, and may then see the new header while the lines are still old.
    (
        "split, get new twice",
        with(FULL, &[(0, &[Insert(5)]), (1, &[Get(5), Get(5)])]),
    ),
    (
        "2 MN, split to the other, get new twice",
        Script {
            memory_nodes: 2,
            first_is_full: true,
            ..with(FULL, &[(0, &[Insert(5)]), (1, &[Get(5), Get(5)])])
        },
    ),
    (
        "split, update moved",
        with(FULL, &[(0, &[Insert(5)]), (1, &[Update(6)])]),
    ),
    (
        "split, remove kept",
        with(FULL, &[(0, &[Insert(5)]), (1, &[Remove(4)])]),
    ),
    (
        "split, split",
        with(FULL, &[(0, &[Insert(5)]), (1, &[Upsert(3)])]),
    ),
    (
        "2 MN, split to the other, update moved",
        Script {
            memory_nodes: 2,
            first_is_full: true,
            ..with(FULL, &[(0, &[Insert(5)]), (1, &[Update(6)])])
        },
    ),
    (
        "2 MN, split to the other, get moved",
        Script {
            memory_nodes: 2,
            first_is_full: true,
            ..with(FULL, &[(0, &[Insert(5)]), (1, &[Get(6)])])
        },
    ),
    ("merge, get", with(SPARSE, &[(0, &[Remove(4)]), (1, &[Get(6)])])),
    (
        "merge, update",
        with(SPARSE, &[(0, &[Remove(4)]), (1, &[Update(6)])]),
    ),
    (
        "merge, insert",
        with(SPARSE, &[(0, &[Remove(4)]), (1, &[Insert(3)])]),
    ),
];

pub(crate) const ENTRY: Entry = Entry {
    name: "chime-splits",
    kind: Kind::Tree,
    source: "CHIME §4.2, docs/protocol/chime.md H1, H5 and H6",
    about: "Leaves are split and merged, while other clients with outdated caches read and write keys that \
        stay and keys that move.",
    cases: || {
        let mut cases = holds(SHAPES);
        // In these cases any READ may count as slow, and after a slow READ the client reads the whole node.
        let twice = SHAPES.iter().filter(|(shape, _)| shape.ends_with("twice"));
        cases.extend(twice.map(|&(shape, _)| Case::holds(shape, Knobs::weak())));
        cases
    },
    published: None,
    mutants: &[Twin {
        name: "unawaited",
        about: "the WRITE of the right node of a split is not awaited before the left node points to it",
        cases: || {
            let case = |k| Case::fails(How::NotLinearizable, "2 MN, split to the other, get moved", k);
            let either = |k| case(k).or(How::Check);
            plain().into_iter().map(either).collect()
        },
    }],
    build: |s| {
        let mut options = options();
        options.flaws.leaf.right_unawaited = s.mutant("unawaited");
        build(SHAPES, s, options)
    },
};
