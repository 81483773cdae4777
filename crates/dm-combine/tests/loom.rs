//! Runs sharing under loom, over all interleavings of two threads, and over those of three threads with at most two
//! preemptions. No answer may be outdated, no write may be lost, and no client may wait for ever.
//!
//! Each model prints how many interleavings loom explored, and fails if there are fewer than a minimum, so a search
//! that was cut short fails. Loom aborts the process on a deadlock, so each mutant runs in a process of its own, which
//! the test that expects the failure starts.
#![cfg(dm_loom)]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dm_combine::{Combined, Combiner, Rdwc, RdwcFlaws};
use dm_index::{Applied, Fill, IndexError, Key8, RangeIndex, Scan};
use dm_sync::atomic::{AtomicU32, Ordering as Modelled};
use dm_sync::{Arc, thread};
use dm_verbs::{Attempts, ClientId, Env, Meter, Nanos};

fn explore(name: &str, floor: usize, preemptions: Option<usize>, body: impl Fn() + Send + Sync + 'static) {
    // This is std's counter, because it belongs to the harness and not to the model.
    let runs = StdArc::new(AtomicUsize::new(0));
    let counted = StdArc::clone(&runs);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        // Relaxed: one thread at a time counts, and the number is read after all threads have ended.
        counted.fetch_add(1, Ordering::Relaxed);
        body();
    });
    // Relaxed: as above.
    let runs = runs.load(Ordering::Relaxed);
    println!("{name}: {runs} interleavings");
    assert!(runs >= floor, "{name}: only {runs} interleavings");
}

/// The environment of a client.
struct Here(ClientId, Meter);

impl Here {
    fn new(client: u16) -> Self {
        Self(ClientId(client), Meter::default())
    }
}

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

/// An index with one key, and the state that its threads share.
struct Shared {
    word: AtomicU32,
    table: Combiner<Key8>,
}

/// One thread's view of the index. A get ends at its first poll. A write takes effect at its first poll and is then
/// pending once, so that a test can drop it there.
struct One<'a>(&'a Shared);

struct Later(bool);

impl Future for Later {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if core::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl RangeIndex for One<'_> {
    type Key = Key8;
    fn value_bytes(&self) -> usize {
        4
    }
    async fn get(&self, _: &Key8, value: &mut Vec<u8>) -> Result<bool, IndexError> {
        // Relaxed, as are all accesses of the word. The sections of the table must provide the order, and the model
        // checks this.
        let found = self.0.word.load(Modelled::Relaxed);
        value.clear();
        value.extend_from_slice(&found.to_le_bytes());
        Ok(true)
    }
    async fn insert(&self, _: &Key8, _: &[u8]) -> Result<Applied, IndexError> {
        Ok(Applied::Present)
    }
    async fn update(&self, _: &Key8, value: &[u8]) -> Result<Applied, IndexError> {
        self.0.word.store(number(value), Modelled::Relaxed);
        Later(false).await;
        Ok(Applied::Replaced)
    }
    async fn upsert(&self, key: &Key8, value: &[u8]) -> Result<Applied, IndexError> {
        self.update(key, value).await
    }
    async fn remove(&self, _: &Key8) -> Result<Applied, IndexError> {
        Ok(Applied::Absent)
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

fn number(value: &[u8]) -> u32 {
    u32::from_le_bytes(value.try_into().unwrap())
}

const KEY: Key8 = Key8(1);

impl Shared {
    fn new(flaws: RdwcFlaws) -> Arc<Self> {
        let rdwc = Rdwc {
            locks: 1,
            flaws,
            ..Rdwc::ON
        };
        Arc::new(Self {
            word: AtomicU32::new(0),
            table: Combiner::new(&rdwc),
        })
    }

    fn get(&self, client: u16) -> u32 {
        let (here, mut value) = (Here::new(client), Vec::new());
        let client = Combined::new(&here, One(self), Some(&self.table));
        assert_eq!(loom::future::block_on(client.get(&KEY, &mut value)), Ok(true));
        number(&value)
    }

    fn update(&self, client: u16, value: u32) {
        let here = Here::new(client);
        let client = Combined::new(&here, One(self), Some(&self.table));
        let applied = loom::future::block_on(client.update(&KEY, &value.to_le_bytes()));
        assert_eq!(applied, Ok(Applied::Replaced));
    }

    /// Begins an update and drops it.
    fn goes_away(&self, client: u16, value: u32) {
        let here = Here::new(client);
        let client = Combined::new(&here, One(self), Some(&self.table));
        let bytes = value.to_le_bytes();
        let mut update = Box::pin(client.update(&KEY, &bytes));
        // After one poll, the update waits at the lock, or its write on the index is pending.
        if let Poll::Ready(done) = update.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            assert_eq!(done, Ok(Applied::Replaced));
        }
    }

    /// Checks that no client is left at the lock: another key can use it.
    fn is_idle(&self) {
        let here = Here::new(9);
        let client = Combined::new(&here, One(self), Some(&self.table));
        let mut value = Vec::new();
        loom::future::block_on(client.get(&Key8(2), &mut value)).unwrap();
        loom::future::block_on(client.update(&Key8(2), &[0; 4])).unwrap();
        assert_eq!(
            here.meter().counters().went_alone,
            0,
            "a client is left at a lock"
        );
    }
}

/// Runs two readers. Another compute node writes before the second reader begins. In some interleavings, this is after
/// the READ of the first reader. The second reader must get the new value nevertheless.
fn fresh(name: &str, floor: usize, flaws: RdwcFlaws) {
    explore(name, floor, None, move || {
        let shared = Shared::new(flaws);
        let reader = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.get(1)
        });
        // Relaxed: as in the index.
        shared.word.store(1, Modelled::Relaxed);
        assert_eq!(shared.get(2), 1, "a get returned an outdated value");
        assert!(reader.join().unwrap() <= 1);
        shared.is_idle();
    });
}

/// Runs two writers. If the second one sees the first one's value before it begins, its own value must be the last.
fn kept(name: &str, floor: usize, flaws: RdwcFlaws) {
    explore(name, floor, None, move || {
        let shared = Shared::new(flaws);
        let writer = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.update(1, 1)
        });
        // Relaxed: as in the index.
        let seen = shared.word.load(Modelled::Relaxed);
        shared.update(2, 2);
        writer.join().unwrap();
        let end = shared.word.load(Modelled::Relaxed);
        assert!(seen == 0 || end == 2, "a write is lost");
        shared.is_idle();
    });
}

/// Runs two writers, one of which is dropped. When it is dropped, it may lead or wait at the lock.
fn left(name: &str, floor: usize, flaws: RdwcFlaws) {
    explore(name, floor, None, move || {
        let shared = Shared::new(flaws);
        let other = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.goes_away(1, 1)
        });
        shared.update(2, 2);
        other.join().unwrap();
        shared.is_idle();
    });
}

#[test]
fn a_get_sees_what_was_written_before_it_began() {
    fresh("two readers", 200, RdwcFlaws::NONE);
}

#[test]
fn a_write_that_began_later_stays() {
    kept("two writers", 1000, RdwcFlaws::NONE);
}

#[test]
fn a_dropped_writer_leaves_no_client_waiting() {
    left("one writer is dropped", 60, RdwcFlaws::NONE);
}

#[test]
fn one_of_three_writers_is_dropped() {
    explore("three writers, two preemptions", 1500, Some(2), || {
        let shared = Shared::new(RdwcFlaws::NONE);
        let others = [1, 2].map(|client| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || match client {
                1 => shared.goes_away(1, 1),
                _ => shared.update(2, 2),
            })
        });
        shared.update(3, 3);
        others.into_iter().for_each(|t| t.join().unwrap());
        // Relaxed: all threads have been joined.
        assert_ne!(shared.word.load(Modelled::Relaxed), 0);
        shared.is_idle();
    });
}

#[test]
fn three_readers_all_get_an_answer() {
    explore("three readers, two preemptions", 400, Some(2), || {
        let shared = Shared::new(RdwcFlaws::NONE);
        let others = [1, 2].map(|client| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.get(client))
        });
        assert_eq!(shared.get(3), 0);
        others.into_iter().for_each(|t| assert_eq!(t.join().unwrap(), 0));
        shared.is_idle();
    });
}

/// Runs the ignored test `name` in a process of its own, and expects it to fail with `why`.
fn must_fail(name: &str, why: &str) {
    let exe = std::env::current_exe().unwrap();
    let child = std::process::Command::new(exe)
        .args(["--ignored", "--exact", name, "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr).into_owned() + &String::from_utf8_lossy(&child.stdout);
    assert!(!child.status.success(), "{name} was not noticed");
    assert!(said.contains(why), "{name} failed for another reason:\n{said}");
}

#[test]
fn mutants_are_noticed() {
    must_fail("mutant_joins_an_earlier_read", "a get returned an outdated value");
    must_fail("mutant_joins_after_the_sample", "a write is lost");
    must_fail("mutant_leaves_silently", "a client is left at a lock");
}

#[test]
#[ignore = "a mutant: run by mutants_are_noticed"]
fn mutant_joins_an_earlier_read() {
    let flaws = RdwcFlaws {
        joins_earlier_read: true,
        ..RdwcFlaws::NONE
    };
    fresh("mutant", 1, flaws);
}

#[test]
#[ignore = "a mutant: run by mutants_are_noticed"]
fn mutant_joins_after_the_sample() {
    let flaws = RdwcFlaws {
        joins_after_sample: true,
        ..RdwcFlaws::NONE
    };
    kept("mutant", 1, flaws);
}

#[test]
#[ignore = "a mutant: run by mutants_are_noticed"]
fn mutant_leaves_silently() {
    let flaws = RdwcFlaws {
        leaves_silently: true,
        ..RdwcFlaws::NONE
    };
    left("mutant", 1, flaws);
}
