//! Litmus test L14: a send buffer is reused before the card has fetched it.

use dm_explore::{Knobs, Model};
use dm_verbs::{Verbs, Why};

use super::{Bare, OK, sides, word};
use crate::{Entry, Explorable, How, Kind, Knob, Setting, matrix};

pub(crate) const ENTRY: Entry = Entry {
    name: "L14",
    kind: Kind::Litmus,
    source: "ibv_post_send(3): a buffer that is not inline is fetched later",
    about: "A client posts a WRITE from a buffer and then changes the buffer. The WRITE has the posted \
        content if the client waited for the completion. (dmkit copies payloads at posting, so index code \
        cannot make this error.)",
    cases: || {
        let all = matrix(&Knobs::weak(), &[Knob::WriteOrder, Knob::ReadOrder]);
        let mut cases = sides("reused at once", How::Invariant, all.clone(), |_| true);
        cases.extend(sides("after the completion", How::Invariant, all, |_| false));
        cases
    },
    published: None,
    mutants: &[],
    build,
};

/// Builds the model. Memory node 1 stands for the client's own memory. The card is a separate client. After
/// the doorbell, it fetches the buffer, WRITEs it to memory node 0, and reports the completion.
fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let (target, buffer, bell, done) = (word(0, 0, 0), word(1, 0, 0), word(1, 1, 0), word(1, 2, 0));
    let waits = s.shape == "after the completion";
    let model = Model::new(s.title.clone())
        .memory_nodes(2)
        .place(target, 8, "target")
        .place(buffer, 8, "send buffer")
        .place(bell, 8, "doorbell")
        .place(done, 8, "completion")
        .assuming("a card that fetches payloads late stands as a client of its own")
        .invariant("the WRITE carried what was posted", move |end| {
            match end.word(target) {
                1 => Ok(()),
                other => Err(format!("it carried {other}")),
            }
        });
    let client = move |c: Bare| async move {
        let v = c.verbs();
        v.write(buffer, &1u64.to_le_bytes()).await.expect(OK);
        v.write(bell, &1u64.to_le_bytes()).await.expect(OK);
        if waits {
            set(&c, done).await;
        }
        v.write(buffer, &2u64.to_le_bytes()).await.expect(OK);
    };
    let card = move |c: Bare| async move {
        let v = c.verbs();
        set(&c, bell).await;
        let payload = v.word(buffer).await.expect(OK);
        v.write(target, &payload.to_le_bytes()).await.expect(OK);
        v.write(done, &1u64.to_le_bytes()).await.expect(OK);
    };
    Box::new(model.client("client", 0, client).client("its card", 1, card))
}

/// Waits until the word is set.
async fn set(c: &Bare, at: dm_verbs::RemotePtr) {
    let mut retry = c.verbs().retry(1000);
    while c.verbs().word(at).await.expect(OK) == 0 {
        retry.again(at, Why::Raced).await.expect(OK);
    }
}
