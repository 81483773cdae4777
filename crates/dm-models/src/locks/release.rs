//! Models of a lock that is released by WRITE, by CAS or by FAA. Some cards serialise atomics with WRITEs, others do
//! not.

use dm_explore::Knobs;
use dm_lock::{LockOptions, LockPlace, ReleaseBy};
use dm_verbs::Capability;

use super::counter::{Adders, compute_nodes};
use crate::{Case, Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};

pub(crate) const ENTRY: Entry = Entry {
    name: "release",
    kind: Kind::Lock,
    source: "Sherman §4.3 (WRITE), FG (FAA); docs/protocol/lock.md L5",
    about: "A lock is released by CAS or FAA if atomics race with WRITEs, and by WRITE or FAA if they do \
        not.",
    cases: || {
        let sides = matrix(&Knobs::weak(), &[Knob::AtomicVsWrite, Knob::ChipOrder]);
        let mut cases = Vec::new();
        for knobs in sides {
            for shape in [
                "2x1 twice, auto",
                "2x1 twice, FAA",
                "2+1, FAA",
                "2x1 twice, FAA, host",
            ] {
                cases.push(Case::holds(shape, knobs.clone()));
            }
            if Knob::AtomicVsWrite.side(&knobs) == 2 {
                cases.push(Case::holds("2x1 twice, WRITE", knobs));
            }
        }
        cases
    },
    published: None,
    mutants: &[Twin {
        name: "write",
        about: "the lock is released by WRITE although atomics race with WRITEs: a CAS of the next client \
            writes the held word back",
        cases: || {
            let racy = Knobs::weak().pretend(Capability::AtomicVsWriteSerialised);
            vec![Case::fails(How::Stuck, "2x1, WRITE", racy)]
        },
    }],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let release = match s.shape {
        shape if shape.contains("FAA") => ReleaseBy::Faa,
        shape if shape.contains("WRITE") => ReleaseBy::Write,
        _ => ReleaseBy::Auto,
    };
    let adders = Adders {
        on: compute_nodes(s.shape),
        adds: if s.shape.contains("twice") { &[2] } else { &[1] },
        options: LockOptions {
            release,
            place: if s.shape.contains("host") {
                LockPlace::Host
            } else {
                LockPlace::Chip
            },
            ..LockOptions::default()
        },
        ..Adders::default()
    };
    Box::new(adders.model(s.title.clone()))
}
