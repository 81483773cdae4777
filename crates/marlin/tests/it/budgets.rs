//! Tests of the cost of each operation, with all inner nodes cached and no other client. The costs are exact to the
//! verb and the byte, except those of scans. The costs are the same on loopback and in the simulator. The tests also
//! measure the memory of a tree.

use dm_index::{Applied, RangeIndex, Scan};
use dm_sim::{CostModel, Sim};
use dm_testkit::{IndexUnderTest, Job, World, counted};
use dm_verbs::{AtomicVsWrite, Control, Counters, Verbs};
use marlin::{Key8, Options};

use crate::common::Tree;

/// The counters: round trips, doorbells, READs, bytes read, WRITEs, bytes written, FAAs, masked CASes, and plain CASes.
type Cost = [u64; 9];

fn cost_of(c: Counters) -> Cost {
    let disturbed = [
        c.lock_retries,
        c.torn_reads,
        c.stale_reads,
        c.handovers,
        c.cache_misses,
    ];
    assert_eq!(disturbed, [0; 5], "nobody else is there: {c:?}");
    [
        c.round_trips,
        c.doorbells,
        c.reads,
        c.bytes_read,
        c.writes,
        c.bytes_written,
        c.faa,
        c.masked_cas,
        c.cas,
    ]
}

/// Number of loaded keys. The keys are the even numbers below twice this number.
const LOADED: u64 = 5_000;
/// Number of keys that are measured.
const KEYS: u64 = 500;
const LEAF: u64 = 1024;
/// A block with a value of 8 bytes, which is one line.
const BLOCK: u64 = 64;
/// The bytes that an insert writes in a leaf: a word and a key. A remove writes one byte.
const ENTRY: u64 = 16;
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
        assert!(tree.warm(v).await.expect("inner nodes") > 1);
        // These updates fill the allocator's free lists, so that no measured operation requests a chunk.
        for key in [Key8(0), Key8(2)] {
            assert_eq!(client.update(&key, &[3; 8]).await, Ok(Applied::Replaced));
        }
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
            costs.push(("get absent", 1, lap()));
            assert_eq!(client.update(&even, &[3; 8]).await, Ok(Applied::Replaced));
            costs.push(("update", 1, lap()));
            assert_eq!(client.insert(&odd, &[4; 8]).await, Ok(Applied::Inserted));
            costs.push(("insert", 1, lap()));
            assert_eq!(client.upsert(&odd, &[4; 8]).await, Ok(Applied::Replaced));
            costs.push(("update", 1, lap()));
            assert_eq!(client.remove(&odd).await, Ok(Applied::Removed));
            costs.push(("remove", 1, lap()));
        }
        let mut scan = Scan::new();
        for entries in [1, 32, 320] {
            lap();
            assert_eq!(client.scan(&Key8(700), entries, &mut scan).await, Ok(()));
            assert_eq!(scan.len(), entries);
            costs.push(("scan", entries as u64, lap()));
        }
        costs
    }
}

fn loopback() -> World {
    counted().nodes(2).build().expect("memory").into()
}

fn simulated(model: CostModel, options: Options) -> Vec<(&'static str, u64, Cost)> {
    let sim = Sim::builder(model).memory_nodes(2);
    World::from(sim.build().expect("memory")).run_one(Measure(options))
}

#[test]
fn budgets_are_met_to_the_byte() {
    let on = Options::new(8);
    let cx6 = CostModel::cx6_roce();
    let found = loopback().run_one(Measure(on));
    assert_eq!(
        found,
        simulated(cx6.clone(), on),
        "the meter counts the same in every world"
    );
    within(found, 3, on);
    within(loopback().run_one(Measure(on.published())), 4, on.published());
    // If locks can be shared, no WRITE changes a lock word. So the costs do not change if atomics race with WRITEs.
    let mut racy = cx6.clone();
    racy.caps.atomic_vs_write = AtomicVsWrite::Racy;
    within(simulated(racy, on), 3, on);
    let off = Options { shared: false, ..on };
    within(simulated(cx6.clone(), off), 3, off);
    // Without masked atomics, no lock is shared.
    let mut plain = cx6;
    plain.caps.masked_atomics = false;
    for (operation, _, cost) in simulated(plain, on) {
        assert!(
            operation == "scan" || cost[0] <= 4 && cost[6] == 0,
            "{operation}: {cost:?}"
        );
    }
}

/// Checks the costs. An insert or an update takes `trips` round trips, and a remove one less, because it writes no block.
fn within(found: Vec<(&'static str, u64, Cost)>, trips: u64, options: Options) {
    let shared = options.shared;
    for (operation, entries, cost) in found {
        let [_, doorbells, reads, bytes, ..] = cost;
        let write =
            |writes, written, faa, masked, cas| [trips, trips, 1, LEAF, writes, written, faa, masked, cas];
        let remove = |writes, written, masked| [trips - 1, trips - 1, 1, LEAF, writes, written, 0, masked, 0];
        let expected = match operation {
            "get" => [2, 2, 2, LEAF + BLOCK, 0, 0, 0, 0, 0],
            "get absent" => [1, 1, 1, LEAF, 0, 0, 0, 0, 0],
            "update" if shared => write(1, BLOCK, 2, 0, 1),
            "insert" if shared => write(2, BLOCK + ENTRY, 0, 2, 0),
            "remove" if shared => remove(1, PRESENCE, 2),
            "update" => write(3, BLOCK + 8 + LOCK, 0, 1, 0),
            "insert" => write(3, BLOCK + ENTRY + LOCK, 0, 1, 0),
            "remove" => remove(2, PRESENCE + LOCK, 1),
            _ => {
                // Each batch of 32 entries is a scan of the leaves, and then a READ of each block.
                let batches = entries.div_ceil(31);
                assert!(cost[0] <= 2 * batches + 2, "{entries}: {cost:?}");
                assert!(
                    (entries..=entries + 4 * batches + 4).contains(&reads),
                    "{entries}: {cost:?}"
                );
                [cost[0], doorbells, reads, bytes, 0, 0, 0, 0, 0]
            }
        };
        assert_eq!(cost, expected, "{operation} of {entries}");
    }
}

/// A job that inserts this many keys with values of 8 bytes, in random order.
struct Fill(u64);

impl Job for Fill {
    type Out = (f64, f64);
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Self::Out {
        let tree = Tree::<Key8>::new(Options::new(8));
        let tree = tree.open(v).await.expect("an empty pool");
        let client = tree.client(v);
        for n in 0..self.0 {
            // Multiplication by an odd number permutes all numbers.
            let key = Key8(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            assert_eq!(client.insert(&key, &[1; 8]).await, Ok(Applied::Inserted));
        }
        tree.warm(v).await.expect("inner nodes");
        let per_key = |bytes: f64| bytes / self.0 as f64;
        (
            per_key(tree.allocated_bytes() as f64),
            per_key(tree.cache_bytes() as f64),
        )
    }
}

/// Measures the bytes per key after inserts in random order: a share of a leaf, and a block of one line.
#[test]
fn a_tree_keeps_its_memory_budget() {
    let (remote, cache) = loopback().run_one(Fill(1 << 17));
    println!("{remote:.2} bytes per key on memory nodes, {cache:.3} in the cache");
    assert!(remote <= 64.0 + 33.0, "{remote} bytes per key on memory nodes");
    assert!(cache <= 0.65, "{cache} bytes per key in the cache");
}
