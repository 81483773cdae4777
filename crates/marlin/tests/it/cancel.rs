//! Tests of operations that are dropped at any poll: no lock stays held or shared, and a dropped write has taken effect as
//! a whole or not at all. Splits and merges are dropped too.

use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;

use dm_index::RangeIndex;
use dm_sim::{CostModel, Sim};
use dm_sync::Arc;
use dm_testkit::{IndexUnderTest, Job, Rng, World, seats, value_of};
use dm_verbs::{Control, Verbs};
use marlin::{Key8, Marlin, Options};

use crate::common::Tree;

/// Returns options with small leaves, so that they split and merge, and few locks, so that leaves share them.
fn options() -> Options {
    Options {
        node_bytes: 256,
        locks_per_node: 64,
        chunk_bytes: 64 << 10,
        attempts: 1 << 16,
        ..Options::new(16)
    }
}

/// Returns the future's output, or `None` if it was dropped after `polls` polls (at least one).
async fn cut<F: Future>(future: F, mut polls: u64) -> Option<F::Output> {
    let mut inner = pin!(future);
    poll_fn(|cx| {
        polls -= 1;
        match inner.as_mut().poll(cx) {
            Poll::Ready(out) => Poll::Ready(Some(out)),
            // The future is dropped before it is woken again.
            Poll::Pending if polls == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Number of keys of each client.
const KEYS: u64 = 60;

/// One client's keys, with the possible contents of each (several after dropped writes), and the numbers of its
/// operations that were dropped and that ended.
struct Own(Vec<(Key8, Vec<Option<u64>>)>, u64, u64);

impl Own {
    /// Keeps only the possible contents that are equal to the content that a read found.
    fn saw(&mut self, i: usize, found: Option<&[u8]>) {
        let (key, legal) = &mut self.0[i];
        let known = |seed: &Option<u64>| seed.map(|seed| value_of(seed, 16)).as_deref() == found;
        match legal.iter().copied().find(known) {
            Some(value) => *legal = vec![value],
            None => panic!("{key:?}: found {found:?}, legal are {legal:?}"),
        }
    }
}

struct Open;

impl Job for Open {
    type Out = Marlin<Key8>;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Self::Out {
        Tree::<Key8>::new(options()).open(v).await.expect("a pool")
    }
}

/// Trees of two compute nodes, which the clients use alternately; the number of operations of each; a seed.
struct Drops([Marlin<Key8>; 2], u64, u64);

impl Job for Drops {
    type Out = Own;
    async fn run<V: Verbs + Control>(&self, number: usize, v: &V) -> Own {
        let client = self.0[usize::from(v.compute_node())].client(v);
        let keys = (0..KEYS).map(|i| Key8(i * CLIENTS + number as u64));
        let mut own = Own(keys.map(|key| (key, vec![None])).collect(), 0, 0);
        let mut rng = Rng::new(self.2, number as u64);
        let mut read = Vec::new();
        for nth in 0..self.1 {
            // Most operations are dropped during their polls, and some run to their end.
            let polls = match rng.below(4) {
                0 => u64::MAX,
                _ => 1 + rng.below(8),
            };
            let (i, removes) = (rng.below(KEYS) as usize, nth / 100 % 2);
            let key = own.0[i].0;
            // The value differs from those of all other clients. Phases with more writes and phases with more removes
            // alternate.
            let seed = match rng.below(4) {
                3 => None,
                n if n <= 2 * removes => Some(None),
                _ => Some(Some((number as u64 + 1) << 32 | nth)),
            };
            let done = match seed {
                None => cut(client.get(&key, &mut read), polls).await.map(|found| {
                    let found = found.expect("no faults");
                    own.saw(i, found.then_some(&read[..]));
                }),
                Some(write) => {
                    let present = matches!(own.0[i].1[..], [Some(_)]);
                    own.0[i].1.push(write);
                    let done = match write {
                        Some(seed) if present => cut(client.update(&key, &value_of(seed, 16)), polls).await,
                        Some(seed) => cut(client.upsert(&key, &value_of(seed, 16)), polls).await,
                        None => cut(client.remove(&key), polls).await,
                    };
                    done.map(|applied| {
                        applied.expect("no faults");
                        own.0[i].1 = vec![write];
                    })
                }
            };
            match done {
                None => own.1 += 1,
                Some(()) => own.2 += 1,
            }
        }
        own
    }
}

/// A client that starts after all others have ended, with an empty cache. It takes every lock, so that a lock that is
/// still held is found.
struct Last(dm_sync::Mutex<Vec<Own>>);

impl Job for Last {
    type Out = ();
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) {
        let tree = Open.run(0, v).await;
        let client = tree.client(v);
        let mut read = Vec::new();
        for mut own in self.0.with(core::mem::take) {
            for i in 0..own.0.len() {
                let key = own.0[i].0;
                let found = client.get(&key, &mut read).await.expect("no faults");
                own.saw(i, found.then_some(&read[..]));
                client
                    .upsert(&key, &value_of(7, 16))
                    .await
                    .expect("no lock is held");
            }
        }
    }
}

const CLIENTS: u64 = 16;

fn drops(world: &World, operations: u64, seed: u64) {
    let seats = seats(2, 4, 4);
    let trees = [world.run_one(Open), world.run_one(Open)];
    let own = world.run(&seats, &Arc::new(Drops(trees, operations, seed)));
    assert_eq!(own.len() as u64, CLIENTS);
    let (dropped, ended) = own.iter().fold((0, 0), |(d, e), own| (d + own.1, e + own.2));
    assert!(
        dropped > ended / 5 && ended > dropped / 5,
        "{dropped} were dropped, {ended} ended"
    );
    world.run_one(Last(dm_sync::Mutex::new(own)));
}

#[test]
fn dropped_operations_leave_nothing_behind() {
    for (seed, model) in [(1, CostModel::cx6_roce()), (2, CostModel::cx5_ib())] {
        let sim = Sim::builder(model).compute_nodes(2).memory_nodes(2).seed(seed);
        drops(&sim.build().expect("memory").into(), 800, seed);
    }
}
