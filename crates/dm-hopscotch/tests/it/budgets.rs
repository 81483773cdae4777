//! Tests of the cost of each operation in verbs and bytes, in a table that has grown from one leaf. The directory is
//! cached, and there are no other clients. The tests also measure the memory of a table.

use dm_alloc::{Allocator, ReclaimOptions, Superblock};
use dm_hopscotch::{HashTable, TableOptions};
use dm_index::{Applied, Key8, RangeIndex};
use dm_lock::{GlobalLockTable, Local, LockOptions, Locks};
use dm_loopback::{Loopback, block_on};
use dm_sim::{CostModel, Sim};
use dm_testkit::{Job, World};
use dm_verbs::{Control, Counters, Verbs};

use crate::common::{open, small};

const LOADED: u64 = 20_000;
const MEASURED: u64 = 1_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Cost {
    round_trips: u64,
    reads: u64,
    bytes_read: u64,
    writes: u64,
    bytes_written: u64,
    locks: u64,
}

impl Cost {
    fn of(c: Counters) -> Self {
        assert_eq!(
            [c.lock_retries, c.torn_reads, c.handovers, c.faa],
            [0; 4],
            "another client was active"
        );
        Self {
            round_trips: c.round_trips,
            reads: c.reads,
            bytes_read: c.bytes_read,
            writes: c.writes,
            bytes_written: c.bytes_written,
            locks: c.masked_cas,
        }
    }
}

/// The costs of every operation, key by key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Costs([Vec<Cost>; 5]);

struct Measure;

impl Job for Measure {
    type Out = Costs;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Costs {
        let table = open(v, TableOptions::new(8)).await;
        let client = table.client(v);
        for n in 0..LOADED {
            assert_eq!(client.insert(&Key8(n), &[7; 8]).await, Ok(Applied::Inserted));
        }
        let mut before = v.meter().counters();
        let mut lap = || {
            let now = v.meter().counters();
            Cost::of(now - core::mem::replace(&mut before, now))
        };
        let (mut out, mut costs) = (Vec::with_capacity(8), Costs::default());
        for n in 0..MEASURED {
            let (there, new) = (Key8(n * (LOADED / MEASURED)), Key8(LOADED + n));
            lap();
            assert_eq!(client.get(&there, &mut out).await, Ok(true));
            costs.0[0].push(lap());
            assert_eq!(client.get(&new, &mut out).await, Ok(false));
            costs.0[1].push(lap());
            assert_eq!(client.update(&there, &[3; 8]).await, Ok(Applied::Replaced));
            costs.0[2].push(lap());
            assert_eq!(client.insert(&new, &[4; 8]).await, Ok(Applied::Inserted));
            costs.0[3].push(lap());
            assert_eq!(client.remove(&new).await, Ok(Applied::Removed));
            costs.0[4].push(lap());
        }
        costs
    }
}

#[test]
fn budgets_are_met_to_the_byte() {
    // In the simulator, no other program can delay a READ.
    let sim = Sim::builder(CostModel::cx6_roce()).memory_nodes(2);
    let found = World::from(sim.build().expect("the world is built")).run_one(Measure);
    let Costs([get, absent, update, insert, remove]) = found;
    // Most operations read one neighbourhood. If a leaf begins inside a slot's range, a few keys take one more step.
    for gets in [&get, &absent] {
        let near = |c: &&Cost| c.round_trips == 1 && c.reads <= 2 && (162..=175).contains(&c.bytes_read);
        let once = gets.iter().filter(near).count();
        assert!(once * 100 >= gets.len() * 98, "{once} of {}", gets.len());
        assert!(gets.iter().all(|c| c.writes + c.locks == 0));
    }
    let writes = |costs: &[Cost], bytes: u64| {
        let plain = |c: &&Cost| (c.round_trips, c.locks, c.writes, c.bytes_written) == (2, 1, 2, bytes);
        costs.iter().filter(plain).count() * 100 / costs.len()
    };
    assert!(writes(&update, 8 + 8) >= 98, "a value and the unlock");
    assert!(writes(&remove, 1 + 8) >= 98, "a byte and the unlock");
    // Some inserts hop, and some split a leaf, so not all have the minimal cost.
    assert!(writes(&insert, 17 + 8) >= 75, "an entry and the unlock");
}

#[test]
fn a_table_takes_the_documented_memory() {
    let world = Loopback::builder().nodes(2).build().expect("the world is built");
    let v = world.connect(0).expect("the client connects");
    block_on(async {
        let options = TableOptions {
            chunk_bytes: 1 << 20,
            ..TableOptions::new(8)
        };
        let table = open(&v, options).await;
        let (client, empty) = (table.client(&v), table.local_bytes());
        let keys = 100_000;
        for n in 0..keys {
            assert_eq!(client.insert(&Key8(n), &[7; 8]).await, Ok(Applied::Inserted));
        }
        let depth = table.directory().depth().expect("the table has a directory");
        let slots = 1_u64 << depth;
        // Leaves have 64 slots each, and are between half full and as full as neighbourhoods allow.
        assert!(slots >= keys / 64 && slots * 8 < keys * 3 / 2, "{slots} slots");
        let grown = table.local_bytes() - empty;
        assert!(
            (slots * 8..slots * 8 + (16 << 10)).contains(&grown),
            "{grown} for {slots} slots"
        );
        let memory = table.alloc_stats().in_use_bytes as u64;
        assert!(memory <= keys * 38, "{} a key", memory as f64 / keys as f64);
        // Another compute node reads the same directory.
        let other = HashTable::<Key8>::create_or_open(&v, &options)
            .await
            .expect("the pool can be opened again");
        other.warm(&v).await.expect("the directory is read");
        assert_eq!(other.directory().depth(), Some(depth));
    });
}

/// A directory does not exceed its maximum depth. Keys that it cannot distinguish are found further to the right.
#[test]
fn a_shallow_directory_is_as_large_as_it_may_be() {
    let world = Loopback::builder().build().expect("the world is built");
    let v = world.connect(0).expect("the client connects");
    block_on(async {
        for depth_max in [0, 1, 3] {
            let world = Loopback::builder().build().expect("the world is built");
            let v = world.connect(0).expect("the client connects");
            let table = open(&v, small_of(depth_max)).await;
            let client = table.client(&v);
            for n in 0..300 {
                assert_eq!(client.insert(&Key8(n), &[1; 8]).await, Ok(Applied::Inserted));
            }
            assert_eq!(table.directory().depth(), Some(depth_max));
            let mut found = Vec::new();
            client
                .for_each(|key, value| found.push((key, value == [1; 8])))
                .await
                .expect("no verb fails");
            found.sort_unstable();
            assert!(found.iter().copied().eq((0..300).map(|n| (Key8(n), true))));
        }
        drop(v);
    });
}

fn small_of(depth_max: u8) -> TableOptions {
    TableOptions {
        depth_max,
        ..small(8)
    }
}

/// The options decide the locks of a new pool and the hotspot buffer, and `local_bytes` counts each part once.
#[test]
fn a_table_has_the_locks_and_the_hotspots_of_its_options() {
    let world = Loopback::builder().nodes(2).build().expect("the world is built");
    let v = world.connect(0).expect("the client connects");
    let with = |hotspot_bytes| TableOptions {
        hotspot_bytes,
        ..small(8)
    };
    let [table, hot] = [0, 4 << 10].map(|bytes| block_on(open(&v, with(bytes))));
    assert!(table.hotspots().is_none());
    assert!(hot.hotspots().is_some_and(|hotspots| hotspots.bytes() <= 4 << 10));
    let superblock = block_on(Superblock::inspect(&v)).expect("the pool has a superblock");
    assert_eq!(superblock.locks_per_node, 64);
    let global = GlobalLockTable::new(superblock.lock_tables.clone(), 64);
    let options = LockOptions {
        local: Local::queue_if(true, 4),
        budget: with(0).attempts,
        ..LockOptions::default()
    };
    let locks = Locks::new(options, global);
    let alloc = Allocator::for_pool(&superblock, 0, ReclaimOptions::new());
    let alloc = alloc.chunk_bytes(with(0).chunk_bytes);
    let parts = locks.local_bytes() + alloc.local_bytes() + size_of::<HashTable<Key8>>();
    assert_eq!(table.local_bytes(), parts as u64);
    // The first leaf counts as a directory with one slot.
    let client = table.client(&v);
    let inserted = block_on(client.insert(&Key8(1), &[7; 8]));
    assert_eq!(inserted, Ok(Applied::Inserted));
    assert_eq!(table.directory().bytes(), size_of_val(table.directory()) + 8);
}

/// A walk through a table finds every entry once, with large and with small leaves.
#[test]
fn a_walk_finds_every_entry_once() {
    for options in [TableOptions::new(8), small(8)] {
        let world = Loopback::builder().build().expect("the world is built");
        let v = world.connect(0).expect("the client connects");
        block_on(async {
            let table = open(&v, options).await;
            let client = table.client(&v);
            for n in 0..500 {
                assert_eq!(client.insert(&Key8(n), &[7; 8]).await, Ok(Applied::Inserted));
            }
            let mut found = Vec::new();
            let walked = client.for_each(|key, _| found.push(key.0)).await;
            assert_eq!(walked, Ok(()));
            found.sort_unstable();
            assert!(found.into_iter().eq(0..500));
        });
    }
}
