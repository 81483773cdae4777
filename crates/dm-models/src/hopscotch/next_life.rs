//! The model T-C6: the memory of a leaf is reused for another leaf with the same key, which is not linked yet.

use chime::{HopFlaws, HopOptions, Hopscotch, Neighbourhoods};
use dm_alloc::{Allocator, ReclaimFlaws};
use dm_explore::{Client, Endpoint, Knobs, Model, NoSpec};
use dm_index::{Answer, BulkLoad, Lead, Merge, Neighbours, NodeAccess, NodeCopies, NodeCopy, Restructure};
use dm_layout::{FenceKeys, Key8};
use dm_leaf::{NodeOptions, Nodes, TwoLevel};
use dm_lock::{GlobalLockTable, LockOptions, Locks};
use dm_sync::epoch::Epochs;
use dm_sync::{Arc, Fingerprint, fingerprint_of};
use dm_verbs::Env;

use crate::reclaim::allocator;
use crate::tree::world::timeless;
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};

pub(crate) const T_C6: Entry = Entry {
    name: "T-C6",
    kind: Kind::Tree,
    source: "CHIME §4.2.3; docs/protocol/chime.md H7 and H8",
    about: "A leaf is merged into its left neighbour and retired. Its memory is reused for another leaf with \
        the same range and key, which is never linked. Gets that use the old address, for the neighbourhood \
        or for one entry, do not accept its value.",
    cases: || {
        // On a weak card only the locks of the merge would behave differently, and locks have models of their own.
        let by_old_address = |shape| Case::holds(shape, timeless(Knobs::declared()));
        [NEAR, ALONE].map(by_old_address).into()
    },
    published: Some(Twin {
        name: "published",
        about: "a neighbourhood is accepted if it has the expected range, even if the leaf was never linked",
        cases: || vec![Case::fails(How::Check, NEAR, timeless(Knobs::declared()))],
    }),
    mutants: &[Twin {
        name: "entry",
        about: "an entry that is read alone is accepted even if its leaf was never linked",
        cases: || vec![Case::fails(How::Check, ALONE, timeless(Knobs::declared()))],
    }],
    build,
};

/// The get reads the key's neighbourhood.
const NEAR: &str = "1x2 neighbourhood";
/// In this shape, the get reads only the entry, because its compute node has found the key there before.
const ALONE: &str = "1x2 entry";

type Whole = Nodes<Key8, Hopscotch<Key8>>;

/// The state that the clients of the compute node share: leaves, and the addresses of two neighbours and their parent.
struct Shared {
    leaves: Neighbourhoods<Key8>,
    alloc: Arc<Allocator>,
    locks: Arc<Locks>,
    inner: TwoLevel<Key8>,
    pair: Neighbours<Key8>,
    /// Whether the key has a new value in another leaf.
    changed: dm_sync::Mutex<bool>,
}

impl Fingerprint for Shared {
    fn fingerprint(&self) -> u64 {
        fingerprint_of(&(
            self.alloc.fingerprint(),
            self.locks.fingerprint(),
            self.leaves.hotspots().map(Fingerprint::fingerprint),
            self.changed.with(|changed| *changed),
        ))
    }
}

/// The key that is in the leaf that dies, and also in the next leaf in the same memory.
const KEY: Key8 = Key8(11);
const OLD: [u8; 8] = [1; 8];

async fn open(v: Endpoint, flaws: HopFlaws, alone: bool) -> Shared {
    let alloc = Arc::new(allocator(0, 1, u32::MAX, ReclaimFlaws::default()).chunk_bytes(4096));
    let locks = Arc::new(Locks::new(LockOptions::default(), GlobalLockTable::on_chip(1, 4)));
    let format = Hopscotch::<Key8>::new(4, 2, 8).expect("four entries of 17 bytes make a node");
    let options = NodeOptions {
        attempts: 4,
        ..NodeOptions::default()
    };
    let hop = HopOptions {
        hotspot_bytes: if alone { 128 } else { 0 },
        flaws,
        ..HopOptions::default()
    };
    let whole = Whole::new(format, locks.clone(), alloc.clone(), options);
    let leaves = Neighbourhoods::new(format, whole, locks.clone(), alloc.clone(), hop);
    let inner = TwoLevel::new(
        dm_layout::Slotted::with_span(3, 8).expect("three children make a node"),
        locks.clone(),
        alloc.clone(),
        NodeOptions { kind: 1, ..options },
    );
    let made = async |fences, entries: &[(Key8, &[u8])]| {
        let made = leaves.nodes().create(&v, 0, fences, entries, false).await;
        made.expect("room").at
    };
    let right = made(FenceKeys::new(KEY, None), &[(KEY, &OLD[..])]).await;
    let left = made(FenceKeys::new(Key8(0), Some(KEY)), &[]).await;
    let mut copy = NodeCopy::new();
    leaves.nodes().copy(&v, left, &mut copy).await.expect("a leaf");
    copy.sibling = right;
    leaves.nodes().load(&v, &copy).await.expect("a leaf");
    let (first, second) = (left.raw().to_le_bytes(), right.raw().to_le_bytes());
    let children = [(Key8(0), &first[..]), (KEY, &second[..])];
    let parent = inner.create(&v, 1, FenceKeys::ALL, &children, false).await;
    let found = leaves.get(&v, Lead::hint(right), 0, &KEY, &mut Vec::new()).await;
    assert!(
        matches!(found, Ok(Answer::Done(true))),
        "where it was put: {found:?}"
    );
    Shared {
        leaves,
        alloc,
        locks,
        inner,
        pair: Neighbours {
            level: 0,
            left,
            right,
            between: KEY,
            until: None,
            parent: parent.expect("room").at,
        },
        changed: dm_sync::Mutex::new(false),
    }
}

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let mut flaws = HopFlaws::default();
    flaws.near.takes_young = s.published();
    flaws.entry.takes_young = s.mutant("entry");
    let alone = s.shape == ALONE;
    let model = Model::new(s.title.clone())
        .shared_opened(move |v, _| open(v, flaws, alone))
        .fingerprint(Fingerprint::fingerprint)
        .client("G", 0, |c: Client<Shared, NoSpec>| async move { get(&c).await })
        .client("M", 0, |c: Client<Shared, NoSpec>| async move { merge(&c).await });
    Box::new(model)
}

/// Gets the key through a cached address.
async fn get(c: &Client<Shared, NoSpec>) {
    let (v, shared) = (c.verbs(), c.shared());
    let changed = shared.changed.with(|changed| *changed);
    let (at, mut value) = (Lead::hint(shared.pair.right), Vec::new());
    let got = shared.leaves.get(v, at, 0, &KEY, &mut value).await;
    // If the get reports neither a value nor absence, the reader continues at another leaf, so such a result is
    // correct.
    let old = matches!(got, Ok(Answer::Done(true))) && value == OLD;
    c.check(!(changed && old), || {
        "a value that was changed elsewhere before".into()
    });
}

/// Merges the leaf, changes the key in the node that received its entries, and builds the next leaf in its memory.
async fn merge(c: &Client<Shared, NoSpec>) {
    let (v, shared) = (c.verbs(), c.shared());
    let mut after = NodeCopy::new();
    let merged = shared
        .leaves
        .nodes()
        .merge(v, &shared.pair, &shared.inner, &mut after)
        .await;
    let done = matches!(merged, Ok(Merge::Done { .. }));
    c.check(done, || format!("nobody is in the way: {merged:?}"));
    // This step stands for a change of the key in the left leaf. The verbs of the change are left out, because the get
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
    let fences = FenceKeys::new(KEY, None);
    let entries = [(KEY, &OLD[..])];
    let next = shared.leaves.nodes().create(v, 0, fences, &entries, true).await;
    c.check(next.is_ok_and(|next| next.at == shared.pair.right), || {
        "the memory of the dead leaf is not used again".into()
    });
}
