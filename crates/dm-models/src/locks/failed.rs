//! The model of a client whose queue pair fails at any step while the client takes, holds, hands over or releases a
//! lock.

use dm_explore::{Client, Counter, CounterOp, Knobs, Late, Model, Retries};
use dm_lock::{LockError, LockOptions, LockWord, Locks};
use dm_sync::Fingerprint;

use super::counter::{Read, add, compute_nodes, lock_word, node, one_lock};
use crate::{Case, Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};

pub(crate) const ENTRY: Entry = Entry {
    name: "lock-fails",
    kind: Kind::Crash,
    source: "docs/protocol/lock.md L4, L7, L8, L9, L18, P10",
    about: "The queue pair of one client fails at any step while it takes, holds, hands over or releases a \
        lock, and requests in flight land later, in part or never. No completed add is lost, and none \
        counts twice. A client that can reach the memory node again leaves the lock free. A client that \
        stays cut off (a second failure) may leave it held. Then other clients end in `LockError::Held`, \
        and no client is inside.",
    cases: || {
        let turned = [
            Knob::CasThenRead,
            Knob::AtomicVsWrite,
            Knob::ChipOrder,
            Knob::Masked,
        ];
        let mut cases = Vec::new();
        for knobs in matrix(&Knobs::weak().failures(1), &turned) {
            cases.extend(["1x2", "2x1"].map(|shape| Case::holds(shape, knobs.clone())));
        }
        for knobs in [Knobs::weak(), Knobs::declared()] {
            cases.push(Case::holds("2+1", knobs.clone().failures(1)));
            cases.push(Case::holds("2x1 twice", knobs.clone().failures(1)));
            let cut_off = Knobs {
                retries: Retries::Bounded(2),
                ..knobs.failures(2)
            };
            cases.push(Case::holds("2x1, cut off", cut_off.clone()));
            cases.push(Case::holds("1x2, cut off", cut_off));
        }
        cases
    },
    published: None,
    mutants: &[Twin {
        name: "old-pair-lives",
        about: "the connection does not shut the old queue pair before it uses a new one (no P10)",
        cases: || {
            let live = |knobs: Knobs| Knobs {
                late: Late::UntilFenced,
                ..knobs.failures(1)
            };
            vec![
                Case::fails(How::NotLinearizable, "2x1 twice", live(Knobs::declared()))
                    .or(How::Invariant)
                    .or(How::Stuck),
                Case::fails(How::Invariant, "2x1", live(Knobs::weak())).or(How::NotLinearizable),
            ]
        },
    }],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let options = LockOptions::default();
    let word = lock_word(options.place);
    let cut_off = s.shape.ends_with("cut off");
    let times = if s.shape.ends_with("twice") { 2 } else { 1 };
    let on = compute_nodes(s.shape);
    let asked = (on.len() * times) as u64;
    let mut model = Model::new(s.title.clone())
        .shared(move |_| Locks::new(options, one_lock(options.place)))
        .fingerprint(Fingerprint::fingerprint)
        .spec(Counter(0))
        .place(node(), 8, "counter")
        .place(word, 8, "lock")
        .invariant("no answered add is lost, none counts twice", move |end| {
            let answered: u64 = (0..on.len()).flat_map(|c| end.outputs(c)).sum();
            match end.word(node()) {
                n if (answered..=asked).contains(&n) => Ok(()),
                n => Err(format!("{n}; {answered} of {asked} were answered")),
            }
        })
        .invariant("the lock is free at the end", move |end| {
            let word = LockWord::unpack(end.word(word));
            if word.locked && !cut_off {
                return Err(format!("it is {word}"));
            }
            Ok(())
        });
    for (i, &on) in on.iter().enumerate() {
        let name = char::from(b'A' + i as u8).to_string();
        model = model.client(name, on, move |c: Client<Locks, Counter>| async move {
            for _ in 0..times {
                c.try_op(CounterOp::Add(1), async {
                    let added = add(&c, Read::Along).await;
                    let known = match &added {
                        Ok(_) | Err(LockError::Verb(_)) => true,
                        Err(LockError::Held(_)) => cut_off,
                        Err(_) => false,
                    };
                    c.check(known, || format!("{added:?}"));
                    c.output(u64::from(added.is_ok()));
                    added.ok()
                })
                .await;
            }
        });
    }
    Box::new(model)
}
