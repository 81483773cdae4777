//! Tests of leaves without a directory: the bytes that each operation reads, the hotspots, and the cases in which the
//! store of whole nodes takes over.

use core::task::{Context, Waker};

use dm_alloc::{Allocator, Descriptor, ReclaimOptions, Superblock};
use dm_hopscotch::{HopFlaws, HopOptions, Hopscotch, Neighbourhoods};
use dm_index::{Answer, Applied, Key8, Lead, NodeAccess, Restructure, Write};
use dm_layout::{FenceKeys, NodeRead, NodeShape, Place};
use dm_leaf::{NodeOptions, Nodes};
use dm_lock::{DOUBT, GlobalLockTable, LockOptions, LockWord, Locks};
use dm_loopback::{Builder, Endpoint, Loopback, Trouble, block_on};
use dm_sync::Arc;
use dm_verbs::{Counters, Env, Nanos, NodeId, RemotePtr, Verbs};

const VALUE: [u8; 8] = [1; 8];
const OTHER: [u8; 8] = [2; 8];
/// A key that no leaf of these tests has.
const ABSENT: u64 = 1 << 32;
/// The fence keys of a leaf that has neighbours.
const MIDDLE: FenceKeys<Key8> = FenceKeys {
    low: Key8(0),
    high: Some(Key8(1 << 40)),
};

/// Leaves whose entries lie in one line each.
fn small_entries() -> Hopscotch<Key8> {
    Hopscotch::new(64, 8, 8).expect("the geometry is valid")
}

/// Leaves whose entries each span several lines.
fn large_entries() -> Hopscotch<Key8> {
    Hopscotch::new(8, 4, 100).expect("the geometry is valid")
}

fn hot() -> HopOptions {
    HopOptions {
        hotspot_bytes: 4 << 10,
        ..HopOptions::default()
    }
}

/// A pool, and one compute node's leaves in it.
struct World {
    pool: Loopback,
    v: Endpoint,
    format: Hopscotch<Key8>,
    leaves: Neighbourhoods<Key8>,
}

impl World {
    fn new(format: Hopscotch<Key8>, options: HopOptions) -> Self {
        Self::of(Loopback::builder(), format, options)
    }

    fn of(builder: Builder, format: Hopscotch<Key8>, options: HopOptions) -> Self {
        let pool = builder.host_bytes(2 << 20).counted_clock(Nanos(50));
        let pool = pool.build().expect("the world is built");
        let v = pool.connect(0).expect("the client connects");
        let descriptor = Descriptor {
            members: 3,
            ..Descriptor::of(b"test", [0])
        };
        let superblock =
            block_on(Superblock::create_or_open(&v, &descriptor)).expect("the pool has a superblock");
        let reclaim = ReclaimOptions {
            period: Nanos(u64::MAX),
            ..ReclaimOptions::new()
        };
        let alloc = Allocator::for_pool(&superblock, v.compute_node(), reclaim).chunk_bytes(16 << 10);
        let alloc = Arc::new(alloc);
        let locks = GlobalLockTable::new([lock().into()], 1);
        let locks = Arc::new(Locks::new(LockOptions::default(), locks));
        let nodes = Nodes::new(format, locks.clone(), alloc.clone(), NodeOptions::default());
        Self {
            leaves: Neighbourhoods::new(format, nodes, locks, alloc, options),
            pool,
            v,
            format,
        }
    }

    /// Makes a leaf of these keys.
    fn leaf(&self, fences: FenceKeys<Key8>, keys: &[u64]) -> RemotePtr {
        let value = vec![1; self.format.value_len()];
        let entries: Vec<_> = keys.iter().map(|n| (Key8(*n), &value[..])).collect();
        let made = block_on(self.leaves.nodes().create(&self.v, 0, fences, &entries, false));
        made.expect("the pool has room").at
    }

    fn cost<T>(&self, work: impl Future<Output = T>) -> (T, Counters) {
        let before = self.v.meter().counters();
        let done = block_on(work);
        (done, self.v.meter().counters() - before)
    }

    /// Reads a key. Returns whether it is present, and the counters of the verbs.
    fn get(&self, at: RemotePtr, key: u64) -> (bool, Counters) {
        let mut value = Vec::new();
        let (found, cost) = self.cost(
            self.leaves
                .get(&self.v, Lead::hint(at), 0, &Key8(key), &mut value),
        );
        match found {
            Ok(Answer::Done(found)) => {
                assert!(!found || value == vec![1; self.format.value_len()], "{value:?}");
                (found, cost)
            }
            other => panic!("{other:?}"),
        }
    }

    fn write(&self, at: RemotePtr, key: u64, write: Write<'_>) -> (Answer<Key8, Applied>, Counters) {
        let key = Key8(key);
        let done = self.leaves.write(&self.v, Lead::hint(at), 0, &key, write, None);
        let (done, cost) = self.cost(done);
        (done.expect("no verb fails"), cost)
    }

    /// Returns the number of a key's home slot.
    fn home(&self, key: u64) -> u16 {
        self.format.home(&Key8(key)) as u16
    }

    /// Returns the bytes of a key's neighbourhood.
    fn near(&self, key: u64) -> u64 {
        self.format.geometry().reach(self.format.home(&Key8(key))).bytes() as u64
    }

    fn header(&self) -> u64 {
        self.format.geometry().header_bytes() as u64
    }

    fn node(&self) -> u64 {
        self.format.node_bytes() as u64
    }

    /// Returns keys with different home slots whose neighbourhoods do not wrap around at the leaf's end.
    fn keys(&self) -> Vec<u64> {
        let reach = |key: &u64| self.format.geometry().reach(self.format.home(&Key8(*key)));
        let mut keys: Vec<u64> = (1..400).filter(|key| reach(key).second.is_none()).collect();
        keys.sort_by_key(|key| (self.home(*key), *key));
        keys.dedup_by_key(|key| self.home(*key));
        assert!(keys.len() > 40, "{}", keys.len());
        keys
    }
}

/// Returns the address of the only lock word.
fn lock() -> RemotePtr {
    RemotePtr::new(NodeId(0), (2 << 20) - 64).expect("the address is in range")
}

/// If this compute node has read a key before, a get reads only the key's entry.
#[test]
fn a_key_that_was_seen_is_read_alone() {
    let entry = (1 + 8 + 8) as u64;
    let world = World::new(small_entries(), hot());
    let keys = world.keys();
    let (seen, written) = keys.split_at(keys.len() / 2);
    let at = world.leaf(FenceKeys::ALL, seen);
    for key in seen {
        let (found, cost) = world.get(at, *key);
        assert_eq!(
            (found, cost.speculations, cost.bytes_read),
            (true, 0, world.near(*key))
        );
    }
    for key in written {
        let (done, _) = world.write(at, *key, Write::Insert(&VALUE));
        assert_eq!(done, Answer::Done(Applied::Inserted));
    }
    for key in keys {
        let (found, cost) = world.get(at, key);
        let cost = (
            cost.speculations,
            cost.wrong_speculations,
            cost.reads,
            cost.bytes_read,
        );
        assert_eq!((found, cost), (true, (1, 0, 1, entry)), "{key}");
    }
    assert!(
        world
            .leaves
            .hotspots()
            .is_some_and(|hotspots| !hotspots.is_empty())
    );
    assert!(
        World::new(small_entries(), HopOptions::default())
            .leaves
            .hotspots()
            .is_none()
    );
}

/// A wrong guess costs one more READ. A guess of a slot that no leaf has costs nothing.
#[test]
fn a_wrong_guess_costs_one_more_read() {
    let world = World::new(small_entries(), hot());
    let at = world.leaf(FenceKeys::ALL, &world.keys());
    let hotspots = world.leaves.hotspots().expect("the options enable hotspots");
    let span = world.format.geometry().span() as u16;
    let guessed = |key: u64, slot: u16| {
        hotspots.found(at, world.format.hash(&Key8(key)), slot);
        let (found, cost) = world.get(at, key);
        (found, cost.speculations, cost.wrong_speculations, cost.reads)
    };
    assert_eq!(guessed(ABSENT, span - 1), (false, 1, 1, 2));
    assert_eq!(guessed(ABSENT + 1, span), (false, 0, 0, 1));
    assert_eq!(guessed(ABSENT + 2, u16::MAX), (false, 0, 0, 1));
}

/// The READ of an entry within one line may take any time. The READ of an entry of several lines must end within the
/// version window.
#[test]
fn an_entry_of_several_lines_is_accepted_within_the_version_window() {
    for (format, window, misguessed) in [
        (small_entries(), Nanos(0), 0),
        (small_entries(), Nanos::from_micros(100), 0),
        (large_entries(), Nanos(0), 1),
        (large_entries(), Nanos::from_micros(100), 0),
    ] {
        let world = World::new(
            format,
            HopOptions {
                read_window: window,
                ..hot()
            },
        );
        let at = world.leaf(FenceKeys::ALL, &[7]);
        let hotspots = world.leaves.hotspots().expect("the options enable hotspots");
        let image = block_on(world.v.read(at, world.node() as u32)).expect("the address is in range");
        let Ok(Place::Present(slot)) = format.place(&image, &Key8(7)) else {
            panic!("the key is missing");
        };
        let number = format.geometry().number_of(slot) as u16;
        hotspots.found(at, format.hash(&Key8(7)), number);
        let (found, cost) = world.get(at, 7);
        assert_eq!(
            (found, cost.speculations, cost.wrong_speculations),
            (true, 1, misguessed),
            "{window:?}"
        );
    }
}

/// A writer reads the neighbourhood in the chain of the lock's CAS. Without `vacancy_piggyback`, this chain of an
/// insert reads the header instead, and the insert reads the neighbourhood afterwards. A get without
/// `metadata_replication` reads the header too.
#[test]
fn operations_read_the_neighbourhood_and_the_header_as_the_options_say() {
    for piggyback in [true, false] {
        let world = World::new(
            small_entries(),
            HopOptions {
                vacancy_piggyback: piggyback,
                metadata_replication: piggyback,
                ..HopOptions::default()
            },
        );
        let at = world.leaf(FenceKeys::ALL, &[]);
        let header = if piggyback { 0 } else { world.header() };
        let exchange = |before, after| Write::Exchange { before, after };
        for (n, key) in world.keys().into_iter().take(8).enumerate() {
            let insert = match n % 3 {
                0 => Write::Insert(&VALUE),
                1 => Write::Upsert(&VALUE),
                _ => exchange(None, Some(&VALUE)),
            };
            let (done, cost) = world.write(at, key, insert);
            assert_eq!(done, Answer::Done(Applied::Inserted));
            assert_eq!(cost.bytes_read, header + world.near(key), "{insert:?}");
            let (found, cost) = world.get(at, key);
            assert_eq!((found, cost.bytes_read), (true, header + world.near(key)));
            for (write, applied) in [
                (Write::Update(&OTHER), Applied::Replaced),
                (exchange(Some(&VALUE), Some(&OTHER)), Applied::Differs),
                (exchange(Some(&OTHER), Some(&VALUE)), Applied::Replaced),
                (exchange(Some(&OTHER), None), Applied::Differs),
            ] {
                let (done, cost) = world.write(at, key, write);
                assert_eq!(done, Answer::Done(applied));
                assert_eq!(cost.bytes_read, world.near(key), "{write:?}");
            }
        }
    }
}

/// If the lock word is suspect, the writer also reads the whole node.
#[test]
fn a_lock_in_doubt_makes_a_writer_read_the_whole_node() {
    for (doubt, flawed, whole) in [
        (false, false, false),
        (true, false, true),
        (true, true, false),
        (false, true, false),
    ] {
        let flaws = HopFlaws {
            never_in_doubt: flawed,
            ..HopFlaws::NONE
        };
        let world = World::new(
            small_entries(),
            HopOptions {
                flaws,
                ..HopOptions::default()
            },
        );
        let key = world.keys()[0];
        let at = world.leaf(FenceKeys::ALL, &[key]);
        let word = LockWord {
            payload: if doubt { DOUBT } else { 0 },
            ..LockWord::default()
        };
        block_on(world.v.write(lock(), &word.pack().to_le_bytes())).expect("the address is in range");
        let (done, cost) = world.write(at, key, Write::Update(&VALUE));
        assert_eq!(done, Answer::Done(Applied::Replaced));
        let more = if whole { world.node() } else { 0 };
        assert_eq!(
            cost.bytes_read,
            world.near(key) + more,
            "doubt: {doubt}, flaw: {flawed}"
        );
    }
}

/// If the WRITE of an entry may have been executed only in part, the lock word becomes suspect. The WRITE of an entry
/// within one line is never executed in part.
#[test]
fn a_failed_write_of_an_entry_of_several_lines_leaves_doubt() {
    for (value_len, doubts) in [(8, false), (53, false), (54, false), (55, true), (100, true)] {
        let format = Hopscotch::new(16, 4, value_len).expect("the geometry is valid");
        let world = World::of(
            Loopback::builder().delays(100).seed(7),
            format,
            HopOptions::default(),
        );
        // The neighbourhood of this key wraps around at the leaf's end.
        let geometry = format.geometry();
        let wraps = |key: &u64| geometry.reach(format.home(&Key8(*key))).second.is_some();
        let key = (1..).find(wraps).expect("one of the neighbourhoods wraps around");
        let at = world.leaf(FenceKeys::ALL, &[key]);
        let (key, value) = (Key8(key), vec![9; value_len]);
        let update = Write::Update(&value);
        let writing = world
            .leaves
            .write(&world.v, Lead::hint(at), 0, &key, update, None);
        let mut writing = Box::pin(writing);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(writing.as_mut().poll(&mut cx).is_pending());
        // The lock is taken, but its answer is late. Of the next chain, only the WRITE of the data is executed, and not
        // the unlock.
        world.pool.cut(NodeId(0), Trouble::LostAfter(1));
        assert!(block_on(writing).is_err());
        world.pool.restore(NodeId(0));
        let word = LockWord::unpack(block_on(world.v.word(lock())).expect("the address is in range"));
        let found = (word.locked, word.payload & DOUBT != 0);
        assert_eq!(found, (false, doubts), "{value_len} bytes");
    }
}

/// If leaves are merged, a remove that empties its neighbourhood checks whether the leaf is sparse.
#[test]
fn a_remove_checks_the_leaf_if_it_emptied_its_neighbourhood() {
    let sparse = Answer::Sparse(Applied::Removed);
    let removed = Answer::Done(Applied::Removed);
    for (merges, lonely, fences, answer) in [
        (true, true, MIDDLE, sparse),
        (true, true, FenceKeys::ALL, removed),
        (true, false, MIDDLE, removed),
        (false, true, MIDDLE, removed),
        (false, false, MIDDLE, removed),
    ] {
        let world = World::new(
            small_entries(),
            HopOptions {
                merges,
                ..HopOptions::default()
            },
        );
        let key = world.keys()[0];
        let beside = (key + 1..).find(|other| world.home(*other) == world.home(key));
        let beside = beside.expect("another key has the same home slot");
        let keys = [key, beside];
        let at = world.leaf(fences, &keys[..if lonely { 1 } else { 2 }]);
        let (done, cost) = world.write(at, key, Write::Remove);
        assert_eq!(done, answer, "merges: {merges}, lonely: {lonely}");
        let more = if merges && lonely { world.node() } else { 0 };
        assert_eq!(
            cost.bytes_read,
            world.near(key) + more,
            "merges: {merges}, lonely: {lonely}"
        );
    }
}

/// If an entry spans several lines, an exchange reads the whole node to compare the value.
#[test]
fn an_exchange_of_a_large_entry_compares_its_value() {
    let (value, other) = ([1; 100], [2; 100]);
    let world = World::new(large_entries(), HopOptions::default());
    let at = world.leaf(FenceKeys::ALL, &[7]);
    for (before, after, applied) in [
        (None, Some(&other), Applied::Differs),
        (Some(&other), Some(&value), Applied::Differs),
        (Some(&value), Some(&other), Applied::Replaced),
        (Some(&value), None, Applied::Differs),
        (Some(&other), None, Applied::Removed),
        (Some(&other), Some(&value), Applied::Differs),
        (None, Some(&value), Applied::Inserted),
    ] {
        let write = Write::Exchange {
            before: before.map(|bytes: &[u8; 100]| &bytes[..]),
            after: after.map(|bytes: &[u8; 100]| &bytes[..]),
        };
        assert_eq!(world.write(at, 7, write).0, Answer::Done(applied));
    }
    assert!(world.get(at, 7).0);
}
