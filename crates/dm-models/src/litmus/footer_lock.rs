//! Litmus test L5: a lock word lies at the end of the data that it protects, and the WRITE of the data frees the lock.

use dm_explore::{Client, Counter, CounterOp, Knobs, Model};
use dm_verbs::{Env, LineOrder, Verbs, Why};

use super::{OK, bytes_of, sides, word};
use crate::{Entry, Explorable, How, Kind, Knob, Setting, matrix};

pub(crate) const ENTRY: Entry = Entry {
    name: "L5",
    kind: Kind::Litmus,
    source: "SMART §4.2 (rear lock); Ziegler et al. (FooterLock)",
    about: "One WRITE stores the data and, behind them, frees the lock. A client that then takes the lock \
        sees the data. This is false if the lines of a WRITE land in any order.",
    cases: || {
        let all = matrix(
            &Knobs::declared(),
            &[Knob::WriteOrder, Knob::ReadOrder, Knob::Unit],
        );
        sides("", How::NotLinearizable, all, |k| k.write_lines == LineOrder::Any)
    },
    published: None,
    mutants: &[],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let (data, lock) = (word(0, 0, 7), word(0, 1, 0));
    let adds = move |c: Client<(), Counter>| async move {
        let (v, me) = (c.verbs(), u64::from(c.verbs().client().0));
        let add = async {
            let mut retry = v.retry(1000);
            loop {
                let owner = v.cas(lock, 0, me).await.expect(OK);
                if owner == 0 {
                    break;
                }
                retry.again(lock, Why::LockHeld { word: owner }).await.expect(OK);
            }
            let old = v.word(data).await.expect(OK);
            v.write(data, &bytes_of(&[old + 1, 0])).await.expect(OK);
            old
        };
        c.op(CounterOp::Add(1), add).await;
    };
    let model = Model::new(s.title.clone())
        .spec(Counter(0))
        .place(data, 8, "data")
        .place(lock, 8, "lock");
    Box::new(model.client("A", 0, adds).client("B", 1, adds))
}
