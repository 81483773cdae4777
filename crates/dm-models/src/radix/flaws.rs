//! Flaws of the published tree: T-M1 to T-M7.

use super::races::{APART, ROOM, SPARSE};
use super::world::{build, options};
use crate::tree::world::{Do, Script, Shape, cold, holds, plain, with};
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};
use Do::{Get, Insert, Remove, Scan, Update};

const T_M1_SHAPES: &[Shape] = &[(
    "3x1",
    // Who comes without a cache finds the leaf by its old link.
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
    // One inserter has an old copy of the node, the other reads it.
    with(
        cold(ROOM, &[2]),
        &[(0, &[Remove(1)]), (1, &[Insert(3)]), (2, &[Insert(3)])],
    ),
)];
const T_M6_SHAPES: &[Shape] = &[("2x1", with(SPARSE, &[(0, &[Remove(1)]), (1, &[Insert(3)])]))];

/// Two nodes of two leaves below one: beside the scan a leaf is split, a node grows, a header is split.
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
/// What a scan answers is judged on the spot.
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
    "A leaf is split off its slot while a reader without a cache is on its way to it: what he knows of the link must \
     not undo what the split has said, or readers with an old cache miss the new key.",
    "who finds a leaf's link depth other than his way puts it right",
    |f| f.inner.repairs_unchecked = true
);
flaw!(
    T_M2,
    T_M2_SHAPES,
    "T-M2",
    "SMART's code, Tree.cpp:431",
    "An update beside a remove of the same key: it must not write back what it read before it had the lock.",
    "the whole leaf is written back as it was read before the lock",
    |f| f.leaf.stale_write_back = true
);
flaw!(
    T_M3,
    T_M3_SHAPES,
    "T-M3",
    "SMART's code, Tree.cpp:781",
    "A key is put beside a cached leaf: once the insert has returned, readers whose cache is older find it.",
    "the leaf learns of it after the slot, and nobody waits for that",
    |f| f.inner.depth_unawaited = true
);
flaw!(
    T_M4,
    T_M4_SHAPES,
    "T-M4",
    "SMART's code, Tree.cpp:807 and :877",
    "A node changes its size beside a client that fills one of its slots: both must come to the same end.",
    "a full node is copied without being frozen",
    |f| f.inner.switch_unfrozen = true
);
flaw!(
    T_M5,
    T_M5_SHAPES,
    "T-M5",
    "SMART §4.5, Algorithm 3",
    "Two clients put the same key into a node from which a third removes another: it must not come into two slots.",
    "a removed slot becomes empty, for any key byte",
    |f| f.inner.removal_empties = true
);
flaw!(
    T_M6,
    T_M6_SHAPES,
    "T-M6",
    "SMART §4.5, Algorithm 3, lines 16 to 24",
    "A node with one child left gives way to it, beside an insert into the node.",
    "empty slots are not frozen before",
    |f| f.inner.merge_leaves_empties = true
);
flaw!(
    T_M7,
    T_M7_SHAPES,
    "T-M7",
    "SMART's code, Tree.cpp:1212 to 1400",
    "A scan beside splits and growth, its beginning cached: whatever is there throughout comes once and in order.",
    "only what is cached is expanded where anything is",
    |f| f.inner.scan_trusts_cache = true,
    incomplete
);
