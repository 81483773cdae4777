//! Tests of the cost of each operation, with the table cached and no other client. The costs are the same on loopback
//! and in the simulator. The tests also measure the memory of an index.

use core::marker::PhantomData;

use dm_index::{Applied, RangeIndex, Scan};
use dm_sim::{CostModel, Sim};
use dm_testkit::{IndexUnderTest, Job, World, counted};
use dm_verbs::{Control, Counters, Verbs};
use rolex::{ChimeLearnedParts, Key8, Options, PublishedParts, RolexParts};

use crate::common::{Learns, Tree};

/// The counters: round trips, doorbells, READs, bytes read, WRITEs, bytes written, masked CASes.
type Cost = [u64; 7];

fn cost_of(c: Counters) -> Cost {
    let disturbed = [
        c.lock_retries,
        c.torn_reads,
        c.stale_reads,
        c.handovers,
        c.cache_misses,
        c.cas,
        c.faa,
    ];
    assert_eq!(disturbed, [0; 7], "nobody else is there: {c:?}");
    [
        c.round_trips,
        c.doorbells,
        c.reads,
        c.bytes_read,
        c.writes,
        c.bytes_written,
        c.masked_cas,
    ]
}

/// Number of loaded keys. The keys are the even numbers below twice this number.
const LOADED: u64 = 5_000;
/// Number of keys that are measured.
const KEYS: u64 = 250;
/// The bytes of a whole leaf with 16 entries of 8 + 8 bytes.
const LEAF: u64 = 384;
/// The bytes that an insert writes in a leaf. A remove writes one byte.
const ENTRY: u64 = 17;
const PRESENCE: u64 = 1;
const LOCK: u64 = 8;
/// The maximum bytes of a neighbourhood, and those of a hopscotch leaf with 64 entries.
const NEIGHBOURHOOD: u64 = 175;
const HOP_LEAF: u64 = 1472;

struct Measure<P>(Options, PhantomData<fn() -> P>);

impl<P: Learns<Key = Key8>> Job for Measure<P> {
    type Out = Vec<(&'static str, Cost)>;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Self::Out {
        let index = Tree::<P>::new(self.0).open(v).await.expect("an empty pool");
        let client = Tree::<P>::client(&index, v);
        let mut next = (0..LOADED).map(|n| Key8(n * 2));
        let loaded = client.bulk_load(0.7, |out| {
            out.extend_from_slice(&[7; 8]);
            next.next()
        });
        assert_eq!(loaded.await, Ok(LOADED));
        assert!(index.handle.warm(v).await.expect("a table") > 100);
        let mut before = v.meter().counters();
        let mut lap = || {
            let now = v.meter().counters();
            cost_of(now - core::mem::replace(&mut before, now))
        };
        let (mut out, mut costs) = (Vec::with_capacity(8), Vec::new());
        // The keys are from all parts of the index, so that no leaf becomes full.
        for key in (0..KEYS).map(|n| n * (2 * LOADED / KEYS)) {
            let (even, odd) = (Key8(key), Key8(key + 1));
            assert_eq!(client.get(&even, &mut out).await, Ok(true));
            costs.push(("get", lap()));
            assert_eq!(client.get(&odd, &mut out).await, Ok(false));
            costs.push(("get", lap()));
            assert_eq!(client.update(&even, &[3; 8]).await, Ok(Applied::Replaced));
            costs.push(("update", lap()));
            assert_eq!(client.insert(&odd, &[4; 8]).await, Ok(Applied::Inserted));
            costs.push(("insert", lap()));
            assert_eq!(client.upsert(&odd, &[4; 8]).await, Ok(Applied::Replaced));
            costs.push(("update", lap()));
            assert_eq!(client.remove(&odd).await, Ok(Applied::Removed));
            costs.push(("remove", lap()));
        }
        let mut scan = Scan::new();
        assert_eq!(client.scan(&Key8(700), 100, &mut scan).await, Ok(()));
        assert_eq!(scan.len(), 100);
        costs.push(("scan of 100", lap()));
        costs
    }
}

fn loopback() -> World {
    counted().nodes(2).build().expect("memory").into()
}

fn simulated() -> World {
    let sim = Sim::builder(CostModel::cx6_roce()).memory_nodes(2);
    sim.build().expect("memory").into()
}

fn measured<P: Learns<Key = Key8>>() -> Vec<(&'static str, Cost)> {
    let measure = || Measure::<P>(P::options(8), PhantomData);
    let found = loopback().run_one(measure());
    let simulated = simulated().run_one(measure());
    assert_eq!(found, simulated, "the meter counts the same in every world");
    found
}

#[test]
fn budgets_are_met_to_the_byte() {
    for (operation, cost) in measured::<RolexParts<Key8>>() {
        let write = |written| [2, 2, 1, LEAF, 2, written + LOCK, 1];
        let expected = match operation {
            "get" => [1, 1, 1, LEAF, 0, 0, 0],
            "update" => write(8),
            "insert" => write(ENTRY),
            "remove" => write(PRESENCE),
            // Each leaf has 11 entries.
            _ => [1, 10, 10, 10 * LEAF, 0, 0, 0],
        };
        assert_eq!(cost, expected, "{operation}");
    }
}

/// The bytes of a sorted leaf with 16 entries of 8 + 8 bytes. A write writes all of them.
const SORTED_LEAF: u64 = 320;

/// Checks that the round trips and the verbs are those of the public code. The neighbours of a leaf may be on the other
/// memory node, and READs of them then take another doorbell.
#[test]
fn budgets_of_the_published_index_are_met_to_the_byte() {
    let mut gets = [0; 5];
    for (operation, cost) in measured::<PublishedParts<Key8>>() {
        let [_, doorbells, reads, ..] = cost;
        let expected = match operation {
            "get" => {
                gets[reads as usize] += 1;
                [1, doorbells, reads, reads * SORTED_LEAF, 0, 0, 0]
            }
            // Ten leaves have the entries. The error admits one on the left and one on the right.
            "scan of 100" => [1, 12, 12, 12 * SORTED_LEAF, 0, 0, 0],
            // A write reads the run, and then the key's leaf again.
            _ => {
                assert!((3..=5).contains(&reads), "{operation}: {cost:?}");
                [4, doorbells, reads, reads * SORTED_LEAF, 2, SORTED_LEAF + LOCK, 1]
            }
        };
        assert_eq!(cost, expected, "{operation}");
        assert!(
            doorbells <= expected[0] + 1 || operation == "scan of 100",
            "{cost:?}"
        );
    }
    // The error of 16 entries admits three or four leaves of 16, and two at the ends of the index.
    println!("gets by leaves: {gets:?}");
    assert_eq!(gets[..2], [0, 0]);
    assert!(gets[2] < 10 && gets[3] > 5 * gets[4], "{gets:?}");
}

/// Fills a leaf, so that it has a synonym leaf, and measures what this costs.
struct Synonyms;

impl Job for Synonyms {
    type Out = ();
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) {
        let tree = || Tree::<PublishedParts<Key8>>::new(Options::published(8));
        let here = tree().open(v).await.expect("an empty pool");
        let others = [tree().open(v).await, tree().open(v).await];
        let [there, third] = others.map(|index| index.expect("a pool"));
        let client = Tree::<PublishedParts<Key8>>::client(&here, v);
        let mut next = (0..LOADED).map(|n| Key8(n * 100));
        let loaded = client.bulk_load(0.7, |out| {
            out.extend_from_slice(&[7; 8]);
            next.next()
        });
        assert_eq!(loaded.await, Ok(LOADED));
        for index in [&here, &there, &third] {
            index.handle.warm(v).await.expect("a table");
        }
        let other = Tree::<PublishedParts<Key8>>::client(&there, v);
        let writer = Tree::<PublishedParts<Key8>>::client(&third, v);
        let mut out = Vec::with_capacity(8);
        let mut before = v.meter().counters();
        let mut lap = || {
            let now = v.meter().counters();
            let c = now - core::mem::replace(&mut before, now);
            [c.round_trips, c.reads, c.writes]
        };
        assert_eq!(client.get(&Key8(220_000), &mut out).await, Ok(true));
        let [_, run, _] = lap();
        // The leaf has 11 entries.
        let mut splits = Vec::new();
        for n in 1..=10 {
            let met = v.meter().counters().splits;
            lap();
            assert_eq!(
                client.insert(&Key8(220_000 + n), &[4; 8]).await,
                Ok(Applied::Inserted)
            );
            let cost = lap();
            match v.meter().counters().splits - met {
                0 => assert_eq!(cost, [4, run + 1, 2], "into a leaf or a known synonym leaf"),
                _ => splits.push(cost),
            }
        }
        // The new leaf is written before the full one, and not behind the same doorbell.
        assert_eq!(splits, [[5, run + 1, 3]]);
        // These are the loaded keys of the leaf, of its synonym leaf and of their neighbours.
        let mut unknown = 0;
        for key in (2_185..2_220).map(|n| Key8(n * 100)) {
            lap();
            assert_eq!(client.get(&key, &mut out).await, Ok(true));
            let [trips, run, _] = lap();
            assert_eq!(trips, 1, "the synonym leaf is known");
            assert_eq!(other.get(&key, &mut out).await, Ok(true));
            let [trips, reads, _] = lap();
            if trips == 2 {
                assert_eq!(reads, run, "the synonym leaf is read alone");
                unknown += 1;
            }
            assert_eq!(other.get(&key, &mut out).await, Ok(true));
            let [trips, reads, _] = lap();
            assert_eq!(trips, 1, "it is known now");
            assert_eq!(other.update(&key, &[5; 8]).await, Ok(Applied::Replaced));
            assert_eq!(lap(), [4, reads + 1, 2], "and the key's leaf again");
        }
        assert_eq!(unknown, 1);
        // An update reads an unknown synonym leaf only under its lock, which takes no more round trips.
        for key in (2_185..2_220).map(|n| Key8(n * 100)) {
            lap();
            assert_eq!(writer.update(&key, &[6; 8]).await, Ok(Applied::Replaced));
            let [trips, _, writes] = lap();
            assert_eq!((trips, writes), (4, 2), "{key:?}");
        }
    }
}

#[test]
fn a_synonym_leaf_costs_a_round_trip_once() {
    loopback().run_one(Synonyms);
    simulated().run_one(Synonyms);
}

/// The costs of neighbourhoods are those of CHIME, whose tests have the details.
#[test]
fn budgets_of_hopscotch_leaves_are_met() {
    let mut inserts = 0;
    for (operation, cost) in measured::<ChimeLearnedParts<Key8>>() {
        let [trips, _, reads, bytes, writes, written, locks] = cost;
        let near = reads <= 2 && bytes <= NEIGHBOURHOOD;
        match operation {
            "get" => assert!(near && [trips, writes, locks] == [1, 0, 0], "{cost:?}"),
            "update" => assert!(
                near && [trips, writes, written, locks] == [2, 2, 8 + LOCK, 1],
                "{cost:?}"
            ),
            "remove" => assert!(
                near && [trips, writes, written, locks] == [2, 2, PRESENCE + LOCK, 1],
                "{cost:?}"
            ),
            "insert" => inserts += trips,
            _ => assert_eq!([trips, reads, bytes], [1, 4, 4 * HOP_LEAF], "{cost:?}"),
        }
    }
    assert!(
        inserts <= KEYS * 5 / 2,
        "an insert takes {} / {KEYS} round trips",
        inserts
    );
}

/// A job that inserts this many keys with values of 8 bytes, in random order.
struct Fill<P>(u64, Options, PhantomData<fn() -> P>);

impl<P: Learns<Key = Key8>> Job for Fill<P> {
    type Out = (f64, f64);
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Self::Out {
        let index = Tree::<P>::new(self.1).open(v).await.expect("an empty pool");
        let client = Tree::<P>::client(&index, v);
        for n in 0..self.0 {
            // Multiplication by an odd number permutes all numbers.
            let key = Key8(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            assert_eq!(client.insert(&key, &[1; 8]).await, Ok(Applied::Inserted));
        }
        index.handle.retrain(v).await.expect("no faults");
        let per_key = |bytes: f64| bytes / self.0 as f64;
        (
            per_key(index.handle.allocated_bytes() as f64),
            per_key(index.handle.cache_bytes() as f64),
        )
    }
}

/// Measures the bytes per key after inserts in random order and one visit.
#[test]
fn an_index_keeps_its_memory_budget() {
    let whole = Fill::<RolexParts<Key8>>(1 << 17, Options::new(8), PhantomData);
    let hop = Fill::<ChimeLearnedParts<Key8>>(1 << 17, Options::chime_learned(8), PhantomData);
    let published = Fill::<PublishedParts<Key8>>(1 << 17, Options::published(8), PhantomData);
    let most = [
        ("rolex", 36.0, 1.3),
        ("chime-learned", 44.0, 0.42),
        ("published", 32.0, 1.3),
    ];
    let found = [
        loopback().run_one(whole),
        loopback().run_one(hop),
        loopback().run_one(published),
    ];
    for ((name, on_nodes, cached), found) in most.into_iter().zip(found) {
        let (remote, cache) = found;
        println!("{name}: {remote:.2} bytes per key on memory nodes, {cache:.3} in the cache");
        assert!(
            remote <= on_nodes,
            "{name}: {remote} bytes per key on memory nodes"
        );
        assert!(cache <= cached, "{name}: {cache} bytes per key in the cache");
    }
}
