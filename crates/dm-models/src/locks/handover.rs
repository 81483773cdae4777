//! The model of the limit on consecutive handovers.

use dm_explore::{Client, Knobs, Model, NoSpec};
use dm_lock::{Local, LockOptions, LockPlace, Locks};
use dm_sync::Fingerprint;
use dm_verbs::Verbs;

use super::counter::{compute_nodes, lock_word, node, one_lock};
use crate::{Case, Entry, Explorable, How, Kind, Knob, Setting, Twin, matrix};

const MAX: u32 = 1;

pub(crate) const ENTRY: Entry = Entry {
    name: "handover-bound",
    kind: Kind::Lock,
    source: "Sherman §4.3 (MAX_DEPTH); docs/protocol/lock.md L12",
    about: "The guarded node counts the consecutive handovers of its lock. There are never more than the \
        bound, which is 1 here, so that clients of other compute nodes get a chance. The next holder finds \
        the payload that a holder has left in the word, whether the lock was handed over or not.",
    cases: || {
        let all = matrix(&Knobs::weak(), &[Knob::CasThenRead, Knob::AtomicVsWrite]);
        let three = all.into_iter().map(|k| Case::holds("1x3", k));
        three
            .chain([Case::holds("1x3 twice", Knobs::declared()).nightly()])
            .collect()
    },
    published: None,
    mutants: &[Twin {
        name: "one-more",
        about: "there is one handover more than the bound that is checked",
        cases: || vec![Case::fails(How::Check, "1x3", Knobs::weak())],
    }],
    build,
};

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let handover_max = if s.mutant("one-more") { MAX + 1 } else { MAX };
    let options = LockOptions {
        local: Local::Queue { handover_max },
        ..LockOptions::default()
    };
    let times = if s.shape.ends_with("twice") { 2 } else { 1 };
    let mut model: Model<Locks, NoSpec> = Model::new(s.title.clone())
        .shared(move |_| Locks::new(options, one_lock(LockPlace::Chip)))
        .fingerprint(Fingerprint::fingerprint)
        .place(node(), 8, "handovers in a row")
        .place(lock_word(LockPlace::Chip), 8, "lock");
    for (i, &on) in compute_nodes(s.shape).iter().enumerate() {
        let name = char::from(b'A' + i as u8).to_string();
        model = model.client(name, on, move |c: Client<Locks, NoSpec>| async move {
            for _ in 0..times {
                count(&c).await;
                c.forget();
            }
        });
    }
    Box::new(model)
}

async fn count(c: &Client<Locks, NoSpec>) {
    let v = c.verbs();
    let locked = c.shared().lock_and_read(v, node(), node(), 8).await;
    let (mut guard, bytes) = locked.expect("no faults in this model");
    let mut before = [0; 8];
    before.copy_from_slice(&bytes);
    let payload = guard.word().payload;
    c.check(before == u64::from(payload).to_le_bytes(), || {
        format!("the node says {before:?}, the payload {payload}")
    });
    let in_a_row = if guard.handed_over() {
        u64::from_le_bytes(before) + 1
    } else {
        0
    };
    c.check(in_a_row <= u64::from(MAX), || {
        format!("{in_a_row} handovers in a row")
    });
    // The node and the payload contain the same count.
    guard.set_payload(in_a_row as u32);
    let data = v.chain(node().node()).write_word(node(), in_a_row);
    guard.write_back(data).await.expect("no faults in this model");
}
