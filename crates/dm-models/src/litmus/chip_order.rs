//! Litmus test L8: data in host memory is written before its lock on the chip is freed.

use dm_explore::{Knobs, Model};
use dm_verbs::{ChipPtr, NodeId, Verbs};

use super::{Bare, OK, sides, word};
use crate::{Entry, Explorable, How, Kind, Knob, Setting, matrix};

pub(crate) const ENTRY: Entry = Entry {
    name: "L8",
    kind: Kind::Litmus,
    source: "Sherman §4.5 (combined write-back and unlock)",
    about: "One chain WRITEs a node in host memory, and then frees its lock on the chip. A client that sees \
        the lock free sees the new node. This is false if the two memories are not ordered, unless the \
        first WRITE is awaited.",
    cases: || {
        let all = matrix(&Knobs::weak(), &[Knob::ChipOrder]);
        let mut cases = sides("one chain", How::Check, all.clone(), |k| !k.host_before_chip);
        cases.extend(sides("awaited", How::Check, all, |_| false));
        cases
    },
    published: None,
    mutants: &[],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let (node, lock) = (word(0, 0, 0), ChipPtr::new(NodeId(0), 0).unwrap_or(ChipPtr::NULL));
    let combined = s.shape == "one chain";
    let model = Model::new(s.title.clone())
        .place(node, 8, "node")
        .place(lock, 8, "lock on the chip")
        .setup(move |v| async move { v.load(lock, &1u64.to_le_bytes()).expect(OK) });
    let holder = move |c: Bare| async move {
        let chain = c.verbs().chain(NodeId(0)).write_word(node, 1);
        if combined {
            chain.write_word(lock, 0).post().await.expect(OK);
        } else {
            chain.post().await.expect(OK);
            c.verbs().write(lock, &[0; 8]).await.expect(OK);
        }
    };
    let next = move |c: Bare| async move {
        if c.verbs().word(lock).await.expect(OK) == 0 {
            let seen = c.verbs().word(node).await.expect(OK);
            c.check(seen == 1, || "the lock is free, the node is old".to_owned());
        }
    };
    Box::new(model.client("holder", 0, holder).client("next", 1, next))
}
