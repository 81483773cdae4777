//! The model of a visit that writes and publishes a table of leaves, and whose client may die at any step.

use dm_explore::Knobs;
use dm_index::Key8;
use rolex::Rolex;

use super::world::options;
use crate::tree::world::{Do, Script, Shape, cold, script, timeless, with};
use crate::{Case, Entry, How, Kind, Twin};
use Do::{Get, Visit};

/// Two leaves: keys 10 and 20, and keys from 30 on.
const TWO_LEAVES: Script = Script {
    preload: &[10, 20, 30, 40, 50],
    ..Script::EMPTY
};

const FAR: &str = "2 MN, table on the other, cold get";

const SHAPES: &[Shape] = &[(
    FAR,
    Script {
        memory_nodes: 2,
        first_is_full: true,
        ..cold(with(TWO_LEAVES, &[(0, &[Visit]), (1, &[Get(50)])]), &[0, 1])
    },
)];

/// Returns knobs with one crash.
fn crash() -> Knobs {
    timeless(Knobs::declared()).crashes(1)
}

pub(crate) const ENTRY: Entry = Entry {
    name: "rolex-tables-crash",
    kind: Kind::Crash,
    source: "docs/protocol/rolex.md X1 to X4, When a client is dropped or dies",
    about: "A client reads all leaves, writes a table of them, and makes the root word lead to it, or dies at any step. \
            Another client reads the root word, the table and a leaf meanwhile. Every result is right, no key is lost, and \
            the root word leads to the first leaf.",
    cases: || vec![Case::holds(FAR, crash())],
    published: None,
    mutants: &[Twin {
        name: "table-unawaited",
        about: "the root word leads to a table whose WRITE was not awaited",
        cases: || vec![Case::fails(How::Invariant, FAR, crash()).or(How::Check)],
    }],
    build: |s| {
        let mut options = options();
        options.flaws.learned.table_unawaited = s.mutant("table-unawaited");
        let model = script(SHAPES, s.shape).model::<Rolex<Key8>>(s.title.clone(), options);
        Box::new(model.crash_may_block())
    },
};
