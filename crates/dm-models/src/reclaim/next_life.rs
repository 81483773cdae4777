//! The model of a scan that uses a stale address. The leaf at this address was merged away, and its memory is reused
//! for another leaf.

use dm_alloc::{Allocator, ReclaimFlaws};
use dm_explore::{Client, Endpoint, Knobs, Model, NoSpec};
use dm_index::{BulkLoad, Merge, Neighbours, NodeCopies, NodeCopy, Restructure};
use dm_layout::{FenceKeys, Key8, Slotted};
use dm_leaf::{LeafFlaws, NodeOptions, TwoLevel};
use dm_lock::{GlobalLockTable, LockOptions, Locks};
use dm_sync::epoch::Epochs;
use dm_sync::{Arc, Fingerprint, fingerprint_of};
use dm_verbs::Env;

use super::allocator;
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};

pub(crate) const ENTRY: Entry = Entry {
    name: "reclaim-scan",
    kind: Kind::Tree,
    source: "docs/protocol/reclaim.md R1, R8, R9; S2, S22 to S24",
    about: "A leaf is merged into its left neighbour and retired, and its memory becomes another leaf of the \
        same format. A scan reads it by a cached address at any time. A node that covers the leaf's keys \
        contains all of them, and has no old value of a key that was changed in another leaf.",
    cases: || {
        [Knobs::weak(), Knobs::declared()]
            .map(|k| Case::holds("1x2", k))
            .into()
    },
    published: None,
    mutants: &[
        Twin {
            name: "same-life",
            about: "the next life has the same incarnation and version as the last one",
            cases: || vec![Case::fails(How::Check, "1x2", Knobs::declared())],
        },
        Twin {
            name: "unburied",
            about: "a merged leaf is not marked dead",
            cases: || vec![Case::fails(How::Check, "1x2", Knobs::declared())],
        },
    ],
    build,
};

type Leaves = TwoLevel<Key8>;

/// The state that the clients of the compute node share: leaves, and the addresses of two neighbours and their parent.
struct Shared {
    leaves: Leaves,
    alloc: Arc<Allocator>,
    locks: Arc<Locks>,
    pair: Neighbours<Key8>,
    /// Whether a key of the leaf that is merged away has a new value in the left leaf.
    changed: dm_sync::Mutex<bool>,
}

impl Fingerprint for Shared {
    fn fingerprint(&self) -> u64 {
        fingerprint_of(&(
            self.alloc.fingerprint(),
            self.locks.fingerprint(),
            self.changed.with(|changed| *changed),
        ))
    }
}

/// The keys of the leaf that is merged away.
const KEYS: [Key8; 2] = [Key8(11), Key8(12)];

async fn open(v: Endpoint, flaws: ReclaimFlaws) -> Shared {
    let alloc = Arc::new(allocator(0, 1, u32::MAX, flaws).chunk_bytes(4096));
    let locks = Arc::new(Locks::new(LockOptions::default(), GlobalLockTable::on_chip(1, 4)));
    let format = Slotted::with_span(3, 8).expect("three entries of 17 bytes make a node");
    let options = NodeOptions {
        attempts: 4,
        flaws: LeafFlaws {
            unburied: flaws.unburied,
            ..LeafFlaws::default()
        },
        ..NodeOptions::default()
    };
    let leaves = Leaves::new(format, locks.clone(), alloc.clone(), options);
    let made = async |level, fences, entries: &[(Key8, &[u8])]| {
        let made = leaves.create(&v, level, fences, entries, false).await;
        made.expect("room").at
    };
    let between = KEYS[0];
    let right = made(
        0,
        FenceKeys::new(between, None),
        &KEYS.map(|key| (key, &[1; 8][..])),
    )
    .await;
    let left = made(0, FenceKeys::new(Key8(0), Some(between)), &[]).await;
    let mut copy = NodeCopy::new();
    leaves.copy(&v, left, &mut copy).await.expect("a leaf");
    copy.sibling = right;
    leaves.load(&v, &copy).await.expect("a leaf");
    let (first, second) = (left.raw().to_le_bytes(), right.raw().to_le_bytes());
    let parent = made(1, FenceKeys::ALL, &[(Key8(0), &first[..]), (between, &second)]).await;
    Shared {
        leaves,
        alloc,
        locks,
        pair: Neighbours {
            level: 0,
            left,
            right,
            between,
            until: None,
            parent,
        },
        changed: dm_sync::Mutex::new(false),
    }
}

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let flaws = ReclaimFlaws {
        same_life: s.mutant("same-life"),
        unburied: s.mutant("unburied"),
        ..ReclaimFlaws::default()
    };
    let model = Model::new(s.title.clone())
        .shared_opened(move |v, _| open(v, flaws))
        .fingerprint(Fingerprint::fingerprint)
        .client("S", 0, |c: Client<Shared, NoSpec>| async move { scan(&c).await })
        .client("M", 0, |c: Client<Shared, NoSpec>| async move { merge(&c).await });
    Box::new(model)
}

/// Reads one batch of a scan through one cached address.
async fn scan(c: &Client<Shared, NoSpec>) {
    let (v, shared) = (c.verbs(), c.shared());
    let old = shared.changed.with(|changed| !*changed);
    let mut copy = NodeCopy::new();
    let read = shared
        .leaves
        .copies(v, &[shared.pair.right], &mut copy, |copy| {
            let answers = !copy.unborn && copy.level == 0 && copy.fences.contains(&KEYS[0]);
            let all = KEYS
                .iter()
                .all(|key| copy.entries.iter().any(|entry| entry.0 == *key));
            c.check(!answers || all, || {
                "a leaf answers for keys that it does not show".into()
            });
            c.check(!answers || old, || {
                "a leaf shows a value that was changed elsewhere before".into()
            });
            true
        })
        .await;
    read.expect("no faults in this model");
}

/// Merges the leaf into the left leaf, changes a key there, and builds the next leaf in its memory.
async fn merge(c: &Client<Shared, NoSpec>) {
    let (v, shared) = (c.verbs(), c.shared());
    let mut after = NodeCopy::new();
    let merged = shared
        .leaves
        .merge(v, &shared.pair, &shared.leaves, &mut after)
        .await;
    let done = matches!(merged, Ok(Merge::Done { .. }));
    c.check(done, || format!("nobody is in the way: {merged:?}"));
    // This step stands for a change of a key in the left leaf. The verbs of the change are left out, because the scan
    // never reads the left leaf.
    v.local(dm_verbs::LocalStep::Section).await;
    shared.changed.with(|changed| *changed = true);
    let Some(epochs) = shared.alloc.epochs() else {
        return;
    };
    let seat = Epochs::seat(epochs);
    for _ in 0..2 {
        let collected = shared.alloc.collect(v, &seat).await;
        collected.expect("no faults in this model");
    }
    let fences = FenceKeys::new(Key8(50), Some(Key8(60)));
    let entries = [(Key8(51), &[5; 8][..])];
    let next = shared
        .leaves
        .create(v, 0, fences, &entries, false)
        .await
        .expect("room");
    c.check(next.at == shared.pair.right, || {
        "the memory of the dead leaf is not used again".into()
    });
}
