//! Models of trees whose nodes split.

use dm_explore::Knobs;
use dm_layout::{Checksummed, Key8, Slotted};
use dm_verbs::Capability;
use sherman::{Options, Sherman, Variant as Preset};

use super::world::{Do, Script, options, script, timeless};
use crate::{Case, Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};
use Do::{Get, Insert, Remove, Update, Upsert};

/// Two leaves under a root: 10 and 20; 30, 40 and 50. The second leaf is full. Inserting 45 splits it between 40 and
/// 45, so that 50 moves. Inserting 35 splits it between 35 and 40.
pub(crate) const TWO_LEAVES: Script = Script {
    preload: &[10, 20, 30, 40, 50],
    ..Script::EMPTY
};

const SHAPES: &[(&str, Script)] = &[
    (
        "2x1 split, reader",
        Script {
            clients: &[(0, &[Insert(45)]), (1, &[Get(50)])],
            ..TWO_LEAVES
        },
    ),
    (
        "2x1 split, writer",
        Script {
            clients: &[(0, &[Insert(45)]), (1, &[Update(50)])],
            ..TWO_LEAVES
        },
    ),
    (
        "2x1 split, remove",
        Script {
            clients: &[(0, &[Insert(45)]), (1, &[Remove(30)])],
            ..TWO_LEAVES
        },
    ),
    (
        "2x1 split, split",
        Script {
            clients: &[(0, &[Insert(45)]), (1, &[Upsert(35)])],
            ..TWO_LEAVES
        },
    ),
    (
        "1x2 split",
        Script {
            clients: &[(0, &[Insert(45)]), (0, &[Remove(50)])],
            ..TWO_LEAVES
        },
    ),
    (
        "2x1 split, cold",
        Script {
            cold: &[0, 1, 2],
            clients: &[(0, &[Insert(45)]), (1, &[Get(50)])],
            ..TWO_LEAVES
        },
    ),
    // The root has three children, so it is split too.
    (
        "2x1 root splits",
        Script {
            preload: &[10, 20, 30, 40, 50, 60, 70],
            clients: &[(0, &[Insert(65)]), (1, &[Get(70)])],
            ..Script::EMPTY
        },
    ),
    (
        "2x1 first root",
        Script {
            preload: &[10, 20, 30],
            clients: &[(0, &[Insert(25)]), (1, &[Upsert(35)])],
            ..Script::EMPTY
        },
    ),
    // The left half may become empty before the new root is live. It is then merged as soon as the root is live.
    (
        "2x1 first root, merge",
        Script {
            preload: &[10, 20, 30],
            clients: &[(0, &[Insert(25)]), (1, &[Remove(10), Remove(20)])],
            ..Script::EMPTY
        },
    ),
    (
        "2 MN, 2x1 split",
        Script {
            memory_nodes: 2,
            clients: &[(0, &[Insert(45)]), (1, &[Update(50)])],
            ..TWO_LEAVES
        },
    ),
    (
        "2 MN, 2x1 split to the other",
        Script {
            memory_nodes: 2,
            first_is_full: true,
            clients: &[(0, &[Insert(45)]), (1, &[Update(50)])],
            ..TWO_LEAVES
        },
    ),
    (
        "2 MN, 2x1 split to the other, reader",
        Script {
            memory_nodes: 2,
            first_is_full: true,
            clients: &[(0, &[Insert(45)]), (1, &[Get(50)])],
            ..TWO_LEAVES
        },
    ),
    (
        "2x1, 2 operations each",
        Script {
            clients: &[(0, &[Insert(45), Get(50)]), (1, &[Update(50), Remove(45)])],
            ..TWO_LEAVES
        },
    ),
    (
        "2 MN, 2x1, 2 operations each",
        Script {
            memory_nodes: 2,
            first_is_full: true,
            clients: &[(0, &[Insert(45), Remove(40)]), (1, &[Upsert(35), Get(45)])],
            ..TWO_LEAVES
        },
    ),
    (
        "3x1",
        Script {
            clients: &[(0, &[Insert(45)]), (1, &[Upsert(35)]), (2, &[Get(50)])],
            ..TWO_LEAVES
        },
    ),
    (
        "3x1 readers",
        Script {
            clients: &[(0, &[Insert(45)]), (1, &[Get(50)]), (2, &[Get(45)])],
            ..TWO_LEAVES
        },
    ),
];

/// Returns knobs with the freedoms that affect a tree.
pub(crate) fn knobs() -> Vec<Knobs> {
    let turned = [
        Knob::ReadOrder,
        Knob::WriteOrder,
        Knob::CasThenRead,
        Knob::AtomicVsWrite,
    ];
    matrix(&timeless(Knobs::weak()), &turned)
}

/// Returns a case that must fail: the card may serve the READ before the CAS, but declares that it does not.
pub(crate) fn read_first(shape: &'static str) -> Vec<Case> {
    let knobs = timeless(Knobs::weak()).pretend(Capability::CasThenReadInOrder);
    vec![Case::fails(How::Invariant, shape, knobs)]
}

pub(crate) const ENTRY: Entry = Entry {
    name: "tree-split",
    kind: Kind::Tree,
    source: "Sherman §4.2, docs/protocol/sherman.md S1–S22",
    about: "Get, insert, update, upsert and remove run at the same time, while leaves, inner nodes and the \
        root are split.",
    cases,
    published: None,
    mutants: &[Twin {
        name: "read-first",
        about: "lock-and-read uses one chain on a card that may serve the READ first",
        cases: || read_first("2x1 split, writer"),
    }],
    build: |s| build(s, options()),
};

fn cases() -> Vec<Case> {
    let plain = [timeless(Knobs::weak()), timeless(Knobs::declared())];
    let large =
        |shape: &str| shape.contains("operations each") || shape.starts_with('3') || shape.starts_with("1x2");
    let mut cases = Vec::new();
    for &(shape, _) in SHAPES {
        let under = if large(shape) { plain.to_vec() } else { knobs() };
        cases.extend(under.into_iter().map(|k| Case::holds(shape, k)));
    }
    cases
}

fn build(s: &Setting<'_>, options: Options) -> Box<dyn Explorable> {
    Box::new(script(SHAPES, s.shape).model::<Sherman<Key8, Slotted<Key8>>>(s.title.clone(), options))
}

/// All presets of the paper's figures, beginning with FG.
pub(crate) const VARIANTS: Entry = Entry {
    name: "tree-variants",
    kind: Kind::Tree,
    source: "Sherman §5, Table 1 and Figure 10",
    about: "A split and an update run at the same time with every preset: FG, FG+, and each technique added \
        to it.",
    cases: || {
        let presets = [
            "fg",
            "fg+",
            "+combine",
            "+on-chip",
            "+hierarchical",
            "+two-level",
            "paper-rtt",
        ];
        let under = [timeless(Knobs::weak()), timeless(Knobs::declared())];
        presets
            .into_iter()
            .flat_map(|p| under.iter().map(move |k| (p, k.clone())))
            .map(|(p, k)| Case::holds(p, k))
            .collect()
    },
    published: None,
    mutants: &[Twin {
        name: "handed-over-first",
        about: "the lock is handed over before the write-back, to a client that inserts into the same leaf",
        cases: || {
            let knobs = timeless(Knobs::declared());
            ["+hierarchical", "+two-level"]
                .map(|preset| Case::fails(How::Invariant, preset, knobs.clone()))
                .to_vec()
        },
    }],
    build: |s| {
        let preset: Preset = s.shape.parse().expect("a preset");
        let script = Script {
            clients: &[(0, &[Insert(45)]), (1, &[Update(50)])],
            ..TWO_LEAVES
        };
        let flawed = s.mutant("handed-over-first");
        let script = match flawed {
            true => Script {
                clients: &[(0, &[Upsert(12)]), (0, &[Upsert(15)])],
                ..TWO_LEAVES
            },
            false => script,
        };
        let (title, mut options) = (s.title.clone(), preset.apply(options()));
        options.flaws.handover_before_write_back = flawed;
        match preset.leaf() {
            sherman::LeafKind::Checksummed => {
                Box::new(script.model::<Sherman<Key8, Checksummed<Key8>>>(title, options))
            }
            _ => Box::new(script.model::<Sherman<Key8, Slotted<Key8>>>(title, options)),
        }
    },
};
