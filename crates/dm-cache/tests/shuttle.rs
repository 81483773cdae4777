//! Runs the caches of a compute node under shuttle: the index cache under eviction, the sketch, and the hotspots. Each
//! model has a broken twin that must fail.
#![cfg(dm_shuttle)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;

use dm_cache::{CacheFlaws, Hit, HotspotFlaws, Hotspots, IndexCache, NodeImage, Origin, Sketch};
use dm_layout::Key8;
use dm_sync::atomic::{AtomicU64, Ordering::Relaxed};
use dm_sync::schedules::{Witness, below, explore, must_fail};
use dm_sync::{Arc, Mutex, thread};
use dm_verbs::{NodeId, RemotePtr};

/// Runs `client` in `many` threads, and passes each thread its number.
fn threads<T: Send + Sync + 'static>(
    shared: &Arc<T>,
    many: u64,
    client: impl Fn(&T, u64) + Copy + Send + 'static,
) {
    let threads: Vec<_> = (0..many)
        .map(|number| {
            let shared = Arc::clone(shared);
            thread::spawn(move || client(&shared, number))
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}

/// A source of distinct numbers from 1 on. It also lists the numbers that lookups must no longer see, with their keys.
#[derive(Default)]
struct Lives {
    next: AtomicU64,
    ended: Mutex<BTreeSet<(u64, u64)>>,
}

impl Lives {
    fn begin(&self) -> u64 {
        // Relaxed, here and below: shuttle treats every access as SeqCst.
        self.next.fetch_add(1, Relaxed) + 1
    }

    /// Records that later lookups must not see the number at this key.
    fn end(&self, life: u64, key: u64) {
        self.ended.with(|ended| ended.insert((life, key)));
    }

    /// Returns the numbers that later lookups must not see.
    fn ended(&self) -> BTreeSet<(u64, u64)> {
        self.ended.with(|ended| ended.clone())
    }
}

/// Number of nodes of level 1, and number of keys of each.
const NODES: u64 = 6;
const SPAN: u64 = 100;

/// The key under which the removal of a whole image is recorded.
const ANY_KEY: u64 = 0;

const PINNED: &str = "the level above is not evicted for one below";

struct Cached {
    cache: IndexCache<u64>,
    budget: u64,
    /// The number of each image.
    lives: Lives,
}

/// Returns the child that starts at `low` in the image with this number.
fn child(low: u64, life: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), (life << 16 | low) << 6).unwrap()
}

fn life_of(hit: &Hit<u64>) -> u64 {
    hit.child.offset() >> 22
}

impl Cached {
    fn new(budget: u64, flaws: CacheFlaws) -> Arc<Self> {
        let (cache, lives) = (IndexCache::new(budget).with_flaws(flaws), Lives::default());
        Arc::new(Self { cache, budget, lives })
    }

    /// Returns the bytes of a cache with `nodes` nodes of level 1 and the node of level 2.
    fn room_for(nodes: u64) -> u64 {
        let probe = Self::new(u64::MAX, CacheFlaws::default());
        probe.admit_above();
        (0..nodes).for_each(|node| probe.admit(node * SPAN, node * SPAN + SPAN));
        probe.cache.bytes()
    }

    /// Caches the node of level 2.
    fn admit_above(&self) {
        self.cache.admit(NodeImage {
            at: RemotePtr::new(NodeId(1), 1 << 20).unwrap(),
            level: 2,
            low: 0,
            high: Some(NODES * SPAN),
            incarnation: 0,
            entries: (0..NODES).map(|node| (node * SPAN, child(node * SPAN, 0))),
        });
    }

    /// Caches a new image of a node of level 1 with children at every 25th key.
    fn admit(&self, low: u64, high: u64) {
        let life = self.lives.begin();
        self.cache.admit(NodeImage {
            at: RemotePtr::new(NodeId(0), (low + 1) << 20).unwrap(),
            level: 1,
            low,
            high: Some(high),
            incarnation: life as u32,
            entries: (low..high).step_by(25).map(|low| (low, child(low, life))),
        });
    }

    /// Admits a whole node, or one half of a node after a split.
    fn admit_some(&self) {
        let low = SPAN * below(NODES);
        match below(4) {
            0 => self.admit(low, low + SPAN / 2),
            1 => self.admit(low + SPAN / 2, low + SPAN),
            _ => self.admit(low, low + SPAN),
        }
        assert!(self.cache.bytes() <= self.budget, "more bytes than the budget");
    }

    fn check(&self, hit: &Hit<u64>, key: u64, ended: &BTreeSet<(u64, u64)>) {
        let covers = hit.low <= key && hit.high.is_some_and(|high| key < high);
        assert!(covers, "a child of another node");
        assert_eq!(child(hit.low, life_of(hit)), hit.child, "a child of another node");
        let alive = hit.child_level > 0 || !ended.contains(&(life_of(hit), ANY_KEY));
        assert!(alive, "an image that was taken away");
    }

    /// Looks up a key, in level 1 or above.
    fn look(&self, key: u64) -> Hit<u64> {
        let ended = self.lives.ended();
        let hit = self.cache.lookup(&key).expect(PINNED);
        self.check(&hit, key, &ended);
        hit
    }

    /// Reports an image of level 1 as wrong. Later lookups must not see it. Does nothing for an image of level 2.
    fn invalidate(&self, origin: Origin<u64>, life: u64) {
        if origin.level == 1 && self.cache.invalidate(origin) {
            self.lives.end(life, ANY_KEY);
        }
    }
}

static GONE: Witness = Witness::new("an image that was gone between its finding and its reading");
static EVICTED: Witness = Witness::new("a node that was evicted");
static STALE: Witness = Witness::new("an image that somebody else had taken away");

fn cache_client(shared: &Cached) {
    let cache = &shared.cache;
    let mut seen: Option<Hit<u64>> = None;
    for _ in 0..12 {
        let key = below(NODES * SPAN);
        match below(8) {
            0..3 => shared.admit_some(),
            3 => seen = Some(shared.look(key)),
            // The client is delayed between the two halves of a lookup.
            4 | 5 => {
                let ended = shared.lives.ended();
                let found = cache.find(&key).expect(PINNED);
                match cache.read(&found, &key) {
                    Some(hit) => shared.check(&hit, key, &ended),
                    None => GONE.seen(),
                }
            }
            6 => {
                if let Some(hit) = seen.take() {
                    if cache.read(&hit.origin, &hit.low).is_none() {
                        STALE.seen();
                    }
                    shared.invalidate(hit.origin, life_of(&hit));
                }
            }
            _ => {
                let (ended, mut hits) = (shared.lives.ended(), Vec::new());
                cache.run(&key, 9, |hit| hits.push(hit));
                for hit in &hits {
                    shared.check(hit, key.max(hit.low), &ended);
                }
                let follows = hits.windows(2).all(|pair| pair[0].high == Some(pair[1].low));
                assert!(follows, "a run with a gap, or a key twice");
            }
        }
    }
}

fn caches(flaws: CacheFlaws) {
    let shared = Cached::new(Cached::room_for(3), flaws);
    shared.admit_above();
    (0..NODES).for_each(|node| shared.admit(node * SPAN, node * SPAN + SPAN));
    threads(&shared, 5, |shared, _| cache_client(shared));
    for _ in shared.cache.len_at(1) as u64..NODES {
        EVICTED.seen();
    }
}

#[test]
fn readers_beside_eviction_find_their_nodes() {
    explore(
        "an index cache under eviction",
        &[&GONE, &EVICTED, &STALE],
        || {
            caches(CacheFlaws::default());
        },
    );
    must_fail("a recycled slot", "a child of another node", || {
        caches(CacheFlaws { recycled_slot: true });
    });
}

/// Runs the broken twin of a cache with a budget: four clients use a cache without a budget, and each makes room in one
/// section and caches a node in the next one. The cache itself does both in one section.
fn room_in_another_section() {
    let budget = Cached::room_for(2);
    let shared = Cached::new(u64::MAX, CacheFlaws::default());
    shared.admit_above();
    threads(&shared, 4, move |shared, _| {
        for _ in 0..4 {
            let cache = &shared.cache;
            if cache.len_at(1) == 2 {
                cache.clear();
                shared.admit_above();
            }
            let node = below(NODES);
            shared.admit(node * SPAN, node * SPAN + SPAN);
            assert!(cache.bytes() <= budget, "more bytes than the budget");
        }
    });
}

#[test]
fn room_made_in_another_section_is_found() {
    must_fail(
        "two sections",
        "more bytes than the budget",
        room_in_another_section,
    );
}

/// Number of leaves of the tree that a sketch describes, and number of keys of each.
const LEAVES: u64 = 48;
const WIDTH: u64 = 70;
/// A budget that suffices for all leaves.
const ROOMY: u64 = 1 << 16;

#[derive(Clone, Copy, PartialEq)]
enum SketchMutant {
    None,
    /// Records that a leaf is gone before the leaf is removed.
    SaysSoFirst,
    /// Removes a leaf in one section, and adds its successor in another section.
    InTwoSections,
}

struct Sketched {
    sketch: Sketch<Key8>,
    budget: u64,
    /// The number of each entry.
    lives: Lives,
}

impl Sketched {
    fn new(budget: u64) -> Arc<Self> {
        let (sketch, lives) = (Sketch::new(budget), Lives::default());
        Arc::new(Self {
            sketch,
            budget,
            lives,
        })
    }

    /// Returns the address of a leaf in the entry with this number.
    fn at(leaf: u64, life: u64) -> RemotePtr {
        let line = (life * LEAVES + leaf) * 16 + 16;
        RemotePtr::new(NodeId((life % 3) as u16), line * 64).unwrap()
    }

    /// Returns the leaf at this address, and the number of its entry.
    fn known(at: RemotePtr) -> (u64, u64) {
        let number = at.offset() / 1024 - 1;
        (number % LEAVES, number / LEAVES)
    }

    fn admit(&self, from: u64, until: u64) {
        let run: Vec<_> = (from..until)
            .map(|leaf| (Key8(leaf * WIDTH), Self::at(leaf, self.lives.begin())))
            .collect();
        let high = (until < LEAVES).then_some(Key8(until * WIDTH));
        self.sketch.admit(run, high);
        self.within_budget();
    }

    fn within_budget(&self) {
        assert!(self.sketch.bytes() <= self.budget, "more bytes than the budget");
    }

    /// Looks up a key. The result must not be a leaf to the right of the key's leaf, nor a leaf that was removed
    /// before.
    fn look(&self, key: u64) -> Option<RemotePtr> {
        let ended = self.lives.ended();
        let hint = self.sketch.leaf(&Key8(key))?;
        let (leaf, life) = Self::known(hint);
        assert!(leaf * WIDTH <= key, "a leaf to the right");
        // A removed leaf must not be returned for the key with which it was reported. For other keys it may still be
        // returned, if one run of admitted leaves ended within the range of another run. If there is no room for all
        // leaves, a leaf is also returned for keys of omitted leaves to its right.
        let gone = self.budget == ROOMY && ended.contains(&(life, key));
        assert!(!gone, "a leaf that was taken away");
        Some(hint)
    }
}

static TAKEN: Witness = Witness::new("an entry taken away");
static NOT_TAKEN: Witness = Witness::new("an entry that was another's by then");
static THINNED: Witness = Witness::new("a sketch that was thinned");

fn sketch_client(shared: &Sketched, mutant: SketchMutant) {
    let sketch = &shared.sketch;
    let mut seen: Option<(u64, RemotePtr)> = None;
    for _ in 0..10 {
        let leaf = below(LEAVES);
        let key = leaf * WIDTH + below(2) * WIDTH / 2;
        match below(8) {
            0 => shared.admit(leaf, LEAVES.min(leaf + 1 + below(12))),
            1 | 2 => {
                let at = Sketched::at(leaf, shared.lives.begin());
                sketch.insert(&Key8(leaf * WIDTH), at);
                shared.within_budget();
            }
            3..6 => seen = shared.look(key).map(|hint| (key, hint)).or(seen),
            how => {
                let Some((key, hint)) = seen.take() else { continue };
                let (leaf, life) = Sketched::known(hint);
                // The client reports that the hint for the key was wrong, or that the key's leaf was merged into the
                // leaf to its left.
                let key = if how == 6 { key } else { leaf * WIDTH };
                if mutant == SketchMutant::SaysSoFirst {
                    shared.lives.end(life, key);
                }
                let gone = match how {
                    6 => sketch.forget(&Key8(key), hint),
                    _ => sketch.merged(&Key8(key), hint),
                };
                if gone {
                    shared.lives.end(life, key);
                }
                if gone { TAKEN.seen() } else { NOT_TAKEN.seen() }
            }
        }
    }
}

fn sketches(mutant: SketchMutant) {
    // The budget suffices for some of the leaves, or for all.
    let shared = Sketched::new([700, 1_200, ROOMY, ROOMY][below(4) as usize]);
    shared.admit(0, LEAVES);
    if (shared.sketch.len() as u64) < LEAVES {
        THINNED.seen();
    }
    threads(&shared, 5, move |shared, _| sketch_client(shared, mutant));
    shared.within_budget();
    for key in (0..LEAVES * WIDTH).step_by(WIDTH as usize / 2) {
        shared.look(key);
    }
}

#[test]
fn a_sketch_never_leads_to_the_right_nor_to_what_is_gone() {
    let witnesses = [&TAKEN, &NOT_TAKEN, &THINNED];
    explore("a sketch that five change", &witnesses, || {
        sketches(SketchMutant::None)
    });
    must_fail("says so first", "a leaf that was taken away", || {
        sketches(SketchMutant::SaysSoFirst);
    });
}

/// Runs clients that add and replace entries, and clients that look up keys. Only the mutant removes entries, so
/// without it every lookup must find a leaf.
fn moves(mutant: SketchMutant) {
    let shared = Sketched::new(ROOMY);
    shared.admit(0, LEAVES);
    threads(&shared, 5, move |shared, number| {
        for _ in 0..8 {
            let leaf = below(LEAVES);
            match number {
                0..2 => {
                    if mutant == SketchMutant::InTwoSections
                        && let Some(hint) = shared.look(leaf * WIDTH)
                    {
                        shared.sketch.forget(&Key8(leaf * WIDTH), hint);
                    }
                    shared.admit(leaf, LEAVES.min(leaf + 1 + below(6)));
                }
                2 => {
                    let at = Sketched::at(leaf, shared.lives.begin());
                    let entered = shared.sketch.insert(&Key8(leaf * WIDTH), at);
                    assert!(entered, "a hole");
                }
                _ => assert!(shared.look(leaf * WIDTH + below(WIDTH)).is_some(), "a hole"),
            }
        }
    });
}

#[test]
fn readmitted_leaves_leave_no_hole() {
    explore("moves in a sketch", &[], || moves(SketchMutant::None));
    must_fail("in two sections", "a hole", || moves(SketchMutant::InTwoSections));
}

/// Makes a table of `sets` sets.
fn hotspots(sets: usize, flaws: HotspotFlaws) -> Hotspots {
    let table = (0..).step_by(8).find_map(|bytes| {
        let table = Hotspots::new(bytes)?;
        (table.capacity() == sets * dm_sync::scaled(8, 2)).then_some(table)
    });
    table.unwrap().with_flaws(flaws)
}

static AGED: Witness = Witness::new("a hotspot whose count was halved");

/// Runs three clients, each with one key, on a table that has room for two. After a client has reported its key's slot
/// as wrong, the table must not guess this slot until the client has found the key there again. Any other guess must be
/// the slot of the key.
fn hotspot_clients(flaws: HotspotFlaws) {
    let shared = Arc::new(hotspots(1, flaws));
    threads(&shared, 3, |hot, key| {
        let leaf = RemotePtr::new(NodeId(0), 64).unwrap();
        let slot = key as u16 + 7;
        let mut found = 0;
        for _ in 0..16 {
            if below(5) == 0 {
                hot.wrong(leaf, key, slot);
                found = 0;
            } else {
                hot.found(leaf, key, slot);
                found += 1;
                if found > 3 {
                    AGED.seen();
                }
            }
            let guess = hot.guess(leaf, key);
            assert!(
                guess.is_none() || guess == Some(slot) && found > 0,
                "a hotspot where nothing is"
            );
            assert!(hot.len() <= hot.capacity());
        }
    });
}

#[test]
fn a_wrong_hotspot_is_removed() {
    explore("hotspots", &[&AGED], || hotspot_clients(HotspotFlaws::default()));
    must_fail("blind stores", "a hotspot where nothing is", || {
        hotspot_clients(HotspotFlaws { blind_stores: true });
    });
}
