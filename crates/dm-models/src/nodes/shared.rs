//! Models of updates that share the lock of a leaf, while other clients change the leaf's slots.

use dm_explore::Knobs;
use dm_history::KvOp::{Get, Insert, Remove, Update};
use dm_layout::{Key8, NodeFormat, Packed, Slotted};
use dm_leaf::LeafFlaws;
use dm_lock::{LockFlaws, LockOptions};
use dm_verbs::{AtomicUnit, Capability};

use super::world::{Op, Script};
use crate::tree::world::timeless;
use crate::{Case, Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};

/// The length in bytes of values that take two lines.
const LONG: usize = 72;

/// A key far from the other keys. A packed line that contains this key and near keys stores all of its keys with more
/// bytes than near keys alone need, so the line changes its shape.
const FAR: u64 = 1 << 40;

const SOURCE: &str = "Dolphin (MSST 2024); docs/protocol/dolphin.md D9–D13";

fn operations(shape: &str) -> Vec<Vec<Op>> {
    match shape {
        "update, update and get" => vec![vec![Update(20, 20_001)], vec![Update(20, 20_002), Get(20)]],
        "update, get" => vec![vec![Update(20, 20_001)], vec![Get(20), Get(20)]],
        "update, remove and insert" => vec![
            vec![Update(20, 20_001)],
            vec![Remove(20), Insert(25, 25_002), Get(25)],
        ],
        "update, insert of another" => vec![vec![Update(20, 20_001)], vec![Insert(15, 15_002), Get(20)]],
        "update of what moves, split" => vec![vec![Update(30, 30_001)], vec![Insert(40, 40_002), Get(30)]],
        "update of what stays, split" => vec![vec![Update(10, 10_001)], vec![Insert(40, 40_002), Get(10)]],
        "merge, update of what moves" => vec![vec![Get(40)], vec![Update(40, 40_001)]],
        "merge, update of what stays" => vec![vec![Get(20)], vec![Update(20, 20_001)]],
        "update, update, remove" => vec![
            vec![Update(20, 20_001)],
            vec![Update(10, 10_002)],
            vec![Remove(20)],
        ],
        "update, insert that widens" => vec![vec![Update(20, 20_001)], vec![Insert(FAR, 40_002), Get(20)]],
        "gets, insert that widens" => vec![
            vec![Get(20), Get(20)],
            vec![Insert(FAR, 40_002), Update(20, 20_002)],
        ],
        "update, inserts that narrow" => vec![
            vec![Update(20, 20_001)],
            vec![Insert(10, 10_002), Insert(30, 30_002), Get(20)],
        ],
        _ => unreachable!("no such shape: {shape}"),
    }
}

const SHAPES: [&str; 8] = [
    "update, update and get",
    "update, get",
    "update, remove and insert",
    "update, insert of another",
    "update of what moves, split",
    "update of what stays, split",
    "merge, update of what moves",
    "merge, update of what stays",
];

/// The prefix of the names of shapes that run on a packed leaf with one line of entries. This leaf has room for three
/// near keys, or for two distant ones.
const PACKED: &str = "packed: ";

const PACKED_SHAPES: [&str; 9] = [
    "packed: update, update and get",
    "packed: update, remove and insert",
    "packed: update of what moves, split",
    "packed: update of what stays, split",
    "packed: merge, update of what moves",
    "packed: merge, update of what stays",
    "packed: update, insert that widens",
    "packed: gets, insert that widens",
    "packed: update, inserts that narrow",
];

pub(crate) const SHARED: Entry = Entry {
    name: "shared-updates",
    kind: Kind::Node,
    source: SOURCE,
    about: "Updates share the lock of their leaf; an operation that changes the leaf's slots holds it alone. \
        Two updates run at the same time, and an update runs at the same time as a removal and an insert \
        into the same slot, a split, and a merge. Any one of them may be dropped at any await. The leaves \
        hold whole keys, or are packed, so that lines change shape.",
    cases: || {
        let mut cases = Vec::new();
        for shape in SHAPES.into_iter().chain(PACKED_SHAPES) {
            for knobs in [Knobs::weak(), Knobs::declared()] {
                cases.push(Case::holds(shape, timeless(knobs)));
            }
        }
        for knobs in matrix(
            &Knobs::weak(),
            &[Knob::ReadOrder, Knob::CasThenRead, Knob::ChipOrder],
        ) {
            cases.push(Case::holds("update, remove and insert", timeless(knobs)));
        }
        for shape in [
            "update, remove and insert",
            "update of what moves, split",
            "packed: update, insert that widens",
            "packed: update of what moves, split",
        ] {
            for knobs in [Knobs::weak(), Knobs::declared()] {
                cases.push(Case::holds(shape, timeless(knobs.cancels(1))));
            }
        }
        cases.push(Case::holds("update, update, remove", timeless(Knobs::declared())));
        cases
    },
    published: None,
    mutants: &[
        Twin {
            name: "blind-release",
            about: "the client that holds the lock alone releases it by WRITE, which overwrites a share \
                taken meanwhile",
            cases: || {
                let knobs = timeless(Knobs::declared());
                vec![Case::fails(How::Check, "update, insert of another", knobs)]
            },
        },
        Twin {
            name: "torn-lines",
            about: "a line changes its shape on a card that tears lines",
            cases: || {
                let torn = Knobs {
                    unit: AtomicUnit::Word,
                    ..timeless(Knobs::strong())
                };
                vec![Case::fails(How::Check, "packed: gets, insert that widens", torn)]
            },
        },
        Twin {
            name: "read-first",
            about: "the FAA of the share and the READ are in one chain, on a card that may serve the READ \
                first",
            cases: || {
                let knobs = timeless(Knobs::weak()).pretend(Capability::CasThenReadInOrder);
                vec![Case::fails(
                    How::NotLinearizable,
                    "update of what moves, split",
                    knobs,
                )]
            },
        },
    ],
    build: |s| build(s, LockFlaws::default(), LeafFlaws::default()),
};

/// The shapes of the model T-D7.
const SLOTS: [&str; 2] = ["update, remove and insert", "packed: update, insert that widens"];

pub(crate) const T_D3: Entry = Entry {
    name: "T-D3",
    kind: Kind::Node,
    source: "Dolphin's code, Tree.cpp: WRITE and FAA unsignalled",
    about: "An update returns before its WRITE has landed, and another client reads the old value.",
    cases: || {
        let sides = [Knobs::weak(), Knobs::declared()];
        let holds = |k| Case::holds("update, get", timeless(k));
        sides.into_iter().map(holds).collect()
    },
    published: Some(Twin {
        name: "published",
        about: "the client does not wait for the chain that writes",
        cases: || {
            let sides = [Knobs::weak(), Knobs::declared()];
            let fails = |k| Case::fails(How::NotLinearizable, "update, get", timeless(k));
            sides.into_iter().map(fails).collect()
        },
    }),
    mutants: &[],
    build: |s| {
        let flaws = LockFlaws {
            leave_unawaited: s.published(),
            ..LockFlaws::default()
        };
        build(s, flaws, LeafFlaws::default())
    },
};

pub(crate) const T_D7: Entry = Entry {
    name: "T-D7",
    kind: Kind::Node,
    source: "Dolphin (MSST 2024), updates, inserts and deletes under one counter",
    about: "A removal and an insert share the leaf too. When an update writes, the slot that it read may \
        belong to another key, which then gets the update's value; or the line may have changed its shape, \
        so that the value overwrites parts of other entries.",
    cases: || {
        let sides = [Knobs::weak(), Knobs::declared()];
        let holds = |shape| sides.clone().map(|k| Case::holds(shape, timeless(k)));
        SLOTS.into_iter().flat_map(holds).collect()
    },
    published: Some(Twin {
        name: "published",
        about: "operations that change a slot only share the leaf",
        cases: || {
            let sides = [Knobs::weak(), Knobs::declared()];
            let fails = |shape| {
                sides
                    .clone()
                    .map(|k| Case::fails(How::NotLinearizable, shape, timeless(k)))
            };
            SLOTS.into_iter().flat_map(fails).collect()
        },
    }),
    mutants: &[],
    build: |s| {
        let flaws = LeafFlaws {
            slots_shared: s.published(),
            ..LeafFlaws::default()
        };
        build(s, LockFlaws::default(), flaws)
    },
};

pub(crate) const T_D14: Entry = Entry {
    name: "T-D14",
    kind: Kind::Node,
    source: "Dolphin (MSST 2024), Update-Update conflicts",
    about: "Two clients update a value that takes two lines. Each holds the leaf alone, and the leaf ends with one of the two \
            values.",
    cases: || {
        let sides = [Knobs::weak(), Knobs::declared()];
        let holds = |k| Case::holds("update, update and get", timeless(k));
        sides.into_iter().map(holds).collect()
    },
    published: Some(Twin {
        name: "published",
        about: "updates of larger values share the leaf as well: the first line of one value stays beside the second line of the \
                other, and both lines have the same version",
        cases: || {
            let sides = [Knobs::weak(), Knobs::declared()];
            let fails = |k| Case::fails(How::Check, "update, update and get", timeless(k));
            sides.into_iter().map(fails).collect()
        },
    }),
    mutants: &[],
    build: |s| {
        let flaws = LeafFlaws {
            lines_shared: s.published(),
            ..LeafFlaws::default()
        };
        let format = Slotted::with_span(2, LONG).expect("two entries fit");
        build_of(format, s, LockFlaws::default(), flaws)
    },
};

fn build(s: &Setting<'_>, locks: LockFlaws, flaws: LeafFlaws) -> Box<dyn Explorable> {
    match s.shape.starts_with(PACKED) {
        true => {
            let leaf = Packed::with_node_bytes(128, 16).expect("three entries fit");
            build_of(leaf, s, locks, flaws)
        }
        false => build_of(Slotted::tiny(8).expect("three entries fit"), s, locks, flaws),
    }
}

fn build_of<F: NodeFormat<Key8>>(
    format: F,
    s: &Setting<'_>,
    locks: LockFlaws,
    flaws: LeafFlaws,
) -> Box<dyn Explorable> {
    let shape = s.shape.trim_start_matches(PACKED);
    let joins = shape.starts_with("merge");
    // The shapes of splits begin with a full leaf. The shapes of merges begin with two leaves, which have one key each.
    let (preload, removed): (&'static [u64], &'static [u64]) = match shape {
        _ if joins => (&[10, 20, 30, 40], &[10, 30]),
        _ if shape.ends_with("split") => (&[10, 20, 30], &[]),
        _ if shape.ends_with("widens") => (&[20], &[]),
        _ if shape.ends_with("narrow") => (&[20, FAR], &[FAR]),
        _ => (&[10, 20], &[]),
    };
    let mut script = Script::new(format, preload, operations(shape));
    (script.joins, script.removed) = (joins, removed);
    script.options.flaws = flaws;
    script.locks = LockOptions {
        shared: true,
        flaws: LockFlaws {
            blind_release: s.mutant("blind-release"),
            ..locks
        },
        ..LockOptions::default()
    };
    Box::new(script.model(s.title.clone()))
}
