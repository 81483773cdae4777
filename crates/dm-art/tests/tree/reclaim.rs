//! The memory of removed leaves and of replaced nodes is reused, but not too early.

use dm_alloc::AllocStats;
use dm_index::{Applied, Exchange, Key8, RangeIndex};
use dm_loopback::{Endpoint, Loopback, block_on};

use crate::common::{Setup, Tree, cost, draw, poll_times, pool};

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

/// Does rounds on every compute node until nothing waits any more.
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
fn all_keys_in_and_out_take_no_more_memory_the_third_time() {
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
                // By now the result of the last remove is known.
                assert_eq!(block_on(client.remove(&key(cn, 0))), Ok(Applied::Absent));
            }
            settle(&trees, &connections);
            fetched.push(sum(&trees, |stats| stats.fetched_bytes as i64));
            drop(clients);
            settle(&trees, &connections);
            match members {
                0 => assert!(live(&trees) > empty, "what is not reclaimed stays"),
                _ => assert_eq!((live(&trees), limbo(&trees)), (empty, 0), "round {round}"),
            }
        }
        match members {
            0 => assert!(fetched[2] > fetched[0], "{fetched:?}"),
            _ => assert_eq!(fetched[2], fetched[0], "{fetched:?}"),
        }
    }
}

/// Clients that lose a race free their blocks. A block that may have been published is not freed.
#[test]
fn blocks_of_who_was_not_quick_enough_come_back() {
    let pool = pool(1);
    let (connections, trees) = open(&pool, Setup::reclaiming(), 2);
    let [here, there] = [0, 1].map(|cn| trees[cn].client(&connections[cn]));
    let insert =
        |client: &crate::common::Client<'_, Key8>, n: u64| block_on(client.insert(&Key8(n), &[1; 8]));
    assert_eq!(insert(&here, 0), Ok(Applied::Inserted));
    assert_eq!(insert(&there, 1 << 56), Ok(Applied::Inserted));
    let before = live(&trees);
    // This client knows an empty slot that holds a leaf by now.
    assert_eq!(insert(&here, 1 << 56), Ok(Applied::Present));
    assert_eq!(live(&trees), before);
    // The insert has to split a leaf that another client has split already. Afterwards there is one leaf more, and a
    // node of four slots.
    assert_eq!(insert(&there, 1), Ok(Applied::Inserted));
    assert_eq!(live(&trees), before + 2 * 64);
    assert_eq!(insert(&here, 1), Ok(Applied::Present));
    assert_eq!(live(&trees), before + 2 * 64);
    assert_eq!(insert(&here, 2), Ok(Applied::Inserted));
    // Nodes of two and of four slots, which the block rounds up to a line. The replaced one is in limbo.
    assert_eq!((live(&trees), limbo(&trees)), (before + 3 * 64, 64));
}

/// A dropped operation pins the memory that was retired after it began, until its client has awaited its requests.
#[test]
fn a_client_that_went_midway_stays_announced_until_the_next_of_its_connection() {
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
    assert!(rounds() > 0, "its operation still counts as one that runs");
    assert_eq!(
        block_on(tree.client(&w).get(&key(0, 0), &mut Vec::new())),
        Ok(true)
    );
    assert!(rounds() > 0, "another connection says nothing of it");
    assert_eq!(
        block_on(tree.client(&v).get(&key(0, 0), &mut Vec::new())),
        Ok(true)
    );
    assert_eq!(rounds(), 0);
}

/// A dropped get pins the memory that it may be about to read, until its client's next operation.
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

/// An operation that was begun pins memory until it is dropped, whatever was posted in it. This serves operations of
/// several steps.
#[test]
fn what_is_begun_pins_memory_until_it_is_dropped() {
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

/// Warming reads every node once, as an operation that pins the memory that it reads, with or without other clients.
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
