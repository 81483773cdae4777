//! Models of hops and splits whose client dies, is cancelled, or loses its queue pair in the middle of a chain. The
//! lines of a WRITE take effect in any order.

use dm_explore::Knobs;
use dm_verbs::LineOrder;

use super::hops::NEXT;
use super::splits::FULL;
use super::world::{build_faulty, options};
use crate::tree::world::{Do, Script, Shape, timeless, with};
use crate::{Case, Entry, How, Kind, Twin};
use Do::{Get, Insert, Update};

const SHAPES: &[Shape] = &[
    ("hop, get", with(NEXT, &[(0, &[Insert(5)]), (1, &[Get(7)])])),
    ("hop, update", with(NEXT, &[(0, &[Insert(5)]), (1, &[Update(7)])])),
    (
        "split, get moved",
        with(FULL, &[(0, &[Insert(5)]), (1, &[Get(6)])]),
    ),
    (
        "split, update moved",
        with(FULL, &[(0, &[Insert(5)]), (1, &[Update(6)])]),
    ),
    (
        "2 MN, split to the other, update moved",
        Script {
            memory_nodes: 2,
            first_is_full: true,
            ..with(FULL, &[(0, &[Insert(5)]), (1, &[Update(6)])])
        },
    ),
];

/// Returns three sets of knobs in which the lines of a WRITE take effect in any order. Each of them allows one fault of
/// another kind.
fn faults() -> [Knobs; 3] {
    let any = Knobs {
        write_lines: LineOrder::Any,
        ..timeless(Knobs::declared())
    };
    [any.clone().crashes(1), any.clone().cancels(1), any.failures(1)]
}

pub(crate) const ENTRY: Entry = Entry {
    name: "chime-faults",
    kind: Kind::Crash,
    source: "docs/protocol/chime.md H4, H5, H6, H9, When a writer dies",
    about: "The client that hops or splits dies, is cancelled, or loses the rest of a chain, at any step. \
        Every result is right, and no key is lost. If its lock is free, the next writer reads the whole \
        leaf first.",
    cases: || {
        let each = |&(shape, _): &Shape| faults().map(move |k| Case::holds(shape, k));
        SHAPES.iter().flat_map(each).collect()
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
        let mut options = options();
        options.flaws.hop.never_in_doubt = s.mutant("never-in-doubt");
        build_faulty(SHAPES, s, options)
    },
};
