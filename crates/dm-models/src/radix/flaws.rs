//! The models of the flaws of the published tree: T-M1 to T-M7.

use super::races::{APART, ROOM, SPARSE};
use super::world::{build, options};
use crate::tree::world::{Do, Script, Shape, cold, holds, plain, with};
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};
use Do::{Get, Insert, Remove, Scan, Update};

const T_M1_SHAPES: &[Shape] = &[(
    "3x1",
    // The client without a cache may find the leaf through its old link.
    with(
        cold(APART, &[1]),
        &[(0, &[Insert(0x102)]), (1, &[Get(0x103)]), (2, &[Get(0x102)])],
    ),
)];
const T_M2_SHAPES: &[Shape] = &[(
    "3x1",
    with(ROOM, &[(0, &[Update(1)]), (1, &[Remove(1)]), (2, &[Get(1)])]),
)];
const T_M3_SHAPES: &[Shape] = &[("2x1", with(APART, &[(0, &[Insert(0x102)]), (1, &[Get(0x102)])]))];
const T_M4_SHAPES: &[Shape] = &[(
    "2x1",
    with(APART, &[(0, &[Insert(0x301)]), (1, &[Insert(0x102), Get(0x102)])]),
)];
const T_M5_SHAPES: &[Shape] = &[(
    "3x1",
    // One of the inserting clients has an old copy of the node in its cache; the other one reads the node.
    with(
        cold(ROOM, &[2]),
        &[(0, &[Remove(1)]), (1, &[Insert(3)]), (2, &[Insert(3)])],
    ),
)];
const T_M6_SHAPES: &[Shape] = &[("2x1", with(SPARSE, &[(0, &[Remove(1)]), (1, &[Insert(3)])]))];

/// Two nodes of two leaves each, below one node. During the scan, a node grows or a header is split.
const SPLITS: Script = Script {
    preload: &[0x101, 0x102, 0x201, 0x202],
    always: &[0x101, 0x102, 0x201, 0x202],
    ..Script::EMPTY
};
const T_M7_SHAPES: &[Shape] = &[
    (
        "growth",
        with(SPLITS, &[(0, &[Insert(0x103)]), (1, &[Scan(0x101)])]),
    ),
    (
        "growth behind",
        with(SPLITS, &[(0, &[Insert(0x203)]), (1, &[Scan(0x101)])]),
    ),
    (
        "header split",
        with(SPLITS, &[(0, &[Insert(0x1_0001)]), (1, &[Scan(0x101)])]),
    ),
];
/// Returns cases that must fail in a check of a client, because each scan checks its own result.
fn incomplete(shapes: &'static [Shape]) -> Vec<Case> {
    let each = |&(shape, ..): &Shape| {
        plain()
            .into_iter()
            .map(move |k| Case::fails(How::Check, shape, k))
    };
    shapes.iter().flat_map(each).collect()
}

fn fails(shapes: &'static [Shape]) -> Vec<Case> {
    let case = |shape, k| Case::fails(How::NotLinearizable, shape, k).or(How::Invariant);
    let each = |&(shape, ..): &Shape| plain().into_iter().map(move |k| case(shape, k));
    shapes.iter().flat_map(each).collect()
}

fn flawed(s: &Setting<'_>, shapes: &[Shape], flaw: fn(&mut smart::Flaws)) -> Box<dyn Explorable> {
    let mut options = options();
    if s.published() {
        flaw(&mut options.flaws);
    }
    build(shapes, s, options)
}

macro_rules! flaw {
    ($entry:ident, $shapes:ident, $name:literal, $source:literal, $about:literal, $different:literal, $flaw:expr) => {
        flaw!(
            $entry, $shapes, $name, $source, $about, $different, $flaw, fails
        );
    };
    ($entry:ident, $shapes:ident, $name:literal, $source:literal, $about:literal, $different:literal, $flaw:expr,
     $fails:expr) => {
        pub(crate) const $entry: Entry = Entry {
            name: $name,
            kind: Kind::Tree,
            source: $source,
            about: $about,
            cases: || holds($shapes),
            published: Some(Twin {
                name: "published",
                about: $different,
                cases: || $fails($shapes),
            }),
            mutants: &[],
            build: |s| flawed(s, $shapes, $flaw),
        };
    };
}

flaw!(
    T_M1,
    T_M1_SHAPES,
    "T-M1",
    "SMART's code, Tree.cpp:407",
    "A leaf gets a new parent node by a split, while a reader without a cache has already read the old link \
        to it. The reader must not overwrite the link depth that the split has stored, because then readers \
        with an old cache would miss the new key.",
    "a reader whose path disagrees with a leaf's link depth overwrites the depth",
    |f| f.inner.repairs_unchecked = true
);
flaw!(
    T_M2,
    T_M2_SHAPES,
    "T-M2",
    "SMART's code, Tree.cpp:431",
    "An update and a remove of the same key run at the same time. The update must not write back bytes that \
        it read before it held the lock.",
    "the whole leaf is written back as it was read before the lock",
    |f| f.leaf.stale_write_back = true
);
flaw!(
    T_M3,
    T_M3_SHAPES,
    "T-M3",
    "SMART's code, Tree.cpp:781",
    "A key is inserted next to a leaf that other clients have cached. After the insert has returned, readers \
        with an older cache find the key.",
    "the leaf's link depth is written after the slot, and this WRITE is not awaited",
    |f| f.inner.depth_unawaited = true
);
flaw!(
    T_M4,
    T_M4_SHAPES,
    "T-M4",
    "SMART's code, Tree.cpp:807 and :877",
    "A node changes its size while another client fills one of its slots. Neither change may be lost.",
    "a full node is copied without being frozen",
    |f| f.inner.switch_unfrozen = true
);
flaw!(
    T_M5,
    T_M5_SHAPES,
    "T-M5",
    "SMART §4.5, Algorithm 3",
    "Two clients insert the same key into a node from which a third client removes another key. The inserted \
        key must not get two slots.",
    "a removed slot becomes empty and open to any key byte",
    |f| f.inner.removal_empties = true
);
flaw!(
    T_M6,
    T_M6_SHAPES,
    "T-M6",
    "SMART §4.5, Algorithm 3, lines 16 to 24",
    "A node with one child left is replaced by that child, while another client inserts into the node.",
    "the node's empty slots are not frozen first",
    |f| f.inner.merge_leaves_empties = true
);
flaw!(
    T_M7,
    T_M7_SHAPES,
    "T-M7",
    "SMART's code, Tree.cpp:1212 to 1400",
    "A scan whose beginning is cached runs while nodes are split and grow. It returns each key that is \
        present throughout, once and in order.",
    "if anything is cached, the scan expands nothing else",
    |f| f.inner.scan_trusts_cache = true,
    incomplete
);
