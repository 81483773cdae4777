//! What each operation costs, to the verb and the byte: all separators remembered, nobody else there. The same on loopback
//! and in the simulator. And what a tree takes.

use dm_index::{Applied, RangeIndex, Scan};
use dm_sim::{CostModel, Sim};
use dm_testkit::{IndexUnderTest, Job, World, counted};
use dm_verbs::{Control, Counters, Verbs};
use dolphin::{Key8, Options};

use crate::common::Tree;

/// What counts: round trips, doorbells, READs, bytes read, WRITEs, bytes written, locks.
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

/// Even numbers below twice as many are loaded.
const LOADED: u64 = 5_000;
/// So many keys are measured.
const KEYS: u64 = 500;
const LEAF: u64 = 1024;
/// What an update, an insert and a remove change, beside the lock.
const VALUE: u64 = 8;
const ENTRY: u64 = 17;
const PRESENCE: u64 = 1;
const LOCK: u64 = 8;

struct Measure;

impl Job for Measure {
    type Out = Vec<(&'static str, u64, Cost)>;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Self::Out {
        let tree = Tree::<Key8>::new(Options::new(8))
            .open(v)
            .await
            .expect("an empty pool");
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
        // From all over the tree, so that no leaf is filled up.
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

fn loopback() -> World {
    counted().nodes(2).build().expect("memory").into()
}

#[test]
fn budgets_are_met_to_the_byte() {
    let found = loopback().run_one(Measure);
    let sim = Sim::builder(CostModel::cx6_roce()).memory_nodes(2);
    let simulated = World::from(sim.build().expect("memory")).run_one(Measure);
    assert_eq!(found, simulated, "the meter counts the same in every world");
    for (operation, entries, cost) in found {
        let [_, _, reads, ..] = cost;
        let expected = match operation {
            "get" => [1, 1, 1, LEAF, 0, 0, 0],
            "update" => [2, 2, 1, LEAF, 2, VALUE + LOCK, 1],
            "insert" => [2, 2, 1, LEAF, 2, ENTRY + LOCK, 1],
            "remove" => [2, 2, 1, LEAF, 2, PRESENCE + LOCK, 1],
            _ => [reads.div_ceil(32), cost[1], reads, reads * LEAF, 0, 0, 0],
        };
        assert_eq!(cost, expected, "{operation} of {entries}");
        assert!(
            operation != "scan" || reads <= entries / 23 + 2,
            "{entries}: {cost:?}"
        );
    }
}

/// So many keys, dense or spread over all numbers.
struct Fill(u64, bool);

impl Job for Fill {
    type Out = (f64, f64);
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Self::Out {
        let tree = Tree::<Key8>::new(Options::new(8))
            .open(v)
            .await
            .expect("an empty pool");
        let client = tree.client(v);
        for n in 0..self.0 {
            // Odd multiples are a permutation of all numbers, and of those below a power of two.
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

/// After inserts in no order, every allocation counted.
#[test]
fn a_tree_is_small() {
    for (dense, limit) in [(true, 36.0), (false, 60.0)] {
        let (remote, cache) = loopback().run_one(Fill(1 << 17, dense));
        println!("dense: {dense}; {remote:.2} bytes per key on memory nodes, {cache:.3} remembered");
        assert!(remote <= limit, "{remote} bytes per key on memory nodes");
        assert!(cache <= 0.65, "{cache} bytes per key remembered");
    }
}
