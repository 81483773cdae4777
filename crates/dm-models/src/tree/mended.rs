//! Models of a client that dies in the middle of a split or a merge, and of later writers that finish this change.

use dm_explore::Knobs;
use dm_layout::{Key8, Slotted};
use dm_verbs::LineOrder;

use super::merge::THREE_LEAVES;
use super::split::TWO_LEAVES;
use super::world::{Do, Script, Shape, options, script, timeless};
use crate::{Case, Entry, How, Kind, Twin};
use Do::{Get, Insert, Remove, Update, Upsert};
use sherman::Sherman;

/// Returns the script with these clients; the last client is the survivor.
pub(crate) const fn survived(script: Script, clients: &'static [(u16, &'static [Do])]) -> Script {
    Script {
        clients,
        survivor: true,
        ..script
    }
}

/// Returns two sets of knobs under which one client dies: a declared card on which the lines of READs and WRITEs take
/// effect in any order, and a weak card, on which the lines of a WRITE take effect in increasing order.
pub(crate) fn deaths() -> [Knobs; 2] {
    let any = Knobs {
        write_lines: LineOrder::Any,
        read_lines: LineOrder::Any,
        ..timeless(Knobs::declared())
    };
    [any.crashes(1), timeless(Knobs::weak()).crashes(1)]
}

/// Returns the script with these clients. The first survivor may die as well, and the last client survives both deaths.
const fn survived_twice(script: Script, clients: &'static [(u16, &'static [Do])]) -> Script {
    Script {
        second_survivor: true,
        ..survived(script, clients)
    }
}

/// Returns a case of each shape under each of [`deaths`]; all must hold. Shapes of three clients run only under the
/// first one. In shapes with a second survivor, two clients may die.
pub(crate) fn survive(shapes: &'static [Shape]) -> Vec<Case> {
    let each = |&(shape, script): &Shape| {
        let under = if script.clients.len() > 2 { 1 } else { 2 };
        let many = if script.second_survivor { 2 } else { 1 };
        deaths()
            .into_iter()
            .map(move |knobs| knobs.crashes(many))
            .take(under)
            .map(move |k| Case::holds(shape, k))
    };
    shapes.iter().flat_map(each).collect()
}

/// The first client splits a leaf and dies. In most shapes, the leaf has the keys 30 to 50. The other clients write in
/// both halves.
const SPLITS: &[Shape] = &[
    (
        "alone",
        survived(
            TWO_LEAVES,
            &[(0, &[Insert(45)]), (1, &[Update(50), Update(30), Get(45)])],
        ),
    ),
    (
        "alone, cold",
        Script {
            cold: &[1],
            ..survived(
                TWO_LEAVES,
                &[(0, &[Insert(45)]), (1, &[Remove(50), Upsert(35), Get(40)])],
            )
        },
    ),
    (
        "reader of what moves",
        survived(
            TWO_LEAVES,
            &[
                (0, &[Insert(45)]),
                (1, &[Get(50)]),
                (2, &[Update(50), Update(30)]),
            ],
        ),
    ),
    (
        "writer",
        survived(
            TWO_LEAVES,
            &[
                (0, &[Insert(45)]),
                (1, &[Update(50)]),
                (2, &[Update(30), Get(50)]),
            ],
        ),
    ),
    (
        "2 MN, alone",
        Script {
            memory_nodes: 2,
            first_is_full: true,
            ..survived(
                TWO_LEAVES,
                &[(0, &[Insert(45)]), (1, &[Update(50), Update(30), Get(45)])],
            )
        },
    ),
    (
        "2 MN, writer",
        Script {
            memory_nodes: 2,
            first_is_full: true,
            ..survived(
                TWO_LEAVES,
                &[
                    (0, &[Insert(45)]),
                    (1, &[Upsert(50)]),
                    (2, &[Update(30), Get(50)]),
                ],
            )
        },
    ),
    (
        "the survivor dies",
        survived_twice(
            TWO_LEAVES,
            &[
                (0, &[Insert(45)]),
                (1, &[Update(50)]),
                (2, &[Update(30), Get(50)]),
            ],
        ),
    ),
    // The leaf and its parent are split.
    (
        "root splits, alone",
        survived(
            Script {
                preload: &[10, 20, 30, 40, 50, 60, 70],
                ..Script::EMPTY
            },
            &[(0, &[Insert(65)]), (1, &[Update(70), Update(60), Upsert(75)])],
        ),
    ),
    (
        "first root, alone",
        survived(
            Script {
                preload: &[10, 20, 30],
                ..Script::EMPTY
            },
            &[(0, &[Insert(25)]), (1, &[Update(30), Update(10), Upsert(35)])],
        ),
    ),
];

pub(crate) const SPLIT: Entry = Entry {
    name: "split-mended",
    kind: Kind::Crash,
    source: "docs/protocol/sherman.md S16, When a writer dies",
    about: "One client dies at any step of a split, and any part of its posted requests takes effect. The survivor fences \
        it, frees its locks and writes. It may die as well, and another one survives both. Other clients read and write all \
        the time. Every operation ends with the right result, and no leaf that the survivor has written stays unfinished.",
    cases: || survive(SPLITS),
    published: None,
    mutants: &[Twin {
        name: "right-unawaited",
        about: "the left node points to the right one before the WRITE of the right one has completed",
        cases: || {
            let [knobs, _] = deaths();
            vec![
                Case::fails(How::Invariant, "2 MN, alone", knobs)
                    .or(How::NotLinearizable)
                    .or(How::Check),
            ]
        },
    }],
    build: |s| {
        let mut options = options();
        options.flaws.right_unawaited = s.mutant("right-unawaited");
        Box::new(script(SPLITS, s.shape).model::<Sherman<Key8, Slotted<Key8>>>(s.title.clone(), options))
    },
};

/// The first client merges two leaves and dies. In most shapes, one leaf has the key 40, and the other leaf has 50 and
/// 60.
const MERGES: &[Shape] = &[
    (
        "alone, from the left",
        Script {
            cold: &[1],
            ..survived(
                THREE_LEAVES,
                &[(0, &[Remove(40)]), (1, &[Upsert(45), Update(60), Get(50)])],
            )
        },
    ),
    // A client with a cache reaches the right leaf without reading the left one.
    (
        "alone, from the right",
        survived(
            THREE_LEAVES,
            &[(0, &[Remove(40)]), (1, &[Update(60), Upsert(45), Get(50)])],
        ),
    ),
    (
        "2 MN, alone, from the left",
        Script {
            memory_nodes: 2,
            cold: &[1],
            ..survived(
                THREE_LEAVES,
                &[(0, &[Remove(40)]), (1, &[Upsert(45), Update(60), Get(50)])],
            )
        },
    ),
    (
        "2 MN, alone, from the right",
        Script {
            memory_nodes: 2,
            ..survived(
                THREE_LEAVES,
                &[(0, &[Remove(40)]), (1, &[Update(60), Upsert(45), Get(50)])],
            )
        },
    ),
    (
        "reader",
        survived(
            THREE_LEAVES,
            &[
                (0, &[Remove(40)]),
                (1, &[Get(50)]),
                (2, &[Update(60), Upsert(45)]),
            ],
        ),
    ),
    (
        "writer",
        Script {
            cold: &[2],
            ..survived(
                THREE_LEAVES,
                &[
                    (0, &[Remove(40)]),
                    (1, &[Update(50)]),
                    (2, &[Upsert(45), Update(60)]),
                ],
            )
        },
    ),
    (
        "the survivor dies",
        Script {
            cold: &[1, 2],
            ..survived_twice(
                THREE_LEAVES,
                &[
                    (0, &[Remove(40)]),
                    (1, &[Upsert(45)]),
                    (2, &[Update(60), Get(45)]),
                ],
            )
        },
    ),
    // The only two leaves are merged, and the remaining leaf becomes the root.
    (
        "root goes, alone",
        survived(
            Script {
                preload: &[10, 20, 30, 40],
                removed: &[30, 10],
                ..Script::EMPTY
            },
            &[(0, &[Remove(20)]), (1, &[Update(40), Upsert(15), Get(40)])],
        ),
    ),
];

pub(crate) const MERGE: Entry = Entry {
    name: "merge-mended",
    kind: Kind::Crash,
    source: "docs/protocol/sherman.md S24a, S24b, When a writer dies",
    about: "One client dies at any step of a merge, and any part of its posted requests takes effect. The survivor fences \
        it, frees its locks and writes. It may die as well, and another one survives both. Other clients read and write all \
        the time. Every operation ends with the right result, and no leaf that the survivor has written stays unfinished.",
    cases: || survive(MERGES),
    published: None,
    mutants: &[
        Twin {
            name: "one-lock",
            about: "whoever ends the merge holds the lock of only one of the two leaves",
            cases: || {
                let [knobs, _] = deaths();
                vec![
                    Case::fails(How::Invariant, "writer", knobs)
                        .or(How::NotLinearizable)
                        .or(How::Check),
                ]
            },
        },
        Twin {
            name: "reopens-widened",
            about: "both leaves are opened again although the left one has the keys of both",
            cases: || {
                let [knobs, _] = deaths();
                vec![
                    Case::fails(How::Invariant, "alone, from the left", knobs)
                        .or(How::NotLinearizable)
                        .or(How::Check),
                ]
            },
        },
        Twin {
            name: "no-doubt",
            about: "the sweep frees the locks without a mark, so a writer waits for the rest of a WRITE that never comes",
            cases: || {
                let [knobs, _] = deaths();
                vec![Case::fails(How::Livelock, "alone, from the right", knobs)]
            },
        },
    ],
    build: |s| {
        let mut options = options();
        options.flaws.one_lock_mends = s.mutant("one-lock");
        options.flaws.reopens_widened = s.mutant("reopens-widened");
        let mut script = script(MERGES, s.shape);
        if s.mutant("no-doubt") {
            script.doubt = 0;
        }
        Box::new(script.model::<Sherman<Key8, Slotted<Key8>>>(s.title.clone(), options))
    },
};
