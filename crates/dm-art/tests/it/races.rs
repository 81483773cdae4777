//! Runs one operation in the middle of another one, for every pair of the operations that a test lists, and every point
//! at which the first one waits.
//!
//! The models of `dm-models` explore every interleaving of the accesses to each line. These tests explore fewer
//! interleavings in less time, and compare answers and bytes.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use dm_art::ArtOptions;
use dm_index::{Applied, Key8, RangeIndex, Scan};
use dm_layout::NodeTypes;
use dm_loopback::{Loopback, block_on};
use dm_verbs::{Counters, Env, Nanos};

use crate::common::{Client, Setup, draw};

/// An operation on a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Do {
    Get(u64),
    Insert(u64),
    Update(u64),
    Remove(u64),
    Scan,
}

use Do::{Get, Insert, Remove, Update};

/// The answer of an operation as text: a result, a value, or the entries of a scan.
type Answer = String;

async fn carry_out(client: &Client<'_, Key8>, what: Do, value: u8) -> Answer {
    let (mut out, value) = (Vec::new(), [value; 8]);
    let told = |applied: Applied| format!("{applied:?}");
    match what {
        Get(key) => match client.get(&Key8(key), &mut out).await.unwrap() {
            true => format!("{}", out[0]),
            false => "nothing".to_owned(),
        },
        Insert(key) => told(client.insert(&Key8(key), &value).await.unwrap()),
        Update(key) => told(client.update(&Key8(key), &value).await.unwrap()),
        Remove(key) => told(client.remove(&Key8(key)).await.unwrap()),
        Do::Scan => everything(client).await,
    }
}

async fn everything(client: &Client<'_, Key8>) -> Answer {
    let mut scan = Scan::new();
    client.scan(&Key8(0), 100, &mut scan).await.unwrap();
    let entries: Vec<String> = scan
        .iter()
        .map(|(key, value)| format!("{:x}={}", key.0, value[0]))
        .collect();
    entries.join(" ")
}

/// Polls the future once.
fn poll<F: Future>(future: core::pin::Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(out) => Some(out),
        Poll::Pending => None,
    }
}

/// The keys of a tree, and the two operations.
#[derive(Clone, Copy, Debug)]
struct Case {
    keys: &'static [u64],
    first: Do,
    second: Do,
}

/// The order of the two operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    FirstThenSecond,
    SecondThenFirst,
    /// The second operation runs after this number of polls of the first one.
    After(usize),
}

/// Runs both operations in this order. Returns both answers and the final content, and whether the first operation
/// ended before the second one began.
fn run(setup: Setup, memory_nodes: u16, case: Case, order: Order) -> ([Answer; 3], bool) {
    let pool = Loopback::builder()
        .nodes(memory_nodes)
        .host_bytes(256 << 10)
        .delays(3)
        .seed(7)
        .counted_clock(Nanos(50));
    let pool = pool.build().unwrap();
    let (v, w) = (pool.connect(0).unwrap(), pool.connect(1).unwrap());
    let trees = [setup.open::<Key8>(&v), setup.open::<Key8>(&w)];
    let (here, there) = (trees[0].client(&v), trees[1].client(&w));
    for key in case.keys {
        assert_eq!(block_on(here.insert(&Key8(*key), &[1; 8])), Ok(Applied::Inserted));
    }
    // If the compute nodes have caches, this fills the second cache, so that both hold all nodes.
    for key in case.keys {
        assert_eq!(block_on(there.get(&Key8(*key), &mut Vec::new())), Ok(true));
    }
    let mut over = true;
    let (first, second) = match order {
        Order::FirstThenSecond => {
            let first = block_on(carry_out(&here, case.first, 2));
            (first, block_on(carry_out(&there, case.second, 3)))
        }
        Order::SecondThenFirst => {
            let second = block_on(carry_out(&there, case.second, 3));
            (block_on(carry_out(&here, case.first, 2)), second)
        }
        Order::After(polls) => {
            let mut first = pin!(carry_out(&here, case.first, 2));
            let mut second = pin!(carry_out(&there, case.second, 3));
            let mut one = (0..polls).find_map(|_| poll(first.as_mut()));
            over = one.is_some();
            let mut other = None;
            // The second operation may wait for a lock of the first.
            for round in 0..100_000 {
                if other.is_none() {
                    other = poll(second.as_mut());
                }
                if one.is_none() && (other.is_some() || round % 500 == 499) {
                    one = poll(first.as_mut());
                }
                if one.is_some() && other.is_some() {
                    break;
                }
            }
            (one.expect("the first ends"), other.expect("the second ends"))
        }
    };
    draw(&v, &trees[0], &setup.art.types);
    if setup.members > 0 {
        // The next removal of each client awaits the CAS of the client's previous removal, so the pool is in its final
        // state.
        for (client, byte) in [(&here, 0xf0), (&there, 0xf1)] {
            let key = Key8(byte << 56);
            assert_eq!(block_on(client.insert(&key, &[1; 8])), Ok(Applied::Inserted));
            assert_eq!(block_on(client.remove(&key)), Ok(Applied::Removed));
        }
        let picture = draw(&v, &trees[0], &setup.art.types);
        assert!(
            !picture.contains("dead"),
            "a removed leaf stays in its slot: {picture}"
        );
    }
    let cold = setup.open::<Key8>(&v);
    let left = block_on(everything(&cold.client(&v)));
    for client in [&here, &there] {
        assert_eq!(block_on(everything(client)), left);
        for entry in left.split(' ').filter(|entry| !entry.is_empty()) {
            let (key, value) = entry.split_once('=').unwrap();
            let key = u64::from_str_radix(key, 16).unwrap();
            assert_eq!(
                block_on(carry_out(client, Get(key), 0)),
                value,
                "a get must find what a scan finds"
            );
        }
    }
    ([first, second, left], over)
}

/// Returns whether one of the two orders explains the answers. A scan does not read all entries at one moment, so it
/// may have seen a part of the other operation.
fn is_explained(case: Case, found: &[Answer; 3], orders: &[[Answer; 3]; 2]) -> bool {
    orders.iter().any(|order| {
        (0..3).all(|i| {
            let scans = i < 2 && [case.first, case.second][i] == Do::Scan;
            scans && orders.iter().any(|order| order[i] == found[i]) || order[i] == found[i]
        })
    })
}

fn every_pair(setup: Setup, memory_nodes: u16, keys: &'static [u64], operations: &[Do]) {
    let mut cases = 0;
    for &first in operations {
        for &second in operations {
            let case = Case { keys, first, second };
            let orders = [Order::FirstThenSecond, Order::SecondThenFirst]
                .map(|order| run(setup, memory_nodes, case, order).0);
            for polls in 1.. {
                let (found, over) = run(setup, memory_nodes, case, Order::After(polls));
                assert!(
                    is_explained(case, &found, &orders),
                    "{case:x?} after {polls} polls: {found:?}, expected one of {orders:?}"
                );
                if over {
                    break;
                }
                cases += 1;
            }
        }
    }
    assert!(cases > 20, "{cases} runs with one in the middle of the other");
}

fn setup(reclaiming: bool, cache_bytes: u64) -> Setup {
    let base = match reclaiming {
        true => Setup::reclaiming(),
        false => Setup::small(),
    };
    let art = ArtOptions {
        types: NodeTypes::new(&[2, 3, 256]).unwrap(),
        depth_slack: 0,
        cache_bytes,
        attempts: 200,
        ..base.art
    };
    Setup { art, ..base }
}

/// The common part of keys that differ only in their last bytes.
const NEAR: u64 = 1 << 56;

#[test]
fn at_an_empty_slot_and_at_a_lonely_leaf() {
    every_pair(
        setup(false, 1 << 20),
        1,
        &[NEAR],
        &[
            Get(NEAR),
            Insert(NEAR | 1),
            Insert(NEAR | 1 << 40),
            Update(NEAR),
            Remove(NEAR),
            Insert(2 << 56),
            Do::Scan,
        ],
    );
}

#[test]
fn at_a_node_of_two_that_is_full() {
    every_pair(
        setup(false, 1 << 20),
        2,
        &[NEAR, NEAR | 1],
        &[
            Get(NEAR),
            Insert(NEAR | 2),
            Insert(NEAR | 3),
            Insert(NEAR | 1 << 40),
            Remove(NEAR),
            Remove(NEAR | 1),
            Update(NEAR | 1),
        ],
    );
}

#[test]
fn at_nodes_above_each_other_in_reused_memory() {
    every_pair(
        setup(true, 1 << 20),
        1,
        &[NEAR, NEAR | 1, NEAR | 1 << 16],
        &[
            Get(NEAR | 1),
            Insert(NEAR | 2),
            Remove(NEAR),
            Remove(NEAR | 1),
            Remove(NEAR | 1 << 16),
            Insert(NEAR | 1 << 8),
        ],
    );
}

#[test]
fn without_a_cache() {
    every_pair(
        setup(true, 0),
        2,
        &[NEAR, NEAR | 1, NEAR | 2],
        &[
            Get(NEAR),
            Insert(NEAR | 3),
            Remove(NEAR),
            Remove(NEAR | 2),
            Insert(NEAR | 1 << 24),
        ],
    );
}

/// Polls `future` to its end.
fn to_the_end<F: Future>(mut future: core::pin::Pin<&mut F>) -> F::Output {
    (0..100_000)
        .find_map(|_| poll(future.as_mut()))
        .expect("the future ends without other clients")
}

fn delayed() -> Loopback {
    let pool = Loopback::builder().host_bytes(256 << 10).delays(3).seed(7);
    pool.counted_clock(Nanos(50)).build().unwrap()
}

/// While a node is being frozen, a leaf is inserted into it. The leaf is then split before the copy replaces the node.
/// The slot that changed in this way must be frozen as well.
#[test]
fn a_slot_that_changes_twice_during_a_renewal_is_not_lost() {
    let base = setup(false, 1 << 20);
    let setup = Setup {
        art: ArtOptions {
            types: NodeTypes::new(&[4, 256]).unwrap(),
            ..base.art
        },
        ..base
    };
    let (mut between, mut over) = (0, false);
    for first_polls in 1.. {
        for more_polls in 0.. {
            let pool = delayed();
            let (v, w) = (pool.connect(0).unwrap(), pool.connect(1).unwrap());
            let trees = [setup.open::<Key8>(&v), setup.open::<Key8>(&w)];
            let (here, there) = (trees[0].client(&v), trees[1].client(&w));
            let [kept, goes, comes, beside] =
                [NEAR, NEAR | 1 << 8, NEAR | 2 << 8, NEAR | 2 << 8 | 1].map(Key8);
            for key in [kept, goes] {
                assert_eq!(block_on(here.insert(&key, &[1; 8])), Ok(Applied::Inserted));
                assert_eq!(block_on(there.get(&key, &mut Vec::new())), Ok(true));
            }
            // One of the node's two children is removed. So the node is frozen and renewed.
            let mut removal = pin!(here.remove(&goes));
            let mut ended = (0..first_polls).find_map(|_| poll(removal.as_mut()));
            over = ended.is_some();
            assert_eq!(
                to_the_end(pin!(there.insert(&comes, &[2; 8]))),
                Ok(Applied::Inserted)
            );
            let ended_between = (0..more_polls).any(|_| {
                if ended.is_none() {
                    ended = poll(removal.as_mut());
                }
                ended.is_some()
            });
            assert_eq!(
                to_the_end(pin!(there.insert(&beside, &[3; 8]))),
                Ok(Applied::Inserted)
            );
            let ended = ended.unwrap_or_else(|| to_the_end(removal.as_mut()));
            assert_eq!(ended, Ok(Applied::Removed));
            draw(&v, &trees[0], &setup.art.types);
            let cold = setup.open::<Key8>(&v);
            for (key, value) in [(kept, 1), (comes, 2), (beside, 3)] {
                assert_eq!(
                    block_on(carry_out(&cold.client(&v), Get(key.0), 0)),
                    format!("{value}"),
                    "{key:x?} after {first_polls} polls and {more_polls} more"
                );
            }
            between += 1;
            if ended_between || over {
                break;
            }
        }
        if over {
            break;
        }
    }
    assert!(between > 50, "{between} runs");
}

/// The result of a run in which one of two leaves was removed while another compute node inserted keys beside it.
struct Removed {
    /// Whether the remove had ended before the inserts began.
    over: bool,
    picture: String,
    /// Counters of the client that removed, and of the one that inserted.
    counters: [Counters; 2],
}

/// Removes `NEAR` from a tree of two leaves. After this many polls of the remove, another compute node inserts `comes`.
fn removed_meanwhile(polls: usize, comes: &[u64]) -> Removed {
    let setup = setup(true, 1 << 20);
    let pool = delayed();
    let (v, w) = (pool.connect(0).unwrap(), pool.connect(1).unwrap());
    let trees = [setup.open::<Key8>(&v), setup.open::<Key8>(&w)];
    let (here, there) = (trees[0].client(&v), trees[1].client(&w));
    for key in [NEAR, NEAR | 1 << 16].map(Key8) {
        assert_eq!(block_on(here.insert(&key, &[1; 8])), Ok(Applied::Inserted));
        assert_eq!(block_on(there.get(&key, &mut Vec::new())), Ok(true));
    }
    let mut removal = pin!(here.remove(&Key8(NEAR)));
    let ended = (0..polls).find_map(|_| poll(removal.as_mut()));
    for key in comes {
        assert_eq!(
            to_the_end(pin!(there.insert(&Key8(*key), &[2; 8]))),
            Ok(Applied::Inserted)
        );
    }
    let over = ended.is_some();
    assert_eq!(ended.unwrap_or_else(|| to_the_end(removal)), Ok(Applied::Removed));
    Removed {
        over,
        picture: draw(&v, &trees[0], &setup.art.types),
        counters: [v.meter().counters(), w.meter().counters()],
    }
}

/// While a leaf is being removed, another client splits it, so that the leaf's slot links a node. The remove then
/// clears the leaf's slot in the new node, and the new node is renewed because only one child is left.
#[test]
fn a_removed_leaf_is_unlinked_although_its_slot_was_split() {
    let mut split = 0;
    for polls in 1.. {
        let Removed {
            over,
            picture,
            counters: [_, there],
        } = removed_meanwhile(polls, &[NEAR | 1]);
        split += there.splits;
        assert_eq!(
            (
                picture.matches('@').count(),
                picture.matches("leaf").count(),
                picture.contains("dead")
            ),
            (2, 2, false),
            "{picture} after {polls} polls"
        );
        if over {
            break;
        }
    }
    assert!(split > 3, "{split} times the slot was split first");
}

/// Runs the same race with two inserts. The new node keeps two leaves, so the remove renews no node.
#[test]
fn a_node_that_keeps_two_leaves_is_not_renewed() {
    let mut split = 0;
    for polls in 1.. {
        let Removed {
            over,
            picture,
            counters: [here, there],
        } = removed_meanwhile(polls, &[NEAR | 1, NEAR | 2]);
        assert_eq!(
            (picture.matches("leaf").count(), picture.contains("dead")),
            (3, false),
            "{picture} after {polls} polls"
        );
        // The first insert split the leaf, and the second one found no room in the new node and renewed it. So the
        // removal of the leaf ended last.
        if there.renewals == 1 {
            split += 1;
            assert_eq!(here.renewals, 0, "{picture} after {polls} polls");
        }
        if over {
            break;
        }
    }
    // The inserts fetch a chunk for each class. This takes many polls, in which requests of the removal complete.
    assert!(split > 2, "{split} times both inserts came first");
}
