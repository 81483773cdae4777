//! The model of an unlock that takes effect late, when another client already owns the lock word.

use dm_explore::{Client, Counter, End, Knobs};
use dm_lock::{LockError, LockFlaws, LockOptions, LockWord, Locks};
use dm_verbs::{Env, Verbs};

use super::counter::{compute_nodes, guarded, lock_word, node};
use crate::{Case, Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};

/// The name of a ghost variable: the value that the counter will have when everything posted under the lock has taken
/// effect. `NAMED` is the ghost variable of the client that took the lock from memory, and `INSIDE` is the section.
const POSTED: &str = "posted";
const NAMED: &str = "named";
const INSIDE: &str = "inside";

pub(crate) const ENTRY: Entry = Entry {
    name: "late-unlock",
    kind: Kind::Lock,
    source: "docs/protocol/lock.md L8, L9",
    about: "The lock is handed over, and its new holder is dropped. So is the client that the word still \
        names, which tries to take the lock again. In every state, while a client is inside, the word names \
        the client that took the lock from memory; and if the lock is free, all requests that were posted \
        under it have landed.",
    cases: || {
        let turned = [
            Knob::CasThenRead,
            Knob::AtomicVsWrite,
            Knob::ChipOrder,
            Knob::Masked,
        ];
        let all = matrix(&Knobs::weak().cancels(2), &turned).into_iter();
        all.map(|k| Case::holds("1x2", k)).collect()
    },
    published: None,
    mutants: &[
        Twin {
            name: "ignored",
            about: "the client that the word names posts a CAS while the unlock is in flight: the undo of \
                this CAS frees the lock early",
            cases: broken,
        },
        Twin {
            name: "unsaid",
            about: "a client does not record that its unlock may still be in flight",
            cases: broken,
        },
    ],
    build,
};

fn broken() -> Vec<Case> {
    matrix(&Knobs::weak().cancels(2), &[Knob::Masked])
        .into_iter()
        .map(|k| Case::fails(How::Invariant, "1x2", k))
        .collect()
}

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let options = LockOptions {
        flaws: LockFlaws {
            unsettled_ignored: s.mutant("ignored"),
            unsettled_unsaid: s.mutant("unsaid"),
            ..LockFlaws::default()
        },
        ..LockOptions::default()
    };
    let place = lock_word(options.place);
    let word = move |now: &End<'_>| LockWord::unpack(now.word(place));
    let mut model = guarded(&s.title, options, (node(), 8, "counter"))
        .always("free means that all has landed", move |now| {
            let (landed, posted) = (now.word(node()), now.ghost(POSTED));
            match word(now).locked || landed == posted {
                true => Ok(()),
                false => Err(format!("the counter is {landed} instead of {posted}")),
            }
        })
        .always("the word names who took it from memory", move |now| {
            let (word, named) = (word(now), now.ghost(NAMED));
            match now.ghost(INSIDE) == 0 || word.locked && u64::from(word.owner) == named {
                true => Ok(()),
                false => Err(format!("it is {word}, and client {named} took it")),
            }
        })
        .invariant("the lock is free at the end", move |end| match word(end) {
            word if word.locked => Err(format!("it is {word}")),
            _ => Ok(()),
        });
    for (i, &on) in compute_nodes(s.shape).iter().enumerate() {
        let name = char::from(b'A' + i as u8).to_string();
        // The first client takes the lock twice.
        let times = if i == 0 { 2 } else { 1 };
        model = model.client(name, on, move |c: Client<Locks, Counter>| async move {
            for _ in 0..times {
                add(&c).await.expect("no faults in this model");
                c.forget();
            }
        });
    }
    Box::new(model)
}

async fn add(c: &Client<Locks, Counter>) -> Result<(), LockError> {
    let v = c.verbs();
    let (guard, bytes) = c.shared().lock_and_read(v, node(), node(), 8).await?;
    let inside = Inside::of(c);
    if !guard.handed_over() {
        c.ghost(NAMED, u64::from(v.client().0));
    }
    let mut old = [0; 8];
    old.copy_from_slice(&bytes);
    let new = u64::from_le_bytes(old) + 1;
    c.ghost(POSTED, new);
    v.write(node(), &new.to_le_bytes()).await?;
    drop(inside);
    guard.release().await
}

/// A guard of the section. If the client is dropped, it leaves the section before the lock's guard is dropped.
struct Inside<'c>(&'c Client<Locks, Counter>);

impl<'c> Inside<'c> {
    fn of(c: &'c Client<Locks, Counter>) -> Self {
        c.enter(INSIDE);
        Self(c)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.leave(INSIDE);
    }
}
