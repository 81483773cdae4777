//! The model of a client whose future is dropped at any await.

use core::future::Future;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::task::{Context, Poll};

use dm_explore::{Client, Counter, CounterOp, Knobs, Model};
use dm_lock::{LockOptions, LockWord, Locks};
use dm_sync::Fingerprint;

use super::counter::{Read, add, compute_nodes, lock_word, node, one_lock};
use crate::{Case, Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};

pub(crate) const ENTRY: Entry = Entry {
    name: "cancelled",
    kind: Kind::Lock,
    source: "docs/protocol/lock.md L7, L8, L9, L13",
    about: "One client's future is dropped at any await while it waits for, takes, holds, hands over or \
        releases a lock. The other clients continue, the lock is free at the end, and no update is lost.",
    cases: || {
        let turned = [
            Knob::CasThenRead,
            Knob::AtomicVsWrite,
            Knob::ChipOrder,
            Knob::Masked,
        ];
        let all = matrix(&Knobs::weak().cancels(1), &turned);
        let mut cases = Vec::new();
        for shape in ["1x2", "2x1"] {
            cases.extend(all.iter().map(|k| Case::holds(shape, k.clone())));
        }
        for knobs in matrix(&Knobs::weak().cancels(1), &[Knob::CasThenRead, Knob::ChipOrder]) {
            cases.push(Case::holds("2+1", knobs));
        }
        cases.push(Case::holds("1x2 twice", Knobs::declared().cancels(2)));
        cases
    },
    published: None,
    mutants: &[Twin {
        name: "forgotten",
        about: "the future is leaked instead of dropped, so that its posted requests are not undone",
        cases: || {
            vec![
                Case::fails(How::Stuck, "2x1", Knobs::weak().cancels(1)).or(How::Invariant),
                Case::fails(How::Stuck, "1x2", Knobs::declared().cancels(1)).or(How::Invariant),
            ]
        },
    }],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let options = LockOptions::default();
    let word = lock_word(options.place);
    let forgets = s.mutant("forgotten");
    let times = if s.shape.ends_with("twice") { 2 } else { 1 };
    let mut model = Model::new(s.title.clone())
        .shared(move |_| Locks::new(options, one_lock(options.place)))
        .fingerprint(Fingerprint::fingerprint)
        .spec(Counter(0))
        .place(node(), 8, "counter")
        .place(word, 8, "lock")
        .invariant("the lock is free at the end", move |end| {
            let word = LockWord::unpack(end.word(word));
            if word.locked {
                return Err(format!("it is {word}"));
            }
            Ok(())
        });
    for (i, &on) in compute_nodes(s.shape).iter().enumerate() {
        let name = char::from(b'A' + i as u8).to_string();
        model = model.client(name, on, move |c: Client<Locks, Counter>| async move {
            for _ in 0..times {
                let adding = async { add(&c, Read::Along).await.expect("no faults in this model") };
                if forgets {
                    c.op(CounterOp::Add(1), Forgotten(ManuallyDrop::new(Box::pin(adding))))
                        .await;
                } else {
                    c.op(CounterOp::Add(1), adding).await;
                }
                c.forget();
            }
        });
    }
    Box::new(model)
}

/// A future that is never dropped.
struct Forgotten<F>(ManuallyDrop<Pin<Box<F>>>);

impl<F: Future> Future for Forgotten<F> {
    type Output = F::Output;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.0.as_mut().poll(cx)
    }
}
