//! Models of hierarchical on-chip locks in all variants: a local queue with and without handover, spinning, no local
//! lock, and words in host memory.

use dm_explore::Knobs;
use dm_lock::{Local, LockOptions, LockPlace};
use dm_verbs::Capability;

use super::counter::{Adders, Read, compute_nodes};
use crate::{Case, Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};

const SOURCE: &str = "Sherman §4.3, Figure 6";

/// A FIFO queue with handover, and lock words in on-chip memory.
pub(crate) const QUEUE: Entry = Entry {
    name: "hocl",
    kind: Kind::Lock,
    source: SOURCE,
    about: "Adds under hierarchical on-chip locks: FIFO queue, handover, lock-and-read, combined unlock.",
    cases,
    published: None,
    mutants: &[READ_FIRST, UNLOCKED_FIRST],
    build: |s| build(s, LockOptions::default()),
};

pub(crate) const NO_HANDOVER: Entry = Entry {
    name: "hocl-queue",
    about: "The same without handover: the local queue only determines the order in which clients try the \
        remote lock.",
    build: |s| build_local(s, Local::Queue { handover_max: 0 }),
    cases: fewer_cases,
    ..QUEUE
};

pub(crate) const SPIN: Entry = Entry {
    name: "hocl-spin",
    about: "The same with a local lock that is spun on.",
    build: |s| build_local(s, Local::Spin),
    cases: fewer_cases,
    ..QUEUE
};

pub(crate) const OFF: Entry = Entry {
    name: "hocl-flat",
    source: "Sherman §3.2 (FG)",
    about: "The same without local locks: every client tries the remote lock.",
    build: |s| build_local(s, Local::Off),
    cases: fewer_cases,
    ..QUEUE
};

pub(crate) const HOST: Entry = Entry {
    name: "hocl-host",
    about: "The same as `hocl` with lock words in host memory.",
    build: |s| {
        let place = LockPlace::Host;
        build(
            s,
            LockOptions {
                place,
                ..LockOptions::default()
            },
        )
    },
    cases: fewer_cases,
    mutants: &[READ_FIRST],
    ..QUEUE
};

const READ_FIRST: Twin = Twin {
    name: "read-first",
    about: "locks and reads in one chain on a card that may serve the READ first",
    cases: || {
        let forced = Knobs::weak().pretend(Capability::CasThenReadInOrder);
        vec![Case::fails(How::NotLinearizable, "2x1", forced)]
    },
};

const UNLOCKED_FIRST: Twin = Twin {
    name: "unlocked-first",
    about: "unlocks on the chip in the chain of the write-back on a card that does not order chip and host",
    cases: || {
        let unordered = Knobs {
            host_before_chip: false,
            ..Knobs::weak()
        };
        let forced = unordered.pretend(Capability::HostBeforeChip);
        vec![Case::fails(How::NotLinearizable, "2x1", forced).or(How::Invariant)]
    },
};

/// Returns the cases of all shapes. The small shapes run with all combinations of some knobs.
fn cases() -> Vec<Case> {
    let some = matrix(&Knobs::weak(), &[Knob::CasThenRead, Knob::AtomicVsWrite]);
    let mut cases = fewer_cases();
    let mut add = |shape, knobs: &[Knobs]| cases.extend(knobs.iter().map(|k| Case::holds(shape, k.clone())));
    for shape in ["1x2 apart", "2x1 apart"] {
        add(shape, &every());
    }
    for shape in ["1x2 wide", "2x1 wide"] {
        add(shape, &matrix(&Knobs::weak(), &Knob::ALL));
    }
    for shape in ["1x2 twice", "2x1 twice", "1x3", "2+1"] {
        add(shape, &some);
    }
    for shape in ["1x3 twice counted", "2x2 twice counted", "3x2 counted"] {
        cases.extend(two().map(|k| Case::holds(shape, k).nightly()));
    }
    cases
}

/// Returns fewer cases, for entries that differ in only one technique.
fn fewer_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for shape in ["1x2", "2x1"] {
        cases.extend(every().into_iter().map(|k| Case::holds(shape, k)));
    }
    for shape in ["1x2 twice", "2x1 twice", "1x3", "2+1", "2x2 counted"] {
        cases.extend(two().map(|k| Case::holds(shape, k)));
    }
    cases
}

fn every() -> Vec<Knobs> {
    matrix(
        &Knobs::weak(),
        &[
            Knob::CasThenRead,
            Knob::AtomicVsWrite,
            Knob::ChipOrder,
            Knob::Masked,
        ],
    )
}

fn two() -> impl Iterator<Item = Knobs> {
    [Knobs::weak(), Knobs::declared()].into_iter()
}

/// Builds the model with these local locks. All other options of the lock table have their defaults.
fn build_local(s: &Setting<'_>, local: Local) -> Box<dyn Explorable> {
    let options = LockOptions {
        local,
        ..LockOptions::default()
    };
    build(s, options)
}

fn build(s: &Setting<'_>, options: LockOptions) -> Box<dyn Explorable> {
    let adders = Adders {
        on: compute_nodes(s.shape),
        adds: if s.shape.contains("twice") { &[2] } else { &[1] },
        read: match s.shape {
            shape if shape.contains("apart") => Read::Apart,
            shape if shape.contains("wide") => Read::Wide,
            _ => Read::Along,
        },
        recorded: !s.shape.contains("counted"),
        options,
    };
    Box::new(adders.model(s.title.clone()))
}
