//! Models of the versions by which a reader decides whether to accept the bytes of a leaf.

use dm_explore::{Elapsed, Knobs};
use dm_history::KvOp::{Get, Insert, Remove, Update};
use dm_layout::{Bookend, Checksummed, Key8, Slotted};
use dm_leaf::{LeafFlaws, NodeOptions};
use dm_verbs::{AtomicUnit, Capability, Nanos};

use super::world::{Op, Script};
use crate::tree::world::timeless;
use crate::{Case, Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};

/// The length in bytes of values that take more than two lines.
const LONG: usize = 120;

fn orders(base: Knobs) -> Vec<Knobs> {
    matrix(&timeless(base), &[Knob::ReadOrder, Knob::WriteOrder])
}

fn words(knobs: Knobs) -> Knobs {
    Knobs {
        unit: AtomicUnit::Word,
        ..knobs
    }
}

fn operations(shape: &str) -> Vec<Vec<Op>> {
    match shape {
        "split, reader of what moves" => vec![vec![Insert(40, 40_001)], vec![Get(30)]],
        "split, reader of what stays" => vec![vec![Insert(15, 15_001)], vec![Get(20), Get(10)]],
        "split, writer" => vec![vec![Insert(15, 15_001)], vec![Update(30, 30_002)]],
        "split, remove and insert" => vec![vec![Insert(15, 15_001)], vec![Remove(30), Insert(35, 35_002)]],
        "two updates, reader" => vec![vec![Update(20, 20_001), Update(20, 20_002)], vec![Get(20)]],
        "remove and insert, reader" => vec![vec![Remove(20), Insert(20, 20_002)], vec![Get(20), Get(20)]],
        "overwritten, reader" => vec![vec![Update(20, u64::MAX)], vec![Get(20)]],
        "split, two readers" => vec![vec![Insert(40, 40_001)], vec![Get(30)], vec![Get(20)]],
        "split, writer, reader" => vec![vec![Insert(40, 40_001)], vec![Update(30, 30_002)], vec![Get(30)]],
        _ => unreachable!("no such shape: {shape}"),
    }
}

const SHAPES: [&str; 8] = [
    "split, reader of what moves",
    "split, reader of what stays",
    "split, writer",
    "split, remove and insert",
    "two updates, reader",
    "remove and insert, reader",
    "split, two readers",
    "split, writer, reader",
];

pub(crate) const LINES: Entry = Entry {
    name: "line-versions",
    kind: Kind::Node,
    source: "docs/protocol/sherman.md S1–S17",
    about: "A leaf with line versions, of 2 lines and 3 entries, is split, written and read. The card serves and writes lines \
            in any order.",
    cases: || {
        let mut under = orders(Knobs::weak());
        under.extend(orders(Knobs::declared()));
        let shapes = SHAPES.into_iter();
        let mut cases: Vec<Case> = shapes
            .flat_map(|shape| under.iter().map(move |k| Case::holds(shape, k.clone())))
            .collect();
        for shape in ["2 MN: split, writer", "2 MN: split, writer, reader"] {
            cases.extend(under.iter().map(|k| Case::holds(shape, k.clone())));
        }
        cases
    },
    published: None,
    mutants: &[
        Twin {
            name: "torn-lines",
            about: "the card tears lines",
            cases: || {
                let torn = words(timeless(Knobs::strong()));
                vec![Case::fails(How::NotLinearizable, "overwritten, reader", torn)]
            },
        },
        Twin {
            name: "read-first",
            about: "lock-and-read uses one chain on a card that may serve the READ first",
            cases: || {
                let knobs = timeless(Knobs::weak()).pretend(Capability::CasThenReadInOrder);
                vec![Case::fails(How::NotLinearizable, "split, writer, reader", knobs)]
            },
        },
    ],
    build: |s| {
        let format = Slotted::tiny(8).expect("two entries fit");
        let shape = s.shape.strip_prefix("2 MN: ");
        let mut script = Script::new(format, &[10, 20, 30], operations(shape.unwrap_or(s.shape)));
        if shape.is_some() {
            (script.memory_nodes, script.first_is_full) = (2, true);
        }
        Box::new(script.model(s.title.clone()))
    },
};

pub(crate) const CHECKSUM: Entry = Entry {
    name: "checksum",
    kind: Kind::Node,
    source: "Ziegler et al., SIGMOD 2019 (FG); Sherman §3",
    about: "A sorted leaf with a checksum is written back as a whole. It requires only that the card does \
        not tear words.",
    cases: || {
        let mut cases = Vec::new();
        for shape in ["split, reader of what moves", "two updates, reader"] {
            let lines = orders(Knobs::declared()).into_iter();
            cases.extend(lines.map(|k| Case::holds(shape, k)));
        }
        // In any order of words, one READ of the node would have 2^16 states. In increasing order, the search takes
        // seconds.
        let knobs = words(timeless(Knobs::strong()));
        cases.push(Case::holds("two updates, reader", knobs));
        cases
    },
    published: None,
    mutants: &[Twin {
        name: "read-first",
        about: "lock-and-read uses one chain on a card that may serve the READ first",
        cases: || {
            let knobs = timeless(Knobs::weak()).pretend(Capability::CasThenReadInOrder);
            vec![Case::fails(How::NotLinearizable, "split, writer, reader", knobs)]
        },
    }],
    build: |s| {
        let format = Checksummed::with_span(3, 8).expect("three entries fit");
        let script = Script::new(format, &[10, 20, 30], operations(s.shape));
        Box::new(script.model(s.title.clone()))
    },
};

pub(crate) const T_S2A: Entry = Entry {
    name: "T-S2a",
    kind: Kind::Node,
    source: "Sherman §4.4, Figure 8",
    about: "An entry lies between two versions and spans three lines. A READ that overtakes the WRITE in the middle finds \
            both versions old and the value mixed. Line versions detect this.",
    cases: || {
        let holds = |k| Case::holds("two updates, reader", k);
        orders(Knobs::declared()).into_iter().map(holds).collect()
    },
    published: Some(Twin {
        name: "published",
        about: "the entry has versions at its two ends only",
        cases: || {
            let fails = |k| Case::fails(How::Check, "two updates, reader", k);
            orders(Knobs::declared()).into_iter().map(fails).collect()
        },
    }),
    mutants: &[],
    build: |s| match s.published() {
        true => long(
            s,
            Bookend::with_span(2, LONG).expect("two entries fit"),
            LeafFlaws::default(),
        ),
        false => long(
            s,
            Slotted::with_span(2, LONG).expect("two entries fit"),
            LeafFlaws::default(),
        ),
    },
};

pub(crate) const T_S1: Entry = Entry {
    name: "T-S1",
    kind: Kind::Node,
    source: "Sherman's code, Tree.cpp:687–697",
    about: "A reader finds that an entry's versions differ and takes the key for absent, although it was always there.",
    cases: || {
        let holds = |k| Case::holds("two updates, reader", k);
        orders(Knobs::declared()).into_iter().map(holds).collect()
    },
    published: Some(Twin {
        name: "published",
        about: "a torn entry counts as empty",
        cases: || {
            let fails = |k| Case::fails(How::NotLinearizable, "two updates, reader", k);
            orders(Knobs::declared()).into_iter().map(fails).collect()
        },
    }),
    mutants: &[],
    build: |s| {
        let flaws = LeafFlaws {
            torn_entry_absent: s.published(),
            ..LeafFlaws::default()
        };
        long(s, Slotted::with_span(2, LONG).expect("two entries fit"), flaws)
    },
};

fn long<F: dm_layout::NodeFormat<Key8> + Clone>(
    s: &Setting<'_>,
    format: F,
    flaws: LeafFlaws,
) -> Box<dyn Explorable> {
    let mut script = Script::new(format, &[10, 20], operations(s.shape));
    script.options.flaws = flaws;
    Box::new(script.model(s.title.clone()))
}

/// The operations of the writer of T-S2b, with 4 splits. Key 10 is in the second line, and the third split moves it.
const SPLITS: [Op; 7] = [
    Insert(15, 15_001),
    Insert(12, 12_001),
    Insert(11, 11_001),
    Insert(5, 5_001),
    Insert(7, 7_001),
    Insert(3, 3_001),
    Insert(4, 4_001),
];

pub(crate) const T_S2B: Entry = Entry {
    name: "T-S2b",
    kind: Kind::Node,
    source: "Sherman §4.4; docs/protocol/sherman.md S4",
    about: "Versions have 2 bits, and a leaf splits repeatedly during one READ. After 2 structural changes the versions \
            still differ. After 3 they have wrapped around, and the reader misses a key that was always there, unless it \
            repeats a READ that took as long as 3 changes take.",
    cases: || {
        ["3 splits", "4 splits"]
            .into_iter()
            .flat_map(|shape| clocked().into_iter().map(move |k| Case::holds(shape, k)))
            .collect()
    },
    published: Some(Twin {
        name: "published",
        about: "a READ is accepted however long it took",
        cases: || {
            let mut cases: Vec<Case> = clocked()
                .into_iter()
                .map(|k| Case::holds("3 splits", k))
                .collect();
            let fails = |k| Case::fails(How::NotLinearizable, "4 splits", k);
            cases.extend(clocked().into_iter().map(fails));
            cases
        },
    }),
    mutants: &[],
    build: |s| {
        let format = Slotted::tiny(8).and_then(|f| f.with_version_bits(2));
        let writes = if s.shape == "3 splits" { 5 } else { SPLITS.len() };
        let operations = vec![SPLITS[..writes].to_vec(), vec![Get(10)]];
        let mut script = Script::new(format.expect("two bits are enough"), &[20, 30, 10], operations);
        script.split_takes = Nanos(1);
        script.options = NodeOptions {
            read_window: Nanos(3),
            flaws: LeafFlaws {
                no_read_window: s.published(),
                ..LeafFlaws::default()
            },
            ..NodeOptions::default()
        };
        let assumed = "a node's structure changes at most once per nanosecond of the model's clock";
        Box::new(script.model(s.title.clone()).assuming(assumed))
    },
};

fn clocked() -> Vec<Knobs> {
    let base = Knobs {
        elapsed: Elapsed::Clock,
        ..Knobs::declared()
    };
    matrix(&base, &[Knob::ReadOrder, Knob::WriteOrder])
}
