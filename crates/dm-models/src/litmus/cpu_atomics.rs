//! Litmus test L13: the memory node's own processor changes a word that a card changes too.

use dm_explore::{Knobs, Model};
use dm_verbs::Verbs;

use super::{Bare, OK, sides, word};
use crate::{Entry, Explorable, How, Kind, Knob, Setting, matrix};

pub(crate) const ENTRY: Entry = Entry {
    name: "L13",
    kind: Kind::Litmus,
    source: "ibv_query_device (IBV_ATOMIC_HCA against IBV_ATOMIC_GLOB); rxe",
    about: "A memory node's processor adds to a word by its own load and store, and a card adds by FAA. One \
        add may be lost. If the processor uses the card, both adds count.",
    cases: || {
        let all = matrix(&Knobs::weak(), &[Knob::AtomicVsWrite]);
        let mut cases = sides("by load and store", How::Invariant, all.clone(), |_| true);
        cases.extend(sides("through the card", How::Invariant, all, |_| false));
        cases
    },
    published: None,
    mutants: &[],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let at = word(0, 0, 0);
    let own = s.shape == "by load and store";
    let model = Model::new(s.title.clone())
        .place(at, 8, "word")
        .assuming("the processor's load and store stand as a READ and a WRITE")
        .invariant("both count", move |end| match end.word(at) {
            2 => Ok(()),
            other => Err(format!("the word is {other}")),
        });
    let processor = move |c: Bare| async move {
        let v = c.verbs();
        if own {
            let old = v.word(at).await.expect(OK);
            v.write(at, &(old + 1).to_le_bytes()).await.expect(OK);
        } else {
            c.output(v.faa(at, 1).await.expect(OK));
        }
    };
    let card = move |c: Bare| async move { c.output(c.verbs().faa(at, 1).await.expect(OK)) };
    Box::new(model.client("processor", 0, processor).client("client", 1, card))
}
