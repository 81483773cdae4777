//! The model of a hint that leads to a leaf which was merged away, and whose memory is another leaf by now.

use dm_alloc::{Allocator, ReclaimFlaws};
use dm_explore::{Client, Endpoint, Knobs, Model, NoSpec};
use dm_index::{
    BulkLoad, Composed, ComposedOptions, CpuCost, Inner, Merge, Neighbours, NodeCopies, NodeCopy, RangeIndex,
    Restructure,
};
use dm_layout::{FenceKeys, Key8, Slotted};
use dm_leaf::{NodeOptions, TwoLevel};
use dm_learned::{Flaws, Learned, LearnedOptions};
use dm_lock::{GlobalLockTable, LockOptions, Locks};
use dm_sync::epoch::Epochs;
use dm_sync::{Arc, Fingerprint, fingerprint_of};
use dm_verbs::{Env, NodeId, RemotePtr, Verbs};

use crate::reclaim::allocator;
use crate::{Case, Entry, Explorable, How, Kind, Setting, Twin};

pub(crate) const ENTRY: Entry = Entry {
    name: "rolex-reused-leaf",
    kind: Kind::Tree,
    source: "docs/protocol/rolex.md X6; docs/protocol/reclaim.md R8, R9",
    about: "A leaf is merged into its left neighbour and retired, and its memory becomes another leaf. A client of another \
            compute node, whose table still names the old leaf, gets a key of it at any time, and finds the key.",
    cases: || {
        [Knobs::weak(), Knobs::declared()]
            .map(|k| Case::holds("2x1", k))
            .into()
    },
    published: None,
    mutants: &[Twin {
        name: "credulous",
        about: "a client follows the entry again that has led it to a wrong leaf",
        cases: || vec![Case::fails(How::Livelock, "2x1", Knobs::declared())],
    }],
    build,
};

type Leaves = TwoLevel<Key8>;

/// The state that the clients of a compute node share.
struct Shared {
    leaves: Leaves,
    learned: Learned<Key8, Leaves>,
    alloc: Arc<Allocator>,
    locks: Arc<Locks>,
    pair: [RemotePtr; 2],
}

impl Fingerprint for Shared {
    fn fingerprint(&self) -> u64 {
        fingerprint_of(&(
            self.learned.fingerprint(),
            self.alloc.fingerprint(),
            self.locks.fingerprint(),
        ))
    }
}

/// The keys of the leaf that is merged away.
const KEYS: [Key8; 2] = [Key8(11), Key8(12)];

/// Returns the word that leads to the first leaf.
fn root() -> RemotePtr {
    RemotePtr::new(NodeId(0), 256).unwrap_or(RemotePtr::NULL)
}

/// Returns the words that name the two leaves to the clients of this model.
fn places() -> [RemotePtr; 2] {
    [264, 272].map(|at| RemotePtr::new(NodeId(0), at).unwrap_or(RemotePtr::NULL))
}

/// Makes a compute node's stores. The reading compute node has an allocator that does no rounds: its only operation uses
/// no address that an earlier operation has read from a leaf, so nothing depends on its announcements.
fn stores(v: &Endpoint, flaws: Flaws) -> Shared {
    let alloc = Arc::new(match v.compute_node() {
        0 => Allocator::new(1, 0).chunk_bytes(4096),
        _ => allocator(1, 1, u32::MAX, ReclaimFlaws::default()).chunk_bytes(4096),
    });
    let locks = Arc::new(Locks::new(LockOptions::default(), GlobalLockTable::on_chip(1, 4)));
    let format = Slotted::with_span(3, 8).expect("three entries of 17 bytes make a node");
    let options = NodeOptions {
        attempts: 4,
        ..NodeOptions::default()
    };
    let leaves = || Leaves::new(format, locks.clone(), alloc.clone(), options);
    let learned = LearnedOptions {
        flaws,
        ..LearnedOptions::new(u64::MAX, 4)
    };
    Shared {
        leaves: leaves(),
        learned: Learned::new(leaves(), alloc.clone(), root(), learned),
        alloc,
        locks,
        pair: [RemotePtr::NULL; 2],
    }
}

/// Makes the two leaves.
async fn set_up(v: &Endpoint) {
    let Shared { leaves, .. } = stores(v, Flaws::NONE);
    let made = async |fences, entries: &[(Key8, &[u8])]| {
        let made = leaves.create(v, 0, fences, entries, false).await;
        made.expect("room").at
    };
    let right = made(FenceKeys::new(KEYS[0], None), &KEYS.map(|key| (key, &[1; 8][..]))).await;
    let left = made(FenceKeys::new(Key8(0), Some(KEYS[0])), &[]).await;
    let mut copy = NodeCopy::new();
    leaves.copy(v, left, &mut copy).await.expect("a leaf");
    copy.sibling = right;
    leaves.load(v, &copy).await.expect("a leaf");
    for (at, word) in [root(), places()[0], places()[1]]
        .into_iter()
        .zip([left, left, right])
    {
        v.load(at, &word.raw().to_le_bytes()).expect("in range");
    }
}

/// Opens a compute node that knows both leaves.
async fn open(v: Endpoint, flaws: Flaws) -> Shared {
    let mut shared = stores(&v, flaws);
    for (at, place) in shared.pair.iter_mut().zip(places()) {
        *at = RemotePtr::from_raw(v.word(place).await.expect("no faults"));
    }
    let [_, right] = shared.pair;
    let found = shared.learned.find(&v, &Key8(0)).await.expect("no faults");
    assert!(found.is_some(), "there is a first leaf");
    shared.learned.found(&v, &KEYS[0], right, 1).await;
    shared
}

fn build(s: &Setting<'_>) -> Box<dyn Explorable> {
    let flaws = Flaws {
        credulous: s.mutant("credulous"),
        ..Flaws::NONE
    };
    let model = Model::new(s.title.clone())
        .setup(|v| async move { set_up(&v).await })
        .shared_opened(move |v, _| open(v, flaws))
        .fingerprint(Fingerprint::fingerprint)
        .client("R", 0, |c: Client<Shared, NoSpec>| async move { get(&c).await })
        .client("M", 1, |c: Client<Shared, NoSpec>| async move { merge(&c).await });
    Box::new(model)
}

async fn get(c: &Client<Shared, NoSpec>) {
    let Shared { leaves, learned, .. } = c.shared();
    let options = ComposedOptions::new(4, CpuCost::NONE);
    let client = Composed::new(c.verbs(), learned, leaves, options);
    let mut value = Vec::new();
    let found = client.get(&KEYS[1], &mut value).await;
    c.check(found == Ok(true) && value == [1; 8], || {
        format!("the key is in one of the leaves all the time: {found:?}")
    });
}

/// Merges the leaf, and builds another one in its memory.
async fn merge(c: &Client<Shared, NoSpec>) {
    let (v, shared) = (c.verbs(), c.shared());
    let [left, right] = shared.pair;
    let pair = Neighbours {
        level: 0,
        left,
        right,
        between: KEYS[0],
        until: None,
        parent: RemotePtr::NULL,
    };
    let merged = shared.leaves.join(v, &pair, async || Ok(())).await;
    let done = matches!(merged, Ok(Merge::Done { .. }));
    c.check(done, || format!("nobody is in the way: {merged:?}"));
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
    let next = shared.leaves.create(v, 0, fences, &entries, false).await;
    let next = next.expect("room");
    c.check(next.at == right, || {
        "the memory of the dead leaf is not used again".into()
    });
}
