//! Litmus test L11: a client posts a WRITE, and its lease ends before the WRITE takes effect.

use dm_explore::{Knobs, Model};
use dm_verbs::{ClientId, Control, ControlRequest, Verbs};

use super::{Bare, OK, sides, word};
use crate::{Entry, Explorable, How, Kind, Knob, Setting, matrix};

pub(crate) const ENTRY: Entry = Entry {
    name: "L11",
    kind: Kind::Litmus,
    source: "the specification bounds no delay; docs/protocol/lock.md, When a holder dies",
    about: "One client has posted a WRITE and dies, or is only slow. Another client takes over and WRITEs. \
        The word of the second client stays, if the memory node fenced the first client before.",
    cases: || {
        let mut all = matrix(&Knobs::weak(), &[Knob::WriteOrder, Knob::ReadOrder]);
        all.extend([Knobs::weak().crashes(1), Knobs::declared().crashes(1)]);
        let mut cases = sides("not fenced", How::Invariant, all.clone(), |_| true);
        cases.extend(sides("fenced", How::Invariant, all, |_| false));
        cases
    },
    published: None,
    mutants: &[],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let at = word(0, 0, 0);
    let fences = s.shape == "fenced";
    let model =
        Model::new(s.title.clone())
            .place(at, 8, "word")
            .invariant("the takeover's word stays", move |end| match end.word(at) {
                2 => Ok(()),
                _ if !end.finished(1) => Ok(()),
                other => Err(format!("the word is {other}")),
            });
    let first = move |c: Bare| async move {
        // The WRITE is refused if the client was fenced before.
        let written = c.verbs().write(at, &1u64.to_le_bytes()).await;
        c.output(u64::from(written.is_ok()));
    };
    let second = move |c: Bare| async move {
        if fences {
            let fence = ControlRequest::Fence { client: ClientId(1) };
            c.verbs().call(fence).await.expect(OK);
        }
        c.verbs().write(at, &2u64.to_le_bytes()).await.expect(OK);
    };
    Box::new(model.client("first", 0, first).client("takeover", 1, second))
}
