//! Tests of operations that are dropped at any poll: no lock stays held, acknowledged writes stay, and a dropped write
//! has taken effect as a whole or not at all.

use core::future::Future;
use core::marker::PhantomData;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};
use std::cell::RefCell;
use std::rc::Rc;

use crate::common::Tree;
use crate::locks;
use dm_index::{IndexError, RangeIndex, Scan};
use dm_layout::{Checksummed, Slotted};
use dm_loopback::Loopback;
use dm_sim::{CostModel, RunEnd, Sim};
use dm_sync::Arc;
use dm_testkit::{AnyEndpoint, IndexUnderTest, Job, Rng, Seat, TestKey, World, seats, value_of};
use dm_verbs::{Control, Nanos, Verbs};
use sherman::{Key8, LeafFormat, NodeSize, Options, Sherman, Variant};

/// Returns options with small nodes, so that splits are dropped too, and with few locks, so that nodes share locks.
fn options(variant: Variant) -> Options {
    variant.apply(Options {
        node: NodeSize::Span(6),
        locks_per_node: 64,
        chunk_bytes: 256 << 10,
        attempts: 1 << 16,
        ..Options::new(16)
    })
}

/// Polls a future at most this many times. Returns `None` if the future is not ready then; the caller drops it.
struct Cut<'f, F> {
    inner: Pin<&'f mut F>,
    polls: u64,
}

impl<F: Future> Future for Cut<'_, F> {
    type Output = Option<F::Output>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls == 0 {
            return Poll::Ready(None);
        }
        self.polls -= 1;
        match self.inner.as_mut().poll(cx) {
            Poll::Ready(out) => Poll::Ready(Some(out)),
            // The future is dropped before it is woken again.
            Poll::Pending if self.polls == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Returns the future's output, or `None` if it was dropped after `polls` polls.
async fn cut<F: Future>(future: F, polls: u64) -> Option<F::Output> {
    // The pinned future is in this function's frame, so it is dropped when this function returns.
    let inner = pin!(future);
    Cut { inner, polls }.await
}

/// The possible contents of a key. There are several after a dropped write.
#[derive(Clone, Debug)]
struct Legal(Vec<Option<u64>>);

impl Legal {
    /// Records that a write of this value begins, so that the key may have this value if the write is dropped.
    fn may_be(&mut self, value: Option<u64>) {
        self.0.push(value);
    }
    fn is(&mut self, value: Option<u64>) {
        self.0 = vec![value];
    }
    /// Keeps only the possible contents that are equal to the content that a read found.
    fn saw(&mut self, what: &str, found: Option<&[u8]>) {
        let known = |seed: &Option<u64>| seed.map(|seed| value_of(seed, 16)).as_deref() == found;
        match self.0.iter().copied().find(known) {
            Some(value) => self.is(value),
            None => panic!("{what}: found {found:?}, legal are {:?}", self.0),
        }
    }
}

/// Number of keys of each client.
const KEYS: u64 = 40;

/// One client's keys, with the possible contents of each.
struct Own {
    me: u64,
    clients: u64,
    legal: Vec<Legal>,
    writes: u64,
    /// Number of operations that were dropped; the next field counts those that ended.
    dropped: u64,
    ended: u64,
}

impl Own {
    fn new(me: usize, clients: usize) -> Self {
        let legal = (0..KEYS).map(|_| Legal(vec![None])).collect();
        Self {
            me: me as u64,
            clients: clients as u64,
            legal,
            writes: 0,
            dropped: 0,
            ended: 0,
        }
    }

    fn key(&self, i: u64) -> Key8 {
        Key8::nth(i * self.clients + self.me)
    }

    /// Runs one operation on one of the client's keys, and drops the operation if it has not ended after `polls` polls.
    async fn step<I: RangeIndex<Key = Key8>>(
        &mut self,
        index: &I,
        rng: &mut Rng,
        polls: u64,
    ) -> Result<(), IndexError> {
        let i = rng.below(KEYS);
        let key = self.key(i);
        self.writes += 1;
        // The value differs from those of all other clients.
        let seed = (self.me + 1) << 32 | self.writes;
        let value = value_of(seed, 16);
        let what = format!("client {}, key {key:?}", self.me);
        let legal = &mut self.legal[i as usize];
        let before = legal.0.clone();
        let ended = match rng.below(10) {
            0..5 => {
                legal.may_be(Some(seed));
                let done = cut(index.upsert(&key, &value), polls).await.transpose()?;
                done.map(|_| legal.is(Some(seed)))
            }
            5 => {
                // Replaces the value, if there is one.
                legal.may_be(Some(seed));
                let done = cut(index.update(&key, &value), polls).await.transpose()?;
                done.map(|applied| match applied {
                    dm_index::Applied::Replaced => legal.is(Some(seed)),
                    _ if before.contains(&None) => legal.is(None),
                    other => panic!("{what}: an update answered {other:?}, legal were {before:?}"),
                })
            }
            6 => {
                legal.may_be(None);
                let done = cut(index.remove(&key), polls).await.transpose()?;
                done.map(|_| legal.is(None))
            }
            7 => {
                let mut scan = Scan::new();
                cut(index.scan(&key, 20, &mut scan), polls)
                    .await
                    .transpose()?
                    .map(|()| {
                        let found = scan
                            .get(0)
                            .filter(|(first, _)| *first == key)
                            .map(|(_, value)| value);
                        legal.saw(&what, found);
                    })
            }
            _ => {
                let mut read = Vec::new();
                let found = cut(index.get(&key, &mut read), polls).await.transpose()?;
                found.map(|found| legal.saw(&what, found.then_some(&read[..])))
            }
        };
        match ended {
            Some(()) => self.ended += 1,
            None => self.dropped += 1,
        }
        Ok(())
    }

    /// Reads every key, and checks that its content is a possible one. No operation is dropped here.
    async fn look<I: RangeIndex<Key = Key8>>(&mut self, index: &I) {
        let mut read = Vec::new();
        for i in 0..KEYS {
            let key = self.key(i);
            let found = index.get(&key, &mut read).await.expect("no faults");
            let what = format!("at the end, client {}, key {key:?}", self.me);
            self.legal[i as usize].saw(&what, found.then_some(&read[..]));
        }
    }
}

struct Open<F>(Options, PhantomData<fn() -> F>);

impl<F: LeafFormat<Key8>> Job for Open<F> {
    type Out = Sherman<Key8, F>;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Self::Out {
        Tree::<Key8, F>::new(self.0).open(v).await.expect("a pool")
    }
}

/// The trees of two compute nodes. Each client uses the tree of its own compute node.
struct Drops<F: LeafFormat<Key8>> {
    trees: [Sherman<Key8, F>; 2],
    clients: usize,
    operations: u64,
    polls_max: u64,
    seed: u64,
}

impl<F: LeafFormat<Key8>> Job for Drops<F> {
    type Out = Own;
    async fn run<V: Verbs + Control>(&self, number: usize, v: &V) -> Own {
        let tree = &self.trees[usize::from(v.compute_node())];
        let client = tree.client(v);
        let mut own = Own::new(number, self.clients);
        let mut rng = Rng::new(self.seed, number as u64);
        for _ in 0..self.operations {
            // Three of four operations are dropped after a few polls, unless they end before. The others run to their
            // end.
            let polls = if rng.below(4) == 0 {
                u64::MAX
            } else {
                1 + rng.below(self.polls_max)
            };
            own.step(&client, &mut rng, polls).await.expect("no faults");
        }
        own
    }
}

/// A client that starts after all others have ended, with an empty cache.
struct Last<F> {
    own: dm_sync::Mutex<Vec<Own>>,
    options: Options,
    _leaf: PhantomData<fn() -> F>,
}

impl<F: LeafFormat<Key8>> Job for Last<F> {
    type Out = ();
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) {
        let tree = Tree::<Key8, F>::new(self.options)
            .open(v)
            .await
            .expect("the tree");
        let client = tree.client(v);
        for mut own in self.own.with(core::mem::take) {
            own.look(&client).await;
        }
    }
}

fn drops<F: LeafFormat<Key8>>(world: &World, options: Options, operations: u64, polls_max: u64, seed: u64) {
    let open = || world.run_one(Open::<F>(options, PhantomData));
    let seats: Vec<Seat> = seats(2, 4, 4);
    let job = Drops {
        trees: [open(), open()],
        clients: seats.len(),
        operations,
        polls_max,
        seed,
    };
    let own = world.run(&seats, &Arc::new(job));
    let (dropped, ended) = own
        .iter()
        .fold((0, 0), |(d, e), own| (d + own.dropped, e + own.ended));
    assert!(
        dropped > ended / 5 && ended > dropped / 5,
        "{dropped} were dropped, {ended} ended"
    );
    assert_eq!(
        locks::held(world),
        Vec::<String>::new(),
        "after {dropped} drops, seed {seed}"
    );
    world.run_one(Last::<F> {
        own: dm_sync::Mutex::new(own),
        options,
        _leaf: PhantomData,
    });
}

#[test]
fn on_loopback() {
    for (seed, variant) in [Variant::Default, Variant::PaperRtt, Variant::TwoLevel]
        .into_iter()
        .enumerate()
    {
        let seed = seed as u64;
        let world = Loopback::builder()
            .nodes(2)
            .delays(4)
            .seed(seed)
            .build()
            .expect("memory")
            .into();
        drops::<Slotted<Key8>>(&world, options(variant), 3_000, 14, seed);
    }
    let world = Loopback::builder()
        .nodes(2)
        .delays(4)
        .seed(9)
        .build()
        .expect("memory")
        .into();
    drops::<Checksummed<Key8>>(&world, options(Variant::Hierarchical), 3_000, 14, 9);
}

#[test]
fn on_loopback_with_weak_capabilities() {
    let world = Loopback::builder()
        .nodes(2)
        .delays(4)
        .masked_atomics(false)
        .chip_bytes(0)
        .cas_then_read(dm_verbs::CasThenRead::AnyLineFirst)
        .atomic_vs_write(dm_verbs::AtomicVsWrite::Racy)
        .build()
        .expect("memory")
        .into();
    drops::<Slotted<Key8>>(&world, options(Variant::Default), 3_000, 14, 5);
}

fn testbed(seed: u64) -> Sim {
    Sim::builder(CostModel::cx5_ib())
        .compute_nodes(2)
        .memory_nodes(2)
        .seed(seed)
        .build()
        .expect("memory")
}

#[test]
fn in_the_simulator() {
    for seed in 0..6 {
        let variant = [Variant::Default, Variant::TwoLevel, Variant::PaperRtt][seed as usize % 3];
        drops::<Slotted<Key8>>(&testbed(seed).into(), options(variant), 800, 5, seed);
    }
    drops::<Checksummed<Key8>>(&testbed(7).into(), options(Variant::Hierarchical), 800, 5, 7);
}

/// Half of the clients are dropped at random times, for good.
#[test]
#[expect(
    clippy::await_holding_refcell_ref,
    reason = "the cell is read only after the task has ended"
)]
fn simulated_clients_that_are_dropped_for_good() {
    for seed in 0..8 {
        let world = World::from(testbed(seed));
        let options = options(Variant::Default);
        let open = || world.run_one(Open::<Slotted<Key8>>(options, PhantomData));
        let trees = Rc::new([open(), open()]);
        let World::Sim(sim) = &world else {
            unreachable!("made of a simulation")
        };
        let clients = 32;
        let all: Vec<_> = (0..clients)
            .map(|n| Rc::new(RefCell::new(Own::new(n, clients))))
            .collect();
        let tasks: Vec<_> = all
            .iter()
            .enumerate()
            .map(|(n, own)| {
                let (own, trees) = (Rc::clone(own), Rc::clone(&trees));
                sim.spawn((n % 2) as u16, (n / 4) as u16, move |v| async move {
                    let v = AnyEndpoint::Sim(v);
                    let client = trees[n % 2].client(&v);
                    let mut rng = Rng::new(seed, n as u64);
                    for _ in 0..300 {
                        let step = own.borrow_mut().step(&client, &mut rng, u64::MAX).await;
                        step.expect("no faults");
                    }
                })
            })
            .collect();
        let mut rng = Rng::new(seed, 99);
        for task in tasks.iter().step_by(2) {
            sim.run_for(Nanos(1 + rng.below(20_000)));
            assert!(sim.cancel(*task), "300 operations take longer");
        }
        assert_eq!(
            sim.run(),
            RunEnd::Finished,
            "seed {seed}: a client waits for a dropped client"
        );
        assert_eq!(locks::held(&world), Vec::<String>::new(), "seed {seed}");
        let own = all.iter().map(|own| own.replace(Own::new(0, 1))).collect();
        world.run_one(Last::<Slotted<Key8>> {
            own: dm_sync::Mutex::new(own),
            options,
            _leaf: PhantomData,
        });
    }
}
