//! Tests of operations that are dropped at any poll: no lock stays held, and a dropped write has taken effect as a
//! whole or not at all. A dropped hop has moved its entry completely or not at all.

use core::future::Future;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};

use chime::{Applied, Chime, Key8, Options, RangeIndex};
use dm_alloc::Superblock;
use dm_lock::LockWord;
use dm_loopback::Loopback;
use dm_sim::{CostModel, Sim};
use dm_sync::Arc;
use dm_testkit::{IndexUnderTest, Job, Rng, TestKey, World, seats, value_of};
use dm_verbs::{Control, Verbs};

use crate::common::Tree;

/// Returns options with small leaves, so that hops and splits are dropped too, and few locks, so that nodes share them.
fn options() -> Options {
    Options {
        span: 6,
        neighbourhood: 3,
        inner_span: 6,
        locks_per_node: 64,
        hotspot_bytes: 1 << 10,
        chunk_bytes: 256 << 10,
        attempts: 1 << 16,
        ..Options::new(16)
    }
}

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
            // The caller drops the future before it is woken again.
            Poll::Pending if self.polls == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Polls a future at most `polls` times, then drops it. Returns its output, or `None` if it did not end. `polls` must
/// not be 0.
async fn cut<F: Future>(future: F, polls: u64) -> Option<F::Output> {
    let inner = pin!(future);
    Cut { inner, polls }.await
}

/// Number of keys of each client.
const KEYS: u64 = 40;

/// One client's keys, with the possible contents of each key. After a dropped write, a key has several of them.
struct Own {
    keys: Vec<Key8>,
    legal: Vec<Vec<Option<u64>>>,
    dropped: u64,
    ended: u64,
}

impl Own {
    /// Keeps only the possible contents that are equal to the content that a read found.
    fn saw(&mut self, i: usize, found: Option<&[u8]>) {
        let legal = &mut self.legal[i];
        let known = |seed: &Option<u64>| seed.map(|seed| value_of(seed, 16)).as_deref() == found;
        match legal.iter().copied().find(known) {
            Some(value) => *legal = vec![value],
            None => panic!("{:?}: found {found:?}, legal are {legal:?}", self.keys[i]),
        }
    }

    /// Runs one operation on one of the client's keys, and drops the operation if it has not ended after `polls` polls.
    /// A write writes the value of `seed`.
    async fn step(&mut self, index: &impl RangeIndex<Key = Key8>, rng: &mut Rng, polls: u64, seed: u64) {
        let i = rng.below(KEYS) as usize;
        let (key, value) = (self.keys[i], value_of(seed, 16));
        let mut read = Vec::new();
        let done = match rng.below(8) {
            0..3 => {
                self.legal[i].push(Some(seed));
                let done = cut(index.upsert(&key, &value), polls).await;
                done.map(|done| (done.map(drop), Some(Some(seed))))
            }
            3 => {
                let before = self.legal[i].clone();
                self.legal[i].push(Some(seed));
                let done = cut(index.update(&key, &value), polls).await;
                done.map(|done| match done {
                    Ok(Applied::Replaced) => (Ok(()), Some(Some(seed))),
                    Ok(_) => {
                        assert!(before.contains(&None), "{key:?} was there: {before:?}");
                        (Ok(()), Some(None))
                    }
                    Err(e) => (Err(e), None),
                })
            }
            4..6 => {
                self.legal[i].push(None);
                let done = cut(index.remove(&key), polls).await;
                done.map(|done| (done.map(drop), Some(None)))
            }
            _ => {
                let done = cut(index.get(&key, &mut read), polls).await;
                done.map(|done| {
                    let done = done.map(|found| self.saw(i, found.then_some(&read[..])));
                    (done, None)
                })
            }
        };
        let Some((result, settled)) = done else {
            self.dropped += 1;
            return;
        };
        result.expect("no faults");
        self.ended += 1;
        if let Some(value) = settled {
            self.legal[i] = vec![value];
        }
    }
}

struct Open;

impl Job for Open {
    type Out = Chime<Key8>;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Self::Out {
        Tree::<Key8>::new(options()).open(v).await.expect("a pool")
    }
}

/// The trees of two compute nodes. Each client uses the tree of its own compute node.
struct Drops {
    trees: [Chime<Key8>; 2],
    clients: u64,
    operations: u64,
    seed: u64,
}

impl Job for Drops {
    type Out = Own;
    async fn run<V: Verbs + Control>(&self, number: usize, v: &V) -> Own {
        let client = self.trees[usize::from(v.compute_node())].client(v);
        let mut own = Own {
            keys: (0..KEYS)
                .map(|i| Key8::nth(i * self.clients + number as u64))
                .collect(),
            legal: vec![vec![None]; KEYS as usize],
            dropped: 0,
            ended: 0,
        };
        let mut rng = Rng::new(self.seed, number as u64);
        for nth in 0..self.operations {
            // Some operations run to their end. The others are dropped after a few polls if they have not ended by
            // then.
            let polls = if rng.below(4) == 0 {
                u64::MAX
            } else {
                1 + rng.below(14)
            };
            // The value differs from those of all other clients.
            let seed = (number as u64 + 1) << 32 | nth;
            own.step(&client, &mut rng, polls, seed).await;
        }
        own
    }
}

/// A client that starts after all others have ended, with an empty cache.
struct Last(dm_sync::Mutex<Vec<Own>>);

impl Job for Last {
    type Out = ();
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) {
        let superblock = Superblock::inspect(v).await.expect("a pool");
        for table in &superblock.lock_tables {
            for index in 0..u64::from(superblock.locks_per_node) {
                let word = v.word(table.add(8 * index)).await.expect("the node is up");
                assert!(!LockWord::unpack(word).locked, "lock {index} of {table}");
            }
        }
        let tree = Open.run(0, v).await;
        let client = tree.client(v);
        let mut read = Vec::new();
        for mut own in self.0.with(core::mem::take) {
            for i in 0..own.keys.len() {
                let found = client.get(&own.keys[i], &mut read).await.expect("no faults");
                own.saw(i, found.then_some(&read[..]));
            }
        }
    }
}

fn drops(world: &World, operations: u64, seed: u64) {
    let seats = seats(2, 4, 4);
    let job = Drops {
        trees: [world.run_one(Open), world.run_one(Open)],
        clients: seats.len() as u64,
        operations,
        seed,
    };
    let own = world.run(&seats, &Arc::new(job));
    let sum = |count: fn(&Own) -> u64| own.iter().map(count).sum::<u64>();
    let (dropped, ended) = (sum(|own| own.dropped), sum(|own| own.ended));
    assert!(
        dropped > ended / 5 && ended > dropped / 5,
        "{dropped} were dropped, {ended} ended"
    );
    world.run_one(Last(dm_sync::Mutex::new(own)));
}

#[test]
fn dropped_operations_leave_nothing_behind() {
    let threads = Loopback::builder()
        .nodes(2)
        .delays(4)
        .seed(1)
        .build()
        .expect("memory");
    drops(&threads.into(), 2_000, 1);
    for seed in 2..4 {
        let sim = Sim::builder(CostModel::cx6_roce())
            .compute_nodes(2)
            .memory_nodes(2)
            .seed(seed);
        drops(&sim.build().expect("memory").into(), 2_000, seed);
    }
}
