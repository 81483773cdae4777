//! Tests of the exact cost of each operation, with all inner nodes cached and no other client. The costs are the same
//! on loopback and in the simulator. The tests also measure the memory of a tree.

use chime::{Key8, Options};
use dm_index::Fill as Filled;
use dm_index::{Applied, RangeIndex, Scan};
use dm_sim::{CostModel, Sim};
use dm_testkit::{IndexUnderTest, Job, ScanCost, World, cost_of_scans, counted};
use dm_verbs::{Control, Counters, Verbs};

use crate::common::Tree;

/// The counters that are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Cost {
    round_trips: u64,
    doorbells: u64,
    reads: u64,
    bytes_read: u64,
    writes: u64,
    bytes_written: u64,
    locks: u64,
}

impl Cost {
    fn of(c: Counters) -> Self {
        assert_eq!(
            [
                c.lock_retries,
                c.torn_reads,
                c.stale_reads,
                c.handovers,
                c.cache_misses,
                c.cas,
                c.faa
            ],
            [0; 7],
            "nobody else is there: {c:?}"
        );
        Self {
            round_trips: c.round_trips,
            doorbells: c.doorbells,
            reads: c.reads,
            bytes_read: c.bytes_read,
            writes: c.writes,
            bytes_written: c.bytes_written,
            locks: c.masked_cas,
        }
    }
}

/// Number of loaded keys. The keys are the even numbers below twice this number.
const LOADED: u64 = 5_000;
/// Number of keys that are measured.
const KEYS: u64 = 500;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Costs {
    get: Vec<Cost>,
    absent: Vec<Cost>,
    update: Vec<Cost>,
    insert: Vec<Cost>,
    present: Vec<Cost>,
    remove: Vec<Cost>,
    scans: Vec<(u64, Cost)>,
}

/// Returns options without a hotspot buffer, so that every get reads a neighbourhood.
const fn plain() -> Options {
    Options {
        hotspot_bytes: 0,
        ..Options::new(8)
    }
}

/// Returns the same options with the paper's leaves.
const fn published() -> Options {
    Options {
        span: chime::PUBLISHED_SPAN,
        ..plain()
    }
}

/// The sizes of a leaf.
struct Sizes {
    options: Options,
    leaf: u64,
    /// Entries of a leaf that was loaded to 0.7.
    loaded: u64,
}

const SHIPPED: Sizes = Sizes {
    options: plain(),
    leaf: 960,
    loaded: 29,
};
const PUBLISHED: Sizes = Sizes {
    options: published(),
    leaf: 1472,
    loaded: 45,
};

struct Measure(Options);

impl Job for Measure {
    type Out = Costs;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Costs {
        let tree = Tree::<Key8>::new(self.0).open(v).await.expect("an empty pool");
        let client = tree.client(v);
        let mut next = (0..LOADED).map(|n| Key8(n * 2));
        let loaded = client.bulk_load(0.7, |out| {
            out.extend_from_slice(&[7; 8]);
            next.next()
        });
        assert_eq!(loaded.await, Ok(LOADED));
        tree.warm(v).await.expect("inner nodes");
        let mut before = v.meter().counters();
        let mut lap = || {
            let now = v.meter().counters();
            Cost::of(now - core::mem::replace(&mut before, now))
        };
        let (mut out, mut costs) = (Vec::with_capacity(8), Costs::default());
        // The keys are from all parts of the tree, so that no leaf becomes full.
        for key in (0..KEYS).map(|n| n * (2 * LOADED / KEYS)) {
            let (even, odd) = (Key8(key), Key8(key + 1));
            assert_eq!(client.get(&even, &mut out).await, Ok(true));
            costs.get.push(lap());
            assert_eq!(client.get(&odd, &mut out).await, Ok(false));
            costs.absent.push(lap());
            assert_eq!(client.update(&even, &[3; 8]).await, Ok(Applied::Replaced));
            costs.update.push(lap());
            assert_eq!(client.insert(&odd, &[4; 8]).await, Ok(Applied::Inserted));
            costs.insert.push(lap());
            assert_eq!(client.insert(&odd, &[4; 8]).await, Ok(Applied::Present));
            costs.present.push(lap());
            assert_eq!(client.remove(&odd).await, Ok(Applied::Removed));
            costs.remove.push(lap());
        }
        let mut scan = Scan::new();
        for entries in [1, 50, 1_000] {
            lap();
            assert_eq!(client.scan(&Key8(700), entries, &mut scan).await, Ok(()));
            costs.scans.push((entries as u64, lap()));
        }
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

/// Returns whether the cost is that of one neighbourhood: one READ, or two READs if the neighbourhood wraps around. The
/// two READs contain both copies of the hop count between the node's last and first group.
fn is_one_neighbourhood(cost: &Cost) -> bool {
    cost.reads <= 2 && (140..=175).contains(&cost.bytes_read)
}

#[test]
fn budgets_are_met_to_the_byte() {
    for sizes in [SHIPPED, PUBLISHED] {
        check_budgets(&sizes);
    }
}

fn check_budgets(sizes: &Sizes) {
    let found = loopback().run_one(Measure(sizes.options));
    assert_eq!(
        found,
        simulated().run_one(Measure(sizes.options)),
        "the meter counts the same in every world"
    );
    for cost in found.get.iter().chain(&found.absent) {
        assert!(is_one_neighbourhood(cost), "{cost:?}");
        assert_eq!((cost.round_trips, cost.doorbells), (1, 1), "{cost:?}");
        assert_eq!((cost.writes, cost.locks), (0, 0), "{cost:?}");
    }
    let wrapped = found.get.iter().filter(|cost| cost.reads == 2).count() as u64;
    assert!(
        (KEYS / 20..KEYS / 4).contains(&wrapped),
        "7 homes of a leaf: {wrapped}"
    );
    for cost in &found.update {
        // An update writes the value and the lock word.
        assert_eq!((cost.round_trips, cost.writes, cost.locks), (2, 2, 1), "{cost:?}");
        assert_eq!(cost.bytes_written, 8 + 8, "{cost:?}");
        assert!(is_one_neighbourhood(cost), "{cost:?}");
    }
    for cost in &found.present {
        assert_eq!((cost.round_trips, cost.writes, cost.locks), (2, 1, 1), "{cost:?}");
        assert!(is_one_neighbourhood(cost), "{cost:?}");
    }
    let (straight, others): (Vec<&Cost>, Vec<&Cost>) =
        found.insert.iter().partition(|c| c.bytes_written == 17 + 8);
    for cost in &straight {
        assert_eq!((cost.round_trips, cost.writes, cost.locks), (2, 2, 1), "{cost:?}");
        assert!(is_one_neighbourhood(cost), "{cost:?}");
    }
    let (hopped, split): (Vec<&Cost>, Vec<&Cost>) = others.into_iter().partition(|c| c.locks == 1);
    for cost in &hopped {
        // An insert reads the slots behind the neighbourhood, and then perhaps the rest of the leaf, but no byte twice.
        // It hops at most three times, and writes at most four lines for each hop, and then the unlock.
        match cost.round_trips {
            3 => assert!(cost.reads <= 4 && cost.bytes_read <= 175 + 360, "{cost:?}"),
            4 => assert_eq!(cost.bytes_read, sizes.leaf, "{cost:?}"),
            _ => panic!("{cost:?}"),
        }
        assert!(cost.bytes_written <= 3 * 4 * 64 + 8, "{cost:?}");
    }
    let written: u64 = hopped.iter().map(|cost| cost.bytes_written).sum();
    assert!(
        written <= 240 * hopped.len() as u64,
        "{written} by {}",
        hopped.len()
    );
    let met = (straight.len(), hopped.len(), split.len());
    assert!(met.1 > 0 && met.1 < met.0 / 4 && met.2 < met.0 / 50, "{met:?}");
    for cost in &found.remove {
        // A remove writes the presence byte and the lock word. If its neighbourhood becomes empty, it also reads the
        // leaf.
        assert_eq!((cost.writes, cost.bytes_written), (2, 1 + 8), "{cost:?}");
        assert!(
            cost.round_trips == 2 || cost.round_trips == 3 && cost.bytes_read > sizes.leaf,
            "{cost:?}"
        );
    }
    for (entries, cost) in found.scans {
        let leaves = cost.reads;
        assert_eq!(
            cost.round_trips,
            leaves.div_ceil(32),
            "{entries} entries: {cost:?}"
        );
        assert_eq!(
            cost.bytes_read,
            leaves * sizes.leaf,
            "{entries} entries: {cost:?}"
        );
        // A scan may read one leaf more than its entries fill, because it begins within a leaf. It also reads leaves
        // for a margin of a tenth of a leaf.
        let loaded = sizes.loaded;
        assert!(
            leaves <= (entries + loaded + loaded / 9).div_ceil(loaded),
            "{entries} entries: {cost:?}"
        );
    }
}

/// A job that loads leaves to this fill, and then inserts and removes keys from all parts of the tree, one by one. It
/// returns the average number of bytes read, of bytes written, and of round trips of an insert. The averages include
/// splits, with their changes of inner nodes.
struct AtFill(Options, f64);

impl Job for AtFill {
    type Out = [f64; 3];
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Self::Out {
        let tree = Tree::<Key8>::new(self.0).open(v).await.expect("an empty pool");
        let client = tree.client(v);
        let loaded = 50_000;
        let mut next = (0..loaded).map(|n| Key8(n * 2));
        let load = client.bulk_load(self.1, |out| {
            out.extend_from_slice(&[7; 8]);
            next.next()
        });
        assert_eq!(load.await, Ok(loaded));
        tree.warm(v).await.expect("inner nodes");
        let (inserts, mut sum) = (5_000, Counters::default());
        for n in 0..inserts {
            let key = Key8(n * (2 * loaded / inserts) + 1);
            let before = v.meter().counters();
            assert_eq!(client.insert(&key, &[4; 8]).await, Ok(Applied::Inserted));
            sum += v.meter().counters() - before;
            assert_eq!(client.remove(&key).await, Ok(Applied::Removed));
        }
        [sum.bytes_read, sum.bytes_written, sum.round_trips].map(|count| count as f64 / inserts as f64)
    }
}

/// The fuller leaves are, the more inserts hop, and the more of them read the whole leaf.
#[test]
fn inserts_meet_their_budget_at_each_fill() {
    let budgets = [
        (plain(), 0.5, [173.0, 28.0, 2.02]),
        (plain(), 0.7, [190.0, 36.0, 2.07]),
        (plain(), 0.9, [440.0, 285.0, 2.8]),
        (published(), 0.5, [171.0, 26.0, 2.01]),
        (published(), 0.7, [206.0, 43.0, 2.09]),
        (published(), 0.9, [440.0, 310.0, 2.62]),
    ];
    let met = budgets.map(|(options, fill, budget)| {
        let met = loopback().run_one(AtFill(options, fill));
        let kept = met.iter().zip(budget).all(|(met, budget)| *met <= budget);
        (kept, fill, met)
    });
    assert!(met.iter().all(|(kept, ..)| *kept), "{met:?}");
}

struct Fill(Options, u64);

impl Job for Fill {
    type Out = (f64, f64, [f64; 3]);
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Self::Out {
        let tree = Tree::<Key8>::new(self.0).open(v).await.expect("an empty pool");
        let client = tree.client(v);
        let mut half = v.meter().counters();
        for n in 0..self.1 {
            if n == self.1 / 2 {
                half = v.meter().counters();
            }
            // Multiplication by an odd number permutes all numbers.
            let key = Key8(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            assert_eq!(client.insert(&key, &[1; 8]).await, Ok(Applied::Inserted));
        }
        let later = v.meter().counters() - half;
        let later = [later.bytes_read, later.bytes_written, later.round_trips];
        tree.warm(v).await.expect("inner nodes");
        let per_key = |bytes: f64| bytes / self.1 as f64;
        (
            per_key(tree.allocated_bytes() as f64),
            per_key(tree.cache_bytes() as f64),
            later.map(|count| count as f64 / (self.1 / 2) as f64),
        )
    }
}

/// Measures the bytes per key after inserts in random order. Also measures the bytes and round trips of an insert in
/// the second half, in which the fill of the leaves is steady.
#[test]
fn a_tree_is_small() {
    let budgets = [
        (plain(), 39.0, 0.54, [308.0, 133.0, 2.42]),
        (published(), 38.0, 0.5, [300.0, 130.0, 2.3]),
    ];
    let met = budgets.map(|(options, remote, cache, insert)| {
        let met = loopback().run_one(Fill(options, 200_000));
        let kept = met.0 <= remote && met.1 <= cache;
        let kept = kept && met.2.iter().zip(insert).all(|(met, budget)| *met <= budget);
        (kept, met)
    });
    assert!(met.iter().all(|(kept, ..)| *kept), "{met:?}");
}

/// A job that scans 1 to 100 entries of leaves with this fill.
struct Scans(Options, Filled);

impl Job for Scans {
    type Out = ScanCost;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> ScanCost {
        let tree = Tree::<Key8>::new(self.0).open(v).await.expect("an empty pool");
        cost_of_scans(v, &tree.client(v), self.1, async || {
            tree.warm(v).await.expect("inner nodes");
        })
        .await
    }
}

/// Scans of 1 to 100 entries read little more than the leaves with these entries. Few scans need a second batch.
#[test]
fn scans_meet_their_budget() {
    let budgets = [
        (plain(), Filled::Even(0.8), 2_590.0),
        (plain(), Filled::AsInserted, 2_850.0),
        (published(), Filled::Even(0.8), 3_100.0),
        (published(), Filled::AsInserted, 3_480.0),
    ];
    let met = budgets.map(|(options, fill, bytes)| {
        let met = loopback().run_one(Scans(options, fill));
        (met.bytes <= bytes && met.round_trips <= 1.1, fill, met)
    });
    assert!(met.iter().all(|(kept, ..)| *kept), "{met:?}");
}

/// A job that reads each of some keys several times: twice at first, once after an update, and twice after a removal.
/// The counters show whether the client guessed the position of the key's entry, and whether the guess was correct.
struct Speculate;

impl Job for Speculate {
    type Out = ();
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) {
        let options = Options {
            hotspot_bytes: 64 << 10,
            ..Options::new(8)
        };
        let tree = Tree::<Key8>::new(options).open(v).await.expect("an empty pool");
        let hotspots = tree.hotspots().expect("asked for");
        assert!(hotspots.bytes() <= 64 << 10 && hotspots.bytes() > (64 << 10) - 64);
        let client = tree.client(v);
        let mut next = (0..LOADED).map(|n| Key8(n * 2));
        let loaded = client.bulk_load(0.7, |out| {
            out.extend_from_slice(&[7; 8]);
            next.next()
        });
        assert_eq!(loaded.await, Ok(LOADED));
        tree.warm(v).await.expect("inner nodes");
        let mut before = v.meter().counters();
        let mut lap = || {
            let now = v.meter().counters();
            now - core::mem::replace(&mut before, now)
        };
        let mut out = Vec::with_capacity(8);
        for key in (0..KEYS).map(|n| Key8(n * (2 * LOADED / KEYS))) {
            assert_eq!(client.get(&key, &mut out).await, Ok(true));
            assert_eq!(lap().speculations, 0, "no hotspot is stored yet");
            assert_eq!(client.get(&key, &mut out).await, Ok(true));
            let right = Cost::of(lap());
            assert_eq!((right.round_trips, right.reads, right.bytes_read), (1, 1, 17));
            assert_eq!(client.update(&key, &[8; 8]).await, Ok(Applied::Replaced));
            lap();
            assert_eq!(client.get(&key, &mut out).await, Ok(true));
            assert_eq!((out.as_slice(), lap().bytes_read), (&[8; 8][..], 17));
            assert_eq!(client.remove(&key).await, Ok(Applied::Removed));
            lap();
            // The guess is wrong, but only once.
            assert_eq!(client.get(&key, &mut out).await, Ok(false));
            let wrong = lap();
            assert_eq!((wrong.speculations, wrong.wrong_speculations), (1, 1));
            assert_eq!(wrong.round_trips, 2, "{wrong:?} {key:?}");
            assert!((17 + 140..=17 + 175).contains(&wrong.bytes_read), "{wrong:?}");
            assert_eq!(client.get(&key, &mut out).await, Ok(false));
            let forgotten = lap();
            assert_eq!((forgotten.speculations, forgotten.round_trips), (0, 1));
        }
    }
}

#[test]
fn a_hotspot_is_read_alone() {
    // This runs in virtual time, because a thread that is delayed beyond the version window would read once more.
    simulated().run_one(Speculate);
}
