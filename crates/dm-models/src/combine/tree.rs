//! Models of Sherman with shared operations, which use the tree's locks, versions and splits.

use dm_combine::RdwcFlaws;
use dm_explore::Knobs;
use dm_layout::{Key8, Slotted};
use sherman::{Options, Sherman};

use super::world::one_lock;
use crate::tree::world::{Do, Script, options, timeless};
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};
use Do::{Get, Insert, Update};

/// One full leaf.
const FULL: Script = Script {
    preload: &[10, 20, 30],
    ..Script::EMPTY
};

const SHAPES: &[(&str, Script)] = &[
    (
        "2+1 readers",
        Script {
            clients: &[(0, &[Get(10)]), (0, &[Get(10)]), (1, &[Update(10)])],
            ..FULL
        },
    ),
    (
        "2+1 writers",
        Script {
            clients: &[(0, &[Update(10)]), (0, &[Update(10)]), (1, &[Get(10)])],
            ..FULL
        },
    ),
    (
        "2+1 split",
        Script {
            clients: &[(0, &[Get(30)]), (0, &[Get(30)]), (1, &[Insert(40)])],
            ..FULL
        },
    ),
];

pub(crate) const ENTRY: Entry = Entry {
    name: "rdwc-tree",
    kind: Kind::Combine,
    source: "docs/protocol/combine.md C5; docs/protocol/sherman.md",
    about: "Sherman with read delegation and write combining: clients of one compute node share gets and \
        updates of a tree, while another compute node runs an update, a get and a split.",
    cases: || {
        SHAPES
            .iter()
            .map(|(shape, _)| Case::holds(shape, timeless(Knobs::declared())))
            .collect()
    },
    published: None,
    mutants: &[Twin {
        name: "earlier-read",
        about: "a get joins a READ that has already been posted (T-R3)",
        cases: || {
            let knobs = timeless(Knobs::declared());
            vec![Case::fails(How::NotLinearizable, "2+1 readers", knobs)]
        },
    }],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let flaws = RdwcFlaws {
        joins_earlier_read: s.mutant("earlier-read"),
        ..RdwcFlaws::NONE
    };
    let options = Options {
        rdwc: one_lock(flaws),
        ..options()
    };
    let found = SHAPES.iter().find(|(shape, _)| *shape == s.shape);
    let script = found.map_or(Script::EMPTY, |(_, script)| *script);
    Box::new(script.model::<Sherman<Key8, Slotted<Key8>>>(s.title.clone(), options))
}
