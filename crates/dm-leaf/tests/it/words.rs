//! Leaves of words: updates share a leaf's lock and exchange a word by CAS, and an insert holds the lock beside them.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use dm_index::{Applied, Exchange, IndexError, Key8, OldValue, RangeIndex, Restructure, Write};
use dm_layout::{FenceKeys, Slotted};
use dm_leaf::TwoLevel;
use dm_loopback::{Endpoint, Loopback, block_on};
use dm_verbs::{Env, RemotePtr};

use crate::common::{Client, Setup, Table, client, cost, pool};

const ONE: [u8; 8] = [1; 8];
const TWO: [u8; 8] = [3; 8];
const THREE: [u8; 8] = [5; 8];

fn leaf(v: &Endpoint, nodes: &TwoLevel<Key8>) -> RemotePtr {
    let made = nodes.create(v, 0, FenceKeys::ALL, &[], false);
    block_on(made).unwrap().at
}

#[test]
fn every_operation_has_its_verbs() {
    let pool = pool(1);
    let v = pool.connect(0).unwrap();
    let nodes = Setup::sharing().nodes(Slotted::words_with_node_bytes(1024).unwrap(), 1, 0);
    let table = Table::of(leaf(&v, &nodes));
    let client = client(&v, &table, &nodes);
    let key = Key8(7);
    let insert = "2 round_trips, 1 reads, 1 writes, 2 masked_cas, 1024 bytes_read, 16 bytes_written";
    let alone = "2 round_trips, 1 reads, 1 writes, 2 masked_cas, 1024 bytes_read, 1 bytes_written";
    let update = "2 round_trips, 1 reads, 1 cas, 2 faa, 1024 bytes_read";
    let nothing = "2 round_trips, 1 reads, 2 faa, 1024 bytes_read";
    let unlocks = "2 round_trips, 1 reads, 2 masked_cas, 1024 bytes_read";
    let old = OldValue::default();
    let steps: [(Write<'_>, Applied, &str); 16] = [
        (Write::Update(&ONE), Applied::Absent, nothing),
        (swap(&old, Some(&ONE)), Applied::Absent, nothing),
        (swap(&old, None), Applied::Absent, unlocks),
        (exchange(Some(&ONE), Some(&TWO)), Applied::Differs, nothing),
        (Write::Insert(&ONE), Applied::Inserted, insert),
        (Write::Insert(&TWO), Applied::Present, unlocks),
        (exchange(None, Some(&TWO)), Applied::Differs, unlocks),
        (exchange(Some(&TWO), Some(&THREE)), Applied::Differs, nothing),
        (exchange(Some(&ONE), Some(&TWO)), Applied::Replaced, update),
        (Write::Update(&THREE), Applied::Replaced, update),
        (exchange(Some(&THREE), None), Applied::Removed, alone),
        (exchange(None, Some(&TWO)), Applied::Inserted, insert),
        (swap(&old, Some(&THREE)), Applied::Replaced, update),
        (swap(&old, None), Applied::Removed, alone),
        (Write::Insert(&ONE), Applied::Inserted, insert),
        (Write::Remove, Applied::Removed, alone),
    ];
    for (write, applied, verbs) in steps {
        let (done, paid) = cost(&v, carry_out(&client, &key, write));
        assert_eq!((done, sorted(&paid)), (Ok(applied), sorted(verbs)), "{write:?}");
    }
}

/// Returns the parts of a cost in a fixed order.
fn sorted(cost: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = cost.split(", ").collect();
    parts.sort_unstable();
    parts
}

const fn exchange<'a>(before: Option<&'a [u8]>, after: Option<&'a [u8]>) -> Write<'a> {
    Write::Exchange { before, after }
}

const fn swap<'a>(before: &'a OldValue, after: Option<&'a [u8]>) -> Write<'a> {
    Write::Swap { before, after }
}

async fn carry_out(
    client: &Client<'_, Slotted<Key8>>,
    key: &Key8,
    write: Write<'_>,
) -> Result<Applied, IndexError> {
    match write {
        Write::Insert(value) => client.insert(key, value).await,
        Write::Update(value) => client.update(key, value).await,
        Write::Upsert(value) => client.upsert(key, value).await,
        Write::Remove => client.remove(key).await,
        Write::Exchange { before, after } => client.exchange(key, before, after).await,
        Write::Swap { after, .. } => client.swap(key, &mut Vec::new(), after).await,
    }
}

#[test]
fn an_even_word_is_refused_before_anything_is_posted() {
    let pool = pool(1);
    let v = pool.connect(0).unwrap();
    let nodes = Setup::sharing().nodes(Slotted::words_with_span(8).unwrap(), 1, 0);
    let table = Table::of(leaf(&v, &nodes));
    let client = client(&v, &table, &nodes);
    for write in [
        Write::Insert(&[2; 8]),
        Write::Update(&[2; 8]),
        Write::Upsert(&[2; 8]),
        exchange(None, Some(&[2; 8])),
    ] {
        let (done, paid) = cost(&v, carry_out(&client, &Key8(1), write));
        assert!(matches!(done, Err(IndexError::BadInput { .. })), "{done:?}");
        assert_eq!(paid, "");
    }
}

/// Two compute nodes with one leaf, which holds the key 1.
struct Two {
    clients: [Endpoint; 2],
    nodes: [TwoLevel<Key8>; 2],
    tables: [Table; 2],
}

impl Two {
    fn new() -> Self {
        let world = Loopback::builder().delays(2).seed(3).build().unwrap();
        let clients = [world.connect(0).unwrap(), world.connect(1).unwrap()];
        let format = Slotted::words_with_span(8).unwrap();
        let nodes = [0, 1].map(|n| Setup::sharing().nodes(format, 1, n));
        let at = leaf(&clients[0], &nodes[0]);
        let two = Self {
            clients,
            nodes,
            tables: [Table::of(at), Table::of(at)],
        };
        assert_eq!(block_on(two.on(0).insert(&Key8(1), &ONE)), Ok(Applied::Inserted));
        two
    }

    fn on(&self, n: usize) -> Client<'_, Slotted<Key8>> {
        client(&self.clients[n], &self.tables[n], &self.nodes[n])
    }
}

/// Polls a future up to `polls` times, and returns its result if it has ended.
fn polled<F: Future>(mut future: Pin<&mut F>, polls: usize) -> Option<F::Output> {
    let mut context = Context::from_waker(Waker::noop());
    (0..polls).find_map(|_| match future.as_mut().poll(&mut context) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    })
}

/// Two clients change one word under shares of the leaf's lock. If they update it, the client whose CAS comes later
/// tries again. If they exchange it, that client's exchange fails.
#[test]
fn one_of_two_exchanges_of_a_word_wins() {
    let mut lost = 0;
    for (exchanges, polls) in [false, true]
        .into_iter()
        .flat_map(|e| (0..20).map(move |p| (e, p)))
    {
        let two = Two::new();
        let (here, there) = (two.on(0), two.on(1));
        let write = |value| match exchanges {
            true => exchange(Some(&ONE), Some(value)),
            false => Write::Update(value),
        };
        let mut first = pin!(carry_out(&here, &Key8(1), write(&TWO)));
        let early = polled(first.as_mut(), polls);
        let second = block_on(carry_out(&there, &Key8(1), write(&THREE)));
        let answers = [early.unwrap_or_else(|| block_on(first)).unwrap(), second.unwrap()];
        let mut found = Vec::new();
        assert_eq!(block_on(there.get(&Key8(1), &mut found)), Ok(true));
        let left = match answers {
            [Applied::Replaced, Applied::Differs] if exchanges => TWO,
            [Applied::Differs, Applied::Replaced] if exchanges => {
                lost += 1;
                THREE
            }
            [Applied::Replaced, Applied::Replaced] if !exchanges && found == TWO => TWO,
            [Applied::Replaced, Applied::Replaced] if !exchanges => THREE,
            _ => panic!("{answers:?}"),
        };
        assert_eq!(found, left, "{answers:?}");
    }
    assert!(lost > 1, "the first exchange has lost {lost} times");
}

/// Two clients swap one word at the same time, or one of them removes it. Each old word is returned to one of them only,
/// so that only one client retires the block to which it points.
#[test]
fn each_old_word_is_returned_once() {
    for (removes, polls) in [false, true]
        .into_iter()
        .flat_map(|r| (0..20).map(move |p| (r, p)))
    {
        let two = Two::new();
        let (here, there) = (two.on(0), two.on(1));
        let (mut old, mut other) = (Vec::new(), Vec::new());
        let answers = {
            let mut first = pin!(here.swap(&Key8(1), &mut old, Some(&TWO)));
            let early = polled(first.as_mut(), polls);
            let after = (!removes).then_some(&THREE[..]);
            let mut second = pin!(there.swap(&Key8(1), &mut other, after));
            // A remove waits for the first client's share.
            let late = polled(second.as_mut(), 30);
            let first = early.unwrap_or_else(|| block_on(first));
            [first, late.unwrap_or_else(|| block_on(second))].map(Result::unwrap)
        };
        let mut left = Vec::new();
        assert_eq!(block_on(there.get(&Key8(1), &mut left)), Ok(!left.is_empty()));
        let gone = answers[0] == Applied::Absent;
        assert!(!gone || removes, "only a remove makes the key absent");
        // The words before, between and after the swaps.
        let expected: [&[u8]; 3] = match (removes, gone) {
            (false, _) if left == THREE => [&ONE, &TWO, &THREE],
            (false, _) => [&THREE, &ONE, &TWO],
            (true, true) => [&[], &ONE, &[]],
            (true, false) => [&ONE, &TWO, &[]],
        };
        assert_eq!(
            [&old[..], &other, &left],
            expected,
            "{answers:?} after {polls} polls"
        );
    }
}

/// An insert ends while another client is in the middle of an update, and an update while another client is in the
/// middle of an insert. A remove waits for both.
#[test]
fn inserts_and_updates_do_not_wait_for_each_other() {
    for inserts in [false, true] {
        let mut waited = 0;
        for polls in 1..12 {
            let two = Two::new();
            let (here, there) = (two.on(0), two.on(1));
            let mut first = pin!(async {
                match inserts {
                    true => here.insert(&Key8(2), &ONE).await,
                    false => here.update(&Key8(1), &TWO).await,
                }
            });
            // The first client stops here, and keeps its lock or its share if it has one.
            let early = polled(first.as_mut(), polls);
            let before = two.clients[1].meter().counters();
            let second = block_on(async {
                match inserts {
                    true => there.update(&Key8(1), &THREE).await,
                    false => there.insert(&Key8(3), &ONE).await,
                }
            });
            assert!(second.is_ok(), "{second:?}");
            let paid = two.clients[1].meter().counters() - before;
            assert_eq!(paid.lock_retries, 0, "nobody waits");
            let mut remove = Box::pin(there.remove(&Key8(1)));
            let removed = polled(remove.as_mut(), 30);
            let first = match early {
                Some(done) => done,
                None => block_on(first),
            };
            assert!(first.is_ok(), "{first:?}");
            let removed = match removed {
                Some(done) => done,
                None => {
                    waited += 1;
                    block_on(remove)
                }
            };
            assert_eq!(removed, Ok(Applied::Removed));
        }
        assert!(waited > 0, "no remove waited");
    }
}
