//! Litmus test L6: an atomic that changes nothing runs beside a WRITE.

use dm_explore::{Knobs, Model};
use dm_verbs::{AtomicVsWrite, FailedCas, Verbs};

use super::{Bare, OK, sides, word};
use crate::{Entry, Explorable, How, Kind, Knob, Setting, matrix};

pub(crate) const ENTRY: Entry = Entry {
    name: "L6",
    kind: Kind::Litmus,
    source: "Ziegler et al. (atomic visibility); rxe in Linux 6.1 (a failed CAS stores the old value back)",
    about: "A WRITE is not undone by an FAA of 0, or by a failing CAS, on the same word. This is false if \
        atomics race with WRITEs; for the CAS only if a failed CAS writes back.",
    cases: || {
        let all = matrix(&Knobs::weak(), &[Knob::AtomicVsWrite]);
        let racy = |k: &Knobs| k.atomic_vs_write == AtomicVsWrite::Racy;
        let back = |k: &Knobs| k.failed_cas == FailedCas::WritesBack;
        let mut cases = sides("FAA of 0", How::Invariant, all.clone(), racy);
        cases.extend(sides("failed CAS", How::Invariant, all, back));
        cases
    },
    published: None,
    mutants: &[],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let at = word(0, 0, 0);
    let faa = s.shape == "FAA of 0";
    let model = Model::new(s.title.clone()).place(at, 8, "word").invariant(
        "the WRITE is there",
        move |end| match end.word(at) {
            1 => Ok(()),
            other => Err(format!("the word is {other}")),
        },
    );
    let atomic = move |c: Bare| async move {
        let seen = if faa {
            c.verbs().faa(at, 0).await
        } else {
            c.verbs().cas(at, 7, 8).await
        };
        c.output(seen.expect(OK));
    };
    let writes = move |c: Bare| async move { c.verbs().write(at, &1u64.to_le_bytes()).await.expect(OK) };
    Box::new(model.client("atomic", 0, atomic).client("writer", 1, writes))
}
