//! Models of a hop across a line that contains neither of its slots.

use dm_explore::Knobs;

use super::faults::faults;
use super::world::{build_faulty, options};
use crate::tree::world::{Do, Script, Shape, holds, timeless, with};
use crate::{Case, Entry, How, Kind, Twin};
use Do::{Get, Insert, Remove, Scan, Update};

/// Two leaves under a root, of three lines each, with 7 entries in neighbourhoods of 5. The keys below 50 are in the first
/// leaf. Inserting 13 moves 4 from the first line to the third.
///
/// Keys by home: 2, 13 have home 1; 4, 9 home 2; 5 home 3; 7 home 4; 1 home 5.
const OVER: Script = Script {
    preload: &[2, 4, 5, 7, 55, 50, 54, 53, 1],
    ..Script::EMPTY
};

const SHAPES: &[Shape] = &[
    ("hop, get", with(OVER, &[(0, &[Insert(13)]), (1, &[Get(4)])])),
    (
        "hop, get absent",
        with(OVER, &[(0, &[Insert(13)]), (1, &[Get(9), Get(13)])]),
    ),
    (
        "hop, update",
        with(OVER, &[(0, &[Insert(13)]), (1, &[Update(4)])]),
    ),
    (
        "hop, remove",
        with(OVER, &[(0, &[Insert(13)]), (1, &[Remove(4)])]),
    ),
    (
        "hop, scan",
        Script {
            always: &[4, 7],
            ..with(OVER, &[(0, &[Insert(13)]), (1, &[Scan(0)])])
        },
    ),
];

fn dying() -> Vec<Case> {
    let each = |shape| faults().map(move |k: Knobs| Case::holds(shape, k));
    ["hop, get", "hop, update"].into_iter().flat_map(each).collect()
}

pub(crate) const ENTRY: Entry = Entry {
    name: "chime-lines",
    kind: Kind::Crash,
    source: "docs/protocol/chime.md H1, H4, When a writer dies",
    about: "An entry hops across a line that contains neither of its slots. Readers see the lines at any moments, and the \
            client may die, be cancelled, or lose the rest of its chain at any step. No key is missed, and none is lost.",
    cases: || holds(SHAPES).into_iter().chain(dying()).collect(),
    published: None,
    mutants: &[
        Twin {
            name: "uncounted",
            about: "a hop changes no count",
            cases: || {
                let any = timeless(Knobs::declared());
                vec![Case::fails(How::NotLinearizable, "hop, get", any)]
            },
        },
        Twin {
            name: "source-first",
            about: "the old slot is overwritten before the copy is written",
            cases: || {
                let [crash, ..] = faults();
                vec![Case::fails(How::Invariant, "hop, get", crash).or(How::NotLinearizable)]
            },
        },
    ],
    build: |s| {
        let mut options = options();
        (options.span, options.neighbourhood) = (7, 5);
        options.flaws.hop.hop_uncounted = s.mutant("uncounted");
        options.flaws.hop.source_first = s.mutant("source-first");
        build_faulty(SHAPES, s, options)
    },
};
