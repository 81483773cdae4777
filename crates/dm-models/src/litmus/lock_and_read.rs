//! Litmus test L15: one chain takes a lock and READs the data that the lock protects.

use dm_explore::{Client, Counter, CounterOp, Knobs, Model};
use dm_verbs::{CasThenRead, NodeId, RemotePtr, Verbs, Why};

use super::{OK, sides, word, word_of};
use crate::{Entry, Explorable, How, Kind, Knob, Setting, matrix};

pub(crate) const ENTRY: Entry = Entry {
    name: "L15",
    kind: Kind::Litmus,
    source: "FORD, Deft (lock and READ in one chain)",
    about: "The READ behind a lock's CAS sees the data of the last holder. This is true if CAS→READ is in \
        order. If the READ finds the reader's own tag, it is true unless a line of the READ may be served \
        before the CAS. For the tag's own line it is always true.",
    cases: || {
        let all = matrix(&Knobs::weak(), &[Knob::CasThenRead, Knob::AtomicVsWrite]);
        let lost = How::NotLinearizable;
        let some_first = |k: &Knobs| k.cas_then_read != CasThenRead::InOrder;
        let line_first = |k: &Knobs| k.cas_then_read == CasThenRead::AnyLineFirst;
        let mut cases = sides("data alone", lost, all.clone(), some_first);
        cases.extend(sides("tag and the next line", lost, all.clone(), line_first));
        cases.extend(sides("tag and its line", lost, all.clone(), |_| false));
        cases.extend(sides("apart", lost, all, |_| false));
        cases
    },
    published: None,
    mutants: &[],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    // The data follow the lock, in the same line or at the start of the next line.
    let lock = word(0, 0, if s.shape == "tag and its line" { 6 } else { 7 });
    let (apart, tag) = (s.shape == "apart", s.shape.starts_with("tag"));
    let adds = move |c: Client<(), Counter>| async move {
        c.op(CounterOp::Add(1), add(c.verbs(), lock, apart, tag)).await;
    };
    let model = Model::new(s.title.clone())
        .spec(Counter(0))
        .place(lock, 8, "lock")
        .place(lock.add(8), 8, "data");
    Box::new(model.client("A", 0, adds).client("B", 1, adds))
}

async fn add<V: Verbs>(v: &V, lock: RemotePtr, apart: bool, tag: bool) -> u64 {
    let (me, data) = (u64::from(v.client().0), lock.add(8));
    let mut retry = v.retry(1000);
    let read = loop {
        let chain = v.chain(NodeId(0)).cas(lock, 0, me);
        let (owner, read) = match (apart, tag) {
            (true, _) => (chain.post().await.expect(OK), None),
            (_, true) => {
                let (owner, bytes) = chain.read(lock, 16).post().await.expect(OK);
                // If the CAS has succeeded but the client's own tag is missing, the READ was served before the CAS.
                let shown = word_of(&bytes, 0) == me;
                (owner, shown.then(|| word_of(&bytes, 8)))
            }
            _ => {
                let (owner, bytes) = chain.read(data, 8).post().await.expect(OK);
                (owner, Some(word_of(&bytes, 0)))
            }
        };
        if owner == 0 {
            break read;
        }
        retry.again(lock, Why::LockHeld { word: owner }).await.expect(OK);
    };
    let old = match read {
        Some(old) => old,
        None => v.word(data).await.expect(OK),
    };
    let unlock = v.chain(NodeId(0)).write_word(data, old + 1).free_cas(lock, me, 0);
    unlock.post().await.expect(OK);
    old
}
