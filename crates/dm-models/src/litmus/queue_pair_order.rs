//! Litmus test L10: requests of one queue pair are ordered, and requests of two queue pairs are not.

use dm_explore::{Knobs, Model};
use dm_verbs::{LineOrder, NodeId, RemotePtr, Verbs};

use super::{Bare, OK, sides, word, word_of};
use crate::{Entry, Explorable, How, Kind, Knob, Setting, matrix};

pub(crate) const ENTRY: Entry = Entry {
    name: "L10",
    kind: Kind::Litmus,
    source: "ibv_reg_mr(3), ibv_wr_post(3)",
    about: "A client WRITEs data, then a flag. A client that sees the flag sees the data. This is true on \
        one queue pair (memory is registered without relaxed ordering, which would make one queue pair like \
        two). It is false on two queue pairs, unless the first WRITE is awaited. If one READ fetches both, \
        lines must be served in increasing order, with the flag in the first line. A READ may see the \
        effect of a WRITE behind it, unless the WRITE is fenced.",
    cases: || {
        let all = matrix(
            &Knobs::weak(),
            &[Knob::WriteOrder, Knob::ReadOrder, Knob::Overtaking],
        );
        let never = |_: &Knobs| false;
        let mut cases = sides("one queue pair", How::Check, all.clone(), never);
        cases.extend(sides("two queue pairs", How::Check, all.clone(), |_| true));
        cases.extend(sides("two queue pairs, awaited", How::Check, all.clone(), never));
        let any = |k: &Knobs| k.read_lines == LineOrder::Any;
        cases.extend(sides("one READ, flag first", How::Check, all.clone(), any));
        cases.extend(sides("one READ, flag last", How::Check, all.clone(), |_| true));
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
    let (data, flag) = match s.shape {
        shape if shape.starts_with("two") => (word(0, 0, 0), word(1, 0, 0)),
        "one READ, flag first" => (word(0, 1, 0), word(0, 0, 7)),
        _ => (word(0, 0, 7), word(0, 1, 0)),
    };
    let model = Model::new(s.title.clone()).memory_nodes(2).place(data, 8, "data");
    if s.shape.starts_with("READ") {
        let fenced = s.shape == "READ, fenced WRITE";
        return Box::new(model.client("client", 0, move |c: Bare| overtaken(c, data, fenced)));
    }
    let (together, awaits) = (!s.shape.starts_with("two"), s.shape.ends_with("awaited"));
    let writer = move |c: Bare| async move {
        let first = c.verbs().chain(NodeId(0)).write_word(data, 1);
        if together {
            return first.write_word(flag, 1).post().await.expect(OK);
        }
        let first = first.post();
        if awaits {
            first.await.expect(OK);
        } else {
            first.detach();
        }
        c.verbs().write(flag, &1u64.to_le_bytes()).await.expect(OK);
    };
    let at_once = s.shape.starts_with("one READ");
    let reader = move |c: Bare| async move {
        let v = c.verbs();
        let (flagged, seen) = if at_once {
            let (first, last) = (data.min(flag), data.max(flag));
            let bytes = v.read(first, 16).await.expect(OK);
            let of = |at: RemotePtr| word_of(&bytes, if at == last { 8 } else { 0 });
            (of(flag), of(data))
        } else {
            (v.word(flag).await.expect(OK), v.word(data).await.expect(OK))
        };
        c.check(flagged == 0 || seen == 1, || {
            "the flag is there, the data are not".to_owned()
        });
    };
    let model = model.place(flag, 8, "flag");
    Box::new(model.client("writer", 0, writer).client("reader", 1, reader))
}

async fn overtaken(c: Bare, at: RemotePtr, fenced: bool) {
    let chain = c.verbs().chain(NodeId(0)).word(at);
    let chain = if fenced { chain.fence() } else { chain };
    let seen = chain.write_word(at, 1).post().await.expect(OK);
    c.check(seen == 0, || "the READ saw the WRITE behind it".to_owned());
}
