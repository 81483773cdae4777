//! Models of leaves of words: updates share the leaf's lock and exchange a word by CAS, inserts hold the lock beside
//! updates, and removes, upserts and structural changes hold it alone.

use dm_explore::Knobs;
use dm_history::KvOp::{Get, Insert, Remove, Update, Upsert};
use dm_layout::Slotted;
use dm_leaf::LeafFlaws;
use dm_lock::{LockFlaws, LockOptions};

use super::world::{Op, Script};
use crate::tree::world::timeless;
use crate::{Case, Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};

/// Returns the operations of each client.
fn operations(shape: &str) -> Vec<Vec<Op>> {
    match shape {
        "one key, two inserts" => vec![vec![Insert(20, 20_001)], vec![Insert(20, 20_003), Get(20)]],
        "two inserts" => vec![vec![Insert(20, 20_001)], vec![Insert(30, 30_003), Get(20)]],
        "two inserts, split" => vec![vec![Insert(30, 30_001)], vec![Insert(40, 40_003), Get(30)]],
        "update, insert" => vec![vec![Update(20, 20_001)], vec![Insert(15, 15_003), Get(20)]],
        "update, update and get" => vec![vec![Update(20, 20_001)], vec![Update(20, 20_003), Get(20)]],
        "update, remove and insert" => vec![
            vec![Update(20, 20_001)],
            vec![Remove(20), Insert(25, 25_003), Get(25)],
        ],
        "gets, remove and insert" => vec![vec![Get(20), Get(20)], vec![Remove(20), Insert(25, 25_003)]],
        "update of what moves, split" => vec![vec![Update(30, 30_001)], vec![Insert(40, 40_003), Get(30)]],
        "update of what stays, split" => vec![vec![Update(10, 10_001)], vec![Insert(40, 40_003), Get(10)]],
        "insert of what moves, split" => vec![
            vec![Insert(35, 35_001), Get(35)],
            vec![Upsert(30, 30_003), Upsert(40, 40_003)],
        ],
        "merge, update of what moves" => vec![vec![Get(40)], vec![Update(40, 40_001)]],
        _ => unreachable!("no such shape: {shape}"),
    }
}

const SHAPES: [&str; 10] = [
    "one key, two inserts",
    "two inserts",
    "two inserts, split",
    "update, insert",
    "update, update and get",
    "update, remove and insert",
    "gets, remove and insert",
    "update of what moves, split",
    "update of what stays, split",
    "merge, update of what moves",
];

const SIDES: [fn() -> Knobs; 2] = [Knobs::weak, Knobs::declared];

fn on_both_sides(shape: &'static str, case: impl Fn(&'static str, Knobs) -> Case) -> Vec<Case> {
    SIDES.iter().map(|side| case(shape, timeless(side()))).collect()
}

pub(super) const WORDS: Entry = Entry {
    name: "words",
    kind: Kind::Node,
    source: "Marlin (ICPP 2023); docs/protocol/marlin.md B1–B6",
    about: "Updates share their leaf and change a word by CAS. An insert holds the leaf beside them, and a removal, \
        a split or a merge holds it alone. Two clients insert the same key, or different ones; an update runs at the \
        same time as an insert, another update, a removal whose slot is used again, a split, and a merge. Any one of \
        them may be dropped at any await.",
    cases: || {
        let mut cases: Vec<Case> = Vec::new();
        for shape in SHAPES {
            cases.extend(on_both_sides(shape, Case::holds));
        }
        let turned = [
            Knob::ReadOrder,
            Knob::CasThenRead,
            Knob::AtomicVsWrite,
            Knob::ChipOrder,
        ];
        for knobs in matrix(&Knobs::weak(), &turned) {
            cases.push(Case::holds("update, insert", timeless(knobs)));
        }
        for shape in [
            "one key, two inserts",
            "update, insert",
            "update of what moves, split",
        ] {
            cases.push(Case::holds(shape, timeless(Knobs::declared().cancels(1))));
        }
        cases
    },
    published: None,
    mutants: &[Twin {
        name: "blind-release",
        about: "a lock is released by WRITE, which overwrites a share taken meanwhile",
        cases: || {
            let knobs = timeless(Knobs::declared());
            vec![Case::fails(How::Check, "update, insert", knobs)]
        },
    }],
    build: |s| build(s, LockFlaws::default(), LeafFlaws::default()),
};

/// Makes the entry of a flaw, from its name, its source, what it shows, what the published protocol does, its shape,
/// and a function that sets the switches of the published protocol or of the corrected one.
macro_rules! flaw {
    ($entry:ident, $name:literal, $source:literal, $about:literal, $published:literal, $shape:literal, $flaws:expr) => {
        pub(super) const $entry: Entry = Entry {
            name: $name,
            kind: Kind::Node,
            source: $source,
            about: $about,
            cases: || on_both_sides($shape, Case::holds),
            published: Some(Twin {
                name: "published",
                about: $published,
                cases: || {
                    vec![Case::fails(
                        How::NotLinearizable,
                        $shape,
                        timeless(Knobs::declared()),
                    )]
                },
            }),
            mutants: &[],
            build: |s| {
                let (mut locks, mut leaf) = (LockFlaws::default(), LeafFlaws::default());
                let switch: fn(bool, &mut LockFlaws, &mut LeafFlaws) = $flaws;
                switch(s.published(), &mut locks, &mut leaf);
                build(s, locks, leaf)
            },
        };
    };
}

flaw!(
    T_M1,
    "T-B1",
    "Marlin's public code, Tree.cpp, spear_and_read_page",
    "An insert shares the leaf with no other insert, and runs at the same time as upserts, which hold it alone and split it.",
    "the READ stands before the FAA in its chain: the leaf is split in between, and the insert puts its key into the half to \
        which the key no longer belongs",
    "insert of what moves, split",
    |published, locks, leaf| {
        locks.read_before_share = published;
        leaf.slots_shared = true;
    }
);
flaw!(
    T_M2,
    "T-B2",
    "Marlin's public code, Tree.cpp, leaf_page_store",
    "A client splits a leaf while another one updates an entry that moves.",
    "the client waits until no other client shares the leaf, and then splits the image that it had read before",
    "update of what moves, split",
    |published, locks, _| locks.read_while_shared = published
);
flaw!(
    T_M3,
    "T-B3",
    "Marlin's public code, Tree.cpp, leaf_page_store",
    "A slot is used again for another key while a client reads the old one.",
    "an insert makes the pointer visible before its key, so a reader finds it under the slot's old key",
    "gets, remove and insert",
    |published, _, leaf| leaf.pointer_first = published
);
flaw!(
    T_M4,
    "T-B4",
    "Marlin's public code, Tree.cpp, leaf_page_store",
    "Two clients insert the same key.",
    "inserts share the leaf, so that both find the key absent",
    "one key, two inserts",
    |published, _, leaf| leaf.slots_shared = published
);

fn build(s: &Setting<'_>, locks: LockFlaws, flaws: LeafFlaws) -> Box<dyn Explorable> {
    let format = Slotted::words_with_span(3).expect("three entries fit");
    let joins = s.shape.starts_with("merge");
    let (preload, removed): (&'static [u64], &'static [u64]) = match s.shape {
        _ if joins => (&[10, 20, 30, 40], &[10, 30]),
        "one key, two inserts" | "two inserts" => (&[10], &[]),
        "two inserts, split" | "insert of what moves, split" => (&[10, 20], &[]),
        shape if shape.ends_with("split") => (&[10, 20, 30], &[]),
        _ => (&[10, 20], &[]),
    };
    let mut script = Script::new(format, preload, operations(s.shape));
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
