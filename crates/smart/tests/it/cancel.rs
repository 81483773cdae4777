//! Tests of operations that are dropped at any poll: no lock stays held, acknowledged writes stay, and a dropped write
//! has taken effect as a whole or not at all.

use core::future::Future;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};

use crate::common::{Tree, art, out_of_place, under_tables};
use dm_loopback::Loopback;
use dm_sim::{CostModel, Sim};
use dm_sync::{Arc, Mutex};
use dm_testkit::{IndexUnderTest, Job, Rng, TestKey, World, seats, value_of};
use dm_verbs::{AtomicVsWrite, CasThenRead, Control, Verbs};
use smart::{Applied, IndexError, Key8, NodeTypes, Options, RangeIndex, Rdwc, Scan, Smart};

/// Returns options with small nodes, so that splits, growth and merges are dropped too.
fn options(rdwc: Rdwc) -> Options {
    Options {
        types: NodeTypes::new(&[2, 4, 8, 256]).expect("ascending"),
        chunk_bytes: 64 << 10,
        attempts: 1 << 16,
        rdwc,
        ..Options::new(16)
    }
}

/// Polls a future at most this many times. Returns `None` if the future is not ready then; the caller drops it.
struct Cut<'f, F> {
    inner: Pin<&'f mut F>,
    polls: u64,
}

impl<F: Future> Future for Cut<'_, F> {
    type Output = Option<F::Output>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.polls = self.polls.saturating_sub(1);
        match self.inner.as_mut().poll(cx) {
            Poll::Ready(out) => Poll::Ready(Some(out)),
            // The future is dropped before it is woken again.
            Poll::Pending if self.polls == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Returns the future's output, or `None` if it was dropped after `polls` polls (at least one).
async fn cut<F: Future>(future: F, polls: u64) -> Option<F::Output> {
    // The pinned future is in this function's frame, so it is dropped when this function returns.
    let inner = pin!(future);
    Cut { inner, polls }.await
}

/// Number of keys of each client.
const KEYS: u64 = 40;

/// One client's keys, with the possible contents of each. There are several after a dropped write.
struct Own {
    me: u64,
    clients: u64,
    legal: Vec<Vec<Option<u64>>>,
    writes: u64,
    dropped: u64,
    ended: u64,
}

impl Own {
    fn new(me: usize, clients: usize) -> Self {
        Self {
            me: me as u64,
            clients: clients as u64,
            legal: vec![vec![None]; KEYS as usize],
            writes: 0,
            dropped: 0,
            ended: 0,
        }
    }

    fn key(&self, i: u64) -> Key8 {
        Key8::nth(i * self.clients + self.me)
    }

    /// Records the content of key `i` that a read found.
    fn saw(&mut self, i: u64, found: Option<&[u8]>) {
        let (key, legal) = (self.key(i), &mut self.legal[i as usize]);
        let known = |seed: &Option<u64>| seed.map(|seed| value_of(seed, 16)).as_deref() == found;
        match legal.iter().copied().find(known) {
            Some(value) => *legal = vec![value],
            None => panic!("{key:?}: found {found:?}, legal are {legal:?}"),
        }
    }

    /// Runs one operation on one of the client's keys, and drops the operation if it has not ended after `polls` polls.
    async fn step(
        &mut self,
        index: &impl RangeIndex<Key = Key8>,
        rng: &mut Rng,
        polls: u64,
    ) -> Result<(), IndexError> {
        let i = rng.below(KEYS);
        let key = self.key(i);
        self.writes += 1;
        // The value differs from those of all other clients.
        let seed = (self.me + 1) << 32 | self.writes;
        let value = value_of(seed, 16);
        let before = self.legal[i as usize].clone();
        let legal = &mut self.legal[i as usize];
        let (absent, present) = (before.contains(&None), before.iter().any(Option::is_some));
        // The content after the operation, if it ended.
        let after = match rng.below(10) {
            0..4 => {
                legal.push(Some(seed));
                let done = cut(index.upsert(&key, &value), polls).await.transpose()?;
                done.map(|_| vec![Some(seed)])
            }
            4 => {
                legal.push(Some(seed));
                let done = cut(index.insert(&key, &value), polls).await.transpose()?;
                done.map(|applied| match applied {
                    Applied::Inserted if absent => vec![Some(seed)],
                    Applied::Present if present => before.into_iter().filter(Option::is_some).collect(),
                    other => panic!("{key:?}: an insert answered {other:?}, legal were {before:?}"),
                })
            }
            5 => {
                legal.push(Some(seed));
                let done = cut(index.update(&key, &value), polls).await.transpose()?;
                done.map(|applied| match applied {
                    Applied::Replaced if present => vec![Some(seed)],
                    Applied::Absent if absent => vec![None],
                    other => panic!("{key:?}: an update answered {other:?}, legal were {before:?}"),
                })
            }
            6 | 7 => {
                legal.push(None);
                let done = cut(index.remove(&key), polls).await.transpose()?;
                done.map(|_| vec![None])
            }
            8 => {
                let mut scan = Scan::new();
                let done = cut(index.scan(&key, 20, &mut scan), polls).await.transpose()?;
                let first = scan.get(0).filter(|(first, _)| *first == key);
                done.map(|()| self.saw(i, first.map(|(_, value)| value)))
                    .map(|()| self.legal[i as usize].clone())
            }
            _ => {
                let mut read = Vec::new();
                let found = cut(index.get(&key, &mut read), polls).await.transpose()?;
                found
                    .map(|found| self.saw(i, found.then_some(&read[..])))
                    .map(|()| self.legal[i as usize].clone())
            }
        };
        match after {
            Some(after) => {
                self.legal[i as usize] = after;
                self.ended += 1;
            }
            None => self.dropped += 1,
        }
        Ok(())
    }
}

struct Open(Options);

impl Job for Open {
    type Out = Smart<Key8>;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Smart<Key8> {
        Tree::<Key8>::new(self.0).open(v).await.expect("a pool")
    }
}

/// The trees of two compute nodes. Each client uses the tree of its own compute node.
struct Drops {
    trees: [Smart<Key8>; 2],
    clients: usize,
    operations: u64,
    polls_max: u64,
    seed: u64,
}

impl Job for Drops {
    type Out = Own;
    async fn run<V: Verbs + Control>(&self, number: usize, v: &V) -> Own {
        let client = self.trees[usize::from(v.compute_node())].client(v);
        let mut own = Own::new(number, self.clients);
        let mut rng = Rng::new(self.seed, number as u64);
        for _ in 0..self.operations {
            // Three of four operations are dropped after a few polls, unless they end before. The others run to their
            // end.
            let polls = match rng.below(4) {
                0 => u64::MAX,
                _ => 1 + rng.below(self.polls_max),
            };
            own.step(&client, &mut rng, polls).await.expect("no faults");
        }
        own
    }
}

/// A client that starts after all others have ended, with an empty cache. It checks that every key has a possible
/// content. It also upserts every key, which fails if the key's lock is still held.
struct Last(Mutex<Vec<Own>>, Options);

impl Job for Last {
    type Out = ();
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) {
        let tree = Tree::<Key8>::new(self.1).open(v).await.expect("the tree");
        let client = tree.client(v);
        let mut read = Vec::new();
        for mut own in self.0.with(core::mem::take) {
            for i in 0..KEYS {
                let key = own.key(i);
                let found = client.get(&key, &mut read).await.expect("no faults");
                own.saw(i, found.then_some(&read[..]));
                let expected = if found {
                    Applied::Replaced
                } else {
                    Applied::Inserted
                };
                assert_eq!(client.upsert(&key, &[7; 16]).await, Ok(expected), "{key:?}");
            }
        }
    }
}

fn drops(world: &World, options: Options, operations: u64, polls_max: u64, seed: u64) {
    let open = || world.run_one(Open(options));
    let seats = seats(2, 4, 4);
    let job = Drops {
        trees: [open(), open()],
        clients: seats.len(),
        operations,
        polls_max,
        seed,
    };
    let own = world.run(&seats, &Arc::new(job));
    let count = |of: fn(&Own) -> u64| own.iter().map(of).sum::<u64>();
    let (dropped, ended) = (count(|own| own.dropped), count(|own| own.ended));
    assert!(
        dropped > ended / 5 && ended > dropped / 5,
        "{dropped} were dropped, {ended} ended"
    );
    world.run_one(Last(Mutex::new(own), options));
}

#[test]
fn on_loopback() {
    for (seed, promises, rdwc) in [(0, true, Rdwc::OFF), (1, true, Rdwc::ON), (2, false, Rdwc::ON)] {
        let mut world = Loopback::builder().nodes(2).delays(4).seed(seed);
        if !promises {
            world = world
                .cas_then_read(CasThenRead::AnyLineFirst)
                .atomic_vs_write(AtomicVsWrite::Racy);
        }
        let world = World::from(world.build().expect("memory"));
        drops(&world, options(rdwc), 1_500, 4, seed);
    }
}

#[test]
fn in_the_simulator() {
    for seed in 0..4 {
        let sim = Sim::builder(CostModel::cx6_roce())
            .compute_nodes(2)
            .memory_nodes(2)
            .seed(seed);
        let rdwc = if seed % 2 == 0 { Rdwc::OFF } else { Rdwc::ON };
        let world = World::from(sim.build().expect("memory"));
        drops(&world, options(rdwc), 500, 5, seed);
    }
}

#[test]
fn with_other_techniques() {
    let switches: [fn(Options) -> Options; 3] = [under_tables, out_of_place, art];
    for (seed, switched) in (0..).zip(switches) {
        let sim = Sim::builder(CostModel::cx6_roce())
            .compute_nodes(2)
            .memory_nodes(2)
            .seed(seed);
        let world = World::from(sim.build().expect("memory"));
        drops(&world, switched(options(Rdwc::OFF)), 500, 5, seed);
    }
}
