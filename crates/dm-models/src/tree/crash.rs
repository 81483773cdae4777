//! Models of a client that dies, or whose queue pair fails, in the middle of a split or a merge.

use dm_explore::Knobs;
use dm_layout::{Key8, Slotted};

use super::merge::THREE_LEAVES;
use super::split::TWO_LEAVES;
use super::world::{Do, Script, options, script, timeless};
use crate::{Case, Entry, How, Kind, Knob, Twin, matrix};
use Do::{Get, Insert, Remove, Update, Upsert};
use sherman::Sherman;

const SHAPES: &[(&str, Script)] = &[
    (
        "reader of what moves",
        Script {
            clients: &[(0, &[Insert(45)]), (1, &[Get(50)])],
            ..TWO_LEAVES
        },
    ),
    (
        "reader of what stays",
        Script {
            clients: &[(0, &[Insert(45)]), (1, &[Get(30)])],
            ..TWO_LEAVES
        },
    ),
    (
        "writer",
        Script {
            clients: &[(0, &[Insert(45)]), (1, &[Update(50)])],
            ..TWO_LEAVES
        },
    ),
    (
        "2 MN, reader of what moves",
        Script {
            memory_nodes: 2,
            first_is_full: true,
            clients: &[(0, &[Insert(45)]), (1, &[Get(50)])],
            ..TWO_LEAVES
        },
    ),
    (
        "2 MN, writer",
        Script {
            memory_nodes: 2,
            first_is_full: true,
            clients: &[(0, &[Insert(45)]), (1, &[Upsert(50)])],
            ..TWO_LEAVES
        },
    ),
    (
        "root splits",
        Script {
            preload: &[10, 20, 30],
            clients: &[(0, &[Insert(25)]), (1, &[Get(30)])],
            ..Script::EMPTY
        },
    ),
];

pub(crate) const SPLIT: Entry = Entry {
    name: "split-crash",
    kind: Kind::Crash,
    source: "docs/protocol/sherman.md S12–S17, When a writer dies",
    about: "One client dies at any step of a split, and any part of its posted requests lands. Every result \
        is still right, no key is lost, and finishing the split gives a correct tree whatever has landed. A \
        client that needs the dead client's lock waits for ever here; with a budget it would get a typed \
        error.",
    cases: || crashes(SHAPES),
    published: None,
    mutants: &[Twin {
        name: "right-unawaited",
        about: "the left node points to the right one before the WRITE of the right one has completed",
        cases: || {
            let knobs = timeless(Knobs::declared()).crashes(1);
            vec![
                Case::fails(How::Invariant, "2 MN, writer", knobs.clone()),
                Case::fails(How::Invariant, "2 MN, reader of what moves", knobs),
            ]
        },
    }],
    build: |s| {
        let mut options = options();
        options.flaws.right_unawaited = s.mutant("right-unawaited");
        let script = script(SHAPES, s.shape);
        Box::new(
            script
                .model::<Sherman<Key8, Slotted<Key8>>>(s.title.clone(), options)
                .crash_may_block(),
        )
    },
};

fn crashes(shapes: &'static [(&'static str, Script)]) -> Vec<Case> {
    let turned = [Knob::ReadOrder, Knob::WriteOrder];
    let mut under = matrix(&timeless(Knobs::declared()).crashes(1), &turned);
    under.push(timeless(Knobs::weak()).crashes(1));
    shapes
        .iter()
        .flat_map(|&(shape, _)| under.iter().map(move |k| Case::holds(shape, k.clone())))
        .collect()
}

pub(crate) const FAILED_SPLIT: Entry = Entry {
    name: "split-fails",
    kind: Kind::Crash,
    source: "docs/protocol/sherman.md S12–S17; docs/protocol/lock.md L18",
    about: "A queue pair of one client fails at any step of a split, and requests in flight land later, in \
        part or never. Every result is right, no key is lost, and finishing the split gives a correct tree \
        whatever has landed.",
    cases: || {
        let under = [Knobs::weak(), Knobs::declared()].map(|k| timeless(k).failures(1));
        let each = |&(shape, _): &(&'static str, Script)| under.clone().map(|k| Case::holds(shape, k));
        SHAPES.iter().flat_map(each).collect()
    },
    published: None,
    mutants: &[Twin {
        name: "right-unawaited",
        about: "the left node points to the right one before the WRITE of the right one has completed",
        cases: || {
            let knobs = timeless(Knobs::declared()).failures(1);
            vec![
                Case::fails(How::Invariant, "2 MN, writer", knobs)
                    .or(How::NotLinearizable)
                    .or(How::Check),
            ]
        },
    }],
    build: SPLIT.build,
};

const MERGES: &[(&str, Script)] = &[
    (
        "reader",
        Script {
            clients: &[(0, &[Remove(40)]), (1, &[Get(50)])],
            ..THREE_LEAVES
        },
    ),
    (
        "writer",
        Script {
            clients: &[(0, &[Remove(40)]), (1, &[Update(50)])],
            ..THREE_LEAVES
        },
    ),
    (
        "2 MN, reader",
        Script {
            memory_nodes: 2,
            clients: &[(0, &[Remove(40)]), (1, &[Get(50)])],
            ..THREE_LEAVES
        },
    ),
];

pub(crate) const MERGE: Entry = Entry {
    name: "merge-crash",
    kind: Kind::Crash,
    source: "docs/protocol/sherman.md S23–S28, When a writer dies",
    about: "One client dies at any step of a merge. Readers continue, and no key is lost.",
    cases: || crashes(MERGES),
    published: None,
    mutants: &[Twin {
        name: "read-first",
        about: "lock-and-read uses one chain on a card that may serve the READ first",
        cases: || super::split::read_first("writer"),
    }],
    build: |s| {
        let script = script(MERGES, s.shape);
        Box::new(
            script
                .model::<Sherman<Key8, Slotted<Key8>>>(s.title.clone(), options())
                .crash_may_block(),
        )
    },
};

/// Merges whose chain may fail. In the shapes with `2 MN`, the leaves are on one memory node, and their parent is on
/// the other.
const HALVES: &[(&str, Script)] = &[
    (
        "reader",
        Script {
            clients: &[(0, &[Remove(40)]), (1, &[Get(50)])],
            ..THREE_LEAVES
        },
    ),
    (
        "2 MN, reader",
        Script {
            memory_nodes: 2,
            clients: &[(0, &[Remove(40)]), (1, &[Get(50)])],
            ..THREE_LEAVES
        },
    ),
    // One client reaches the right leaf through the left leaf, the other one through its cache.
    (
        "2 MN, writer by the left leaf",
        Script {
            memory_nodes: 2,
            cold: &[1],
            clients: &[(0, &[Remove(40), Get(50)]), (1, &[Update(50)])],
            ..THREE_LEAVES
        },
    ),
];

pub(crate) const FAILED_MERGE: Entry = Entry {
    name: "merge-fails",
    kind: Kind::Crash,
    source: "docs/protocol/sherman.md S24 and S28",
    about: "A chain of a merge fails at any step. Requests that have landed stay, and the locks become free. \
        No key is lost at any step, and no key is written in one leaf while the other leaf still has its \
        old value.",
    cases: || {
        let under = [Knobs::weak(), Knobs::declared()].map(|k| timeless(k).failures(1));
        let each = |&(shape, _): &(&'static str, Script)| under.clone().map(|k| Case::holds(shape, k));
        let mut cases: Vec<Case> = HALVES.iter().flat_map(each).collect();
        // With three operations, a weak card and a fault at any step, there are too many states for every check.
        if let Some(last) = cases.iter_mut().rev().nth(1) {
            *last = last.clone().nightly();
        }
        cases
    },
    published: None,
    mutants: &[Twin {
        name: "open-before-burial",
        about: "the left leaf is live with the keys of both leaves before the right one is dead",
        cases: || {
            let knobs = timeless(Knobs::declared()).failures(1);
            vec![Case::fails(
                How::NotLinearizable,
                "2 MN, writer by the left leaf",
                knobs,
            )]
        },
    }],
    build: |s| {
        let mut options = options();
        options.flaws.open_before_burial = s.mutant("open-before-burial");
        let script = script(HALVES, s.shape);
        Box::new(
            script
                .model::<Sherman<Key8, Slotted<Key8>>>(s.title.clone(), options)
                .crash_may_block(),
        )
    },
};

#[cfg(test)]
mod tests;
