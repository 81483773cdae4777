//! Explores every interleaving of a few clients, on two memory nodes whose RNICs use every freedom that they have.

use dm_alloc::Superblock;
use dm_explore::{Client, Elapsed, Endpoint, Knobs, Model, Search};
use dm_history::{KvMap, KvOp};
use dm_index::Key8;
use dm_sync::{Arc, Fingerprint, Mutex};
use dm_testkit::perform;
use dm_verbs::Capability;
use my_index::{Index, Options};

type Map = KvMap<u64, u64>;

/// Nodes of four entries, without reclamation.
const TINY: Options = Options {
    span: 4,
    locks_per_node: 16,
    members: 0,
    chunk_bytes: 4096,
    ..Options::new(8)
};

/// The operations of a client, one after another.
type Ops = &'static [KvOp<u64, u64>];

/// Returns a model of an index with these keys, and a client for each list of operations.
fn model(preload: &'static [u64], clients: &'static [Ops]) -> Model<Index<Key8>, Map> {
    let found: Arc<Mutex<Option<Superblock>>> = Arc::default();
    let keep = Arc::clone(&found);
    let mut model = Model::new("my-index")
        // Two, because on one memory node the order of a queue pair would hide a missing wait.
        .memory_nodes(2)
        .memory(64 << 10, 256)
        .setup(move |v: Endpoint| {
            let keep = Arc::clone(&keep);
            async move {
                let index = Index::<Key8>::create_or_open(&v, &TINY).await;
                let index = index.expect("a pool");
                let client = index.client(&v);
                for key in preload {
                    let op = KvOp::Insert(*key, *key);
                    perform(&client, &op).await.expect("no faults");
                }
                let superblock = Superblock::inspect(&v).await.expect("a pool");
                keep.with(|keep| *keep = Some(superblock));
            }
        })
        .shared_opened(move |v: Endpoint, _| {
            let found = Arc::clone(&found);
            async move {
                let superblock = found.with(|found| found.clone()).expect("set up before");
                let index = Index::from_superblock(&v, &TINY, &superblock).await;
                let index = index.expect("a pool");
                index.warm(&v).await.expect("no faults");
                index
            }
        })
        .fingerprint(Fingerprint::fingerprint)
        .spec(Map::loaded(preload.iter().map(|key| (*key, *key))));
    for (i, ops) in clients.iter().enumerate() {
        // Each client is a compute node of its own, with its own knowledge of the leaves.
        let client = move |c: Client<Index<Key8>, Map>| async move {
            let index = c.shared().client(c.verbs());
            for op in *ops {
                let done = async { perform(&index, op).await.expect("no faults") };
                c.op(op.clone(), done).await;
            }
        };
        model = model.client(format!("client {}", i + 1), i as u16, client);
    }
    model
}

/// The keys of one full leaf. The next insert splits it.
const FULL: &[u64] = &[2, 4, 7, 1];
/// The keys of a leaf with room for more. An insert does not split it, so it relies on what it has read with the lock.
const ROOMY: &[u64] = &[2, 4];

/// Settings in which no time limit ever passes: clients wait for locks, and no lease ends.
fn knobs() -> Knobs {
    Knobs {
        elapsed: Elapsed::Never,
        ..Knobs::weak()
    }
}

/// A search that was cut short (by depth, states or time) does not pass, because it has not explored everything.
#[test]
fn a_split_beside_a_get_or_a_write_is_linearizable_in_every_interleaving() {
    const SPLIT: Ops = &[KvOp::Insert(6, 60)];
    const BESIDE: [&[Ops]; 3] = [
        // The second get finds the leaf by an entry that the first get has learned.
        &[SPLIT, &[KvOp::Get(7), KvOp::Get(7)]],
        &[SPLIT, &[KvOp::Update(7, 70)]],
        &[SPLIT, &[KvOp::Remove(1)]],
    ];
    for clients in BESIDE {
        let verdict = model(FULL, clients).run_with(&knobs(), Search::exhaustive());
        assert!(verdict.is_pass(), "{clients:?}: {verdict}");
    }
}

/// The broken twin takes locks in one chain with the READ, although this RNIC may serve the READ first. A model that
/// cannot fail shows nothing.
#[test]
fn the_model_finds_a_lock_that_does_not_protect_the_read_behind_it() {
    const TWO: &[Ops] = &[&[KvOp::Insert(6, 60)], &[KvOp::Insert(6, 61)]];
    let credulous = knobs().pretend(Capability::CasThenReadInOrder);
    let verdict = model(ROOMY, TWO).run_with(&credulous, Search::exhaustive());
    assert!(!verdict.is_pass(), "{verdict}");
}
