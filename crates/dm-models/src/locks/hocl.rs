//! Hierarchical on-chip locks, in all variants.

use dm_explore::Knobs;
use dm_lock::{Local, LockOptions};
use dm_verbs::Capability;

use super::counter::{Adders, Read, compute_nodes};
use crate::{Case, Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};

/// FIFO queue and handover, words on the chip.
pub(crate) const QUEUE: Entry = Entry {
    name: "hocl",
    kind: Kind::Lock,
    source: "Sherman §4.3, Figure 6",
    about: "Adds under hierarchical on-chip locks: local queue, handover, lock-and-read, combined unlock.",
    cases,
    published: None,
    mutants: &[Twin {
        name: "read-first",
        about: "lock-and-read in one chain on a card that may serve the READ first",
        cases: || {
            vec![Case::fails(
                How::NotLinearizable,
                "2x1",
                Knobs::weak().pretend(Capability::CasThenReadInOrder),
            )]
        },
    }],
    build: queue,
};

fn cases() -> Vec<Case> {
    let knobs = [
        Knob::CasThenRead,
        Knob::AtomicVsWrite,
        Knob::ChipOrder,
        Knob::Masked,
    ];
    let full = matrix(&Knobs::weak(), &knobs);
    let shapes = ["1x2", "2x1", "1x2 apart", "2x1 apart"].into_iter();
    shapes
        .flat_map(|shape| full.iter().map(move |k| Case::holds(shape, k.clone())))
        .collect()
}

fn queue(s: &Setting<'_>) -> Box<dyn Explorable> {
    build(
        s,
        LockOptions {
            local: Local::Queue { handover_max: 1 },
            ..LockOptions::default()
        },
    )
}

fn build(s: &Setting<'_>, options: LockOptions) -> Box<dyn Explorable> {
    let adders = Adders {
        on: compute_nodes(s.shape),
        adds: &[1],
        read: if s.shape.ends_with("apart") {
            Read::Apart
        } else {
            Read::Along
        },
        options,
    };
    Box::new(adders.model(s.title.clone()))
}
