//! Checks the table of docs/protocol/sherman.md, which lists the consequences of a client that dies at each step of a
//! split: which clients wait, and which errors they get.

use std::collections::{BTreeMap, BTreeSet};

use dm_explore::{Knobs, Retries, Search};
use dm_history::{KvOp, KvRet};
use dm_index::IndexError;
use dm_layout::{Key8, Slotted};
use dm_lock::LockWord;
use dm_sync::{Arc, Mutex};
use dm_testkit::perform;
use dm_verbs::{ChipPtr, NodeId};

use super::super::memory::{contents, stage};
use super::super::split::TWO_LEAVES;
use super::super::world::{Do, Script, loaded, options, timeless};
use sherman::Sherman;

/// Returns the number of a result of the survivor's operation: its index in `CODES`.
fn code(answer: &Result<KvRet<u64>, IndexError>) -> u64 {
    match answer {
        Ok(_) => 0,
        Err(IndexError::LockTimeout { owner: 1, .. }) => 1,
        Err(IndexError::Exhausted(_)) => 2,
        Err(_) => 3,
    }
}

const CODES: [&str; 4] = ["done", "LockTimeout", "Exhausted", "another error"];

/// Explores two clients: one inserts 45 and dies at any step, and then the other one does `op` alone with a budget of
/// attempts. Returns all results of the second client for each stage that the split had reached.
fn table(first_is_full: bool, op: KvOp<u64, u64>) -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let script = Script {
        memory_nodes: if first_is_full { 2 } else { 1 },
        first_is_full,
        clients: &[(0, &[Do::Insert(45)])],
        ..TWO_LEAVES
    };
    let found: Arc<Mutex<BTreeMap<_, BTreeSet<_>>>> = Arc::default();
    let seen = Arc::clone(&found);
    let model = script
        .model::<Sherman<Key8, Slotted<Key8>>>("after a crash".into(), options())
        .survivor("survivor", 1, move |c| {
            let op = op.clone();
            async move {
                let answer = perform(&c.shared().client(c.verbs()), &op).await;
                c.output(code(&answer));
            }
        })
        .invariant("collect", move |end| {
            if let [code] = end.outputs(1) {
                contents::<Slotted<Key8>>(end)?;
                let held = (0..32).any(|i| {
                    let at = |node| ChipPtr::new(NodeId(node), i * 8).unwrap_or(ChipPtr::NULL);
                    let word = |node| LockWord::unpack(end.word(at(node)));
                    (0..1 + u16::from(first_is_full)).any(|n| word(n).locked && word(n).owner == 1)
                });
                let stage = stage(end, held)?;
                let code = CODES[*code as usize];
                seen.with(|seen| seen.entry(stage).or_default().insert(code));
            }
            Ok(())
        });
    let knobs = Knobs {
        retries: Retries::Bounded(3),
        ..timeless(Knobs::declared()).crashes(1)
    };
    model.run_with(&knobs, Search::exhaustive()).expect_pass();
    found.with(core::mem::take)
}

/// The results of a writer that needs the leaf's lock, for each stage that the split has reached at the end. If there
/// are two results, a request of the dead client may take effect before or after the writer's attempts.
const WRITERS: [(&str, &[&str]); 8] = [
    ("0 lock free, nothing done", &["done"]),
    ("1 lock held, nothing to be seen", &["LockTimeout", "done"]),
    ("2 linked, right node not live", &["LockTimeout"]),
    ("3 linked, right node live", &["LockTimeout"]),
    ("5 split, a lock held", &["LockTimeout", "done"]),
    ("6 split, the parent does not know", &["LockTimeout", "done"]),
    ("7 done, the parent's lock held", &["done"]),
    ("8 done", &["done"]),
];

#[test]
fn readers_go_on_and_writers_are_told_whose_lock_they_wait_for() {
    for full in [false, true] {
        for key in [30, 50] {
            let rows = |table: BTreeMap<_, BTreeSet<_>>| -> Vec<_> {
                let rows = table.into_iter();
                rows.map(|(stage, all)| (stage, all.into_iter().collect::<Vec<_>>()))
                    .collect()
            };
            let readers = rows(table(full, KvOp::Get(key)));
            assert!(
                readers.len() == 8 && readers.iter().all(|(_, all)| *all == ["done"]),
                "{readers:?}"
            );
            // The update stores the value that the key already has, because the test is only about the lock.
            let writers = rows(table(full, KvOp::Update(key, loaded(key))));
            let expected: Vec<_> = WRITERS.iter().map(|(s, all)| (*s, all.to_vec())).collect();
            assert_eq!(writers, expected, "key {key}");
        }
    }
}
