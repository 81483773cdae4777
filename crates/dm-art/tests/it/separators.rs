//! Tests of separators: how they are found, cached, reported as wrong and removed. Leaves are addresses without
//! content, or `Toys` that can be merged.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;

use dm_art::Singles;
use dm_art::{ArtOptions, SeparatorOptions, SeparatorProof, Separators};
use dm_cache::IndexCache;
use dm_index::{
    Condition, Created, IndexError, Inner, Inspected, Key8, Located, Merge, Neighbours, NodeCopies, NodeCopy,
    Restructure, Run, Split, Survey, Tended,
};
use dm_layout::FenceKeys;
use dm_loopback::{Endpoint, Loopback, block_on};
use dm_verbs::{NodeId, RemotePtr};

use crate::common::{Setup, cost, pool};

type Entries = Separators<Key8, Singles<Key8>>;

/// Returns the address of leaf number `n`, which must not be 0.
fn leaf(n: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), n << 12).unwrap()
}

/// Returns the number of a leaf.
fn number(at: RemotePtr) -> u64 {
    at.offset() >> 12
}

struct World {
    pool: Loopback,
    v: Endpoint,
    entries: Entries,
}

fn setup() -> Setup {
    let small = Setup::small();
    let art = ArtOptions {
        cache_bytes: 0,
        ..small.art
    };
    Setup { art, ..small }
}

impl World {
    fn new(cache_bytes: u64, options: SeparatorOptions) -> Self {
        let pool = pool(1);
        let v = pool.connect(0).unwrap();
        let art = setup().open::<Key8>(&v);
        let entries = Separators::new(art, IndexCache::new(cache_bytes), options).unwrap();
        Self { pool, v, entries }
    }

    /// Makes leaves that begin at `n * 10`, except for leaf 1, which begins at 0.
    fn filled(cache_bytes: u64, options: SeparatorOptions, leaves: u64) -> Self {
        let this = Self::new(cache_bytes, options);
        assert_eq!(block_on(this.entries.plant(&this.v, leaf(1))), Ok(true));
        // The compute node has cached the first leaf, so it caches each leaf that is installed to the right of it.
        assert_eq!(found(&this.entries, &this.v, 0), Some(1));
        (2..=leaves).for_each(|n| this.install(n * 10, n));
        this
    }

    /// Opens the same entries on another compute node, whose cache is empty.
    fn other(&self, cache_bytes: u64, options: SeparatorOptions) -> (Endpoint, Entries) {
        let w = self.pool.connect(1).unwrap();
        let art = setup().open::<Key8>(&w);
        let entries = Separators::new(art, IndexCache::new(cache_bytes), options).unwrap();
        (w, entries)
    }

    fn install(&self, separator: u64, right: u64) {
        let split = Split {
            level: 0,
            separator: Key8(separator),
            until: None,
            left: RemotePtr::NULL,
            right: leaf(right),
        };
        assert_eq!(block_on(self.entries.install(&self.v, split)), Ok(()));
    }
}

fn find(entries: &Entries, v: &Endpoint, key: u64) -> Option<Located<SeparatorProof<Key8>>> {
    block_on(entries.find(v, &Key8(key))).unwrap()
}

/// Searches by reading the entries, and returns the number of the leaf that was found.
fn found(entries: &Entries, v: &Endpoint, key: u64) -> Option<u64> {
    find(entries, v, key).map(|located| number(located.leaf.at))
}

/// Returns the number of the leaf that is cached for `key`.
fn known(entries: &Entries, v: &Endpoint, key: u64) -> Option<u64> {
    entries
        .known(v, &Key8(key))
        .map(|located| number(located.leaf.at))
}

fn reach(entries: &Entries, proof: &SeparatorProof<Key8>) -> Option<u32> {
    Inner::<Endpoint, Key8>::reach(entries, proof)
}

const LARGE: u64 = 1 << 20;

fn plain() -> SeparatorOptions {
    SeparatorOptions::default()
}

#[test]
fn a_tree_with_a_cache_is_refused() {
    let pool = pool(1);
    let v = pool.connect(0).unwrap();
    let art = Setup::small().open::<Key8>(&v);
    let refused = Separators::new(art, IndexCache::new(LARGE), plain());
    assert!(matches!(refused, Err(IndexError::BadInput { .. })));
}

#[test]
fn a_key_leads_to_the_last_leaf_that_begins_at_it_or_below() {
    let empty = World::new(LARGE, plain());
    assert_eq!(found(&empty.entries, &empty.v, 5), None);
    let mut run = Run::new();
    run.push_alone(leaf(9));
    block_on(empty.entries.locate_run(&empty.v, &Key8(5), 4, &mut run)).unwrap();
    assert_eq!(run.leaves(), []);

    let world = World::filled(LARGE, plain(), 40);
    assert_eq!(
        block_on(world.entries.plant(&world.v, leaf(77))),
        Ok(false),
        "there is a first leaf"
    );
    let (w, cold) = world.other(LARGE, plain());
    assert_eq!(known(&cold, &w, 5), None);
    for key in 0..420 {
        let expected = (key / 10).clamp(1, 40);
        let located = find(&cold, &w, key).unwrap();
        assert_eq!(
            (number(located.leaf.at), located.leaf.linked),
            (expected, false),
            "{key}"
        );
        let low = if expected == 1 { 0 } else { expected * 10 };
        assert_eq!(located.proof, SeparatorProof::Read(Key8(low), leaf(expected)));
        assert_eq!(
            known(&cold, &w, key),
            Some(expected),
            "what was found is remembered: {key}"
        );
        // The compute node that installed the separators has cached them as well.
        assert_eq!(
            known(&world.entries, &world.v, key.max(20)),
            Some(key.max(20) / 10).map(|n| n.min(40))
        );
    }
}

/// If the leaf is not cached, the search reads and caches a run of leaves from it on. The run ends at a cached leaf.
#[test]
fn a_search_caches_a_run_of_leaves() {
    let of = |run: usize| SeparatorOptions { run, ..plain() };
    let world = World::filled(LARGE, plain(), 100);
    for run in [0, 1, 2, 5, 32] {
        let (w, cold) = world.other(LARGE, of(run));
        assert_eq!(found(&cold, &w, 305), Some(30));
        let brought: Vec<u64> = (1..=100)
            .filter(|n| known(&cold, &w, n * 10 + 5) == Some(*n))
            .collect();
        let expected: Vec<u64> = (30..30 + run.max(1) as u64).collect();
        assert_eq!(brought, expected, "a run of {run}");
    }
    let (w, cold) = world.other(LARGE, of(5));
    assert_eq!(found(&cold, &w, 305), Some(30));
    // The run ends at leaf 30, which is cached.
    assert_eq!(found(&cold, &w, 285), Some(28));
    let brought: Vec<u64> = (1..=100)
        .filter(|n| known(&cold, &w, n * 10 + 5).is_some())
        .collect();
    assert_eq!(brought, (28..35).collect::<Vec<_>>());
    // `locate_run` returns at most the requested number of leaves, up to the first that is not cached. The meter
    // distinguishes a hit from a miss.
    let mut run = Run::new();
    for (key, max, expected, told) in [
        (285, 4, 28..32, "1 cache_hits"),
        (285, 100, 28..35, "1 cache_hits"),
    ] {
        let (done, told_now) = cost(&w, cold.locate_run(&w, &Key8(key), max, &mut run));
        assert_eq!((done, told_now.as_str()), (Ok(()), told));
        assert!(run.leaves().iter().map(|at| number(*at)).eq(expected), "{run:?}");
    }
    let (done, told) = cost(&w, cold.locate_run(&w, &Key8(505), 3, &mut run));
    assert!(done.is_ok() && told.ends_with("1 cache_misses"), "{told}");
    assert_eq!(run.leaves(), [leaf(50), leaf(51), leaf(52)]);
}

#[test]
fn warming_reads_all_separators_as_housekeeping() {
    let world = World::filled(LARGE, plain(), 100);
    let (w, cold) = world.other(LARGE, plain());
    let (warmed, told) = cost(&w, cold.warm(&w));
    assert_eq!(warmed, Ok(100));
    assert!(
        told.contains("housekeeping_verbs") && !told.contains(" reads"),
        "{told}"
    );
    assert!((1..=100).all(|n| known(&cold, &w, n * 10 + 5) == Some(n)));
    assert!(cold.cache_bytes() > 100 * 12);
    let (_, told) = cost(&w, async { cold.known(&w, &Key8(5)) });
    assert_eq!(told, "1 cache_hits");
    let (_, told) = cost(&w, cold.find(&w, &Key8(5)));
    assert!(told.ends_with("1 cache_misses"), "{told}");
}

#[test]
fn stale_hints_are_dropped_and_misleading_entries_are_removed() {
    let world = World::filled(LARGE, plain(), 9);
    let (entries, v) = (&world.entries, &world.v);
    let cached = entries.known(v, &Key8(55)).unwrap();
    assert!(matches!(cached.proof, SeparatorProof::Cached(_)) && reach(entries, &cached.proof).is_none());
    entries.stale(v, cached.proof);
    assert_eq!(known(entries, v, 55), None);
    let read = find(entries, v, 55).unwrap();
    assert_eq!(read.proof, SeparatorProof::Read(Key8(50), leaf(5)));
    // An address that was read from an entry stays cached after it was reported as stale.
    entries.stale(v, read.proof);
    assert_eq!((known(entries, v, 55), found(entries, v, 55)), (Some(5), Some(5)));
    // After the address was reported as invalid, it is no longer cached, and the next search removes its entry.
    entries.invalidate(v, read.proof);
    entries.invalidate(v, read.proof);
    assert_eq!(known(entries, v, 55), None);
    assert_eq!(found(entries, v, 55), Some(4));
    let (w, cold) = world.other(LARGE, plain());
    assert_eq!(found(&cold, &w, 55), Some(4), "the entry is gone for everybody");
    // An entry that is installed again counts as a new entry, although an earlier entry with the same content misled a
    // client.
    world.install(50, 5);
    assert_eq!(found(entries, v, 55), Some(5));
    // If an entry that was reported as invalid has another leaf's address by now, the search does not remove it.
    let read = find(entries, v, 65).unwrap();
    entries.invalidate(v, read.proof);
    world.install(60, 66);
    assert_eq!(found(entries, v, 65), Some(66));
    // The first leaf's entry always stays.
    let first = find(entries, v, 5).unwrap();
    entries.invalidate(v, first.proof);
    assert_eq!(found(entries, v, 5), Some(1));
    // With the flaw `credulous`, a client follows the entry again.
    let credulous = SeparatorOptions {
        credulous: true,
        ..plain()
    };
    let (w, cold) = world.other(LARGE, credulous);
    let read = find(&cold, &w, 75).unwrap();
    cold.invalidate(&w, read.proof);
    assert_eq!(found(&cold, &w, 75), Some(7));
}

/// Each client removes the entry that misled it, although many other clients of its compute node are misled meanwhile.
#[test]
fn every_client_removes_the_entry_that_misled_it() {
    let world = World::filled(LARGE, plain(), 102);
    let entries = &world.entries;
    let clients: Vec<_> = (2..=101).map(|n| (n, world.pool.connect(0).unwrap())).collect();
    for (n, v) in &clients {
        entries.invalidate(v, find(entries, v, n * 10).unwrap().proof);
    }
    for (n, v) in &clients {
        assert_eq!(
            found(entries, v, n * 10 + 5),
            Some(1),
            "the entries from 2 to {n} are removed"
        );
    }
    assert_eq!(found(entries, &world.v, 1_025), Some(102));
}

/// A client remembers only the latest entry that misled it. If it has not read an earlier one again, that entry stays
/// until it misleads a client once more.
#[test]
fn a_client_remembers_one_misleading_entry() {
    let world = World::filled(LARGE, plain(), 4);
    let (entries, v) = (&world.entries, &world.v);
    let proofs = [25, 35].map(|key| find(entries, v, key).unwrap().proof);
    for proof in proofs {
        entries.invalidate(v, proof);
    }
    assert_eq!(found(entries, v, 25), Some(2), "it is followed again");
    assert_eq!(found(entries, v, 35), Some(2), "the later one is removed");
    entries.invalidate(v, proofs[0]);
    assert_eq!(found(entries, v, 25), Some(1));
}

/// If the cache has too little room for all separators, it stores all of them approximately.
#[test]
fn a_full_cache_stores_separators_approximately() {
    const LEAVES: u64 = 400;
    let world = World::filled(LARGE, plain(), LEAVES);
    let tight = 9 << 10;
    let (w, cold) = world.other(tight, plain());
    assert_eq!(found(&cold, &w, 2_005), Some(200));
    let exactly = cold.known(&w, &Key8(2_005)).unwrap();
    assert!(
        matches!(exactly.proof, SeparatorProof::Cached(_)),
        "there is room for some"
    );
    assert_eq!(block_on(cold.warm(&w)), Ok(LEAVES));
    assert!(cold.cache_bytes() <= tight, "{}", cold.cache_bytes());
    let mut off = 0;
    for key in 0..LEAVES * 10 + 100 {
        let expected = (key / 10).clamp(1, LEAVES);
        let located = cold.known(&w, &Key8(key)).unwrap();
        assert_eq!(located.proof, SeparatorProof::Rough(Key8(key), located.leaf.at));
        let reach = reach(&cold, &located.proof).unwrap();
        assert!(number(located.leaf.at) <= expected && !located.leaf.linked);
        assert!(reach < 64);
        off += expected - number(located.leaf.at);
    }
    assert!(off < 5 * (LEAVES * 10 + 100), "{off} leaves too far left in all");
    // `locate_run` reads the entries, because the sketch does not show which leaves are adjacent.
    let mut run = Run::new();
    let mut expect = |key: u64, max: usize, expected: Range<u64>| {
        let (done, told) = cost(&w, cold.locate_run(&w, &Key8(key), max, &mut run));
        assert_eq!(done, Ok(()));
        assert!(
            run.leaves().iter().map(|at| number(*at)).eq(expected),
            "{key}: {run:?}"
        );
        assert!(told.ends_with("1 cache_misses"), "{told}");
    };
    expect(3_005, 4, 300..304);
    expect(3_990, 9, 399..401);
    expect(5, 1, 1..2);
    expect(4_500, 0, 400..401);
    // A hint that is reported as stale is kept. A hint that is reported as invalid is dropped.
    let located = cold.known(&w, &Key8(1_005)).unwrap();
    cold.stale(&w, located.proof);
    assert_eq!(
        known(&cold, &w, 1_005),
        Some(number(located.leaf.at)),
        "the leaf may be to the right of the hint"
    );
    cold.invalidate(&w, located.proof);
    assert_ne!(known(&cold, &w, 1_005), Some(number(located.leaf.at)));
    // A separator that is installed is cached, as precisely as the sketch can.
    assert_eq!(found(&cold, &w, 1_005), Some(100));
    let split = Split {
        level: 0,
        separator: Key8(9_000),
        until: None,
        left: leaf(LEAVES),
        right: leaf(900),
    };
    block_on(cold.install(&w, split)).unwrap();
    assert_eq!(found(&cold, &w, 9_500), Some(900));
    assert!(cold.cache_bytes() <= tight);
}

/// When the cache is full, the separators that were cached exactly are kept approximately.
#[test]
fn cached_separators_stay_when_the_cache_becomes_full() {
    let world = World::filled(LARGE, plain(), 400);
    let (w, cold) = world.other(9 << 10, plain());
    let mut looked_up = Vec::new();
    for n in (1..400).step_by(33).chain((20..400).step_by(33)) {
        let key = n * 10;
        assert_eq!(found(&cold, &w, key), Some(n));
        looked_up.push(key);
        let hints: Vec<_> = looked_up.iter().map(|key| cold.known(&w, &Key8(*key))).collect();
        assert!(hints.iter().all(Option::is_some), "of {looked_up:?}: {hints:?}");
        if matches!(hints[0].map(|hint| hint.proof), Some(SeparatorProof::Rough(..))) {
            return;
        }
    }
    panic!("there was room for all");
}

/// Without approximate hints, the cache holds some separators, and the others are read.
#[test]
fn without_rough_hints_a_full_cache_holds_some_separators() {
    let world = World::filled(LARGE, plain(), 400);
    let exact = SeparatorOptions {
        rough: false,
        ..plain()
    };
    let tight = 9 << 10;
    let (w, cold) = world.other(tight, exact);
    for n in 1..=400 {
        assert_eq!(found(&cold, &w, n * 10 + 5), Some(n));
    }
    let remembered: Vec<u64> = (1..=400)
        .filter(|n| known(&cold, &w, n * 10 + 5) == Some(*n))
        .collect();
    assert!(
        (10..400).contains(&remembered.len()),
        "{} of 400",
        remembered.len()
    );
    assert!(cold.cache_bytes() <= tight);
    assert!((1..=400).all(|n| matches!(
        cold.known(&w, &Key8(n * 10)),
        None | Some(Located {
            proof: SeparatorProof::Cached(_),
            ..
        })
    )));
}

/// With flaw T-D12, the first search for a key that is not a separator finds no leaf.
#[test]
fn the_exact_flaw_misses_a_key_that_is_no_separator_once() {
    let world = World::filled(LARGE, plain(), 9);
    let exact = SeparatorOptions {
        exact: true,
        run: 1,
        ..plain()
    };
    let (w, cold) = world.other(LARGE, exact);
    assert_eq!(found(&cold, &w, 50), Some(5));
    assert_eq!(found(&cold, &w, 75), None);
    assert_eq!(known(&cold, &w, 75), Some(7), "what was read is remembered");
}

#[test]
fn a_bulk_load_enters_all_separators() {
    let world = World::new(LARGE, plain());
    let leaves: Vec<_> = (0..300).map(|n| (Key8(n * 10), leaf(n + 1))).collect();
    assert_eq!(block_on(world.entries.build(&world.v, &leaves, 0.7)), Ok(()));
    for n in 0..300 {
        assert_eq!(found(&world.entries, &world.v, n * 10 + 9), Some(n + 1));
    }
}

/// A leaf that has bounds, a right neighbour, and a number of entries.
#[derive(Clone, Copy, Debug)]
struct Toy {
    low: u64,
    high: Option<u64>,
    next: u64,
    entries: usize,
    dead: bool,
    unborn: bool,
    level: u8,
}

/// A store of leaves without content. Two leaves can be joined if they have at most eight entries together. A leaf with
/// fewer than three entries is sparse.
#[derive(Default)]
struct Toys {
    leaves: RefCell<BTreeMap<u64, Toy>>,
    copies: Cell<u64>,
    joins: RefCell<Vec<(u64, u64)>>,
}

impl Toys {
    /// Makes leaves as [`World::filled`] enters them, with these numbers of entries.
    fn new(entries: &[usize]) -> Self {
        let this = Self::default();
        let last = entries.len() as u64;
        for (n, entries) in (1..).zip(entries) {
            let toy = Toy {
                low: if n == 1 { 0 } else { n * 10 },
                high: (n < last).then_some((n + 1) * 10),
                next: if n < last { n + 1 } else { 0 },
                entries: *entries,
                dead: false,
                unborn: false,
                level: 0,
            };
            this.leaves.borrow_mut().insert(n, toy);
        }
        this
    }

    fn change(&self, n: u64, change: impl FnOnce(&mut Toy)) {
        change(self.leaves.borrow_mut().get_mut(&n).unwrap());
    }

    /// Returns the leaves that are not dead, with their numbers of entries.
    fn left(&self) -> Vec<(u64, usize)> {
        let leaves = self.leaves.borrow();
        let living = leaves.iter().filter(|(_, toy)| !toy.dead);
        living.map(|(n, toy)| (*n, toy.entries)).collect()
    }
}

const OTHERS: &str = "separators call only `copy`, `join` and `inspect`";

impl NodeCopies<Endpoint, Key8> for Toys {
    async fn copy(&self, _: &Endpoint, at: RemotePtr, copy: &mut NodeCopy<Key8>) -> Result<bool, IndexError> {
        self.copies.set(self.copies.get() + 1);
        let toy = self.leaves.borrow()[&number(at)];
        copy.at = at;
        copy.level = toy.level;
        copy.unborn = toy.unborn;
        copy.fences = FenceKeys {
            low: Key8(toy.low),
            high: toy.high.map(Key8),
        };
        copy.sibling = if toy.next == 0 {
            RemotePtr::NULL
        } else {
            leaf(toy.next)
        };
        Ok(!toy.dead)
    }

    fn unfold(&self, _: &mut NodeCopy<Key8>) -> Result<(), IndexError> {
        unreachable!("{OTHERS}")
    }

    async fn copies(
        &self,
        _: &Endpoint,
        _: &[RemotePtr],
        _: &mut NodeCopy<Key8>,
        _: impl FnMut(&NodeCopy<Key8>) -> bool,
    ) -> Result<(), IndexError> {
        unreachable!("{OTHERS}")
    }
}

impl Restructure<Endpoint, Key8> for Toys {
    async fn join(
        &self,
        _: &Endpoint,
        pair: &Neighbours<Key8>,
        unlink: impl AsyncFnOnce() -> Result<(), IndexError>,
    ) -> Result<Merge, IndexError> {
        let (left, right) = (number(pair.left), number(pair.right));
        self.joins.borrow_mut().push((left, right));
        let (one, other) = (self.leaves.borrow()[&left], self.leaves.borrow()[&right]);
        assert!(pair.level == 0 && pair.parent.is_null());
        let meets = one.high == Some(pair.between.0) && other.low == pair.between.0 && one.next == right;
        if one.dead || other.dead || !meets || other.high != pair.until.map(|key| key.0) {
            return Ok(Merge::Changed);
        }
        let entries = one.entries + other.entries;
        if entries > 8 {
            return Ok(Merge::TooFull);
        }
        self.change(left, |toy| {
            (toy.high, toy.next, toy.entries) = (other.high, other.next, entries)
        });
        self.change(right, |toy| (toy.dead, toy.next) = (true, left));
        unlink().await?;
        Ok(Merge::Done {
            sparse: entries < 3,
            parent_sparse: false,
        })
    }

    async fn create(
        &self,
        _: &Endpoint,
        _: u8,
        _: FenceKeys<Key8>,
        _: &[(Key8, &[u8])],
        _: bool,
    ) -> Result<Created, IndexError> {
        unreachable!("{OTHERS}")
    }

    async fn open(&self, _: &Endpoint, _: &Created) -> Result<(), IndexError> {
        unreachable!("{OTHERS}")
    }

    async fn inspect(
        &self,
        v: &Endpoint,
        at: RemotePtr,
        copy: &mut NodeCopy<Key8>,
    ) -> Result<Inspected, IndexError> {
        let condition = match self.copy(v, at, copy).await? {
            true => Condition::Live,
            false => Condition::Dead,
        };
        Ok(Inspected {
            condition,
            ..Inspected::NOWHERE
        })
    }

    async fn merge<P: Restructure<Endpoint, Key8>>(
        &self,
        _: &Endpoint,
        _: &Neighbours<Key8>,
        _: &P,
        _: &mut NodeCopy<Key8>,
    ) -> Result<Merge, IndexError> {
        unreachable!("{OTHERS}")
    }

    fn node_bytes(&self) -> u32 {
        64
    }

    fn unlink(&self, _: &mut [u8], _: &Neighbours<Key8>) -> Result<Option<Range<usize>>, IndexError> {
        unreachable!("{OTHERS}")
    }

    fn show(&self, _: RemotePtr, _: &[u8], _: &mut NodeCopy<Key8>) -> Result<bool, IndexError> {
        unreachable!("{OTHERS}")
    }

    async fn collapse(
        &self,
        _: &Endpoint,
        _: RemotePtr,
        _: u8,
        _: impl AsyncFnOnce(&[u8]) -> Result<bool, IndexError>,
    ) -> Result<bool, IndexError> {
        unreachable!("{OTHERS}")
    }

    fn forget(&self, _: Created) {
        unreachable!("{OTHERS}")
    }

    async fn tend(&self, _: &Endpoint, _: RemotePtr) -> Result<Tended, IndexError> {
        unreachable!("{OTHERS}")
    }
}

/// Pairs of leaves for which a join was tried.
type Joins = Vec<(u64, u64)>;
/// Leaves with their numbers of entries.
type Leaves = Vec<(u64, usize)>;

/// Makes one leaf for each number in `entries`, with that many entries, and calls `prepare`. Then shrinks the leaf of
/// `key`. Returns the joins that were tried, and the remaining leaves.
fn shrink(entries: &[usize], key: u64, prepare: impl FnOnce(&World, &Toys)) -> (Joins, Leaves) {
    let world = World::filled(LARGE, plain(), entries.len() as u64);
    let toys = Toys::new(entries);
    prepare(&world, &toys);
    assert_eq!(
        block_on(world.entries.shrink(&world.v, &toys, &Key8(key))),
        Ok(())
    );
    // Neither the cache nor an entry leads to a merged leaf any more.
    let (w, cold) = world.other(LARGE, plain());
    let gone: Vec<u64> = toys
        .leaves
        .borrow()
        .iter()
        .filter(|(_, toy)| toy.dead)
        .map(|(n, _)| *n)
        .collect();
    for n in gone
        .iter()
        .filter(|n| toys.joins.borrow().iter().any(|(_, right)| right == *n))
    {
        assert_ne!(known(&world.entries, &world.v, n * 10 + 5), Some(*n));
        assert_ne!(found(&cold, &w, n * 10 + 5), Some(*n));
    }
    (toys.joins.take(), toys.left())
}

#[test]
fn a_sparse_leaf_is_merged_with_its_right_or_left_neighbour() {
    type Joins = &'static [(u64, u64)];
    type Left = &'static [(u64, usize)];
    let cases: [(&[usize], u64, Joins, Left); 7] = [
        (&[5, 1, 5], 25, &[(2, 3)], &[(1, 5), (2, 6)]),
        (&[5, 1, 9], 25, &[(2, 3), (1, 2)], &[(1, 6), (3, 9)]),
        (&[9, 1, 9], 25, &[(2, 3), (1, 2)], &[(1, 9), (2, 1), (3, 9)]),
        // A leaf is merged repeatedly as long as it is sparse.
        (&[9, 1, 1, 1, 4], 25, &[(2, 3), (2, 4)], &[(1, 9), (2, 3), (5, 4)]),
        (&[1, 1, 9], 25, &[(2, 3), (1, 2), (1, 3)], &[(1, 2), (3, 9)]),
        // The last leaf has no right neighbour, and the first has no left one.
        (&[5, 5, 1], 35, &[(2, 3)], &[(1, 5), (2, 6)]),
        (&[1, 9], 5, &[(1, 2)], &[(1, 1), (2, 9)]),
    ];
    for (entries, key, joins, left) in cases {
        assert_eq!(
            shrink(entries, key, |_, _| {}),
            (joins.to_vec(), left.to_vec()),
            "{entries:?}"
        );
    }
    assert_eq!(shrink(&[1], 5, |_, _| {}), (vec![], vec![(1, 1)]), "alone");
    // The key is the first one of the leaf, and then its last one.
    for key in [20, 29] {
        assert_eq!(
            shrink(&[5, 1, 5], key, |_, _| {}),
            (vec![(2, 3)], vec![(1, 5), (2, 6)])
        );
    }
}

#[test]
fn a_leaf_without_an_entry_is_reached_through_its_left_neighbours() {
    let strike = |world: &World, n: u64| {
        let (w, cold) = world.other(LARGE, plain());
        let read = find(&cold, &w, n * 10).unwrap();
        assert_eq!(number(read.leaf.at), n);
        cold.invalidate(&w, read.proof);
        assert_eq!(found(&cold, &w, n * 10), Some(n - 1));
    };
    // The last entry at or below the key leads to leaf 2, which ends at the key. The search must go one leaf to the
    // right.
    let at_the_end = shrink(&[9, 9, 1, 5], 30, |world, _| strike(world, 3));
    assert_eq!(at_the_end, (vec![(3, 4)], vec![(1, 9), (2, 9), (3, 6)]));
    // First the entry of the leaf itself is missing, and then that of its left neighbour.
    let both = shrink(&[9, 9, 1, 5], 35, |world, _| strike(world, 3));
    assert_eq!(both, (vec![(3, 4)], vec![(1, 9), (2, 9), (3, 6)]));
    let left = shrink(&[9, 5, 1, 9], 35, |world, _| strike(world, 2));
    assert_eq!(left, (vec![(3, 4), (2, 3)], vec![(1, 9), (2, 6), (4, 9)]));
    // A dead leaf holds the address at which the search continues.
    let dead = shrink(&[5, 1, 5], 25, |_, toys| {
        toys.change(2, |toy| (toy.dead, toy.next) = (true, 1));
        toys.change(1, |toy| (toy.high, toy.next) = (Some(30), 3));
    });
    assert_eq!(
        dead,
        (vec![(1, 3)], vec![(1, 5), (3, 5)]).clone(),
        "the dead leaf's keys are in the first leaf"
    );
}

#[test]
fn leaves_that_do_not_cover_the_key_are_not_merged() {
    let alone = |prepare: fn(&mut Toy)| {
        let world = World::filled(LARGE, plain(), 3);
        let toys = Toys::new(&[5, 1, 1]);
        toys.change(2, prepare);
        assert_eq!(block_on(world.entries.shrink(&world.v, &toys, &Key8(25))), Ok(()));
        (toys.joins.take(), toys.copies.get())
    };
    assert_eq!(alone(|toy| toy.unborn = true), (vec![], 1), "unborn");
    assert_eq!(alone(|toy| toy.level = 1), (vec![], 1), "no leaf");
    assert_eq!(alone(|toy| toy.low = 26), (vec![], 1), "it begins behind the key");
    assert_eq!(
        alone(|toy| (toy.dead, toy.next) = (true, 0)),
        (vec![], 1),
        "dead, and nothing to its right"
    );
    // This leaf ends before the key, and its sibling pointer leads back to itself. The search stops after a bounded
    // number of steps.
    let world = World::filled(LARGE, plain(), 2);
    let toys = Toys::new(&[5, 1]);
    toys.change(2, |toy| (toy.high, toy.next) = (Some(21), 2));
    assert_eq!(block_on(world.entries.shrink(&world.v, &toys, &Key8(25))), Ok(()));
    assert_eq!((toys.joins.take(), toys.copies.get()), (vec![], 64));
    // An index without leaves has nothing to merge.
    let empty = World::new(LARGE, plain());
    assert_eq!(
        block_on(empty.entries.shrink(&empty.v, &Toys::default(), &Key8(25))),
        Ok(())
    );
}

/// If another client keeps changing the neighbour, the merge stops after a number of attempts.
#[test]
fn a_neighbour_that_changes_is_tried_a_bounded_number_of_times() {
    let attempts = |prepare: fn(&mut Toy)| {
        let world = World::filled(LARGE, plain(), 4);
        let toys = Toys::new(&[9, 1, 5, 5]);
        toys.change(3, prepare);
        assert_eq!(block_on(world.entries.shrink(&world.v, &toys, &Key8(25))), Ok(()));
        (toys.joins.take().len(), toys.copies.get())
    };
    // Each attempt copies two leaves. No two leaves can be joined, so no join is tried.
    let dead = attempts(|toy| toy.dead = true);
    assert!(dead.0 == 0 && dead.1 > 2 * 30, "{dead:?}");
    assert_eq!(attempts(|toy| toy.low = 31), dead);
    assert_eq!(attempts(|toy| toy.level = 1), dead);
}

/// A survey visits the nodes of the entries, and then the leaves from the first entry on.
#[test]
fn a_survey_visits_the_entries_and_all_leaves() {
    let nodes = |world: &World, toys: &Toys| {
        let mut survey = Survey::new(false, None);
        block_on(world.entries.survey(&world.v, toys, &mut survey)).unwrap();
        assert_eq!(survey.faults, []);
        survey.levels.iter().map(|level| level.nodes).collect::<Vec<_>>()
    };
    let empty = World::new(LARGE, plain());
    let of_empty = nodes(&empty, &Toys::default());
    assert_eq!(of_empty.last(), Some(&1), "the root alone");
    let world = World::filled(LARGE, plain(), 3);
    let toys = Toys::new(&[5, 1, 1]);
    let found = nodes(&world, &toys);
    // Three leaves, and the entry of each of them.
    assert_eq!(found[..2], [3, 3]);
    assert_eq!(toys.copies.get(), 3);
}
