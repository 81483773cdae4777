//! Tests that the memory of removed leaves and of replaced nodes is reused, but not too early.

use dm_alloc::{AllocStats, CensusStep, ReclaimOptions};
use dm_art::{ArtOptions, Compression, SeparatorOptions, Separators};
use dm_cache::IndexCache;
use dm_index::{Applied, Exchange, Inner, Key8, KeyN, RangeIndex, Split, Survey};
use dm_loopback::{Endpoint, Loopback, block_on};
use dm_verbs::{Env, Nanos, NodeId, RemotePtr};

use crate::common::{Setup, Tree, cost, draw, node_below, poll_times, pool};

/// Returns key `i` of a compute node. The keys of different compute nodes differ in their first byte.
fn key(compute_node: u64, i: u64) -> Key8 {
    Key8(compute_node << 56 | i.wrapping_mul(0x9E_3779_B97F_4A7D) & ((1 << 56) - 1))
}

fn sum(trees: &[Tree<Key8>], of: fn(AllocStats) -> i64) -> i64 {
    trees.iter().map(|tree| of(tree.alloc().stats())).sum()
}

fn live(trees: &[Tree<Key8>]) -> i64 {
    sum(trees, |stats| stats.in_use_bytes)
}

fn limbo(trees: &[Tree<Key8>]) -> i64 {
    sum(trees, |stats| stats.limbo_bytes as i64)
}

/// Runs five rounds of every compute node. They free every retired block that no operation pins.
fn settle(trees: &[Tree<Key8>], connections: &[Endpoint]) {
    for _ in 0..5 {
        for (tree, v) in trees.iter().zip(connections) {
            block_on(tree.collect(v)).unwrap();
        }
    }
}

fn open(pool: &Loopback, setup: Setup, compute_nodes: u16) -> (Vec<Endpoint>, Vec<Tree<Key8>>) {
    let connections: Vec<_> = (0..compute_nodes).map(|cn| pool.connect(cn).unwrap()).collect();
    let trees = connections.iter().map(|v| setup.open(v)).collect();
    (connections, trees)
}

#[test]
fn inserting_and_removing_all_keys_again_takes_no_more_memory() {
    for (memory_nodes, members) in [(1, 2), (2, 2), (2, 0)] {
        let pool = pool(memory_nodes);
        let setup = Setup {
            members,
            ..Setup::small()
        };
        let (connections, trees) = open(&pool, setup, 2);
        let empty = live(&trees);
        let mut fetched = Vec::new();
        for round in 0..3_u64 {
            let clients: Vec<_> = trees
                .iter()
                .zip(&connections)
                .map(|(tree, v)| tree.client(v))
                .collect();
            let each = (0..300).flat_map(|i| [(0, i), (1, i)]);
            for (cn, i) in each.clone() {
                let done = block_on(clients[cn].insert(&key(cn as u64, i), &round.to_le_bytes()));
                assert_eq!(done, Ok(Applied::Inserted));
            }
            let mut value = Vec::new();
            for (cn, i) in each.clone() {
                assert_eq!(
                    block_on(clients[1 - cn].get(&key(cn as u64, i), &mut value)),
                    Ok(true)
                );
                assert_eq!(value, round.to_le_bytes());
            }
            for (cn, i) in each {
                assert_eq!(
                    block_on(clients[cn].remove(&key(cn as u64, i))),
                    Ok(Applied::Removed)
                );
            }
            for (client, cn) in clients.iter().zip(0..) {
                // During this remove, the CAS with which the client's previous remove clears a slot completes. So that
                // leaf is retired when the client is dropped.
                assert_eq!(block_on(client.remove(&key(cn, 0))), Ok(Applied::Absent));
            }
            settle(&trees, &connections);
            fetched.push(sum(&trees, |stats| stats.fetched_bytes as i64));
            drop(clients);
            settle(&trees, &connections);
            match members {
                0 => assert!(
                    live(&trees) > empty,
                    "without reclamation, the memory stays in use"
                ),
                _ => assert_eq!((live(&trees), limbo(&trees)), (empty, 0), "round {round}"),
            }
        }
        match members {
            0 => assert!(fetched[2] > fetched[0], "{fetched:?}"),
            // In the second round, a compute node may take a chunk for its first magazines.
            _ => assert_eq!(fetched[2], fetched[1], "{fetched:?}"),
        }
    }
}

/// A client that loses a race frees the block that it wrote. A block that may have been published is not freed.
#[test]
fn a_lost_race_frees_its_blocks() {
    let pool = pool(1);
    let (connections, trees) = open(&pool, Setup::reclaiming(), 2);
    let [here, there] = [0, 1].map(|cn| trees[cn].client(&connections[cn]));
    let insert =
        |client: &crate::common::Client<'_, Key8>, n: u64| block_on(client.insert(&Key8(n), &[1; 8]));
    assert_eq!(insert(&here, 0), Ok(Applied::Inserted));
    assert_eq!(insert(&there, 1 << 56), Ok(Applied::Inserted));
    let before = live(&trees);
    // This client has cached an empty slot, which another client has filled meanwhile.
    assert_eq!(insert(&here, 1 << 56), Ok(Applied::Present));
    assert_eq!(live(&trees), before);
    // The first leaf is split: there is one more leaf, and a node of two slots.
    assert_eq!(insert(&there, 1), Ok(Applied::Inserted));
    assert_eq!(live(&trees), before + 2 * 64);
    // This client would split the leaf, which the other client has split already.
    assert_eq!(insert(&here, 1), Ok(Applied::Present));
    assert_eq!(live(&trees), before + 2 * 64);
    assert_eq!(insert(&here, 2), Ok(Applied::Inserted));
    // There is one more leaf, and a node of four slots has replaced the node of two. Each of these nodes takes a whole
    // line. The replaced node is in limbo.
    assert_eq!((live(&trees), limbo(&trees)), (before + 3 * 64, 64));
}

/// A dropped operation pins the memory that was retired after it began, until its client has awaited its requests.
#[test]
fn a_dropped_operation_stays_announced_until_the_next_one_of_its_connection() {
    let pool = Loopback::builder().delays(4).host_bytes(4 << 20).build().unwrap();
    let setup = Setup::reclaiming();
    let [v, w] = [0, 0].map(|cn| pool.connect(cn).unwrap());
    let trees = [setup.open::<Key8>(&w)];
    let tree = &trees[0];
    let rounds = || {
        for _ in 0..5 {
            block_on(tree.collect(&w)).unwrap();
        }
        limbo(&trees)
    };
    let client = tree.client(&v);
    let midway = (0..20).any(|i| {
        block_on(client.insert(&key(0, 2 * i), &[1; 8])).unwrap();
        poll_times(1, client.insert(&key(0, 2 * i + 1), &[2; 8])).is_none()
    });
    assert!(midway, "every insert ended at its first poll");
    drop(client);
    let other = tree.client(&w);
    for i in 100..110 {
        assert_eq!(block_on(other.insert(&key(0, i), &[3; 8])), Ok(Applied::Inserted));
    }
    for i in 100..110 {
        assert_eq!(block_on(other.remove(&key(0, i))), Ok(Applied::Removed));
    }
    assert!(rounds() > 0, "the dropped operation still counts as running");
    assert_eq!(
        block_on(tree.client(&w).get(&key(0, 0), &mut Vec::new())),
        Ok(true)
    );
    assert!(rounds() > 0, "an operation of another connection does not end it");
    assert_eq!(
        block_on(tree.client(&v).get(&key(0, 0), &mut Vec::new())),
        Ok(true)
    );
    assert_eq!(rounds(), 0);
}

/// A dropped get pins the memory that its READ may still read, until its client's next operation.
#[test]
fn a_get_that_was_dropped_pins_what_it_may_read() {
    let pool = Loopback::builder().delays(4).host_bytes(4 << 20).build().unwrap();
    let (connections, trees) = open(&pool, Setup::reclaiming(), 2);
    let [here, there] = [0, 1].map(|cn| trees[cn].client(&connections[cn]));
    for i in 0..20 {
        assert_eq!(block_on(here.insert(&key(0, i), &[1; 8])), Ok(Applied::Inserted));
    }
    let mut value = Vec::new();
    assert_eq!(block_on(there.get(&key(0, 0), &mut value)), Ok(true));
    let midway = (1..20).any(|i| poll_times(1, there.get(&key(0, i), &mut value)).is_none());
    assert!(midway, "every get ended at its first poll");
    for i in 10..20 {
        assert_eq!(block_on(here.remove(&key(0, i))), Ok(Applied::Removed));
    }
    settle(&trees, &connections);
    assert!(limbo(&trees) > 0);
    assert_eq!(block_on(there.get(&key(0, 0), &mut value)), Ok(true));
    settle(&trees, &connections);
    assert_eq!(limbo(&trees), 0);
}

/// An operation that was begun explicitly pins memory until its guard is dropped, even if it has posted no request.
#[test]
fn an_explicit_operation_pins_memory_until_its_guard_is_dropped() {
    let pool = pool(1);
    let (connections, trees) = open(&pool, Setup::reclaiming(), 2);
    let [here, there] = [0, 1].map(|cn| trees[cn].client(&connections[cn]));
    for i in 0..10 {
        assert_eq!(block_on(here.insert(&key(0, i), &[1; 8])), Ok(Applied::Inserted));
    }
    let begun = block_on(there.begin()).unwrap();
    assert!(begun.is_some());
    for i in 0..10 {
        assert_eq!(block_on(here.remove(&key(0, i))), Ok(Applied::Removed));
    }
    assert_eq!(block_on(here.remove(&key(0, 0))), Ok(Applied::Absent));
    settle(&trees, &connections);
    assert!(limbo(&trees) > 0);
    drop(begun);
    settle(&trees, &connections);
    assert_eq!(limbo(&trees), 0);
    // If no memory is reused, there is nothing to pin.
    let pool = crate::common::pool(1);
    let (connections, trees) = open(&pool, Setup::small(), 1);
    assert!(
        block_on(trees[0].client(&connections[0]).begin())
            .unwrap()
            .is_none()
    );
}

/// Warming the cache reads every node once. It runs as an operation, so the memory that it reads is not reused
/// meanwhile. This holds even if the compute node has no client.
#[test]
fn warming_reads_every_node_as_an_operation() {
    for setup in [Setup::small(), Setup::reclaiming()] {
        let pool = pool(1);
        let (connections, trees) = open(&pool, setup, 2);
        let [here, there] = [0, 1].map(|cn| trees[cn].client(&connections[cn]));
        for i in 0..30 {
            assert_eq!(block_on(here.insert(&key(0, i), &[1; 8])), Ok(Applied::Inserted));
        }
        assert_eq!(block_on(there.get(&key(1, 0), &mut Vec::new())), Ok(false));
        let nodes = draw(&connections[0], &trees[0], &setup.art.types)
            .matches('@')
            .count();
        assert_eq!(block_on(trees[1].warm(&connections[1])), Ok(nodes as u64));
        for i in 0..30 {
            let (found, told) = cost(&connections[1], there.get(&key(0, i), &mut Vec::new()));
            assert_eq!(
                (found, told.as_str()),
                (Ok(true), "1 reads, 40 bytes_read, 1 round_trips, 1 cache_hits")
            );
        }
        drop(there);
        assert_eq!(block_on(trees[1].warm(&connections[1])), Ok(nodes as u64));
    }
}

/// Two nodes that use the same block one after the other have different incarnations, which their empty slots contain.
#[test]
fn a_node_in_reused_memory_has_the_next_incarnation() {
    let pool = pool(1);
    let setup = Setup::reclaiming();
    let (connections, trees) = open(&pool, setup, 1);
    let client = trees[0].client(&connections[0]);
    let lives = [(); 4].map(|()| {
        for n in [0, 1] {
            assert_eq!(block_on(client.insert(&Key8(n), &[1; 8])), Ok(Applied::Inserted));
        }
        let life = node_below(&connections[0], &trees[0], &setup.art.types, 0);
        for n in [0, 1] {
            assert_eq!(block_on(client.remove(&Key8(n))), Ok(Applied::Removed));
        }
        settle(&trees, &connections);
        life
    });
    for pair in lives.windows(2) {
        let [(at, incarnation), next] = pair else {
            unreachable!("pairs")
        };
        assert_eq!(*next, (*at, incarnation + 1), "{lives:?}");
    }
}

/// If keys share more bytes than a header holds, nodes with one child are needed. They are removed together with the
/// last key below them.
#[test]
fn nodes_with_one_slot_are_removed_with_the_last_key_below_them() {
    let pool = pool(1);
    let setup = Setup::reclaiming();
    let v = pool.connect(0).unwrap();
    let tree = setup.open::<KeyN<32>>(&v);
    let client = tree.client(&v);
    let empty = tree.alloc().stats().in_use_bytes;
    let keys = [1, 2].map(|last| {
        let mut bytes = [7; 32];
        bytes[15] = last;
        KeyN(bytes)
    });
    for key in &keys {
        assert_eq!(block_on(client.insert(key, &[1; 8])), Ok(Applied::Inserted));
    }
    let picture = || draw(&v, &tree, &setup.art.types);
    assert_eq!(picture().matches('@').count(), 4);
    for key in &keys {
        assert_eq!(block_on(client.remove(key)), Ok(Applied::Removed));
    }
    assert_eq!(picture(), "256@0{07:-}");
    for _ in 0..5 {
        block_on(tree.collect(&v)).unwrap();
    }
    let stats = tree.alloc().stats();
    assert_eq!((stats.in_use_bytes, stats.limbo_bytes), (empty, 0));
}

/// A remove does not await the CAS that clears the leaf's slot. The next remove of the same client awaits it and
/// retires the leaf.
#[test]
fn a_leaf_is_retired_by_the_next_remove_of_its_client() {
    let pool = Loopback::builder().delays(4).host_bytes(4 << 20).build().unwrap();
    let (connections, trees) = open(&pool, Setup::reclaiming(), 1);
    let client = trees[0].client(&connections[0]);
    for i in 0..40 {
        assert_eq!(
            block_on(client.insert(&Key8(i << 56), &[1; 8])),
            Ok(Applied::Inserted)
        );
    }
    let before = limbo(&trees);
    for i in 0..40 {
        assert_eq!(block_on(client.remove(&Key8(i << 56))), Ok(Applied::Removed));
        assert_eq!(limbo(&trees), before + 64 * i as i64);
    }
}

/// A client does not know yet whether the slot of a leaf that it has removed is cleared. Between its operations, it
/// holds the leaf, so a census of another compute node does not give the leaf's block away.
//= docs/protocol/recovery.md V25 type=test
#[test]
fn a_leaf_whose_slot_nobody_waited_for_is_not_lost() {
    let pool = Loopback::builder().host_bytes(4 << 20).build().unwrap();
    let (connections, trees) = open(&pool, Setup::reclaiming(), 2);
    let [v, w] = [&connections[0], &connections[1]];
    let client = trees[0].client(v);
    for i in 0..4 {
        let inserted = block_on(client.insert(&Key8(i << 56), &[1; 8]));
        assert_eq!(inserted, Ok(Applied::Inserted));
    }
    assert_eq!(block_on(client.remove(&Key8(1 << 56))), Ok(Applied::Removed));
    assert_eq!(limbo(&trees), 0, "it is not retired yet");
    let mut census = block_on(trees[1].alloc().begin_census(w)).unwrap().unwrap();
    let until = |step: &dyn Fn() -> CensusStep| {
        let done = (0..16).any(|_| {
            settle(&trees, &connections);
            step() == CensusStep::Done
        });
        assert!(done, "a member does not answer");
    };
    until(&|| block_on(census.told()).unwrap());
    block_on(census.grace()).unwrap();
    until(&|| block_on(census.quiet()).unwrap());
    let mut survey = Survey::new(false, None).recording();
    block_on(trees[1].survey(w, &mut survey, |_, _, _, _, _| {})).unwrap();
    census.know(&survey.reached.unwrap());
    assert_eq!(block_on(census.know_depots()).unwrap(), CensusStep::Done);
    block_on(census.grace()).unwrap();
    until(&|| block_on(census.quiet()).unwrap());
    assert_eq!(block_on(census.ask()).unwrap(), CensusStep::Done);
    until(&|| block_on(census.told()).unwrap());
    assert_eq!(block_on(census.close()).unwrap().unwrap().blocks, 0);
}

/// The block of a separator that led to a wrong leaf is retired before the operation that removed the separator ends.
#[test]
fn a_struck_separator_is_retired_at_once() {
    let pool = Loopback::builder().delays(4).host_bytes(4 << 20).build().unwrap();
    let v = pool.connect(0).unwrap();
    let reclaiming = Setup::reclaiming();
    let art = ArtOptions {
        cache_bytes: 0,
        ..reclaiming.art
    };
    let art = Setup { art, ..reclaiming }.open::<Key8>(&v);
    let entries = Separators::new(art, IndexCache::new(1 << 20), SeparatorOptions::default()).unwrap();
    let leaf = |n: u64| RemotePtr::new(NodeId(0), (n + 1) << 12).unwrap();
    assert_eq!(block_on(entries.plant(&v, leaf(0))), Ok(true));
    for n in 1..40 {
        let split = Split {
            level: 0,
            separator: Key8(n << 56),
            until: None,
            left: leaf(0),
            right: leaf(n),
        };
        assert_eq!(block_on(entries.install(&v, split)), Ok(()));
    }
    let retired = || entries.art().alloc().stats().limbo_bytes;
    let before = retired();
    for n in (1..40).rev() {
        let located = block_on(entries.find(&v, &Key8(n << 56))).unwrap().unwrap();
        entries.invalidate(&v, located.proof);
        let found = block_on(entries.find(&v, &Key8(n << 56))).unwrap().unwrap();
        assert_eq!(found.leaf.at, leaf(n - 1));
        assert_eq!(retired(), before + 64 * (40 - n));
    }
}

/// A compute node that has left the pool does not use its old cache when it joins again.
#[test]
fn a_compute_node_that_joins_again_does_not_use_its_old_cache() {
    let pool = pool(1);
    let (connections, trees) = open(&pool, Setup::reclaiming(), 2);
    let there = trees[1].client(&connections[1]);
    let insert = |n: u64| {
        assert_eq!(
            block_on(there.insert(&Key8(n), b"is there")),
            Ok(Applied::Inserted)
        )
    };
    let found = |value: &mut Vec<u8>| block_on(trees[0].client(&connections[0]).get(&Key8(1), value));
    [1, 2, 4].into_iter().for_each(insert);
    // This was the compute node's only client, so the compute node leaves the pool.
    assert_eq!(found(&mut Vec::new()), Ok(true));
    for n in [1, 4] {
        assert_eq!(block_on(there.remove(&Key8(n))), Ok(Applied::Removed));
        assert_eq!(block_on(there.remove(&Key8(n))), Ok(Applied::Absent));
    }
    for _ in 0..6 {
        block_on(trees[1].collect(&connections[1])).unwrap();
    }
    assert!(trees[1].alloc().stats().free_bytes > 0, "no memory was freed");
    (1..9).for_each(|byte| insert(byte << 56));
    insert(1);
    let mut value = Vec::new();
    assert_eq!(found(&mut value), Ok(true));
    assert_eq!(value, b"is there");
}

/// A survey in a tree that skips key bytes reads a leaf below each node, to which the cache may lead. It does not use the
/// cache of an earlier membership, whose leaves may be those of other keys by now.
#[test]
fn a_survey_of_a_compute_node_that_joins_again_does_not_use_its_old_cache() {
    let pool = pool(1);
    let base = Setup::reclaiming();
    let art = ArtOptions {
        compression: Compression::OPTIMISTIC,
        ..base.art
    };
    let setup = Setup { art, ..base };
    let (connections, trees) = open(&pool, setup, 2);
    let there = trees[1].client(&connections[1]);
    let insert = |n: u64| assert_eq!(block_on(there.insert(&Key8(n), &[1; 8])), Ok(Applied::Inserted));
    let node = || node_below(&connections[1], &trees[1], &setup.art.types, 1).0;
    // Two keys that share seven bytes, below a node that skips six of them.
    let [before, after] = [0x0107, 0x0109].map(|prefix: u64| [1, 2].map(|n| prefix << 48 | n));
    before.into_iter().for_each(insert);
    let old = node();
    // The compute node caches the node. This was its only client, so the compute node leaves the pool.
    let found = block_on(
        trees[0]
            .client(&connections[0])
            .get(&Key8(before[0]), &mut Vec::new()),
    );
    assert_eq!(found, Ok(true));
    for n in before {
        assert_eq!(block_on(there.remove(&Key8(n))), Ok(Applied::Removed));
    }
    assert_eq!(block_on(there.remove(&Key8(0))), Ok(Applied::Absent));
    for _ in 0..6 {
        block_on(trees[1].collect(&connections[1])).unwrap();
    }
    // The leaves' blocks are reused for other keys, and the node's block for another node at the same key byte.
    [2 << 56, 3 << 56].into_iter().for_each(insert);
    after.into_iter().for_each(insert);
    assert_eq!(node(), old);
    let (v, tree) = (&connections[0], &trees[0]);
    let mut survey = Survey::new(false, None);
    let walk = tree.survey(v, &mut survey, |_, _, _, _, _| {});
    block_on(tree.alloc().visit(v, walk)).unwrap();
    assert_eq!(survey.faults, []);
}

/// An operation runs a round when one is due. An operation that runs inside another one does not.
#[test]
fn a_due_round_is_run_by_an_outer_operation_only() {
    let pool = pool(1);
    let base = Setup::reclaiming();
    let setup = Setup {
        reclaim: ReclaimOptions {
            period: Nanos::from_micros(100),
            ..base.reclaim
        },
        ..base
    };
    let (connections, trees) = open(&pool, setup, 1);
    let (v, client) = (&connections[0], trees[0].client(&connections[0]));
    let passes = || {
        let from = v.now();
        while v.now().0 < from.0 + 110_000 {}
    };
    let housekeeping = || {
        let before = v.meter().counters().housekeeping_verbs;
        block_on(client.get(&Key8(1), &mut Vec::new())).unwrap();
        v.meter().counters().housekeeping_verbs - before
    };
    block_on(client.insert(&Key8(1), &[1; 8])).unwrap();
    passes();
    let round = housekeeping();
    assert!(round > 0, "no round was run");
    assert_eq!(housekeeping(), 0, "a second round was run");
    let begun = block_on(client.begin()).unwrap();
    passes();
    assert_eq!(housekeeping(), 0, "an operation inside another one ran a round");
    drop(begun);
    assert!(housekeeping() > 0);
}
