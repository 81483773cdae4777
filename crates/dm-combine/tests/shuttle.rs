//! Runs sharing under shuttle: five clients, three keys, two locks each for gets and for writes, and all kinds of
//! operations on single keys, some of which are dropped. Every history must be linearizable, and no client may be left
//! at a lock. Each flaw must be found.
#![cfg(dm_shuttle)]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::{Context, Poll, Waker};

use dm_combine::{Combined, Combiner, Rdwc, RdwcFlaws};
use dm_history::{CallId, History, KvMap, KvOp, KvRet, Limits, check};
use dm_index::{Applied, Fill, IndexError, Key8, RangeIndex, Scan};
use dm_sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use dm_sync::schedules::{Witness, below, block_on, explore, must_fail};
use dm_sync::{Arc, Mutex, thread};
use dm_verbs::{Attempts, ClientId, Env, Meter, Nanos};

const CLIENTS: u16 = 5;
const KEYS: u64 = 3;
/// Number of operations per client.
const OPERATIONS: u32 = 6;

static DELEGATED: Witness = Witness::new("a delegated get");
static COMBINED: Witness = Witness::new("a combined write");
static ALONE: Witness = Witness::new("an operation whose lock was held for another key");
static GIVEN_UP: Witness = Witness::new("a dropped operation");

/// The environment of a client.
struct Here(ClientId, Meter);

impl Env for Here {
    fn client(&self) -> ClientId {
        self.0
    }
    fn compute_node(&self) -> u16 {
        0
    }
    fn now(&self) -> Nanos {
        Nanos(0)
    }
    fn rng(&self, _: u32) -> u64 {
        0
    }
    fn meter(&self) -> &Meter {
        &self.1
    }
    fn poll_pause(&self, _: &mut u64, _: &mut Context<'_>) -> Poll<()> {
        thread::yield_now();
        Poll::Ready(())
    }
}

impl Attempts for Here {}

type Recorded = History<KvOp<u64, u32>, KvRet<u32>>;

/// An index of a few keys, and the state that its clients share. The value 0 means that the key is absent.
struct Shared {
    values: [AtomicU32; KEYS as usize],
    table: Combiner<Key8>,
    clock: AtomicU64,
    history: Mutex<Recorded>,
}

/// One client's view of the index. An operation is pending once before and once after it takes effect.
struct One<'a>(&'a Shared);

impl One<'_> {
    /// Suspends the operation once, so that it can be dropped here.
    async fn travels(&self) {
        let mut travelled = false;
        poll_fn(|cx| {
            if core::mem::replace(&mut travelled, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Applies `change` to the key's value, and returns the value before.
    async fn change(&self, key: &Key8, change: impl Fn(u32) -> Option<u32>) -> u32 {
        self.travels().await;
        // Relaxed, as are all accesses here: shuttle treats every ordering as SeqCst.
        let value = &self.0.values[key.0 as usize];
        let (Ok(before) | Err(before)) = value.fetch_update(Relaxed, Relaxed, |before| change(before));
        self.travels().await;
        before
    }
}

fn number(value: &[u8]) -> u32 {
    u32::from_le_bytes(value.try_into().unwrap())
}

impl RangeIndex for One<'_> {
    type Key = Key8;
    fn value_bytes(&self) -> usize {
        4
    }
    async fn get(&self, key: &Key8, value: &mut Vec<u8>) -> Result<bool, IndexError> {
        let found = self.change(key, |_| None).await;
        value.clear();
        value.extend_from_slice(&found.to_le_bytes());
        Ok(found > 0)
    }
    async fn insert(&self, key: &Key8, value: &[u8]) -> Result<Applied, IndexError> {
        let before = self
            .change(key, |before| (before == 0).then(|| number(value)))
            .await;
        Ok(if before == 0 {
            Applied::Inserted
        } else {
            Applied::Present
        })
    }
    async fn update(&self, key: &Key8, value: &[u8]) -> Result<Applied, IndexError> {
        let before = self
            .change(key, |before| (before > 0).then(|| number(value)))
            .await;
        Ok(if before > 0 {
            Applied::Replaced
        } else {
            Applied::Absent
        })
    }
    async fn upsert(&self, key: &Key8, value: &[u8]) -> Result<Applied, IndexError> {
        let before = self.change(key, |_| Some(number(value))).await;
        Ok(if before > 0 {
            Applied::Replaced
        } else {
            Applied::Inserted
        })
    }
    async fn remove(&self, key: &Key8) -> Result<Applied, IndexError> {
        let before = self.change(key, |_| Some(0)).await;
        Ok(if before > 0 {
            Applied::Removed
        } else {
            Applied::Absent
        })
    }
    async fn scan(&self, _: &Key8, _: usize, _: &mut Scan<Key8>) -> Result<(), IndexError> {
        Ok(())
    }
    async fn bulk_load(
        &self,
        _: impl Into<Fill>,
        _: impl FnMut(&mut Vec<u8>) -> Option<Key8>,
    ) -> Result<u64, IndexError> {
        Ok(0)
    }
}

fn answer(applied: Applied) -> KvRet<u32> {
    match applied {
        Applied::Inserted => KvRet::Inserted,
        Applied::Replaced => KvRet::Replaced,
        Applied::Removed => KvRet::Removed,
        Applied::Present => KvRet::Present,
        Applied::Absent => KvRet::Absent,
        Applied::Differs => unreachable!("nothing is exchanged"),
    }
}

impl Shared {
    fn new(flaws: RdwcFlaws) -> Arc<Self> {
        let rdwc = Rdwc {
            locks: 2,
            flaws,
            ..Rdwc::ON
        };
        Arc::new(Self {
            values: Default::default(),
            table: Combiner::new(&rdwc),
            clock: AtomicU64::new(0),
            history: Mutex::default(),
        })
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Relaxed)
    }

    fn begins(&self, client: u16, op: KvOp<u64, u32>) -> CallId {
        let now = self.now();
        self.history.with(|h| h.invoke(u32::from(client), op, now))
    }

    fn ends(&self, call: CallId, ret: KvRet<u32>) {
        let now = self.now();
        self.history.with(|h| h.respond(call, ret, now));
    }

    /// Runs one operation. If it is dropped, the history has no answer for it.
    fn operates(&self, client: u16, op: KvOp<u64, u32>, may_give_up: bool) {
        let here = Here(ClientId(client), Meter::default());
        let index = Combined::new(&here, One(self), Some(&self.table));
        let call = self.begins(client, op.clone());
        let asked = async {
            let (key, mut value) = (Key8(*op.key()), Vec::new());
            Ok::<_, IndexError>(match op {
                KvOp::Get(_) => match index.get(&key, &mut value).await? {
                    true => KvRet::Found(number(&value)),
                    false => KvRet::Absent,
                },
                KvOp::Insert(_, new) => answer(index.insert(&key, &new.to_le_bytes()).await?),
                KvOp::Update(_, new) => answer(index.update(&key, &new.to_le_bytes()).await?),
                KvOp::Upsert(_, new) => answer(index.upsert(&key, &new.to_le_bytes()).await?),
                KvOp::Remove(_) => answer(index.remove(&key).await?),
            })
        };
        let mut asked = pin!(asked);
        let mut done = None;
        if may_give_up && below(4) == 0 {
            for _ in 0..=below(3) {
                if let Poll::Ready(ret) = asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    done = Some(ret);
                    break;
                }
                thread::yield_now();
            }
            if done.is_none() {
                // The operation is dropped here. It may or may not have taken effect.
                return GIVEN_UP.seen();
            }
        }
        let ret = done.unwrap_or_else(|| block_on(asked)).unwrap();
        self.ends(call, ret);
        let counters = here.meter().counters();
        for (count, witness) in [
            (counters.delegated, &DELEGATED),
            (counters.combined, &COMBINED),
            (counters.went_alone, &ALONE),
        ] {
            (0..count).for_each(|_| witness.seen());
        }
    }
}

fn clients(flaws: RdwcFlaws) {
    let shared = Shared::new(flaws);
    let threads: Vec<_> = (1..=CLIENTS)
        .map(|client| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for n in 0..OPERATIONS {
                    // Most operations use one key.
                    let key = below(KEYS + 2).saturating_sub(2);
                    let value = u32::from(client) * 100 + n;
                    let op = match below(10) {
                        0..4 => KvOp::Get(key),
                        4 => KvOp::Insert(key, value),
                        5 | 6 => KvOp::Update(key, value),
                        7 | 8 => KvOp::Upsert(key, value),
                        _ => KvOp::Remove(key),
                    };
                    shared.operates(client, op, true);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    for key in 0..KEYS {
        shared.operates(0, KvOp::Get(key), false);
        shared.operates(0, KvOp::Update(key, 7), false);
        shared.operates(0, KvOp::Get(key), false);
    }
    let history = shared.history.with(core::mem::take);
    let verdict = check(&KvMap::empty(), &history, Limits::default());
    assert!(verdict.is_linearizable(), "not linearizable");
}

#[test]
fn five_clients_share_their_operations() {
    let witnesses = [&DELEGATED, &COMBINED, &ALONE, &GIVEN_UP];
    explore("five clients", &witnesses, || clients(RdwcFlaws::NONE));
}

#[test]
fn flaws_are_noticed() {
    let none = RdwcFlaws::NONE;
    let wrong = [
        (
            "joins after the sample",
            RdwcFlaws {
                joins_after_sample: true,
                ..none
            },
        ),
        (
            "joins an earlier read",
            RdwcFlaws {
                joins_earlier_read: true,
                ..none
            },
        ),
        (
            "tells what is not known",
            RdwcFlaws {
                tells_unknown: true,
                ..none
            },
        ),
        (
            "follows for any key",
            RdwcFlaws {
                any_key: true,
                ..none
            },
        ),
        (
            "absorbs upserts",
            RdwcFlaws {
                absorbs_upserts: true,
                ..none
            },
        ),
        (
            "one buffer of the lock",
            RdwcFlaws {
                buffer_of_lock: true,
                ..none
            },
        ),
    ];
    for (name, flaws) in wrong {
        must_fail(name, "not linearizable", move || clients(flaws));
    }
    let silent = RdwcFlaws {
        leaves_silently: true,
        ..none
    };
    must_fail("leaves silently", "deadlock", move || clients(silent));
}
