//! Models of dense leaves: hops, splits and merges as in the other layout, and splits between first bytes of keys.

use super::faults::faults;
use super::hops::NEXT;
use super::splits::{FULL, SPARSE};
use super::world::{build, build_faulty, options};
use crate::tree::world::{Do, Script, Shape, holds, plain, with};
use crate::{Case, Entry, How, Kind, Twin};
use Do::{Get, Insert, Remove, Scan, Update, Upsert};
use chime::Options;

/// Keys with another first byte than the small ones.
const FAR: u64 = 1 << 56;
/// One leaf of small keys, to which keys with another first byte belong, too.
const ONE: Script = Script {
    preload: &[4, 7],
    ..Script::EMPTY
};

const SHAPES: &[Shape] = &[
    (
        "hop, get",
        with(NEXT, &[(0, &[Insert(5)]), (1, &[Get(7), Get(5)])]),
    ),
    (
        "hop, get absent",
        with(NEXT, &[(0, &[Insert(5)]), (1, &[Get(10), Get(7)])]),
    ),
    ("hop, update", with(NEXT, &[(0, &[Insert(5)]), (1, &[Update(7)])])),
    (
        "hop, remove",
        with(NEXT, &[(0, &[Insert(5)]), (1, &[Remove(7), Get(7)])]),
    ),
    ("hop, hop", with(NEXT, &[(0, &[Insert(5)]), (1, &[Insert(9)])])),
    (
        "hop, scan",
        Script {
            always: &[4, 7],
            ..with(NEXT, &[(0, &[Insert(5)]), (1, &[Scan(0)])])
        },
    ),
    (
        "split, get new",
        with(FULL, &[(0, &[Insert(5)]), (1, &[Get(5), Get(4)])]),
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
        "merge, update",
        with(SPARSE, &[(0, &[Remove(4)]), (1, &[Update(6)])]),
    ),
    (
        "merge, insert",
        with(SPARSE, &[(0, &[Remove(4)]), (1, &[Insert(3)])]),
    ),
    (
        "another first byte, get",
        with(ONE, &[(0, &[Insert(FAR)]), (1, &[Get(FAR), Get(4)])]),
    ),
    (
        "another first byte, insert",
        with(ONE, &[(0, &[Insert(FAR)]), (1, &[Insert(5)])]),
    ),
    (
        "another first byte, twice",
        with(ONE, &[(0, &[Insert(FAR)]), (1, &[Upsert(FAR)])]),
    ),
    (
        "another first byte, a smaller one",
        with(ONE, &[(0, &[Insert(2 * FAR)]), (1, &[Insert(FAR)])]),
    ),
];

const fn dense() -> Options {
    Options {
        dense: true,
        ..options()
    }
}

pub(crate) const ENTRY: Entry = Entry {
    name: "chime-dense",
    kind: Kind::Tree,
    source: "docs/protocol/chime.md H1–H6, H14",
    about: "Leaves are dense. Entries hop from line to line, and leaves are split and merged, also between first bytes \
        of keys, while other clients read and write neighbourhoods.",
    cases: || holds(SHAPES),
    published: None,
    mutants: &[Twin {
        name: "uncounted",
        about: "a hop changes no count",
        cases: || {
            let case = |k| Case::fails(How::NotLinearizable, "hop, get", k);
            plain().into_iter().map(case).collect()
        },
    }],
    build: |s| {
        let mut options = dense();
        options.flaws.hop.hop_uncounted = s.mutant("uncounted");
        build(SHAPES, s, options)
    },
};

const FAULTY_SHAPES: &[Shape] = &[
    ("hop, get", with(NEXT, &[(0, &[Insert(5)]), (1, &[Get(7)])])),
    (
        "split, update moved",
        with(FULL, &[(0, &[Insert(5)]), (1, &[Update(6)])]),
    ),
    (
        "another first byte, update",
        with(ONE, &[(0, &[Insert(FAR)]), (1, &[Update(4)])]),
    ),
];

pub(crate) const FAULTY: Entry = Entry {
    name: "chime-dense-faults",
    kind: Kind::Crash,
    source: "docs/protocol/chime.md H4, H5, H6, H9, H14, When a writer dies",
    about: "Leaves are dense. The client that hops or splits dies, is cancelled, or loses the rest of a chain, at any \
        step.",
    cases: || {
        let each = |&(shape, _): &Shape| faults().map(move |k| Case::holds(shape, k));
        FAULTY_SHAPES.iter().flat_map(each).collect()
    },
    published: None,
    mutants: &[Twin {
        name: "never-in-doubt",
        about: "no writer checks whether a structural change failed midway under the lock",
        cases: || {
            let [.., fails] = faults();
            vec![Case::fails(How::Invariant, "split, update moved", fails).or(How::NotLinearizable)]
        },
    }],
    build: |s| {
        let mut options = dense();
        options.flaws.hop.never_in_doubt = s.mutant("never-in-doubt");
        build_faulty(FAULTY_SHAPES, s, options)
    },
};
