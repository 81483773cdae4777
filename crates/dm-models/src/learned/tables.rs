//! Models of retraining: a table of leaves is written and published, while others read and change the index.

use dm_explore::Knobs;
use dm_index::Key8;
use rolex::Rolex;

use super::world::options;
use crate::tree::world::{Do, Script, Shape, cold, holds, plain, script, timeless, with};
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};
use Do::{Get, Insert, Remove, Update, Visit};

/// Two leaves: keys 10 and 20, and keys from 30 on. The second one is full: inserting 45 splits it, so that 50 moves.
const TWO_LEAVES: Script = Script {
    preload: &[10, 20, 30, 40, 50],
    ..Script::EMPTY
};

/// Three leaves: 10 and 20; 40; 50 and 60. Removing 40 merges its leaf with the one to the right.
const THREE_LEAVES: Script = Script {
    preload: &[10, 20, 30, 40, 50, 60],
    removed: &[30],
    ..Script::EMPTY
};

/// Three leaves, of which the last one is full: inserting 75 splits it, and then inserting 95 splits the new one. A table
/// of four entries takes two lines.
const GROWING: Script = Script {
    preload: &[10, 20, 30, 40, 50, 60, 70],
    ..Script::EMPTY
};

const FREED: &str = "two tables, cold get";
const FAR: &str = "2 MN, table on the other, cold get";

const SHAPES: &[Shape] = &[
    (
        "split while the leaves are read",
        with(TWO_LEAVES, &[(0, &[Visit]), (1, &[Insert(45), Get(50)])]),
    ),
    (
        "split, visit, get moved",
        with(TWO_LEAVES, &[(0, &[Insert(45), Visit]), (1, &[Get(50), Get(50)])]),
    ),
    (
        "split, visit, update moved",
        with(TWO_LEAVES, &[(0, &[Insert(45), Visit]), (1, &[Update(50)])]),
    ),
    (
        "split, visit, cold get",
        cold(
            with(TWO_LEAVES, &[(0, &[Insert(45), Visit]), (1, &[Get(50)])]),
            &[1],
        ),
    ),
    (
        "split, two visits",
        with(TWO_LEAVES, &[(0, &[Insert(45), Visit]), (1, &[Visit, Get(45)])]),
    ),
    (
        "merge while the leaves are read",
        with(THREE_LEAVES, &[(0, &[Visit]), (1, &[Remove(40), Get(50)])]),
    ),
    (
        "merge, visit, get and insert",
        with(
            THREE_LEAVES,
            &[(0, &[Remove(40), Visit]), (1, &[Get(50), Insert(45)])],
        ),
    ),
    (
        FREED,
        cold(
            with(
                GROWING,
                &[(0, &[Insert(75), Visit, Insert(95), Visit]), (1, &[Get(60)])],
            ),
            &[1],
        ),
    ),
    (
        FAR,
        Script {
            memory_nodes: 2,
            first_is_full: true,
            ..cold(
                with(TWO_LEAVES, &[(0, &[Insert(45), Visit]), (1, &[Get(50)])]),
                &[0, 1],
            )
        },
    ),
];

fn build(shapes: &[Shape], s: &Setting<'_>) -> dm_explore::Model<Rolex<Key8>, crate::tree::world::Spec> {
    let mut options = options();
    options.flaws.learned.table_unawaited = s.mutant("table-unawaited");
    options.flaws.learned.table_freed = s.mutant("table-freed");
    script(shapes, s.shape).model::<Rolex<Key8>>(s.title.clone(), options)
}

pub(crate) const TABLES: Entry = Entry {
    name: "rolex-tables",
    kind: Kind::Tree,
    source: "docs/protocol/rolex.md X1 to X7",
    about: "A visit reads all leaves, writes a table of them, and makes the root word lead to it. Meanwhile another \
            client splits or merges the leaves that it reads, visits too, or reads the old table and keys that have moved.",
    cases: || holds(SHAPES),
    published: None,
    mutants: &[
        Twin {
            name: "table-unawaited",
            about: "the root word leads to a table whose WRITE was not awaited",
            cases: || {
                let case = |k| Case::fails(How::Check, FAR, k).or(How::Invariant);
                plain().into_iter().map(case).collect()
            },
        },
        Twin {
            name: "table-freed",
            about: "the memory of an old table is used again while it is read",
            cases: || {
                let case = |k| Case::fails(How::Check, FREED, k);
                plain().into_iter().map(case).collect()
            },
        },
    ],
    build: |s| Box::new(build(SHAPES, s)),
};

const CRASHES: &[Shape] = &[
    (
        "visit, get",
        with(TWO_LEAVES, &[(0, &[Insert(45), Visit]), (1, &[Get(50)])]),
    ),
    (
        "visit, insert",
        with(TWO_LEAVES, &[(0, &[Visit]), (1, &[Insert(45)])]),
    ),
    (
        FAR,
        Script {
            memory_nodes: 2,
            first_is_full: true,
            ..cold(with(TWO_LEAVES, &[(0, &[Visit]), (1, &[Get(50)])]), &[0, 1])
        },
    ),
];

/// Returns knobs with one fault of each kind.
fn faults() -> [Knobs; 3] {
    let any = timeless(Knobs::declared());
    [any.clone().crashes(1), any.clone().cancels(1), any.failures(1)]
}

pub(crate) const CRASH: Entry = Entry {
    name: "rolex-tables-faults",
    kind: Kind::Crash,
    source: "docs/protocol/rolex.md, When a client is dropped or dies",
    about: "The client that splits a leaf or writes a table dies, is cancelled, or loses the rest of a chain, at any step. \
            Every result is right, no key is lost, and the root word leads to the first leaf.",
    cases: || {
        let each = |&(shape, _): &Shape| faults().map(move |k| Case::holds(shape, k));
        CRASHES.iter().flat_map(each).collect()
    },
    published: None,
    mutants: &[Twin {
        name: "table-unawaited",
        about: "the root word leads to a table whose WRITE was not awaited",
        cases: || {
            let [crashes, ..] = faults();
            vec![Case::fails(How::Invariant, FAR, crashes).or(How::Check)]
        },
    }],
    build: |s| -> Box<dyn Explorable> { Box::new(build(CRASHES, s).crash_may_block()) },
};
