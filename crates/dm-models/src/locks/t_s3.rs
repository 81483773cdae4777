//! The model T-S3: the holder of a lock hands it over before it posts its write-back.

use dm_explore::Knobs;
use dm_lock::{LockFlaws, LockOptions};

use super::counter::{Adders, compute_nodes};
use crate::{Case, Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};

pub(crate) const ENTRY: Entry = Entry {
    name: "T-S3",
    kind: Kind::Lock,
    source: "Sherman Figure 6",
    about: "The next client of the compute node gets the lock while the write-back is still in flight. Its \
        READ uses another queue pair, so an update is lost.",
    cases: || turned().into_iter().map(|k| Case::holds("1x2", k)).collect(),
    published: Some(Twin {
        name: "published",
        about: "handed over, then written back",
        cases: || {
            turned()
                .into_iter()
                .map(|k| Case::fails(How::NotLinearizable, "1x2", k))
                .collect()
        },
    }),
    mutants: &[],
    build,
};

fn turned() -> Vec<Knobs> {
    matrix(
        &Knobs::weak(),
        &[Knob::CasThenRead, Knob::AtomicVsWrite, Knob::Overtaking],
    )
}

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let flaws = LockFlaws {
        handover_before_write_back: s.published(),
        ..LockFlaws::default()
    };
    let adders = Adders {
        on: compute_nodes(s.shape),
        options: LockOptions {
            flaws,
            ..LockOptions::default()
        },
        ..Adders::default()
    };
    Box::new(adders.model(s.title.clone()))
}
