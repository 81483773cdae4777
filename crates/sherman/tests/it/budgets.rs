//! Tests of the cost of each operation, with all inner nodes cached. The costs of gets, writes and splits without other
//! clients are exact. They are the same on loopback and in the simulator.

use crate::common::Tree;
use dm_index::{Applied, Fill, RangeIndex, Scan};
use dm_layout::{Checksummed, Slotted};
use dm_sim::{CostModel, Sim};
use dm_testkit::{IndexUnderTest, Job, ScanCost, Seat, TestKey, World, cost_of_scans, counted};
use dm_verbs::{AtomicVsWrite, CasThenRead, Control, Counters, Verbs};
use sherman::{Key8, KeyN, LeafFormat, Options, Rdwc, Variant};

/// The cost of an operation. Masked and plain CASes are separate, because several plain CASes may emulate a
/// masked one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cost {
    round_trips: u64,
    doorbells: u64,
    reads: u64,
    bytes_read: u64,
    writes: u64,
    bytes_written: u64,
    masked_cas: u64,
    cas: u64,
    faa: u64,
}

impl Cost {
    fn of(c: Counters) -> Self {
        let noise = [
            c.lock_retries,
            c.torn_reads,
            c.stale_reads,
            c.handovers,
            c.cache_misses,
        ];
        assert_eq!(noise, [0; 5], "nobody else is there: {c:?}");
        Self {
            round_trips: c.round_trips,
            doorbells: c.doorbells,
            reads: c.reads,
            bytes_read: c.bytes_read,
            writes: c.writes,
            bytes_written: c.bytes_written,
            masked_cas: c.masked_cas,
            cas: c.cas,
            faa: c.faa,
        }
    }
}

const NONE: Cost = Cost {
    round_trips: 0,
    doorbells: 0,
    reads: 0,
    bytes_read: 0,
    writes: 0,
    bytes_written: 0,
    masked_cas: 0,
    cas: 0,
    faa: 0,
};
const GET: Cost = Cost {
    round_trips: 1,
    doorbells: 1,
    reads: 1,
    bytes_read: 1024,
    ..NONE
};

/// Costs of the operations on one tree: gets and writes of present and absent keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Costs {
    get: Cost,
    get_absent: Cost,
    update: Cost,
    update_absent: Cost,
    insert: Cost,
    insert_present: Cost,
    upsert_present: Cost,
    remove: Cost,
}

/// Number of loaded entries. The keys are the even numbers below twice this number.
const LOADED: u64 = 2_000;

struct Measure<I>(I);

impl<K: TestKey, F: LeafFormat<K>> Job for Measure<Tree<K, F>> {
    type Out = Costs;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Costs {
        let tree = self.0.open(v).await.expect("an empty pool");
        let client = tree.client(v);
        let value = vec![7; client.value_bytes()];
        let mut next = (0..LOADED).map(|n| K::nth(n * 2));
        let loaded = client.bulk_load(0.7, |out| {
            out.extend_from_slice(&value);
            next.next()
        });
        assert_eq!(loaded.await, Ok(LOADED));
        tree.warm(v).await.expect("inner nodes");
        let key = K::nth(LOADED);
        let odd = K::nth(LOADED + 1);
        // After this update, the compute node knows the current lock word.
        assert_eq!(client.update(&key, &value).await, Ok(Applied::Replaced));
        let mut before = v.meter().counters();
        let mut lap = || {
            let now = v.meter().counters();
            Cost::of(now - core::mem::replace(&mut before, now))
        };
        let mut out = Vec::with_capacity(value.len());
        assert_eq!(client.get(&key, &mut out).await, Ok(true));
        let get = lap();
        assert_eq!(client.get(&odd, &mut out).await, Ok(false));
        let get_absent = lap();
        assert_eq!(client.update(&key, &value).await, Ok(Applied::Replaced));
        let update = lap();
        assert_eq!(client.update(&odd, &value).await, Ok(Applied::Absent));
        let update_absent = lap();
        assert_eq!(client.insert(&odd, &value).await, Ok(Applied::Inserted));
        let insert = lap();
        assert_eq!(client.insert(&odd, &value).await, Ok(Applied::Present));
        let insert_present = lap();
        assert_eq!(client.upsert(&odd, &value).await, Ok(Applied::Replaced));
        let upsert_present = lap();
        assert_eq!(client.remove(&odd).await, Ok(Applied::Removed));
        let remove = lap();
        Costs {
            get,
            get_absent,
            update,
            update_absent,
            insert,
            insert_present,
            upsert_present,
            remove,
        }
    }
}

fn loopback() -> World {
    counted().build().expect("memory").into()
}

fn simulated() -> World {
    Sim::builder(CostModel::cx5_ib())
        .memory_nodes(2)
        .build()
        .expect("memory")
        .into()
}

/// Returns the costs on loopback, after checking that the costs in the simulator are equal.
fn costs<K: TestKey, F: LeafFormat<K>>(options: Options) -> Costs {
    let there = loopback().run_one(Measure(Tree::<K, F>::new(options)));
    let simulated = simulated().run_one(Measure(Tree::<K, F>::new(options)));
    assert_eq!(there, simulated, "the meter counts the same in every world");
    there
}

/// Checks the costs of all operations. A write costs `shape` plus the given bytes for an update, an insert and a
/// remove: in a slotted leaf a value, an entry and a presence byte, and in a leaf that is written whole always the
/// node. A write that changes nothing costs `found_nothing`.
fn expect(costs: &Costs, found_nothing: Cost, shape: Cost, [update, insert, remove]: [u64; 3]) {
    assert_eq!((costs.get, costs.get_absent), (GET, GET));
    let with = |bytes| Cost {
        bytes_written: shape.bytes_written + bytes,
        ..shape
    };
    assert_eq!(costs.update, with(update));
    assert_eq!(costs.upsert_present, with(update));
    assert_eq!(costs.insert, with(insert));
    assert_eq!(costs.remove, with(remove));
    assert_eq!(costs.update_absent, found_nothing);
    assert_eq!(costs.insert_present, found_nothing);
}

/// The cost of the chains [masked CAS, READ], [WRITE entry, WRITE unlock], without the bytes of the entry.
const TWO: Cost = Cost {
    round_trips: 2,
    doorbells: 2,
    reads: 1,
    bytes_read: 1024,
    writes: 2,
    bytes_written: 8,
    masked_cas: 1,
    ..NONE
};
/// The cost of the chains [masked CAS, READ] and [WRITE unlock].
const TWO_UNLOCK: Cost = Cost { writes: 1, ..TWO };
/// The cost of masked CAS, READ, [WRITE entry, WRITE unlock], without the bytes of the entry.
const THREE: Cost = Cost {
    round_trips: 3,
    doorbells: 3,
    ..TWO
};
const THREE_UNLOCK: Cost = Cost { writes: 1, ..THREE };

#[test]
fn by_default_every_write_takes_two_round_trips() {
    let small = costs::<Key8, Slotted<Key8>>(Options::new(8));
    expect(&small, TWO_UNLOCK, TWO, [8, 17, 1]);
    let large = costs::<KeyN<24>, Slotted<KeyN<24>>>(Options::new(24));
    expect(&large, TWO_UNLOCK, TWO, [24, 49, 1]);
}

#[test]
fn sharing_costs_no_verb_without_other_clients() {
    let shared = Options {
        rdwc: Rdwc::ON,
        ..Options::new(8)
    };
    let small = costs::<Key8, Slotted<Key8>>(shared);
    expect(&small, TWO_UNLOCK, TWO, [8, 17, 1]);
}

#[test]
fn with_paper_rtt_every_write_takes_three_round_trips() {
    for variant in [Variant::PaperRtt, Variant::TwoLevel] {
        let small = costs::<Key8, Slotted<Key8>>(variant.apply(Options::new(8)));
        expect(&small, THREE_UNLOCK, THREE, [8, 17, 1]);
    }
}

#[test]
fn fg_and_fg_plus_write_whole_nodes_and_unlock_separately() {
    // FG: masked CAS, READ, WRITE node, FAA.
    let fg = Cost {
        round_trips: 4,
        doorbells: 4,
        writes: 1,
        bytes_written: 0,
        faa: 1,
        ..THREE
    };
    let fg_unlock = Cost {
        round_trips: 3,
        doorbells: 3,
        writes: 0,
        ..fg
    };
    // FG+: masked CAS, READ, WRITE node, WRITE unlock.
    let fg_plus = Cost {
        writes: 2,
        bytes_written: 8,
        faa: 0,
        ..fg
    };
    for (variant, shape, unlock) in [
        (Variant::Fg, fg, fg_unlock),
        (Variant::FgPlus, fg_plus, THREE_UNLOCK),
        (Variant::Combine, THREE, THREE_UNLOCK),
        (Variant::OnChip, THREE, THREE_UNLOCK),
        (Variant::Hierarchical, THREE, THREE_UNLOCK),
    ] {
        let found = costs::<Key8, Checksummed<Key8>>(variant.apply(Options::new(8)));
        expect(&found, unlock, shape, [1024; 3]);
    }
}

#[test]
fn each_missing_capability_has_its_own_cost() {
    let run = |world: dm_loopback::Builder| {
        let world = World::from(world.build().expect("memory"));
        world.run_one(Measure(Tree::<Key8>::new(Options::new(8))))
    };
    // CAS and READ are not ordered, so the READ is posted after the CAS has completed.
    let unordered = run(counted().cas_then_read(CasThenRead::AnyLineFirst));
    expect(&unordered, THREE_UNLOCK, THREE, [8, 17, 1]);
    // If atomics race with WRITEs, the unlock is a CAS in the same chain.
    let by_cas = Cost {
        writes: 1,
        bytes_written: 0,
        cas: 1,
        ..TWO
    };
    let racy = run(counted().atomic_vs_write(AtomicVsWrite::Racy));
    expect(&racy, Cost { writes: 0, ..by_cas }, by_cas, [8, 17, 1]);
    // Without on-chip memory, the locks are in host memory, at the same cost.
    expect(&run(counted().chip_bytes(0)), TWO_UNLOCK, TWO, [8, 17, 1]);
    // Without masked atomics, the lock is taken by a CAS of the whole word. The expected value is right, because this
    // compute node wrote the word last.
    let guessed = Cost {
        masked_cas: 0,
        cas: 1,
        ..TWO
    };
    let plain = run(counted().masked_atomics(false));
    expect(&plain, Cost { writes: 1, ..guessed }, guessed, [8, 17, 1]);
}

struct Scans;

impl Job for Scans {
    type Out = Vec<(usize, Cost)>;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Self::Out {
        let tree = Tree::<Key8>::new(Options::new(8))
            .open(v)
            .await
            .expect("an empty pool");
        let client = tree.client(v);
        let per_leaf = tree.leaf_capacity();
        // Level 1 has several nodes.
        let entries = 200 * per_leaf as u64;
        let mut next = (0..entries).map(Key8::nth);
        let loaded = client.bulk_load(1.0, |out| {
            out.extend_from_slice(&[1; 8]);
            next.next()
        });
        assert_eq!(loaded.await, Ok(entries));
        tree.warm(v).await.expect("inner nodes");
        let mut scan = Scan::new();
        let mut found = Vec::new();
        for leaves in [1, 2, 3, 31, 32, 33, 64, 100] {
            let before = v.meter().counters();
            let from = Key8::nth(7 * per_leaf as u64);
            assert_eq!(client.scan(&from, leaves * per_leaf, &mut scan).await, Ok(()));
            found.push((leaves, Cost::of(v.meter().counters() - before)));
            assert_eq!(scan.len(), leaves * per_leaf);
            assert!(
                scan.keys()
                    .iter()
                    .copied()
                    .eq((from.0..).take(scan.len()).map(Key8))
            );
        }
        found
    }
}

#[test]
fn a_scan_takes_a_round_trip_for_32_leaves() {
    let there = simulated().run_one(Scans);
    // The costs on loopback are the same as in the simulator.
    assert_eq!(loopback().run_one(Scans), there);
    for (leaves, cost) in there {
        assert_eq!(
            cost.round_trips,
            leaves.div_ceil(32) as u64,
            "{leaves} leaves: {cost:?}"
        );
        assert_eq!(cost.bytes_read, cost.reads * 1024);
        assert_eq!((cost.writes, cost.cas, cost.masked_cas, cost.faa), (0, 0, 0, 0));
        // These leaves are full, and a scan assumes that leaves are 70 % full.
        assert!(
            cost.reads <= (leaves * 10).div_ceil(7) as u64 + 2,
            "{leaves} leaves: {cost:?}"
        );
    }
}

/// A job that scans 1 to 100 entries of leaves with this fill.
struct ShortScans(Fill);

impl Job for ShortScans {
    type Out = ScanCost;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> ScanCost {
        let tree = Tree::<Key8>::new(Options::new(8))
            .open(v)
            .await
            .expect("an empty pool");
        cost_of_scans(v, &tree.client(v), self.0, async || {
            tree.warm(v).await.expect("inner nodes");
        })
        .await
    }
}

/// Scans of 1 to 100 entries read little more than the leaves with these entries. Few scans need a second batch.
#[test]
fn short_scans_meet_their_budget() {
    let met = [(Fill::Even(0.8), 2_550.0), (Fill::AsInserted, 2_790.0)].map(|(fill, bytes)| {
        let met = loopback().run_one(ShortScans(fill));
        (met.bytes <= bytes && met.round_trips <= 1.1, fill, met)
    });
    assert!(met.iter().all(|(kept, ..)| *kept), "{met:?}");
}

struct Splits {
    memory_nodes: u16,
}

impl Job for Splits {
    type Out = Cost;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Cost {
        assert_eq!(v.memory_nodes(), self.memory_nodes);
        let tree = Tree::<Key8>::new(Options::new(8))
            .open(v)
            .await
            .expect("an empty pool");
        let client = tree.client(v);
        let entries = 3 * tree.leaf_capacity() as u64;
        let mut next = (0..entries).map(|n| Key8::nth(n * 2));
        let loaded = client.bulk_load(1.0, |out| {
            out.extend_from_slice(&[1; 8]);
            next.next()
        });
        assert_eq!(loaded.await, Ok(entries));
        tree.warm(v).await.expect("inner nodes");
        let before = v.meter().counters();
        assert_eq!(
            client.insert(&Key8(entries | 1), &[2; 8]).await,
            Ok(Applied::Inserted)
        );
        let cost = v.meter().counters() - before;
        assert_eq!(cost.splits, 1);
        Cost::of(cost)
    }
}

#[test]
fn a_leaf_split_takes_five_round_trips() {
    // The chains are: [CAS, READ leaf], [WRITE right], [WRITE left: header, rest; right: header; left: header; unlock],
    // [CAS, READ parent], [WRITE separator, WRITE unlock].
    let expected = Cost {
        round_trips: 5,
        doorbells: 5,
        reads: 2,
        bytes_read: 2048,
        writes: 1 + 5 + 2,
        bytes_written: 1024 + (64 + 960 + 64 + 64 + 8) + (12 + 8),
        masked_cas: 2,
        ..NONE
    };
    assert_eq!(loopback().run_one(Splits { memory_nodes: 2 }), expected);
    assert_eq!(simulated().run_one(Splits { memory_nodes: 2 }), expected);
}

struct Contended(Variant);

/// Number of operations of each of two clients.
const CONTENDED: usize = 100;

impl Contended {
    fn options(&self) -> Options {
        self.0.apply(Options::new(8))
    }
}

struct Pair {
    tree: sherman::Sherman<Key8>,
}

impl Job for Contended {
    type Out = Pair;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Pair {
        let tree = Tree::<Key8>::new(self.options())
            .open(v)
            .await
            .expect("an empty pool");
        assert_eq!(
            tree.client(v).insert(&Key8(1), &[0; 8]).await,
            Ok(Applied::Inserted)
        );
        Pair { tree }
    }
}

impl Job for Pair {
    type Out = Vec<Counters>;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Vec<Counters> {
        let client = self.tree.client(v);
        let mut costs = Vec::new();
        for _ in 0..CONTENDED {
            let before = v.meter().counters();
            assert_eq!(client.update(&Key8(1), &[9; 8]).await, Ok(Applied::Replaced));
            costs.push(v.meter().counters() - before);
        }
        costs
    }
}

#[test]
fn a_lock_that_was_handed_over_saves_its_round_trip() {
    for (variant, alone) in [(Variant::PaperRtt, 3), (Variant::Default, 2)] {
        let world = simulated();
        let pair = world.run_one(Contended(variant));
        let seats = [0, 1].map(|thread| Seat {
            compute_node: 0,
            thread,
        });
        let costs: Vec<Counters> = world.run(&seats, &dm_sync::Arc::new(pair)).concat();
        let (handed, taken): (Vec<Counters>, Vec<Counters>) = costs.iter().partition(|c| c.handovers == 1);
        assert!(
            handed.len() > CONTENDED / 4 && taken.len() > CONTENDED / 4,
            "{}",
            handed.len()
        );
        for c in handed {
            // The verbs are a READ and a chain with the WRITE of the entry, and with the unlock if the lock is not
            // handed over.
            assert_eq!(
                (c.round_trips, c.reads, c.masked_cas),
                (2, 1, 0),
                "{variant}: {c:?}"
            );
            assert!(c.writes <= 2);
        }
        for c in taken {
            assert_eq!(
                (c.round_trips, c.reads, c.masked_cas),
                (alone, 1, 1),
                "{variant}: {c:?}"
            );
        }
    }
}
