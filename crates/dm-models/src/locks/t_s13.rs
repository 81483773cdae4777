//! The model T-S13: four 16-bit locks in one word, which are released by a WRITE of two bytes.

use dm_explore::{Knobs, Model, NoSpec};
use dm_lock::{LockFlaws, LockOptions, LockPlace, Locks, ReleaseBy};
use dm_sync::Fingerprint;
use dm_verbs::{Capability, NodeId, RemotePtr, Verbs};

use super::counter::{lock_word, one_lock};
use crate::{Case, Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};

pub(crate) const ENTRY: Entry = Entry {
    name: "T-S13",
    kind: Kind::Lock,
    source: "Sherman §4.3 (16-bit locks, masked CAS, release by WRITE)",
    about: "Two clients take and release different locks that share a word. A CAS on one lane reads the word \
        before the WRITE that frees the other lane, and writes it back after that WRITE. The other lane \
        stays held.",
    cases: || {
        let all = matrix(
            &Knobs::weak(),
            &[Knob::AtomicVsWrite, Knob::Masked, Knob::ChipOrder],
        );
        all.into_iter().map(|k| Case::holds("", k)).collect()
    },
    published: Some(Twin {
        name: "published",
        about: "lanes, whatever the card does",
        cases: || {
            let all = matrix(&Knobs::weak(), &[Knob::AtomicVsWrite]).into_iter();
            all.map(|k| {
                let forced = k.clone().pretend(Capability::AtomicVsWriteSerialised);
                match Knob::AtomicVsWrite.side(&k) {
                    2 => Case::holds("", forced),
                    _ => Case::fails(How::Invariant, "", forced),
                }
            })
            .collect()
        },
    }),
    mutants: &[],
    build,
};

/// Returns two nodes. If a word of the lock table has several locks, the nodes have different ones.
fn nodes(locks: &Locks) -> [RemotePtr; 2] {
    let at = |i: u64| RemotePtr::new(NodeId(0), 4096 + 64 * i).unwrap_or(RemotePtr::NULL);
    let same = |i: &u64| locks.lock_of(at(*i)) == locks.lock_of(at(0));
    // If the only word has one lock, all nodes share it, so any second node will do.
    let other = (1..64).find(|i| !same(i)).unwrap_or(1);
    [at(0), at(other)]
}

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let options = LockOptions {
        release: if s.published() {
            ReleaseBy::Write
        } else {
            ReleaseBy::Auto
        },
        flaws: LockFlaws {
            lanes16: s.published(),
            ..LockFlaws::default()
        },
        ..LockOptions::default()
    };
    let word = lock_word(LockPlace::Chip);
    let mut model: Model<Locks, NoSpec> = Model::new(s.title.clone())
        .shared(move |_| Locks::new(options, one_lock(LockPlace::Chip)))
        .fingerprint(Fingerprint::fingerprint)
        .place(word, 8, "lock word");
    let named = nodes(&Locks::new(options, one_lock(LockPlace::Chip)));
    for (node, name) in named.into_iter().zip(["A's node", "B's node"]) {
        model = model.place(node, 8, name);
    }
    let lanes = s.published();
    model = model.invariant("both are free at the end", move |end| match end.word(word) {
        0 => Ok(()),
        w if !lanes && !dm_lock::LockWord::unpack(w).locked => Ok(()),
        w => Err(format!("the word is {w:#018x}")),
    });
    for (i, name) in ["A", "B"].into_iter().enumerate() {
        model = model.client(
            name,
            i as u16,
            move |c: dm_explore::Client<Locks, NoSpec>| async move {
                let node = nodes(c.shared())[i];
                let guard = c
                    .shared()
                    .lock(c.verbs(), node)
                    .await
                    .expect("no faults in this model");
                let data = c.verbs().chain(node.node()).write_word(node, 1);
                guard.write_back(data).await.expect("no faults in this model");
            },
        );
    }
    Box::new(model)
}
