//! Models of trees whose nodes merge, and of scans across nodes that split and merge.

use dm_explore::Knobs;
use dm_layout::{Key8, Slotted};

use super::split::{knobs, read_first};
use super::world::{Do, Script, options, script, timeless};
use crate::{Case, Entry, How, Kind, Twin};
use Do::{Get, Insert, Remove, Scan, Update, Upsert};
use sherman::Sherman;

/// Three leaves under one root: 10 and 20; 40; 50 and 60. Removing 40 merges its leaf with the leaf to the right.
pub(super) const THREE_LEAVES: Script = Script {
    preload: &[10, 20, 30, 40, 50, 60],
    removed: &[30],
    ..Script::EMPTY
};

const SHAPES: &[(&str, Script)] = &[
    (
        "2x1 reader",
        Script {
            clients: &[(0, &[Remove(40)]), (1, &[Get(50)])],
            ..THREE_LEAVES
        },
    ),
    (
        "2x1 reader of what goes",
        Script {
            clients: &[(0, &[Remove(40)]), (1, &[Get(40)])],
            ..THREE_LEAVES
        },
    ),
    (
        "2x1 writer",
        Script {
            clients: &[(0, &[Remove(40)]), (1, &[Update(50)])],
            ..THREE_LEAVES
        },
    ),
    (
        "2x1 insert",
        Script {
            clients: &[(0, &[Remove(40)]), (1, &[Insert(45)])],
            ..THREE_LEAVES
        },
    ),
    (
        "2x1 remove",
        Script {
            clients: &[(0, &[Remove(40)]), (1, &[Remove(50)])],
            ..THREE_LEAVES
        },
    ),
    (
        "1x2",
        Script {
            clients: &[(0, &[Remove(40)]), (0, &[Upsert(60)])],
            ..THREE_LEAVES
        },
    ),
    // The only two leaves are merged, and the remaining leaf becomes the root.
    (
        "2x1 root goes",
        Script {
            preload: &[10, 20, 30, 40],
            removed: &[30, 10],
            clients: &[(0, &[Remove(20)]), (1, &[Get(40)])],
            ..Script::EMPTY
        },
    ),
    (
        "2x1 root goes, writer",
        Script {
            preload: &[10, 20, 30, 40],
            removed: &[30, 10],
            clients: &[(0, &[Remove(20)]), (1, &[Upsert(25)])],
            ..Script::EMPTY
        },
    ),
    (
        "2 MN, 2x1 reader",
        Script {
            memory_nodes: 2,
            clients: &[(0, &[Remove(40)]), (1, &[Get(50)])],
            ..THREE_LEAVES
        },
    ),
    (
        "2 MN, 2x1 writer",
        Script {
            memory_nodes: 2,
            clients: &[(0, &[Remove(40)]), (1, &[Update(50)])],
            ..THREE_LEAVES
        },
    ),
    (
        "2x1, 2 operations each",
        Script {
            clients: &[(0, &[Remove(40), Insert(45)]), (1, &[Update(50), Get(45)])],
            ..THREE_LEAVES
        },
    ),
    (
        "3x1",
        Script {
            clients: &[(0, &[Remove(40)]), (1, &[Insert(55)]), (2, &[Get(50)])],
            ..THREE_LEAVES
        },
    ),
];

pub(crate) const MERGE: Entry = Entry {
    name: "tree-merge",
    kind: Kind::Tree,
    source: "docs/protocol/sherman.md S23–S28",
    about: "Removes merge leaves and lower the root, while other clients read and write both leaves.",
    cases: || {
        let plain = [timeless(Knobs::weak()), timeless(Knobs::declared())];
        let mut cases = Vec::new();
        for &(shape, _) in SHAPES {
            let large = shape.contains("operations each") || shape.starts_with('3') || shape == "1x2";
            let under = if large { plain.to_vec() } else { knobs() };
            cases.extend(under.into_iter().map(|k| Case::holds(shape, k)));
        }
        cases
    },
    published: None,
    mutants: &[Twin {
        name: "read-first",
        about: "lock-and-read uses one chain on a card that may serve the READ first",
        cases: || read_first("2x1 insert"),
    }],
    build: |s| {
        Box::new(script(SHAPES, s.shape).model::<Sherman<Key8, Slotted<Key8>>>(s.title.clone(), options()))
    },
};

const SCANS: &[(&str, Script)] = &[
    (
        "split",
        Script {
            preload: &[10, 20, 30, 40, 50],
            always: &[10, 20, 30, 40, 50],
            clients: &[(0, &[Insert(45)]), (1, &[Scan(10)])],
            ..Script::EMPTY
        },
    ),
    (
        "split before it",
        Script {
            preload: &[10, 20, 30, 40, 15],
            always: &[10, 15, 20, 30, 40],
            clients: &[(0, &[Insert(12)]), (1, &[Scan(10)])],
            ..Script::EMPTY
        },
    ),
    (
        "2 MN, split",
        Script {
            preload: &[10, 20, 30, 40, 50],
            memory_nodes: 2,
            first_is_full: true,
            always: &[10, 20, 30, 40, 50],
            clients: &[(0, &[Insert(45)]), (1, &[Scan(10)])],
            ..Script::EMPTY
        },
    ),
    (
        "merge",
        Script {
            always: &[10, 20, 50, 60],
            clients: &[(0, &[Remove(40)]), (1, &[Scan(10)])],
            ..THREE_LEAVES
        },
    ),
    (
        "merge, then split",
        Script {
            always: &[10, 20, 50, 60],
            clients: &[(0, &[Remove(40), Insert(55), Insert(45)]), (1, &[Scan(10)])],
            ..THREE_LEAVES
        },
    ),
    (
        "root goes",
        Script {
            always: &[40],
            preload: &[10, 20, 30, 40],
            removed: &[30, 10],
            clients: &[(0, &[Remove(20)]), (1, &[Scan(5)])],
            ..Script::EMPTY
        },
    ),
];

pub(crate) const SCAN: Entry = Entry {
    name: "scan-merge",
    kind: Kind::Tree,
    source: "Sherman's code, Tree.cpp:511–530; docs/protocol/sherman.md S22",
    about: "A scan across splits and merges returns every key that is present throughout, once and in order. The \
            published scan takes the leaves that a cached node names for all leaves, and misses leaves that were split off.",
    cases: || {
        let plain = [timeless(Knobs::weak()), timeless(Knobs::declared())];
        let mut cases = Vec::new();
        for &(shape, _) in SCANS {
            let large = shape == "merge, then split";
            let under = if large { plain.to_vec() } else { knobs() };
            cases.extend(under.into_iter().map(|k| Case::holds(shape, k)));
        }
        cases
    },
    published: Some(Twin {
        name: "published",
        about: "the scan takes the cached node's children for all leaves",
        cases: || {
            let under = [timeless(Knobs::weak()), timeless(Knobs::declared())];
            ["split", "split before it"]
                .into_iter()
                .flat_map(|shape| {
                    under
                        .iter()
                        .map(move |k| Case::fails(How::Check, shape, k.clone()))
                })
                .collect()
        },
    }),
    mutants: &[],
    build: |s| {
        let mut options = options();
        options.flaws.scan_trusts_cache = s.published();
        Box::new(script(SCANS, s.shape).model::<Sherman<Key8, Slotted<Key8>>>(s.title.clone(), options))
    },
};
