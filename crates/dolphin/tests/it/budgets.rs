//! Tests of the cost of each operation, with all separators cached and no other client. The costs are exact to the verb
//! and the byte, except those of scans, and the written bytes of inserts into packed leaves. The costs are the same on
//! loopback and in the simulator. The tests also measure the memory of a tree.

use dm_index::{Applied, Fill as Filled, RangeIndex, Scan};
use dm_sim::{CostModel, Sim};
use dm_testkit::{IndexUnderTest, Job, ScanCost, World, cost_of_scans, counted};
use dm_verbs::{AtomicVsWrite, Control, Counters, Verbs};
use dolphin::{Key8, Options};

use crate::common::Tree;

/// The counters: round trips, doorbells, READs, bytes read, WRITEs, bytes written, FAAs (shares taken and released),
/// and masked CASes (locks taken, and locks released if they can be shared).
type Cost = [u64; 8];

fn cost_of(c: Counters) -> Cost {
    let disturbed = [
        c.lock_retries,
        c.torn_reads,
        c.stale_reads,
        c.handovers,
        c.cache_misses,
        c.cas,
    ];
    assert_eq!(disturbed, [0; 6], "nobody else is there: {c:?}");
    [
        c.round_trips,
        c.doorbells,
        c.reads,
        c.bytes_read,
        c.writes,
        c.bytes_written,
        c.faa,
        c.masked_cas,
    ]
}

/// Number of loaded keys. The keys are the even numbers below twice this number.
const LOADED: u64 = 5_000;
/// Number of keys that are measured.
const KEYS: u64 = 500;
const LEAF: u64 = 1024;
/// Bytes that an update writes. An insert into a leaf without packed keys writes `ENTRY` bytes, and a remove writes
/// `PRESENCE` bytes. An unlock by a WRITE writes further `LOCK` bytes.
const VALUE: u64 = 8;
const ENTRY: u64 = 17;
/// The bytes that an insert into a packed leaf writes. They are the line of the new entry up to its value: a control
/// byte, six keys of two bytes, and one to six values.
const PACKED: core::ops::RangeInclusive<u64> = 1 + 12 + 8..=1 + 12 + 48;
const PRESENCE: u64 = 1;
const LOCK: u64 = 8;

struct Measure(Options);

impl Job for Measure {
    type Out = Vec<(&'static str, u64, Cost)>;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Self::Out {
        let tree = Tree::<Key8>::new(self.0).open(v).await.expect("an empty pool");
        let client = tree.client(v);
        let mut next = (0..LOADED).map(|n| Key8(n * 2));
        let loaded = client.bulk_load(0.7, |out| {
            out.extend_from_slice(&[7; 8]);
            next.next()
        });
        assert_eq!(loaded.await, Ok(LOADED));
        assert!(tree.warm(v).await.expect("separators") > LOADED / 64);
        let mut before = v.meter().counters();
        let mut lap = || {
            let now = v.meter().counters();
            cost_of(now - core::mem::replace(&mut before, now))
        };
        let (mut out, mut costs) = (Vec::with_capacity(8), Vec::new());
        // The keys are from all parts of the tree, so that no leaf becomes full.
        for key in (0..KEYS).map(|n| n * (2 * LOADED / KEYS)) {
            let (even, odd) = (Key8(key), Key8(key + 1));
            assert_eq!(client.get(&even, &mut out).await, Ok(true));
            costs.push(("get", 1, lap()));
            assert_eq!(client.get(&odd, &mut out).await, Ok(false));
            costs.push(("get", 1, lap()));
            assert_eq!(client.update(&even, &[3; 8]).await, Ok(Applied::Replaced));
            costs.push(("update", 1, lap()));
            assert_eq!(client.insert(&odd, &[4; 8]).await, Ok(Applied::Inserted));
            costs.push(("insert", 1, lap()));
            assert_eq!(client.remove(&odd).await, Ok(Applied::Removed));
            costs.push(("remove", 1, lap()));
        }
        let mut scan = Scan::new();
        for entries in [1, 50, 1_000] {
            lap();
            assert_eq!(client.scan(&Key8(700), entries, &mut scan).await, Ok(()));
            costs.push(("scan", entries as u64, lap()));
        }
        costs
    }
}

/// A job that measures the second update of one key.
struct Plain;

impl Job for Plain {
    type Out = (u64, u64);
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Self::Out {
        let tree = Tree::<Key8>::new(Options::new(8)).open(v).await.expect("a pool");
        let client = tree.client(v);
        assert_eq!(client.insert(&Key8(1), &[1; 8]).await, Ok(Applied::Inserted));
        let mut before = v.meter().counters();
        for value in [2, 3] {
            before = v.meter().counters();
            assert_eq!(client.update(&Key8(1), &[value; 8]).await, Ok(Applied::Replaced));
        }
        let cost = v.meter().counters() - before;
        (cost.round_trips, cost.faa)
    }
}

fn loopback() -> World {
    counted().nodes(2).build().expect("memory").into()
}

#[test]
fn budgets_are_met_to_the_byte() {
    let on = Options::new(8);
    let off = Options {
        shared_updates: false,
        ..on
    };
    let whole_keys = Options {
        packed_keys: false,
        ..on
    };
    let found = loopback().run_one(Measure(on));
    let cx6 = CostModel::cx6_roce();
    assert_eq!(
        found,
        simulated(cx6.clone(), Measure(on)),
        "the meter counts the same in every world"
    );
    within(found, on);
    within(loopback().run_one(Measure(whole_keys)), whole_keys);
    within(simulated(cx6.clone(), Measure(off)), off);
    // If locks can be shared, no WRITE changes a lock word. So the costs do not change if atomics race with WRITEs.
    let mut racy = cx6.clone();
    racy.caps.atomic_vs_write = AtomicVsWrite::Racy;
    within(simulated(racy, Measure(on)), on);
    // Without masked atomics, no lock is shared.
    let mut plain = cx6;
    plain.caps.masked_atomics = false;
    assert_eq!(
        simulated(plain, Plain),
        (2, 0),
        "round trips and FAAs of an update"
    );
}

fn simulated<J: Job + 'static>(model: CostModel, job: J) -> J::Out
where
    J::Out: 'static,
{
    let sim = Sim::builder(model).memory_nodes(2);
    World::from(sim.build().expect("memory")).run_one(job)
}

fn within(found: Vec<(&'static str, u64, Cost)>, options: Options) {
    let shared = options.shared_updates;
    for (operation, entries, mut cost) in found {
        let [_, _, reads, _, writes, ..] = cost;
        if operation == "insert" && options.packed_keys {
            let written = &mut cost[5];
            assert!(PACKED.contains(&(*written - LOCK * (writes - 1))), "{written}");
            *written = ENTRY + LOCK * (writes - 1);
        }
        let expected = match operation {
            "get" => [1, 1, 1, LEAF, 0, 0, 0, 0],
            "update" if shared => [2, 2, 1, LEAF, 1, VALUE, 2, 0],
            "insert" if shared => [2, 2, 1, LEAF, 1, ENTRY, 0, 2],
            "remove" if shared => [2, 2, 1, LEAF, 1, PRESENCE, 0, 2],
            "update" => [2, 2, 1, LEAF, 2, VALUE + LOCK, 0, 1],
            "insert" => [2, 2, 1, LEAF, 2, ENTRY + LOCK, 0, 1],
            "remove" => [2, 2, 1, LEAF, 2, PRESENCE + LOCK, 0, 1],
            _ => [reads.div_ceil(32), cost[1], reads, reads * LEAF, 0, 0, 0, 0],
        };
        assert_eq!(cost, expected, "{operation} of {entries}");
        let filled = if options.packed_keys { 62 } else { 32 };
        assert!(
            operation != "scan" || reads <= entries * 3 / 2 / filled + 2,
            "{entries}: {cost:?}"
        );
    }
}

/// A job that scans 1 to 100 entries of leaves with this fill.
struct ShortScans(Filled);

impl Job for ShortScans {
    type Out = ScanCost;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> ScanCost {
        let tree = Tree::<Key8>::new(Options::new(8)).open(v).await.expect("a pool");
        cost_of_scans(v, &tree.client(v), self.0, async || {
            tree.warm(v).await.expect("separators");
        })
        .await
    }
}

/// Scans of 1 to 100 entries read little more than the leaves with these entries. Few scans need a second batch.
#[test]
fn short_scans_meet_their_budget() {
    let met = [(Filled::Even(0.8), 2_240.0), (Filled::AsInserted, 2_430.0)].map(|(fill, bytes)| {
        let world = World::from(counted().nodes(2).build().expect("memory"));
        let met = world.run_one(ShortScans(fill));
        (met.bytes <= bytes && met.round_trips <= 1.1, fill, met)
    });
    assert!(met.iter().all(|(kept, ..)| *kept), "{met:?}");
}

/// A job that inserts this many keys, which are dense or spread over all numbers, into leaves with or without packed
/// keys.
struct Fill(u64, bool, bool);

impl Job for Fill {
    type Out = (f64, f64);
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Self::Out {
        let options = Options {
            packed_keys: self.2,
            ..Options::new(8)
        };
        let tree = Tree::<Key8>::new(options).open(v).await.expect("an empty pool");
        let client = tree.client(v);
        for n in 0..self.0 {
            // Multiplication by an odd number permutes all numbers, and also the numbers below a power of two.
            let key = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let key = Key8(if self.1 { key & (self.0 - 1) } else { key });
            assert_eq!(client.insert(&key, &[1; 8]).await, Ok(Applied::Inserted));
        }
        tree.warm(v).await.expect("separators");
        let per_key = |bytes: f64| bytes / self.0 as f64;
        (
            per_key(tree.allocated_bytes() as f64),
            per_key(tree.cache_bytes() as f64),
        )
    }
}

const KEYS_OF_A_TREE: u64 = 1 << 17;

/// Measures the bytes per key after inserts in random order.
#[test]
fn a_tree_is_small() {
    // The cases are dense and sparse keys, with and without packing.
    let limits = [
        (true, true, 18.0),
        (false, true, 32.0),
        (true, false, 36.0),
        (false, false, 40.0),
    ];
    for (dense, packed, limit) in limits {
        let (remote, cache) = loopback().run_one(Fill(KEYS_OF_A_TREE, dense, packed));
        println!(
            "dense: {dense}, packed: {packed}; {remote:.2} bytes per key on memory nodes, {cache:.3} in the cache"
        );
        assert!(remote <= limit, "{remote} bytes per key on memory nodes");
        assert!(cache <= 0.65, "{cache} bytes per key in the cache");
    }
}
