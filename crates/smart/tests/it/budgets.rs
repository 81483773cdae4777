//! Tests of the cost of each operation. The costs on one memory node are exact, except those of scans. Unless a test
//! says otherwise, all inner nodes are cached, and there is no other client. The costs are the same on loopback and in
//! the simulator.

use crate::common::{Tree, art, hybrid, optimistic, out_of_place, plain, under_tables};
use dm_index::{Applied, RangeIndex, Scan};
use dm_layout::RADIX_HEAD_BYTES;
use dm_sim::{CostModel, Sim};
use dm_testkit::{IndexUnderTest, Job, World, counted};
use dm_verbs::{Control, Counters, Verbs};
use smart::{Compression, Key8, Options};

/// The counters that are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Cost {
    round_trips: u64,
    reads: u64,
    bytes_read: u64,
    writes: u64,
    bytes_written: u64,
    lock_cas: u64,
    cas: u64,
    faa: u64,
}

impl Cost {
    fn of(c: Counters) -> Self {
        assert_eq!(
            [c.lock_retries, c.torn_reads, c.handovers, c.cache_misses],
            [0; 4],
            "nobody else is there: {c:?}"
        );
        Self {
            round_trips: c.round_trips,
            reads: c.reads,
            bytes_read: c.bytes_read,
            writes: c.writes,
            bytes_written: c.bytes_written,
            lock_cas: c.masked_cas,
            cas: c.cas,
            faa: c.faa,
        }
    }
}

/// A key that is alone below its slot of the node under the root.
const ALONE: u64 = 1 << 40;
/// A key that uses the same slot of this node as `ALONE`, and differs from it in the next byte.
const BESIDE: u64 = ALONE + (5 << 32);
/// Number of loaded keys. The keys are the even numbers below twice this number.
const LOADED: u64 = 2_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Costs {
    get: Cost,
    absent_beside_leaf: Cost,
    absent_in_node: Cost,
    update: Cost,
    update_absent: Cost,
    insert: Cost,
    insert_present: Cost,
    leaf_split: Cost,
    header_split: Cost,
    remove: Cost,
    insert_again: Cost,
}

/// A job that measures all operations of a tree with these options.
struct Measure(Options);

/// Returns options with this slack of link depths.
fn slack(depth_slack: u8) -> Options {
    Options {
        depth_slack,
        ..Options::new(8)
    }
}

impl Job for Measure {
    type Out = Costs;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Costs {
        let tree = Tree::<Key8>::new(self.0);
        let tree = tree.open(v).await.expect("an empty pool");
        let client = tree.client(v);
        let mut next = (0..LOADED).map(|n| Key8(n * 2)).chain([Key8(ALONE)]);
        let loaded = client.bulk_load(0.7, |out| {
            out.extend_from_slice(&[7; 8]);
            next.next()
        });
        assert_eq!(loaded.await, Ok(LOADED + 1));
        tree.warm(v).await.expect("inner nodes");
        let mut before = v.meter().counters();
        let mut lap = || {
            let now = v.meter().counters();
            Cost::of(now - core::mem::replace(&mut before, now))
        };
        let mut out = Vec::with_capacity(8);
        let (key, odd, value) = (Key8(LOADED), Key8(LOADED + 1), [3; 8]);
        assert_eq!(client.get(&key, &mut out).await, Ok(true));
        let get = lap();
        assert_eq!(client.get(&Key8(BESIDE), &mut out).await, Ok(false));
        let absent_beside_leaf = lap();
        assert_eq!(client.get(&odd, &mut out).await, Ok(false));
        let absent_in_node = lap();
        assert_eq!(client.update(&key, &value).await, Ok(Applied::Replaced));
        let update = lap();
        assert_eq!(client.update(&odd, &value).await, Ok(Applied::Absent));
        let update_absent = lap();
        assert_eq!(client.insert(&odd, &value).await, Ok(Applied::Inserted));
        let insert = lap();
        assert_eq!(client.insert(&odd, &value).await, Ok(Applied::Present));
        let insert_present = lap();
        assert_eq!(client.insert(&Key8(BESIDE), &value).await, Ok(Applied::Inserted));
        let leaf_split = lap();
        assert_eq!(client.insert(&Key8(1 << 50), &value).await, Ok(Applied::Inserted));
        let header_split = lap();
        assert_eq!(client.remove(&odd).await, Ok(Applied::Removed));
        let remove = lap();
        assert_eq!(client.insert(&odd, &value).await, Ok(Applied::Inserted));
        let insert_again = lap();
        Costs {
            get,
            absent_beside_leaf,
            absent_in_node,
            update,
            update_absent,
            insert,
            insert_present,
            leaf_split,
            header_split,
            remove,
            insert_again,
        }
    }
}

fn loopback(memory_nodes: u16) -> World {
    counted().nodes(memory_nodes).build().expect("memory").into()
}

fn simulated(memory_nodes: u16) -> World {
    let sim = Sim::builder(CostModel::cx6_roce()).memory_nodes(memory_nodes);
    sim.build().expect("memory").into()
}

/// The cost of a READ of a leaf, without its lock word.
const LEAF: Cost = Cost {
    round_trips: 1,
    reads: 1,
    bytes_read: 40,
    writes: 0,
    bytes_written: 0,
    lock_cas: 0,
    cas: 0,
    faa: 0,
};
/// The cost of a READ of a node of 256 slots.
const NODE: Cost = Cost {
    bytes_read: 2064,
    ..LEAF
};
/// The cost of the chains \[CAS lock, READ leaf\] and \[WRITE …, WRITE unlock\], without the written bytes.
const LOCKED: Cost = Cost {
    round_trips: 2,
    writes: 2,
    lock_cas: 1,
    ..LEAF
};
/// The cost of the chain \[WRITE leaf, CAS slot\].
const PUT: Cost = Cost {
    round_trips: 1,
    reads: 0,
    bytes_read: 0,
    writes: 1,
    bytes_written: 64,
    cas: 1,
    ..LEAF
};

/// The costs on one memory node without slack of link depths.
fn exact() -> Costs {
    Costs {
        get: LEAF,
        absent_beside_leaf: LEAF,
        absent_in_node: NODE,
        // An update writes the checksum and the value, and the lock word.
        update: Cost {
            bytes_written: 16 + 8,
            ..LOCKED
        },
        update_absent: NODE,
        insert: PUT,
        insert_present: LEAF,
        // The verbs are READ leaf, and then the chain [WRITE node, WRITE leaf, FAA depth, CAS slot].
        leaf_split: Cost {
            round_trips: 2,
            reads: 1,
            bytes_read: 40,
            writes: 2,
            bytes_written: 128,
            faa: 1,
            ..PUT
        },
        header_split: Cost {
            writes: 2,
            bytes_written: 128,
            ..PUT
        },
        // A remove writes the state and the lock word. It also changes the slot by a CAS that it does not await.
        remove: Cost {
            bytes_written: 8 + 8,
            cas: 1,
            ..LOCKED
        },
        insert_again: PUT,
    }
}

#[test]
fn on_one_memory_node_each_cost_is_exact() {
    let (found, expected) = (loopback(1).run_one(Measure(slack(0))), exact());
    assert_eq!(
        found,
        simulated(1).run_one(Measure(slack(0))),
        "the meter counts the same in every world"
    );
    assert_eq!(found, expected);
    // With slack, a split takes one verb less. But a leaf then does not prove that a key is absent, so the node above
    // it is read too.
    let with_slack = Costs {
        absent_beside_leaf: Cost {
            round_trips: 2,
            reads: 2,
            bytes_read: 40 + 64,
            ..LEAF
        },
        leaf_split: Cost {
            faa: 0,
            ..expected.leaf_split
        },
        ..expected
    };
    assert_eq!(Options::new(8).depth_slack, 1);
    assert_eq!(loopback(1).run_one(Measure(slack(1))), with_slack);
}

#[test]
fn locks_of_leaves_in_tables_cost_the_same() {
    let options = Options {
        rear_locks: false,
        ..slack(0)
    };
    for world in [loopback(1), simulated(1)] {
        assert_eq!(world.run_one(Measure(options)), exact());
    }
}

/// Returns the costs if a leaf's WRITE is awaited before the unlock.
fn apart(costs: Costs) -> Costs {
    let later = |cost: Cost| Cost {
        round_trips: cost.round_trips + 1,
        ..cost
    };
    Costs {
        update: later(costs.update),
        remove: later(costs.remove),
        ..costs
    }
}

/// The rear lock saves this round trip of SMART's baselines. An insert takes no leaf's lock.
#[test]
fn an_unlock_behind_the_write_takes_one_more_round_trip() {
    for rear_locks in [false, true] {
        let options = Options {
            rear_locks,
            combine: false,
            ..slack(0)
        };
        for world in [loopback(1), simulated(1)] {
            let found = world.run_one(Measure(options));
            assert_eq!(found, apart(exact()));
            assert_eq!((found.update.round_trips, found.insert.round_trips), (3, 1));
        }
    }
}

#[test]
fn a_change_of_a_locked_node_takes_two_more_round_trips() {
    // The CAS that takes the lock is awaited, and so is the WRITE that releases it.
    let locked = |cost: Cost| Cost {
        round_trips: cost.round_trips + 2,
        writes: cost.writes + 1,
        bytes_written: cost.bytes_written + 8,
        lock_cas: cost.lock_cas + 1,
        ..cost
    };
    let Costs {
        insert,
        leaf_split,
        header_split,
        remove,
        ..
    } = exact();
    let expected = Costs {
        insert: locked(insert),
        leaf_split: locked(leaf_split),
        header_split: locked(header_split),
        // Under a lock, the CAS of the slot is awaited too.
        remove: Cost {
            round_trips: remove.round_trips + 3,
            ..locked(remove)
        },
        insert_again: locked(insert),
        ..exact()
    };
    for world in [loopback(1), simulated(1)] {
        assert_eq!(world.run_one(Measure(under_tables(slack(0)))), apart(expected));
    }
}

#[test]
fn an_out_of_place_update_takes_three_round_trips() {
    // The verbs of an update are READ leaf, [WRITE leaf, CAS state], CAS slot.
    let update = Cost {
        round_trips: 3,
        writes: 1,
        bytes_written: 64,
        cas: 2,
        ..LEAF
    };
    // The verbs of a remove are READ leaf, CAS state, and a CAS of the slot that is not awaited.
    let remove = Cost {
        round_trips: 2,
        cas: 2,
        ..LEAF
    };
    let expected = Costs {
        update,
        remove,
        ..exact()
    };
    for world in [loopback, simulated] {
        let found = world(1).run_one(Measure(out_of_place(slack(0))));
        assert_eq!(found, expected);
        for combine in [true, false] {
            let options = Options {
                combine,
                ..art(slack(0))
            };
            let found = world(1).run_one(Measure(options));
            assert_eq!(found.update, update, "an update takes no lock");
            assert_eq!(
                found.insert.round_trips, 3,
                "an inner node's unlock is never in a chain"
            );
        }
    }
}

/// A job that reads and updates a key whose leaf another compute node has replaced since this one has cached its slot.
struct Replaced;

impl Job for Replaced {
    type Out = [Cost; 3];
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> [Cost; 3] {
        let index = Tree::<Key8>::new(out_of_place(Options::new(8)));
        let [tree, other] = [
            index.open(v).await.expect("an empty pool"),
            index.open(v).await.expect("a pool"),
        ];
        let (client, other) = (tree.client(v), other.client(v));
        let mut out = Vec::with_capacity(8);
        for key in [1, 2] {
            assert_eq!(client.insert(&Key8(key), &[1; 8]).await, Ok(Applied::Inserted));
        }
        tree.warm(v).await.expect("inner nodes");
        for key in [1, 2] {
            assert_eq!(other.update(&Key8(key), &[2; 8]).await, Ok(Applied::Replaced));
        }
        let mut before = v.meter().counters();
        let mut lap = || {
            let now = v.meter().counters();
            Cost::of(now - core::mem::replace(&mut before, now))
        };
        assert_eq!(client.get(&Key8(1), &mut out).await, Ok(true));
        assert_eq!(out, [2; 8]);
        let first = lap();
        assert_eq!(client.get(&Key8(1), &mut out).await, Ok(true));
        let second = lap();
        assert_eq!(client.update(&Key8(2), &[3; 8]).await, Ok(Applied::Replaced));
        [first, second, lap()]
    }
}

#[test]
fn a_replaced_leaf_costs_its_reader_two_more_reads() {
    let [first, second, update] = loopback(1).run_one(Replaced);
    // The verbs are READ old leaf, READ slot, READ new leaf. Then the cache has the new address.
    let through_slot = Cost {
        round_trips: 3,
        reads: 3,
        bytes_read: 40 + 8 + 40,
        ..LEAF
    };
    assert_eq!((first, second), (through_slot, LEAF));
    assert_eq!((update.round_trips, update.reads, update.cas), (5, 3, 2));
}

/// A job that reads a key twice while the client that updates the key is between its two CASes. The key's leaf has then
/// been replaced, but its slot still leads to the old leaf.
struct NotSwung(Options);

impl Job for NotSwung {
    type Out = [Cost; 2];
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> [Cost; 2] {
        let index = Tree::<Key8>::new(self.0);
        let [tree, other] = [
            index.open(v).await.expect("an empty pool"),
            index.open(v).await.expect("a pool"),
        ];
        let (client, other) = (tree.client(v), other.client(v));
        // The leaf is in the root's slot of byte 1.
        let (key, slot) = (Key8(1 << 56), tree.root().add(RADIX_HEAD_BYTES as u64 + 8));
        assert_eq!(client.insert(&key, &[1; 8]).await, Ok(Applied::Inserted));
        tree.warm(v).await.expect("inner nodes");
        let old = v.word(slot).await.expect("no faults");
        assert_eq!(other.update(&key, &[2; 8]).await, Ok(Applied::Replaced));
        // This undoes the update's second CAS.
        let swung = v.word(slot).await.expect("no faults");
        assert_ne!(old, swung);
        assert_eq!(v.cas(slot, swung, old).await, Ok(swung));
        let mut before = v.meter().counters();
        let mut lap = || {
            let now = v.meter().counters();
            Cost::of(now - core::mem::replace(&mut before, now))
        };
        let mut out = Vec::with_capacity(8);
        let mut read = async || {
            assert_eq!(client.get(&key, &mut out).await, Ok(true));
            assert_eq!(out, [2; 8]);
        };
        read().await;
        let first = lap();
        read().await;
        [first, lap()]
    }
}

#[test]
fn a_replaced_leaf_whose_slot_still_leads_to_it_costs_the_same() {
    // The verbs are READ old leaf, READ slot, READ new leaf. The cache keeps the old address, because the slot has it.
    let through_slot = Cost {
        round_trips: 3,
        reads: 3,
        bytes_read: 40 + 8 + 40,
        ..LEAF
    };
    for options in [out_of_place(Options::new(8)), art(Options::new(8))] {
        assert_eq!(loopback(1).run_one(NotSwung(options)), [through_slot; 2]);
    }
}

#[test]
fn several_memory_nodes_cost_at_most_one_more_round_trip() {
    for world in [loopback(3), simulated(2)] {
        let found = world.run_one(Measure(Options::new(8)));
        assert_eq!(
            (found.get, found.update.round_trips, found.remove.round_trips),
            (LEAF, 2, 2)
        );
        assert!(
            found.insert.round_trips <= 2 && found.header_split.round_trips <= 2,
            "{found:?}"
        );
        assert!(found.leaf_split.round_trips <= 3, "{found:?}");
    }
}

/// A job that reads one of two keys that differ in their last byte, without a cache.
struct Uncached {
    options: Options,
    /// Whether the keys are inserted, or else bulk-loaded.
    inserted: bool,
}

impl Job for Uncached {
    type Out = Cost;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Cost {
        let tree = Tree::<Key8>::new(Options {
            cache_bytes: 0,
            ..self.options
        });
        let tree = tree.open(v).await.expect("an empty pool");
        let client = tree.client(v);
        let (keys, value) = ([Key8(0x0102_0304_0506_0708), Key8(0x0102_0304_0506_0709)], [1; 8]);
        if self.inserted {
            for key in &keys {
                assert_eq!(client.insert(key, &value).await, Ok(Applied::Inserted));
            }
        } else {
            let mut next = keys.into_iter();
            let loaded = client.bulk_load(1.0, |out| {
                out.extend_from_slice(&value);
                next.next()
            });
            assert_eq!(loaded.await, Ok(2));
        }
        let before = v.meter().counters();
        assert_eq!(client.get(&keys[0], &mut Vec::new()).await, Ok(true));
        let mut cost = v.meter().counters() - before;
        assert_eq!(core::mem::take(&mut cost.cache_misses), 1);
        Cost::of(cost)
    }
}

#[test]
fn path_compression_saves_an_uncached_get_a_read_for_each_shared_byte() {
    let reads = |reads: u64, bytes_read: u64| Cost {
        round_trips: reads,
        reads,
        bytes_read,
        ..LEAF
    };
    let compressed = Options::new(8);
    let uncompressed = Options {
        compression: Compression::NONE,
        ..compressed
    };
    for inserted in [false, true] {
        let cost = |options| loopback(1).run_one(Uncached { options, inserted });
        // The header of the node between root and leaf holds six bytes, or clients skip these bytes.
        for options in [compressed, hybrid(compressed), optimistic(compressed)] {
            assert_eq!(cost(options), reads(3, 2064 + 64 + 40));
        }
        // Below the root, there is a node for each of the seven other key bytes.
        assert_eq!(cost(uncompressed), reads(9, 2064 + 7 * 64 + 40));
        assert_eq!(cost(plain(Options::new(8))), reads(9, 8 * 2064 + 40));
    }
}

#[test]
fn an_insert_that_skips_key_bytes_reads_a_leaf_first() {
    // All bytes of these prefixes fit into headers.
    assert_eq!(loopback(1).run_one(Measure(hybrid(slack(0)))), exact());
    let found = loopback(1).run_one(Measure(optimistic(slack(0))));
    // The whole leaf is read, because it may be a removed one.
    let behind_leaf = |cost: Cost| Cost {
        round_trips: cost.round_trips + 1,
        reads: cost.reads + 1,
        bytes_read: cost.bytes_read + 64,
        ..cost
    };
    let Costs {
        insert,
        header_split,
        insert_again,
        ..
    } = exact();
    // The cached node does not prove that the key is absent, so after its READ the client reads all four nodes on the
    // path.
    let absent = Cost {
        round_trips: 5,
        reads: 5,
        bytes_read: 2064 + (2064 + 64 + 256 + 2064),
        ..LEAF
    };
    let expected = Costs {
        absent_in_node: absent,
        update_absent: absent,
        insert: behind_leaf(insert),
        // The search ends at another key's leaf. The key is compared with this leaf, and the place is cached.
        header_split: Cost {
            bytes_read: 40,
            ..behind_leaf(header_split)
        },
        insert_again: behind_leaf(insert_again),
        ..exact()
    };
    assert_eq!(found, expected);
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
        let mut next = (0..5_000).map(Key8);
        let loaded = client.bulk_load(1.0, |out| {
            out.extend_from_slice(&[1; 8]);
            next.next()
        });
        assert_eq!(loaded.await, Ok(5_000));
        let mut scan = Scan::new();
        let mut found = Vec::new();
        for entries in [1, 50, 64, 1_000] {
            let before = v.meter().counters();
            assert_eq!(client.scan(&Key8(700), entries, &mut scan).await, Ok(()));
            found.push((entries, Cost::of(v.meter().counters() - before)));
            assert!(scan.keys().iter().copied().eq((700..).take(entries).map(Key8)));
        }
        found
    }
}

#[test]
fn a_scan_takes_a_round_trip_for_each_level_and_each_64_leaves() {
    for (entries, cost) in loopback(2).run_one(Scans) {
        // A scan reads the root, the node at branch 6, and the nodes at branch 7 and the leaves that it needs.
        assert!(
            cost.round_trips <= 3 + 2 + entries.div_ceil(64) as u64 * 2,
            "{entries} entries: {cost:?}"
        );
        assert!(
            cost.reads <= 3 + 40 + entries as u64,
            "{entries} entries: {cost:?}"
        );
        assert_eq!((cost.writes, cost.cas, cost.lock_cas, cost.faa), (0, 0, 0, 0));
    }
}
