//! Every interleaving of a few clients, on two memory nodes and a card that uses every freedom it has.

use dm_alloc::Superblock;
use dm_explore::{Client, Elapsed, Endpoint, Knobs, Model, Search};
use dm_history::{KvMap, KvOp, KvRet};
use dm_index::{Applied, Key8, RangeIndex};
use dm_sync::{Arc, Fingerprint, Mutex};
use dm_verbs::Capability;
use my_index::{Index, Options};

type Map = KvMap<u64, u64>;

/// Nodes of four entries. No memory is used again.
const TINY: Options = Options {
    span: 4,
    locks_per_node: 16,
    members: 0,
    chunk_bytes: 4096,
    ..Options::new(8)
};

/// Returns a model of an index with these keys, on which each client does one operation.
fn model(preload: &'static [u64], clients: &'static [KvOp<u64, u64>]) -> Model<Index<Key8>, Map> {
    let found: Arc<Mutex<Option<Superblock>>> = Arc::default();
    let keep = Arc::clone(&found);
    let mut model = Model::new("my-index")
        // Two: on one, the order of a queue pair hides a wait that is missing.
        .memory_nodes(2)
        .memory(64 << 10, 256)
        .setup(move |v: Endpoint| {
            let keep = Arc::clone(&keep);
            async move {
                let index = Index::create_or_open(&v, &TINY).await.expect("a pool");
                let client = index.client(&v);
                for key in preload {
                    let value = key.to_le_bytes();
                    client.insert(&Key8(*key), &value).await.expect("no faults");
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
    for (i, op) in clients.iter().enumerate() {
        // Each client is a compute node of its own, with a memory of its own of the leaves.
        let client = move |c: Client<Index<Key8>, Map>| async move {
            let index = c.shared().client(c.verbs());
            let done = async { run(&index, op).await };
            c.op(op.clone(), done).await;
        };
        model = model.client(format!("client {}", i + 1), i as u16, client);
    }
    model
}

async fn run(index: &impl RangeIndex<Key = Key8>, op: &KvOp<u64, u64>) -> KvRet<u64> {
    let applied = match *op {
        KvOp::Get(key) => {
            let mut value = Vec::new();
            let found = Box::pin(index.get(&Key8(key), &mut value)).await;
            let read = value.first_chunk().map(|raw| u64::from_le_bytes(*raw));
            let read = read.filter(|_| found.expect("no faults"));
            return read.map_or(KvRet::Absent, KvRet::Found);
        }
        KvOp::Insert(key, value) => Box::pin(index.insert(&Key8(key), &value.to_le_bytes())).await,
        KvOp::Update(key, value) => Box::pin(index.update(&Key8(key), &value.to_le_bytes())).await,
        KvOp::Upsert(key, value) => Box::pin(index.upsert(&Key8(key), &value.to_le_bytes())).await,
        KvOp::Remove(key) => Box::pin(index.remove(&Key8(key))).await,
    };
    match applied.expect("no faults") {
        Applied::Inserted => KvRet::Inserted,
        Applied::Replaced => KvRet::Replaced,
        Applied::Removed => KvRet::Removed,
        Applied::Present => KvRet::Present,
        Applied::Absent | Applied::Differs => KvRet::Absent,
    }
}

/// The keys of one full leaf: the next insert splits it.
const FULL: &[u64] = &[2, 4, 7, 1];

/// Clocks that never say that a limit has passed: locks are waited for, and no lease runs out.
fn knobs() -> Knobs {
    Knobs {
        elapsed: Elapsed::Never,
        ..Knobs::weak()
    }
}

/// A search that was cut short (by depth, states or time) does not pass: it has found nothing *so far*.
#[test]
fn a_split_beside_a_get_or_a_write_is_linearizable_in_every_interleaving() {
    const BESIDE: [&[KvOp<u64, u64>]; 3] = [
        &[KvOp::Insert(6, 60), KvOp::Get(7)],
        &[KvOp::Insert(6, 60), KvOp::Update(7, 70)],
        &[KvOp::Insert(6, 60), KvOp::Remove(1)],
    ];
    for clients in BESIDE {
        let verdict = model(FULL, clients).run_with(&knobs(), Search::exhaustive());
        assert!(verdict.is_pass(), "{clients:?}: {verdict}");
    }
}

/// The broken twin. It takes locks in one chain with the READ although this card may serve the READ first. A model
/// that can't fail shows nothing.
#[test]
fn the_model_finds_a_lock_that_does_not_protect_the_read_behind_it() {
    const TWO: &[KvOp<u64, u64>] = &[KvOp::Insert(6, 60), KvOp::Insert(6, 61)];
    let credulous = knobs().pretend(Capability::CasThenReadInOrder);
    let verdict = model(FULL, TWO).run_with(&credulous, Search::exhaustive());
    assert!(!verdict.is_pass(), "{verdict}");
}
