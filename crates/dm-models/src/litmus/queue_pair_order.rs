//! L10: what one queue pair orders, and two do not.

use dm_explore::{Knobs, Model};
use dm_verbs::{NodeId, Verbs};

use super::{Bare, OK, sides, word};
use crate::{Entry, Explorable, How, Kind, Knob, Setting, matrix};

pub(crate) const ENTRY: Entry = Entry {
    name: "L10",
    kind: Kind::Litmus,
    source: "ibv_reg_mr(3), ibv_wr_post(3)",
    about: "WRITE data, WRITE flag: whoever sees the flag sees the data. True on one queue pair (memory is registered \
            without relaxed ordering, under which one queue pair is like two), untrue on two unless the first is \
            awaited. A WRITE behind a READ may be what that READ sees, unless it is fenced.",
    cases: || {
        let all = matrix(
            &Knobs::weak(),
            &[Knob::WriteOrder, Knob::ReadOrder, Knob::Overtaking],
        );
        let never = |_: &Knobs| false;
        let mut cases = sides("one queue pair", How::Check, all.clone(), never);
        cases.extend(sides("two queue pairs", How::Check, all.clone(), |_| true));
        cases.extend(sides("two queue pairs, awaited", How::Check, all.clone(), never));
        cases.extend(sides("READ, WRITE", How::Check, all.clone(), |k| {
            k.write_overtakes
        }));
        cases.extend(sides("READ, fenced WRITE", How::Check, all, never));
        cases
    },
    published: None,
    mutants: &[],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let shape = s.shape.to_owned();
    let data = word(0, 0, 0);
    let flag = word(u16::from(shape.starts_with("two")), 1, 0);
    let mut model = Model::new(s.title.clone()).memory_nodes(2).place(data, 8, "data");
    if shape.starts_with("READ") {
        return Box::new(model.client("client", 0, move |c: Bare| {
            overtaken(c, shape == "READ, fenced WRITE")
        }));
    }
    let writer = move |c: Bare| {
        let (one, awaits) = (shape == "one queue pair", shape.ends_with("awaited"));
        async move {
            let first = c.verbs().chain(NodeId(0)).write_word(data, 1);
            if one {
                return first.write_word(flag, 1).post().await.expect(OK);
            }
            let first = first.post();
            if awaits {
                first.await.expect(OK);
            } else {
                first.detach();
            }
            c.verbs().write(flag, &1u64.to_le_bytes()).await.expect(OK);
        }
    };
    let reader = move |c: Bare| async move {
        if c.verbs().word(flag).await.expect(OK) == 1 {
            let seen = c.verbs().word(data).await.expect(OK);
            c.check(seen == 1, || "the flag is there, the data are not".to_owned());
        }
    };
    model = model.place(flag, 8, "flag");
    Box::new(model.client("writer", 0, writer).client("reader", 1, reader))
}

async fn overtaken(c: Bare, fenced: bool) {
    let at = word(0, 0, 0);
    let chain = c.verbs().chain(NodeId(0)).word(at);
    let chain = if fenced { chain.fence() } else { chain };
    let seen = chain.write_word(at, 1).post().await.expect(OK);
    c.check(seen == 0, || "the READ saw the WRITE behind it".to_owned());
}
