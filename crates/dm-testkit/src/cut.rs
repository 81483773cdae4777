//! Tests an index while a memory node does not answer. Each operation must succeed, or fail with an error that names
//! the node. Acknowledged writes must be present when the node is back.

use std::collections::BTreeMap;

use dm_index::{IndexError, RangeIndex, Scan};
use dm_loopback::{Loopback, Trouble, block_on};
use dm_sim::Sim;
use dm_sync::{Arc, Mutex};
use dm_verbs::{Control, Effect, Nanos, NodeId, Transport, Verbs};

use crate::any_index::AnyIndex;
use crate::stress_client::Kind;
use crate::{IndexUnderTest, Job, TestKey, World, connect, value_of};

/// Keys that are loaded.
const KEYS: u64 = 400;

/// Returns the number of a loaded key; the numbers are even, and spread over the whole range.
fn loaded(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15) & !1
}

/// The results of operations on an index while one of its memory nodes was cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cut {
    /// Operations that succeeded while the node was cut off, or that ended before the cut ([`cut_off_midway`]).
    pub done: u64,
    /// Operations that failed, each with an error that names the node.
    pub failed: u64,
    /// Writes that failed after the node was back, each with an error that names a lock on this node. Such a lock is
    /// never released, because its owner cannot know whether its CAS took the lock.
    pub blocked: u64,
}

impl Cut {
    fn count(&mut self, done: &Result<(), IndexError>, cut: NodeId) {
        let Err(e) = done else {
            self.done += 1;
            return;
        };
        let typed = matches!(
            e,
            IndexError::Verb(_)
                | IndexError::Control(_)
                | IndexError::LockTimeout { .. }
                | IndexError::Lock { .. }
                | IndexError::Exhausted(_)
        );
        assert!(
            typed && e.to_string().contains(&cut.to_string()),
            "{cut} is cut off: {e}"
        );
        self.failed += 1;
    }
}

const KINDS: [Kind; 6] = [
    Kind::Get,
    Kind::Insert,
    Kind::Update,
    Kind::Upsert,
    Kind::Remove,
    Kind::Scan,
];

/// The possible contents of each key, by its number: one, or several after a write of unknown effect. A value is
/// represented by its seed, and an absent key by `None`. Keys that are not in the map are absent.
#[derive(Clone, Debug)]
struct Book {
    legal: BTreeMap<u64, Vec<Option<u64>>>,
    value_bytes: usize,
    /// The seed of the last attempt. Only writes use their seed.
    seed: u64,
}

impl Book {
    /// Returns the loaded keys, each with its own value.
    fn loaded(value_bytes: usize) -> Self {
        let numbers = (0..KEYS).map(loaded);
        Self {
            legal: numbers.map(|number| (number, vec![Some(number)])).collect(),
            value_bytes,
            seed: 1,
        }
    }

    fn value(&self, seed: u64) -> Vec<u8> {
        value_of(seed, self.value_bytes)
    }

    fn check(&self, number: u64, found: Option<&[u8]>) {
        let legal = self.legal.get(&number).map_or(&[None][..], |legal| legal);
        let known = legal
            .iter()
            .any(|seed| seed.map(|seed| self.value(seed)).as_deref() == found);
        assert!(known, "key {number}: {found:?} is none of {legal:?}");
    }

    /// Checks a scan's entries from `from` on, and that no key is missing up to the end of the scan.
    fn check_scan<K: TestKey>(&self, from: u64, limit: usize, scan: &Scan<K>) {
        let mut found = BTreeMap::new();
        for (key, value) in scan.iter() {
            let number = key.number().expect("a key of this test");
            self.check(number, Some(value));
            found.insert(number, ());
        }
        let end = match scan.len() == limit {
            true => found.last_key_value().map_or(from, |(last, ())| *last),
            false => u64::MAX,
        };
        for (number, legal) in self.legal.range(from..).take_while(|(n, _)| **n <= end) {
            let there = found.contains_key(number);
            assert!(
                there || legal.contains(&None),
                "key {number} is missing: {legal:?}"
            );
        }
    }

    async fn attempt<R: RangeIndex>(&mut self, client: &R, kind: Kind, number: u64) -> Result<(), IndexError>
    where
        R::Key: TestKey,
    {
        let key = R::Key::nth(number);
        // Odd, unlike the seeds of loaded keys.
        self.seed += 2;
        let (seed, value) = (self.seed, self.value(self.seed));
        let before = self.legal.get(&number).cloned().unwrap_or_else(|| vec![None]);
        let wrote = match kind {
            Kind::Get => {
                let mut read = Vec::new();
                let found = client.get(&key, &mut read).await?;
                self.check(number, found.then_some(&read[..]));
                return Ok(());
            }
            Kind::Scan => {
                let mut scan = Scan::new();
                client.scan(&key, 20, &mut scan).await?;
                self.check_scan(number, 20, &scan);
                return Ok(());
            }
            Kind::Insert => client.insert(&key, &value).await,
            Kind::Update => client.update(&key, &value).await,
            Kind::Upsert => client.upsert(&key, &value).await,
            Kind::Remove => client.remove(&key).await,
        };
        // The possible contents after the write, one for each possible content before it.
        let after = before.iter().map(|was| match (kind, was) {
            (Kind::Remove, _) | (Kind::Update, None) => None,
            (Kind::Insert, Some(was)) => Some(*was),
            _ => Some(seed),
        });
        let mut after: Vec<_> = after.collect();
        let done = match wrote {
            Ok(_) => Ok(()),
            Err(e) => {
                let had_none = e.effect() == Effect::None;
                after = if had_none {
                    before
                } else {
                    [before, after].concat()
                };
                Err(e)
            }
        };
        after.sort_unstable();
        after.dedup();
        self.legal.insert(number, after);
        done
    }
}

/// Loads the index on three memory nodes over loopback, and cuts off the memory node that `cut` returns. This node
/// should hold neither the superblock nor the root. Then tries operations of every kind on all parts of the
/// index, connects the node again, and reads and writes all keys.
///
/// # Panics
/// Panics if an operation fails with an error that does not name the node, if an answer is wrong, if an acknowledged
/// write is lost, or if a read fails after the node is back.
pub fn cut_off<I: IndexUnderTest>(index: &I, trouble: Trouble, cut: impl Fn(&I::Handle) -> NodeId) -> Cut {
    let world = Loopback::builder().nodes(3).build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        let handle = index.open(&v).await.expect("an empty pool");
        let client = AnyIndex::of::<I>(&handle, &v);
        let mut book = Book::loaded(index.value_bytes());
        load(&client, &book).await;
        // Read all keys, so that the client has all addresses cached.
        for number in book.clone().legal.into_keys() {
            let read = book.attempt(&client, Kind::Get, number).await;
            assert_eq!(read, Ok(()), "no faults");
        }
        let (node, mut out) = (cut(&handle), Cut::default());
        world.cut(node, trouble);
        for (n, kind) in (0..KEYS).zip(KINDS.into_iter().cycle()) {
            // An insert uses a key that is absent.
            let number = loaded(n) | u64::from(kind == Kind::Insert);
            let done = book.attempt(&client, kind, number).await;
            out.count(&done, node);
        }
        world.restore(node);
        // The error of the last dropped ticket has not been reported yet; discard it.
        let _told = v.take_deferred();
        out.blocked = all_there(&client, &mut book, node).await;
        out
    })
}

/// Does the same as [`cut_off`] in a simulator with two memory nodes. Each kind of operation runs several times. Each
/// time, node 1 is cut off at another moment: from the operation's start up to `longest` after it, in steps of `step`.
///
/// # Panics
/// Panics in the same cases as [`cut_off`], and if `step` is 0.
pub fn cut_off_midway<I: IndexUnderTest>(index: I, sim: Sim, step: Nanos, longest: Nanos) -> Cut {
    let node = NodeId(1);
    let world = World::from(sim);
    let book = Arc::new(Mutex::new(Book::loaded(index.value_bytes())));
    let index = Arc::new(index);
    let open = Load {
        index: Arc::clone(&index),
        book: Arc::clone(&book),
    };
    let handle = Arc::new(world.run_one(open));
    let World::Sim(sim) = &world else {
        unreachable!("made of a simulation")
    };
    let one = |kind, number| One::<I> {
        handle: Arc::clone(&handle),
        book: Arc::clone(&book),
        kind,
        number,
    };
    let (mut out, mut n) = (Cut::default(), 0);
    for kind in KINDS {
        for moment in (0..longest.0).step_by(step.0 as usize) {
            // 37 and `KEYS` have no common factor, so no loaded key comes twice within `KEYS` operations.
            n = (n + 37) % KEYS;
            let number = loaded(n) | u64::from(kind == Kind::Insert);
            let now = sim.now();
            sim.cut_off(node, now + Nanos(moment));
            sim.restore(node, now + OUTAGE);
            let done = world.run_one(one(kind, number));
            out.count(&done, node);
            sim.run_for(OUTAGE);
            let read = world.run_one(one(Kind::Get, number));
            assert_eq!(read, Ok(()), "{kind:?} of {number}, cut off after {moment} ns");
        }
    }
    out.blocked = world.run_one(AllThere::<I>(one(Kind::Get, 0), node));
    out
}

/// The time from the start of an operation until a simulated node is back; it is longer than any client waits.
const OUTAGE: Nanos = Nanos::from_millis(500);

async fn load<R: RangeIndex>(client: &R, book: &Book)
where
    R::Key: TestKey,
{
    let mut numbers = book.legal.keys();
    let all = client.bulk_load(0.7, |value| {
        let number = *numbers.next()?;
        value.extend_from_slice(&book.value(number));
        Some(R::Key::nth(number))
    });
    assert_eq!(all.await, Ok(KEYS), "room, and no faults");
}

/// Scans some keys, reads every key, writes every key, and reads every key again. Returns the number of writes that
/// found a lock that is never released.
async fn all_there<R: RangeIndex>(client: &R, book: &mut Book, node: NodeId) -> u64
where
    R::Key: TestKey,
{
    let read = book.attempt(client, Kind::Scan, 0).await;
    assert_eq!(read, Ok(()), "all nodes are there");
    let (numbers, mut blocked) = (book.legal.keys().copied().collect::<Vec<_>>(), 0);
    for kind in [Kind::Get, Kind::Upsert, Kind::Get] {
        for number in &numbers {
            let done = book.attempt(client, kind, *number).await;
            if let Err(e) = done {
                let lock = matches!(e, IndexError::LockTimeout { .. } | IndexError::Lock { .. });
                let named = lock && e.to_string().contains(&node.to_string());
                assert!(named && kind == Kind::Upsert, "{kind:?} of {number}: {e}");
                blocked += 1;
            }
        }
    }
    blocked
}

struct Load<I> {
    index: Arc<I>,
    book: Arc<Mutex<Book>>,
}

impl<I: IndexUnderTest> Job for Load<I> {
    type Out = I::Handle;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> I::Handle {
        let handle = self.index.open(v).await.expect("an empty pool");
        let book = self.book.with(|book| book.clone());
        load(&AnyIndex::of::<I>(&handle, v), &book).await;
        handle
    }
}

struct One<I: IndexUnderTest> {
    handle: Arc<I::Handle>,
    book: Arc<Mutex<Book>>,
    kind: Kind,
    number: u64,
}

impl<I: IndexUnderTest> Job for One<I> {
    type Out = Result<(), IndexError>;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Self::Out {
        let client = AnyIndex::of::<I>(&self.handle, v);
        let mut book = self.book.with(|book| book.clone());
        let done = book.attempt(&client, self.kind, self.number).await;
        self.book.with(|kept| *kept = book);
        done
    }
}

struct AllThere<I: IndexUnderTest>(One<I>, NodeId);

impl<I: IndexUnderTest> Job for AllThere<I> {
    type Out = u64;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> u64 {
        let mut book = self.0.book.with(|book| book.clone());
        all_there(&AnyIndex::of::<I>(&self.0.handle, v), &mut book, self.1).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dm_index::Key8;

    fn is_refused(check: impl FnOnce() + std::panic::UnwindSafe) -> bool {
        std::panic::catch_unwind(check).is_err()
    }

    #[test]
    fn the_check_finds_wrong_and_missing_values() {
        let book = Book::loaded(16);
        let (number, other) = (loaded(1), loaded(2));
        book.check(number, Some(&book.value(number)));
        book.check(number | 1, None);
        assert!(is_refused(|| book.check(number, None)), "it was loaded");
        assert!(is_refused(|| book.check(number, Some(&book.value(other)))));
        assert!(is_refused(|| book.check(number | 1, Some(&book.value(number)))));
        let mut scan = Scan::new();
        scan.reset(16);
        for number in book.legal.keys().take(3) {
            scan.push(Key8(*number), &book.value(*number));
        }
        book.check_scan(0, 3, &scan);
        assert!(is_refused(|| book.check_scan(0, 4, &scan)), "it ended too soon");
    }

    #[test]
    fn an_error_that_names_no_node_is_refused() {
        let mut out = Cut::default();
        out.count(&Ok(()), NodeId(1));
        let why = "nothing is right";
        let failed = Err(IndexError::BadInput { why });
        assert!(is_refused(move || out.count(&failed, NodeId(1))));
    }
}
