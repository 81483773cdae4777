//! Operations are dropped at any poll while a table grows. No lock stays held, the root word never points to an
//! unfinished directory, and a dropped write has taken effect as a whole or not at all.

use core::future::Future;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};

use dm_alloc::Superblock;
use dm_index::{Key8, RangeIndex};
use dm_lock::LockWord;
use dm_sim::{CostModel, Sim};
use dm_sync::Arc;
use dm_testkit::{Job, Rng, TestKey, World, seats, value_of};
use dm_verbs::{Control, Verbs};

use crate::common::{open, small};

/// A future that polls `inner` up to `polls` more times, and returns `None` if it is still pending then.
struct Cut<'f, F> {
    inner: Pin<&'f mut F>,
    polls: u64,
}

impl<F: Future> Future for Cut<'_, F> {
    type Output = Option<F::Output>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.polls -= 1;
        match self.inner.as_mut().poll(cx) {
            Poll::Ready(out) => Poll::Ready(Some(out)),
            Poll::Pending if self.polls == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Polls a future at most `polls` times, then drops it. Returns `None` if it did not end. `polls` must not be 0.
async fn cut<F: Future>(future: F, polls: u64) -> Option<F::Output> {
    let inner = pin!(future);
    Cut { inner, polls }.await
}

/// The number of keys that each client writes.
const KEYS: u64 = 120;
const OPERATIONS: u64 = 1_500;

/// Each key of one client, with the values that the key may have.
type Legal = Vec<(Key8, Vec<Option<u64>>)>;

struct Drops(u64);

impl Job for Drops {
    /// The legal values, and the number of operations that were dropped.
    type Out = (Legal, u64);
    async fn run<V: Verbs + Control>(&self, number: usize, v: &V) -> Self::Out {
        let table = open(v, small(16)).await;
        let client = table.client(v);
        let mut rng = Rng::new(self.0, number as u64);
        let key = |i| Key8::nth(i * 64 + number as u64);
        let mut legal: Legal = (0..KEYS).map(|i| (key(i), vec![None])).collect();
        let (mut dropped, mut value) = (0, Vec::new());
        for nth in 0..OPERATIONS {
            let polls = match rng.below(4) {
                0 => u64::MAX,
                _ => 1 + rng.below(12),
            };
            let (key, legal) = &mut legal[rng.below(KEYS) as usize];
            let seed = (number as u64 + 1) << 32 | nth;
            let kind = rng.below(8);
            let done = match kind {
                0..5 => {
                    legal.push(Some(seed));
                    let done = cut(client.upsert(key, &value_of(seed, 16)), polls).await;
                    done.map(|done| done.map(|_| Some(seed)))
                }
                5 => {
                    legal.push(None);
                    let done = cut(client.remove(key), polls).await;
                    done.map(|done| done.map(|_| None))
                }
                _ => {
                    let done = cut(client.get(key, &mut value), polls).await;
                    done.map(|done| done.map(|found| read(*key, legal, found.then_some(&value[..]))))
                }
            };
            match done {
                Some(settled) => *legal = vec![settled.expect("no verb fails")],
                None => dropped += 1,
            }
        }
        (legal, dropped)
    }
}

/// Returns the legal value that is equal to the value that was found.
fn read(key: Key8, legal: &[Option<u64>], found: Option<&[u8]>) -> Option<u64> {
    let known = |seed: &Option<u64>| seed.map(|seed| value_of(seed, 16)).as_deref() == found;
    let which = legal.iter().copied().find(known);
    which.unwrap_or_else(|| panic!("{key:?}: found {found:?}, legal are {legal:?}"))
}

/// A client that begins at the end, with an empty cache.
struct Last(Vec<Legal>);

impl Job for Last {
    type Out = ();
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) {
        let superblock = Superblock::inspect(v).await.expect("the pool has a superblock");
        for table in &superblock.lock_tables {
            for index in 0..u64::from(superblock.locks_per_node) {
                let word = v.word(table.add(8 * index)).await.expect("the node is up");
                assert!(!LockWord::unpack(word).locked, "lock {index} of {table}");
            }
        }
        let table = open(v, small(16)).await;
        table.warm(v).await.expect("the directory is read");
        assert!(
            table.directory().depth() > Some(4),
            "{:?}",
            table.directory().depth()
        );
        let client = table.client(v);
        let mut value = Vec::new();
        for (key, legal) in self.0.iter().flatten() {
            let found = client.get(key, &mut value).await.expect("no verb fails");
            read(*key, legal, found.then_some(&value[..]));
        }
    }
}

#[test]
fn dropped_operations_leave_nothing_behind() {
    for seed in 1..4 {
        let sim = Sim::builder(CostModel::cx6_roce())
            .compute_nodes(2)
            .memory_nodes(2)
            .seed(seed);
        let world = World::from(sim.build().expect("the world is built"));
        let (legal, dropped): (Vec<_>, Vec<_>) = world
            .run(&seats(2, 4, 2), &Arc::new(Drops(seed)))
            .into_iter()
            .unzip();
        assert!(dropped.iter().sum::<u64>() > OPERATIONS, "{dropped:?}");
        world.run_one(Last(legal));
    }
}
