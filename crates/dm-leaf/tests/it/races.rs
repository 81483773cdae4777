//! Runs one operation in the middle of another one, for every pair of operations and every point at which the first
//! waits.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use dm_index::{Applied, Key8, NodeCopies, NodeCopy, RangeIndex, Restructure, Scan};
use dm_layout::{Checksummed, FenceKeys, Leaf, NodeFormat, Slotted};
use dm_loopback::{Loopback, block_on};

use crate::common::{Client, Setup, Table, client};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Do {
    Get(u64),
    Insert(u64),
    Update(u64),
    Remove(u64),
}

use Do::{Get, Insert, Remove, Update};

async fn carry_out<F: NodeFormat<Key8>>(client: &Client<'_, F>, what: Do, value: u8) -> String {
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
    }
}

async fn everything<F: NodeFormat<Key8>>(client: &Client<'_, F>) -> String {
    let mut scan = Scan::new();
    client.scan(&Key8(0), 100, &mut scan).await.unwrap();
    let entries: Vec<String> = scan
        .iter()
        .map(|(key, value)| format!("{}={}", key.0, value[0]))
        .collect();
    entries.join(" ")
}

fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(out) => Some(out),
        Poll::Pending => None,
    }
}

/// The moment at which the second operation begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Behind,
    Before,
    /// The second operation begins after this many polls of the first one. While the second one runs, the first one is
    /// polled only once in 20 polls, because the second one may wait for it.
    After(usize),
    /// The first operation is dropped after this many polls, and then the second one begins.
    Instead(usize),
}

/// The content of the leaves before the operations.
#[derive(Clone, Copy)]
struct Content<'a> {
    /// Keys that are inserted.
    keys: &'a [u64],
    /// Keys that are then removed again.
    removed: &'a [u64],
}

/// The result of two operations.
struct Ran {
    /// Both answers, and the final content.
    found: [String; 3],
    /// Whether the first operation ended before the second one began.
    over: bool,
    /// The number of leaves at the end.
    leaves: usize,
}

fn run<F: NodeFormat<Key8> + Clone>(
    setup: Setup,
    format: &F,
    content: Content<'_>,
    (first, second): (Do, Do),
    order: Order,
) -> Ran {
    let world = Loopback::builder()
        .nodes(2)
        .host_bytes(128 << 10)
        .delays(2)
        .seed(5)
        .build()
        .unwrap();
    let (v, w) = (world.connect(0).unwrap(), world.connect(1).unwrap());
    let nodes = [
        setup.nodes(format.clone(), 2, 0),
        setup.nodes(format.clone(), 2, 1),
    ];
    let leaf = block_on(nodes[0].create(&v, 0, FenceKeys::ALL, &[], false))
        .unwrap()
        .at;
    let tables = [Table::of(leaf), Table::of(leaf)];
    let (here, there) = (
        client(&v, &tables[0], &nodes[0]),
        client(&w, &tables[1], &nodes[1]),
    );
    for key in content.keys {
        assert_eq!(block_on(here.upsert(&Key8(*key), &[1; 8])), Ok(Applied::Inserted));
    }
    for key in content.removed {
        assert_eq!(block_on(here.remove(&Key8(*key))), Ok(Applied::Removed));
    }
    let mut over = true;
    let none = || "none".to_owned();
    let (one, other) = match order {
        Order::Behind => {
            let one = block_on(carry_out(&here, first, 3));
            (one, block_on(carry_out(&there, second, 5)))
        }
        Order::Before => {
            let other = block_on(carry_out(&there, second, 5));
            (block_on(carry_out(&here, first, 3)), other)
        }
        Order::Instead(polls) => {
            let one = {
                let mut first = pin!(carry_out(&here, first, 3));
                (0..polls).find_map(|_| poll(first.as_mut()))
            };
            over = one.is_some();
            (one.unwrap_or_else(none), block_on(carry_out(&there, second, 5)))
        }
        Order::After(polls) => {
            let (mut first, mut second) = (
                pin!(carry_out(&here, first, 3)),
                pin!(carry_out(&there, second, 5)),
            );
            let mut one = (0..polls).find_map(|_| poll(first.as_mut()));
            over = one.is_some();
            let mut other = None;
            for round in 0..100_000 {
                if other.is_none() {
                    other = poll(second.as_mut());
                }
                if one.is_none() && (other.is_some() || round % 20 == 19) {
                    one = poll(first.as_mut());
                }
                if one.is_some() && other.is_some() {
                    break;
                }
            }
            (one.expect("the first ends"), other.expect("the second ends"))
        }
    };
    let cold = Table::of(leaf);
    let left = block_on(everything(&client(&v, &cold, &nodes[0])));
    for client in [&here, &there] {
        assert_eq!(block_on(everything(client)), left);
        for entry in left.split(' ').filter(|entry| !entry.is_empty()) {
            let (key, value) = entry.split_once('=').unwrap();
            let got = block_on(carry_out(client, Get(key.parse().unwrap()), 0));
            assert_eq!(got, value, "a get must find what a scan finds");
            // All locks are free again.
            let written = block_on(carry_out(
                client,
                Update(key.parse().unwrap()),
                value.parse().unwrap(),
            ));
            assert_eq!(written, "Replaced");
        }
    }
    let (mut leaves, mut at, mut copy) = (0, leaf, NodeCopy::new());
    while !at.is_null() {
        assert!(block_on(nodes[0].copy(&v, at, &mut copy)).unwrap());
        (leaves, at) = (leaves + 1, copy.sibling);
    }
    Ran {
        found: [one, other, left],
        over,
        leaves,
    }
}

/// Runs every pair of `operations`. The values that they write are odd, as words must be.
fn every_pair<F: NodeFormat<Key8> + Clone>(setup: Setup, format: &F, keys: &[u64], operations: &[Do]) {
    every_pair_on(setup, format, Content { keys, removed: &[] }, operations);
}

fn every_pair_on<F: NodeFormat<Key8> + Clone>(
    setup: Setup,
    format: &F,
    content: Content<'_>,
    operations: &[Do],
) {
    let mut cases = 0;
    for pair in operations
        .iter()
        .flat_map(|one| operations.iter().map(move |other| (*one, *other)))
    {
        let orders =
            [Order::Behind, Order::Before].map(|order| run(setup, format, content, pair, order).found);
        for polls in 1.. {
            let Ran { found, over, .. } = run(setup, format, content, pair, Order::After(polls));
            assert!(
                orders.contains(&found),
                "{pair:?} after {polls} polls: {found:?}, expected one of {orders:?}"
            );
            if over {
                break;
            }
            // A dropped operation has either taken effect as a whole or not at all.
            let Ran { found, .. } = run(setup, format, content, pair, Order::Instead(polls));
            let [_, _, alone] = alone(setup, format, content, pair.1).found;
            let left = [&orders[0][2], &orders[1][2], &alone];
            assert!(
                left.contains(&&found[2]),
                "{pair:?} dropped after {polls} polls: {found:?}, expected {left:?}"
            );
            cases += 1;
        }
    }
    assert!(cases > 20, "{cases} runs with one in the middle of the other");
}

/// Runs one operation, after a get.
fn alone<F: NodeFormat<Key8> + Clone>(setup: Setup, format: &F, content: Content<'_>, operation: Do) -> Ran {
    let get = Get(content.keys[0]);
    run(setup, format, content, (get, operation), Order::Behind)
}

const SPLITS: &[Do] = &[Get(10), Insert(35), Update(10), Remove(40), Insert(45)];

#[test]
fn around_a_split() {
    every_pair(
        Setup::plain(),
        &Slotted::with_span(4, 8).unwrap(),
        &[10, 20, 30, 40],
        SPLITS,
    );
    every_pair(
        Setup::sharing(),
        &Leaf::with_node_bytes(256, 8, true).unwrap(),
        &[10, 20, 30, 40],
        SPLITS,
    );
    every_pair(
        Setup::sharing(),
        &Slotted::words_with_span(4).unwrap(),
        &[10, 20, 30, 40],
        SPLITS,
    );
    every_pair(
        Setup::plain(),
        &Checksummed::with_span(4, 8).unwrap(),
        &[10, 20, 30, 40],
        SPLITS,
    );
}

/// There are two leaves with 4 and 3 keys. One more remove from the right leaf makes this leaf sparse, so that it is
/// merged.
#[test]
fn around_a_merge() {
    let content = Content {
        keys: &[10, 20, 30, 40, 50, 60, 70, 80, 90],
        removed: &[70, 80],
    };
    let merges = [Get(10), Remove(50), Remove(10), Update(40), Insert(45)];
    let formats = [Slotted::with_span(8, 8), Slotted::words_with_span(8)];
    for setup in [Setup::plain(), Setup::sharing()] {
        for format in formats.map(Result::unwrap) {
            let leaves = |operation| alone(setup, &format, content, operation).leaves;
            assert_eq!([leaves(Remove(10)), leaves(Remove(50))], [2, 1]);
            every_pair_on(setup, &format, content, &merges);
        }
    }
}

/// An insert into a leaf of words holds the leaf's lock beside updates. A remove holds the lock alone, and frees a slot
/// for another key.
#[test]
fn around_an_insert_of_a_word() {
    let inserts = [Get(20), Insert(30), Insert(40), Update(20), Remove(20)];
    let format = Slotted::words_with_span(8).unwrap();
    every_pair(Setup::sharing(), &format, &[10, 20], &inserts);
}
