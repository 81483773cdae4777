//! Litmus test L7: a 16-bit lane of a word is freed by WRITE while another lane is changed by masked CAS.

use dm_explore::{Knobs, Model};
use dm_verbs::{AtomicVsWrite, MaskedCas, NodeId, Verbs};

use super::{Bare, OK, sides, word};
use crate::{Entry, Explorable, How, Kind, Knob, Setting, matrix};

pub(crate) const ENTRY: Entry = Entry {
    name: "L7",
    kind: Kind::Litmus,
    source: "Sherman §4.3 (16-bit locks)",
    about: "A lane that its holder frees by a WRITE of two bytes stays free while another client takes the \
        neighbouring lane. This is false if atomics race with WRITEs. A lane that is freed by a masked CAS \
        always stays free.",
    cases: || {
        let all = matrix(&Knobs::weak(), &[Knob::AtomicVsWrite]);
        let racy = |k: &Knobs| k.atomic_vs_write == AtomicVsWrite::Racy;
        let mut cases = sides("freed by WRITE", How::Invariant, all.clone(), racy);
        cases.extend(sides("freed by masked CAS", How::Invariant, all, |_| false));
        cases
    },
    published: None,
    mutants: &[],
    build,
};

/// Returns a masked compare-and-swap of one 16-bit lane.
fn lane(shift: u32, compare: u64, swap: u64) -> MaskedCas {
    MaskedCas {
        compare: compare << shift,
        compare_mask: 0xFFFF << shift,
        swap: swap << shift,
        swap_mask: 0xFFFF << shift,
    }
}

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let at = word(0, 0, 0);
    let by_write = s.shape == "freed by WRITE";
    let model = Model::new(s.title.clone())
        .place(at, 8, "four lanes")
        .setup(move |v| async move { v.load(at, &1u64.to_le_bytes()).expect(OK) })
        .invariant("the first lane is free", move |end| match end.word(at) & 0xFFFF {
            0 => Ok(()),
            tag => Err(format!("it is held by {tag}")),
        });
    let holder = move |c: Bare| async move {
        let v = c.verbs();
        if by_write {
            v.write(at, &[0; 2]).await.expect(OK);
        } else {
            let freed = v.chain(NodeId(0)).free_masked_cas(at, lane(0, 1, 0)).post().await;
            c.output(freed.expect(OK));
        }
    };
    let other = move |c: Bare| async move {
        let taken = c
            .verbs()
            .chain(NodeId(0))
            .masked_cas(at, lane(16, 0, 2))
            .post()
            .await;
        c.output(taken.expect(OK));
    };
    Box::new(model.client("holder", 0, holder).client("other", 1, other))
}
