//! The model of the rule by which a lock word loses its doubt.

use dm_explore::{Client, Counter, Knobs, Model};
use dm_lock::{DOUBT, LockWord};
use dm_sync::Fingerprint;

use super::world::{Flaws, Home, Shared, add, add_as_member, expel, visit_and_clear};
use crate::locks::node;
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};

pub(crate) const ENTRY: Entry = Entry {
    name: "clear-doubt",
    kind: Kind::Crash,
    source: "docs/protocol/recovery.md V8",
    about: "A adds to two words under a lock of the lock table, and may die at any step. L expels A's member, which frees the \
        lock and puts its word in doubt. S reads the lock word, visits the node, makes the words equal if they differ, and \
        otherwise clears the doubt, at any time before, during and after all of this. If the words differ, the lock is in \
        doubt. In `a writer` another client adds as well, and relies on that.",
    cases: || {
        let mut cases = vec![Case::holds("a sweep", Knobs::weak())];
        for knobs in [Knobs::declared(), Knobs::weak()] {
            cases.push(Case::holds("a sweep", knobs.crashes(1)));
        }
        cases.push(Case::holds("a writer", Knobs::declared().crashes(1)));
        cases
    },
    published: None,
    mutants: &[Twin {
        name: "clears-too-early",
        about: "the client reads the lock word after it has visited the node",
        cases: || {
            vec![Case::fails(
                How::Invariant,
                "a sweep",
                Knobs::declared().crashes(1),
            )]
        },
    }],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let early = s.mutant("clears-too-early");
    let flaws = Flaws {
        no_fence: false,
        sweep_before_fence: false,
        freed: LockWord::freed,
    };
    let word = Home::Table.word();
    let model = Model::new(s.title.clone())
        .shared(move |on| Shared::of(Home::Table, on))
        .fingerprint(Fingerprint::fingerprint)
        .spec(Counter(0))
        .place(node(), 16, "words")
        .place(word, 8, "lock")
        .invariant("the words are equal, unless the lock is in doubt", move |end| {
            let (first, second) = (end.word(node()), end.word(node().add(8)));
            let lock = LockWord::unpack(end.word(word));
            match first == second || lock.locked || lock.payload & DOUBT != 0 {
                true => Ok(()),
                false => Err(format!("{first} and {second}")),
            }
        })
        .client("A", 0, |c: Client<Shared, Counter>| async move {
            add_as_member(&c).await;
        })
        .client("L", 1, move |c: Client<Shared, Counter>| async move {
            expel(&c, Home::Table, flaws).await;
        })
        .spared()
        .client("S", 2, move |c: Client<Shared, Counter>| async move {
            visit_and_clear(&c, early).await;
        })
        .spared();
    Box::new(match s.shape {
        "a writer" => model
            .client("W", 1, |c: Client<Shared, Counter>| async move {
                add(&c).await;
            })
            .spared(),
        _ => model,
    })
}
