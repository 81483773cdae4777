//! Runs the script of every index, measures the cost of operations, and explores every interleaving of a few clients.

use dm_alloc::Superblock;
use dm_explore::{Client, Elapsed, Endpoint, Knobs, Model, Search};
use dm_history::{KvMap, KvOp};
use dm_index::{Applied, Key8, RangeIndex};
use dm_layout::NodeTypes;
use dm_loopback::block_on;
use dm_sync::{Arc, Fingerprint, Mutex};
use dm_testkit::{Failure, Family, IndexUnderTest, TestKey, WorldKind, conform, connect, counted, perform};
use dm_verbs::{Control, Env, Verbs};

use crate::tree::{ArtHopscotch, Shape};

/// The index as the test kit opens it.
struct Opened<K>(Shape, std::marker::PhantomData<fn() -> K>);

impl<K: TestKey> IndexUnderTest for Opened<K> {
    type Key = K;
    type Handle = ArtHopscotch<K>;
    fn value_bytes(&self) -> usize {
        self.0.value_bytes
    }
    async fn open<V: Verbs + Control>(&self, v: &V) -> Result<ArtHopscotch<K>, Failure> {
        Ok(ArtHopscotch::create_or_open(v, &self.0).await?)
    }
    fn client<'h, V: Verbs + Control>(index: &'h ArtHopscotch<K>, v: &'h V) -> impl RangeIndex<Key = K> {
        index.client(v)
    }
}

/// Indexes with leaves of this span and neighbourhood.
struct Spans(usize, usize);

impl Family for Spans {
    type Index<K: TestKey> = Opened<K>;
    fn index<K: TestKey>(&self, value_bytes: usize) -> Self::Index<K> {
        let shape = Shape {
            span: self.0,
            neighbourhood: self.1,
            ..Shape::new(value_bytes)
        };
        Opened(shape, std::marker::PhantomData)
    }
}

#[test]
fn it_passes_the_script_of_every_index() {
    conform(&Spans(64, 8), WorldKind::LoopbackDelays);
    conform(&Spans(6, 3), WorldKind::SimCx6);
    conform(&Spans(6, 3), WorldKind::SimWeak(0));
}

#[test]
fn a_get_is_one_round_trip_and_a_write_two() {
    let pool = counted().nodes(2).build().expect("memory");
    let v = connect(&pool, 0);
    block_on(async {
        let index = ArtHopscotch::<Key8>::create_or_open(&v, &Shape::new(8))
            .await
            .expect("an empty pool");
        let client = index.client(&v);
        let mut next = (0..5_000).map(|n| Key8(n * 2));
        let loaded = client.bulk_load(0.7, |out| {
            out.extend_from_slice(&[7; 8]);
            next.next()
        });
        assert_eq!(loaded.await, Ok(5_000));
        index.warm(&v).await.expect("separators");
        let mut before = v.meter().counters();
        let mut lap = || {
            let now = v.meter().counters();
            let cost = now - core::mem::replace(&mut before, now);
            (cost.round_trips, cost.bytes_read)
        };
        let mut value = Vec::new();
        for key in (0..100).map(|n| n * 100) {
            assert_eq!(client.get(&Key8(key), &mut value).await, Ok(true));
            let (trips, bytes) = lap();
            assert!(trips == 1 && bytes <= 175, "{trips} round trips, {bytes} bytes");
            assert_eq!(client.update(&Key8(key), &[3; 8]).await, Ok(Applied::Replaced));
            assert_eq!(lap().0, 2);
            assert_eq!(client.remove(&Key8(key)).await, Ok(Applied::Removed));
            // If the neighbourhood becomes empty, the remove takes one more round trip, to check whether the leaf
            // should be merged.
            assert!(lap().0 <= 3);
        }
    });
}

type Map = KvMap<u64, u64>;

/// Leaves of four entries and radix nodes of one line. No memory is reused, because other models cover reclamation.
const TINY: Shape = Shape {
    span: 4,
    neighbourhood: 2,
    types: NodeTypes::TINY,
    locks_per_node: 16,
    members: 0,
    chunk_bytes: 4096,
    ..Shape::new(8)
};

/// Returns a model that starts with these keys, and in which each client runs one operation.
fn model(preload: &'static [u64], clients: &'static [KvOp<u64, u64>]) -> Model<ArtHopscotch<Key8>, Map> {
    let found: Arc<Mutex<Option<Superblock>>> = Arc::default();
    let keep = Arc::clone(&found);
    let mut model = Model::new("radix separators over hopscotch leaves")
        .memory(64 << 10, 256)
        .setup(move |v: Endpoint| {
            let keep = Arc::clone(&keep);
            async move {
                let index = ArtHopscotch::create_or_open(&v, &TINY).await.expect("a pool");
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
                let index = ArtHopscotch::from_superblock(&v, &TINY, &superblock)
                    .await
                    .expect("a pool");
                index.warm(&v).await.expect("no faults");
                index
            }
        })
        .fingerprint(Fingerprint::fingerprint)
        .spec(Map::loaded(preload.iter().map(|key| (*key, *key))));
    for (i, op) in clients.iter().enumerate() {
        let client = move |c: Client<ArtHopscotch<Key8>, Map>| async move {
            let index = c.shared().client(c.verbs());
            let done = async { perform(&index, op).await.expect("no faults") };
            c.op(op.clone(), done).await;
        };
        model = model.client(format!("client {}", i + 1), i as u16, client);
    }
    model
}

#[test]
fn every_interleaving_of_a_split_with_reads_and_writes_is_linearizable() {
    const FULL: &[u64] = &[2, 4, 7, 1];
    let knobs = Knobs {
        elapsed: Elapsed::Never,
        ..Knobs::weak()
    };
    const BESIDE: [&[KvOp<u64, u64>]; 3] = [
        &[KvOp::Insert(6, 60), KvOp::Get(4)],
        &[KvOp::Insert(6, 60), KvOp::Update(7, 70)],
        &[KvOp::Insert(6, 60), KvOp::Remove(1)],
    ];
    for clients in BESIDE {
        let verdict = model(FULL, clients).run_with(&knobs, Search::exhaustive());
        assert!(verdict.is_pass(), "{clients:?}: {verdict}");
    }
    // This RNIC may serve a READ before the CAS of its chain, so lock-and-read must fail here. (An insert into a full
    // leaf would read it again under the lock.)
    let credulous = knobs.pretend(dm_verbs::Capability::CasThenReadInOrder);
    let verdict = model(&[2, 4], &[KvOp::Insert(6, 60), KvOp::Insert(6, 61)])
        .run_with(&credulous, Search::exhaustive());
    assert!(!verdict.is_pass(), "{verdict}");
}
