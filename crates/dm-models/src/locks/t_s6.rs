//! The model T-S6: a local ticket lock whose count of tickets overflows into the number that is being served.

use dm_explore::Knobs;
use dm_lock::{LockFlaws, LockOptions};

use super::counter::{Adders, compute_nodes};
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};

pub(crate) const ENTRY: Entry = Entry {
    name: "T-S6",
    kind: Kind::Lock,
    source: "Sherman's code, local ticket lock",
    about: "Drawing a ticket adds 1 to a word that also holds the number being served. The ticket after \
        2^width - 1 (here with 2 bits) advances that number. Then two clients have the local turn, and \
        later no client ever gets it.",
    cases: || {
        vec![
            Case::holds("1x2", Knobs::weak()),
            Case::holds("1x2", Knobs::declared()),
        ]
    },
    published: Some(Twin {
        name: "published",
        about: "both fields in one word, 2 bits each",
        cases: || {
            let stuck = |k| Case::fails(How::Stuck, "1x2", k);
            vec![stuck(Knobs::weak()), stuck(Knobs::declared())]
        },
    }),
    mutants: &[Twin {
        name: "narrower",
        about: "the same with 1 bit each, which overflows at the second ticket",
        cases: || vec![Case::fails(How::Stuck, "1x2", Knobs::weak())],
    }],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let width = if s.published() { Some(2) } else { None };
    let flaws = LockFlaws {
        packed_tickets: if s.mutant("narrower") { Some(1) } else { width },
        ..LockFlaws::default()
    };
    let adders = Adders {
        on: compute_nodes(s.shape),
        adds: &[3, 2],
        options: LockOptions {
            flaws,
            ..LockOptions::default()
        },
        ..Adders::default()
    };
    Box::new(adders.model(s.title.clone()))
}
