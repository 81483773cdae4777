//! Versions: which image a reader accepts.

use dm_explore::{Elapsed, Knobs};
use dm_history::KvOp::{Get, Insert, Remove, Update};
use dm_layout::{Bookend, Checksummed, Key8, Slotted};
use dm_leaf::{LeafFlaws, NodeOptions};
use dm_verbs::{AtomicUnit, Capability, Nanos};

use super::world::{Op, Script};
use crate::tree::world::timeless;
use crate::{Case, Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};

/// Bytes of values that take more than two lines.
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
    about: "A leaf under line versions, 2 lines and 3 entries, is split, written and read; lines come and go in any \
            order.",
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
            about: "on a card that tears lines",
            cases: || {
                let torn = words(timeless(Knobs::strong()));
                vec![Case::fails(How::NotLinearizable, "overwritten, reader", torn)]
            },
        },
        Twin {
            name: "read-first",
            about: "lock-and-read in one chain on a card that may serve the READ first",
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
    about: "A sorted leaf under a checksum, written back whole: words are all that it asks of the card.",
    cases: || {
        let mut cases = Vec::new();
        for shape in ["split, reader of what moves", "two updates, reader"] {
            let lines = orders(Knobs::declared()).into_iter();
            cases.extend(lines.map(|k| Case::holds(shape, k)));
        }
        // By words a READ of the node comes in 2^16 pieces: in order it is a matter of seconds.
        let knobs = words(timeless(Knobs::strong()));
        cases.push(Case::holds("two updates, reader", knobs));
        cases
    },
    published: None,
    mutants: &[Twin {
        name: "read-first",
        about: "lock-and-read in one chain on a card that may serve the READ first",
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
    about: "An entry between two versions, over three lines: a READ that overtakes the WRITE in the middle finds both \
            versions old and the value mixed. Line versions see it.",
    cases: || {
        let holds = |k| Case::holds("two updates, reader", k);
        orders(Knobs::declared()).into_iter().map(holds).collect()
    },
    published: Some(Twin {
        name: "published",
        about: "versions at both ends",
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
    about: "A reader finds an entry's versions at odds and takes the key for absent, although it was always there.",
    cases: || {
        let holds = |k| Case::holds("two updates, reader", k);
        orders(Knobs::declared()).into_iter().map(holds).collect()
    },
    published: Some(Twin {
        name: "published",
        about: "a torn entry is no entry",
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

/// The writer of T-S2b: 10 lies in the second line and is moved away by the third split, 4 splits in all.
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
    about: "Versions of 2 bits, and a leaf that splits again and again during one READ. At 2 structural changes the \
            versions still tell; at 3 they have come round, and a key that was always there is missed, unless a READ \
            that took as long as 3 changes take is repeated.",
    cases: || {
        ["3 splits", "4 splits"]
            .into_iter()
            .flat_map(|shape| clocked().into_iter().map(move |k| Case::holds(shape, k)))
            .collect()
    },
    published: Some(Twin {
        name: "published",
        about: "however long a READ takes",
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
