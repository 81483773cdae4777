//! Litmus test L12: an atomic is executed twice.

use dm_explore::{Knobs, Model};
use dm_verbs::Verbs;

use super::{Bare, OK, sides, word};
use crate::{Entry, Explorable, How, Kind, Knob, Setting, matrix};

pub(crate) const ENTRY: Entry = Entry {
    name: "L12",
    kind: Kind::Litmus,
    source: "Varuna (failover to another queue pair carries out again what the first had done)",
    about: "The CAS that takes a lock is carried out a second time, at any time, by another queue pair. If \
        the compared word has a count of releases, the second CAS fails. If it has only a lock bit, the \
        second CAS takes the freed lock although no client holds it.",
    cases: || {
        let all = matrix(&Knobs::weak(), &[Knob::AtomicVsWrite]);
        let mut cases = sides("lock bit alone", How::Invariant, all.clone(), |_| true);
        cases.extend(sides("whole word with a count", How::Invariant, all, |_| false));
        cases
    },
    published: None,
    mutants: &[],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let lock = word(0, 0, 0);
    let held = 1u64;
    // The word after the lock was released. It equals the word before the CAS, or has a greater release count.
    let freed = if s.shape == "lock bit alone" { 0 } else { 1 << 8 };
    let model = Model::new(s.title.clone()).place(lock, 8, "lock").invariant(
        "the lock is free at the end",
        move |end| match end.word(lock) & 1 {
            0 => Ok(()),
            _ => Err("it is held, by nobody".to_owned()),
        },
    );
    let client = move |c: Bare| async move {
        // If the client finds its own tag, the duplicate was executed first.
        let old = c.verbs().cas(lock, 0, held).await.expect(OK);
        c.check(old == 0 || old == held, || format!("the lock said {old}"));
        c.output(c.verbs().cas(lock, held, freed).await.expect(OK));
    };
    let duplicate = move |c: Bare| async move { c.output(c.verbs().cas(lock, 0, held).await.expect(OK)) };
    Box::new(
        model
            .client("client", 0, client)
            .client("duplicate", 1, duplicate),
    )
}
