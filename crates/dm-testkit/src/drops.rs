//! Operations that are dropped at any poll.

use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;

use dm_index::RangeIndex;
use dm_sync::{Arc, Mutex};
use dm_verbs::{Control, Verbs};

use crate::any_index::AnyIndex;
use crate::{IndexUnderTest, Job, Rng, World, seats, value_of};

/// Number of keys of each client.
const KEYS: u64 = 60;
/// Number of clients, on two compute nodes.
const CLIENTS: u64 = 16;

/// A run in which most operations are dropped after a few polls, unless they end earlier.
#[derive(Clone, Copy, Debug)]
pub struct Drops<K> {
    /// Operations of each client.
    pub operations: u64,
    /// Maximum number of polls after which an operation is dropped. Choose the number of polls that an operation needs.
    pub polls: u64,
    /// The seed of the run.
    pub seed: u64,
    /// Returns the key of a number.
    pub key_of: fn(u64) -> K,
}

/// Runs the index on the first two compute nodes of `world`, and drops operations. Each client has keys of its own, and
/// checks that a dropped write has taken effect as a whole or not at all. At the end, a client with an empty cache
/// reads and upserts every key. An upsert does not share its leaf's lock with others, so it fails if a lock is still
/// held or shared.
///
/// # Panics
/// Panics if a content is wrong, if an operation fails, or if too few operations were dropped or have ended.
pub fn drop_operations<I: IndexUnderTest>(index: I, world: &World, drops: Drops<I::Key>) {
    let index = Arc::new(index);
    let open = || world.run_one(Open(Arc::clone(&index)));
    let clients = Clients {
        index: Arc::clone(&index),
        handles: [open(), open()],
        drops,
    };
    let own = world.run(&seats(2, 4, 4), &Arc::new(clients));
    assert_eq!(own.len() as u64, CLIENTS);
    let (dropped, ended) = own
        .iter()
        .fold((0, 0), |(d, e), own| (d + own.dropped, e + own.ended));
    assert!(
        dropped > ended / 5 && ended > dropped / 5,
        "{dropped} were dropped, {ended} ended"
    );
    let own = Mutex::new(own);
    world.run_one(Last { index, own });
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

/// One client's keys, with the possible contents of each: several after dropped writes.
struct Own<K> {
    keys: Vec<(K, Vec<Option<u64>>)>,
    value_bytes: usize,
    dropped: u64,
    ended: u64,
}

impl<K: core::fmt::Debug> Own<K> {
    /// Keeps only the first possible content that is equal to the content that a read found. Panics if there is none.
    fn saw(&mut self, i: usize, found: Option<&[u8]>) {
        let bytes = self.value_bytes;
        let (key, legal) = &mut self.keys[i];
        let known = |seed: &Option<u64>| seed.map(|seed| value_of(seed, bytes)).as_deref() == found;
        match legal.iter().copied().find(known) {
            Some(value) => *legal = vec![value],
            None => panic!("{key:?}: found {found:?}, legal are {legal:?}"),
        }
    }
}

struct Open<I>(Arc<I>);

impl<I: IndexUnderTest> Job for Open<I> {
    type Out = I::Handle;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Self::Out {
        self.0.open(v).await.expect("a pool")
    }
}

/// Clients of two compute nodes, each with its compute node's handle.
struct Clients<I: IndexUnderTest> {
    index: Arc<I>,
    handles: [I::Handle; 2],
    drops: Drops<I::Key>,
}

impl<I: IndexUnderTest> Job for Clients<I> {
    type Out = Own<I::Key>;
    async fn run<V: Verbs + Control>(&self, number: usize, v: &V) -> Self::Out {
        let client = AnyIndex::of::<I>(&self.handles[usize::from(v.compute_node())], v);
        let bytes = self.index.value_bytes();
        let keys = (0..KEYS).map(|i| (self.drops.key_of)(i * CLIENTS + number as u64));
        let mut own = Own {
            keys: keys.map(|key| (key, vec![None])).collect(),
            value_bytes: bytes,
            dropped: 0,
            ended: 0,
        };
        let mut rng = Rng::new(self.drops.seed, number as u64);
        let mut read = Vec::new();
        for nth in 0..self.drops.operations {
            // Most operations are dropped during their polls, and some run to their end.
            let polls = match rng.below(4) {
                0 => u64::MAX,
                _ => 1 + rng.below(self.drops.polls),
            };
            let (i, removes) = (rng.below(KEYS) as usize, nth / 100 % 2);
            let key = own.keys[i].0;
            // The value differs from those of all other clients. Phases in which two of three writes set a value
            // alternate with phases in which every write is a remove.
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
                    let present = matches!(own.keys[i].1[..], [Some(_)]);
                    own.keys[i].1.push(write);
                    let done = match write {
                        Some(seed) if present => {
                            cut(client.update(&key, &value_of(seed, bytes)), polls).await
                        }
                        Some(seed) => cut(client.upsert(&key, &value_of(seed, bytes)), polls).await,
                        None => cut(client.remove(&key), polls).await,
                    };
                    done.map(|applied| {
                        applied.expect("no faults");
                        own.keys[i].1 = vec![write];
                    })
                }
            };
            match done {
                None => own.dropped += 1,
                Some(()) => own.ended += 1,
            }
        }
        own
    }
}

/// A client that starts after all others have ended, with an empty cache.
struct Last<I: IndexUnderTest> {
    index: Arc<I>,
    own: Mutex<Vec<Own<I::Key>>>,
}

impl<I: IndexUnderTest> Job for Last<I> {
    type Out = ();
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) {
        let handle = self.index.open(v).await.expect("a pool");
        let client = AnyIndex::of::<I>(&handle, v);
        let value = value_of(7, self.index.value_bytes());
        let mut read = Vec::new();
        for mut own in self.own.with(core::mem::take) {
            for i in 0..own.keys.len() {
                let key = own.keys[i].0;
                let found = client.get(&key, &mut read).await.expect("no faults");
                own.saw(i, found.then_some(&read[..]));
                client.upsert(&key, &value).await.expect("no lock is held");
            }
        }
    }
}
