//! The model of a client that dies at any step: before it takes a lock, while it takes, holds or releases the lock, or
//! afterwards.

use dm_explore::{Client, Counter, CounterOp, Knobs, Model, Retries};
use dm_lock::{LockError, LockOptions, LockPlace, LockWord, Locks};
use dm_sync::Fingerprint;
use dm_verbs::{ClientId, Env, Exhausted, RemotePtr, Verbs, Why};

use crate::locks::{compute_nodes, lock_word, node, one_lock};
use crate::{Case, Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};

/// The stages that each client records.
const STAGES: [&str; 5] = [
    "not asked for it",
    "taking it",
    "holding it",
    "giving it back",
    "gave it back",
];
/// The payload of the lock word, which must survive any death.
const PAYLOAD: u32 = 7;

pub(crate) const ENTRY: Entry = Entry {
    name: "holder-dies",
    kind: Kind::Crash,
    source: "docs/protocol/lock.md L2, When a holder dies",
    about: "One of two clients dies at any step; its posted requests land completely, in part or not at all. \
        The other client gets the lock, or its budget ends with `LockError::Held`, which has the lock's \
        place and the dead owner; it never waits for ever. The word keeps its payload, and no finished add \
        is lost. The lock may stay held if the client died while it took, held or released the lock, but \
        not if it had not tried to take the lock yet, or had already returned. After a handover the word \
        names another client of the dead client's compute node. A client that waits on that compute node \
        waits for ever, because the clients of one process die together.",
    cases,
    published: None,
    mutants: &[Twin {
        name: "no-budget",
        about: "clients wait for the lock without a budget",
        cases: || vec![Case::fails(How::Stuck, "2x1, any step", Knobs::weak().crashes(1))],
    }],
    build,
};

fn cases() -> Vec<Case> {
    let dying = |mut k: Knobs| {
        k.retries = Retries::Bounded(2);
        k.crashes(1)
    };
    let all = matrix(
        &Knobs::weak(),
        &[
            Knob::CasThenRead,
            Knob::AtomicVsWrite,
            Knob::ChipOrder,
            Knob::Masked,
        ],
    );
    let mut cases: Vec<Case> = all
        .into_iter()
        .map(|k| Case::holds("2x1, any step", dying(k)))
        .collect();
    for knobs in [dying(Knobs::weak()), dying(Knobs::declared())] {
        cases.push(Case::holds("2x1, not asked for it", knobs.clone()));
        for shape in ["2x1, taking it", "2x1, holding it", "2x1, giving it back"] {
            cases.push(Case::fails(How::Invariant, shape, knobs.clone()));
        }
        cases.push(Case::holds("2x1, gave it back", knobs.clone()));
        cases.push(Case::fails(How::Stuck, "1x2, any step", knobs.clone()));
        cases.push(Case::holds("2+1, any step, waiting", knobs));
    }
    cases
}

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let options = LockOptions::default();
    let masked = s.knobs.masked_atomics;
    let on = compute_nodes(s.shape);
    let word = lock_word(LockPlace::Chip);
    let stage = STAGES
        .iter()
        .position(|stage| s.shape.ends_with(stage))
        .map(|i| i as u64);
    let mut model = Model::new(s.title.clone())
        .shared(move |_| Locks::new(options, one_lock(LockPlace::Chip)))
        .fingerprint(Fingerprint::fingerprint)
        .spec(Counter(0))
        .place(node(), 8, "counter")
        .place(word, 8, "lock")
        .setup(move |v| async move {
            let free = LockWord {
                payload: PAYLOAD,
                ..LockWord::default()
            };
            v.load(word, &free.pack().to_le_bytes()).expect("setting up");
        })
        .invariant("the word is sound", move |end| {
            let word = LockWord::unpack(end.word(word));
            // After a handover, the owner in the word may be another client of the dead client's compute node.
            let mut of_owner =
                (0..on.len()).filter(|&i| on[i] == on[usize::from(word.owner).saturating_sub(1)]);
            if word.payload == PAYLOAD && (!word.locked || of_owner.any(|i| end.crashed(i))) {
                return Ok(());
            }
            Err(format!("it is {word}"))
        })
        .invariant("whoever dies here leaves the lock free", move |end| {
            let died_here = end.crashed(0) && end.outputs(0).last() == stage.as_ref();
            let word = LockWord::unpack(end.word(word));
            if died_here && word.locked && word.owner == 1 {
                return Err(format!("it is {word}"));
            }
            Ok(())
        });
    if s.shape.ends_with("waiting") {
        model =
            model
                .crash_may_block()
                .invariant("whoever is alone on its compute node is answered", |end| {
                    if end.finished(2) || end.crashed(2) {
                        return Ok(());
                    }
                    Err("it still waits".to_owned())
                });
    }
    for (i, &node_of) in on.iter().enumerate() {
        let name = char::from(b'A' + i as u8).to_string();
        model = model.client(name, node_of, move |c: Client<Locks, Counter>| async move {
            c.try_op(CounterOp::Add(1), async {
                match add(&c, node()).await {
                    Ok(old) => Some(old),
                    Err(e) => {
                        c.check(names(&e, c.verbs().client(), masked), || {
                            format!("the error does not name the holder: {e}")
                        });
                        None
                    }
                }
            })
            .await;
        });
    }
    Box::new(model)
}

/// Returns whether the error contains the lock's address, and another client as the owner. Without masked atomics, lost
/// races for a free word may use up the budget. Then the error need not name an owner.
fn names(e: &LockError, me: ClientId, masked: bool) -> bool {
    let LockError::Held(Exhausted { at, why, .. }) = e else {
        return false;
    };
    let named = match *why {
        Why::LockHeld { word } => {
            let word = LockWord::unpack(word);
            word.locked && word.owner != me.0
        }
        why => why == Why::Raced && !masked,
    };
    named && *at == lock_word(LockPlace::Chip)
}

/// Adds one, and records each stage that it reaches.
async fn add(c: &Client<Locks, Counter>, node: RemotePtr) -> Result<u64, LockError> {
    let v = c.verbs();
    c.output(0);
    v.word(node).await?;
    c.output(1);
    let guard = c.shared().lock(v, node).await?;
    c.output(2);
    let old = v.word(node).await?;
    c.output(3);
    guard
        .write_back(v.chain(node.node()).write_word(node, old + 1))
        .await?;
    c.output(4);
    // This adds a step at which the client can die.
    v.word(node).await?;
    Ok(old)
}
