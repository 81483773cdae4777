//! Limbo lists that threads share, while readers run in their epochs. Each model has a mutant that must be found.
//!
//! Atomics of `Pool` stand for remote memory. They are the root that leads to a block, the epoch word, and the content
//! of the block.
#![cfg(dm_loom)]

use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicUsize, Ordering as StdOrdering};

use dm_alloc::{Block, Class, Limbo};
use dm_sync::atomic::{AtomicU64, Ordering};
use dm_sync::epoch::Epochs;
use dm_sync::{Arc, Mutex, thread};
use dm_verbs::RemotePtr;

const CLASS: Class = Class { bytes: 64, kind: 0 };

/// A pool with one block, to which the root leads.
struct Pool {
    root: AtomicU64,
    /// Number of nodes that have been in the block.
    life: AtomicU64,
    epoch: AtomicU64,
    epochs: Arc<Epochs>,
    limbo: Mutex<Limbo>,
}

#[derive(Clone, Copy, PartialEq)]
enum Mutant {
    None,
    /// The tag is drawn, and operations begin in the next epoch, before the retired blocks are closed.
    TagBeforeClose,
    /// Retired blocks are free at once.
    NoGrace,
    /// No fence orders the pins and the view.
    NoFences,
}

impl Pool {
    fn new(mutant: Mutant) -> Self {
        let epochs = match mutant {
            Mutant::NoFences => Epochs::unordered(),
            _ => Epochs::new(),
        };
        Self {
            root: AtomicU64::new(1),
            life: AtomicU64::new(1),
            epoch: AtomicU64::new(5),
            epochs: Arc::new(epochs),
            limbo: Mutex::new(Limbo::default()),
        }
    }

    /// Runs one operation: follows the root and looks at the block twice. SeqCst stands for verbs, which are in
    /// order.
    fn read(&self) {
        let seat = Epochs::seat(&self.epochs);
        seat.enroll(self.epochs.generation(), 1);
        let _running = seat.enter().expect("enrolled");
        if self.root.load(Ordering::SeqCst) == 1 {
            let life = self.life.load(Ordering::SeqCst);
            assert_eq!(
                self.life.load(Ordering::SeqCst),
                life,
                "used again under a reader"
            );
            assert_eq!(life, 1, "used again under a reader");
        }
    }

    fn retire(&self) {
        self.root.store(0, Ordering::SeqCst);
        let block = Block::fresh(RemotePtr::from_raw(4096));
        self.limbo.with(|limbo| limbo.retire(block, CLASS));
    }

    /// Does a round of this compute node, which is the only member.
    fn round(&self, mutant: Mutant) {
        if mutant == Mutant::NoGrace {
            self.limbo.with(|limbo| {
                if limbo.close() {
                    limbo.tag(0);
                }
            });
            return self.reuse(u64::MAX);
        }
        let early = (mutant == Mutant::TagBeforeClose).then(|| {
            let tag = self.epoch.fetch_add(1, Ordering::SeqCst);
            self.epochs.advance(tag + 1);
            tag
        });
        if self.limbo.with(Limbo::close) {
            let tag = early.unwrap_or_else(|| self.epoch.fetch_add(1, Ordering::SeqCst));
            self.limbo.with(|limbo| limbo.tag(tag));
        }
        let view = self.epochs.epoch();
        let announced = self.epochs.oldest().unwrap_or(view).min(view);
        self.epochs.advance(self.epoch.load(Ordering::SeqCst));
        self.reuse(announced);
    }

    fn reuse(&self, oldest: u64) {
        if !self.limbo.with(|limbo| limbo.free_below(oldest)).is_empty() {
            self.life.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Runs `body` in every interleaving with at most three preemptions, prints their number, and requires at least `floor`
/// of them.
fn explore(name: &str, floor: usize, body: impl Fn() + Send + Sync + 'static) {
    let runs = StdArc::new(AtomicUsize::new(0));
    let counter = StdArc::clone(&runs);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        // Relaxed: a counter of runs, read after the model has ended.
        counter.fetch_add(1, StdOrdering::Relaxed);
        body();
    });
    let runs = runs.load(StdOrdering::Relaxed);
    println!("{name}: {runs} interleavings");
    assert!(
        runs >= floor,
        "{name}: only {runs} interleavings, at least {floor} expected"
    );
}

/// Runs a reader beside a thread that retires the block and does three rounds.
fn reader_and_rounds(mutant: Mutant) {
    explore("a reader beside rounds", 100, move || {
        let pool = Arc::new(Pool::new(mutant));
        let reader = thread::spawn({
            let pool = Arc::clone(&pool);
            move || pool.read()
        });
        pool.retire();
        for _ in 0..3 {
            pool.round(mutant);
        }
        reader.join().expect("no panic");
        // No thread reads any more, so two rounds free the rest.
        pool.round(mutant);
        pool.round(mutant);
        assert_eq!(
            pool.limbo.with(|limbo| limbo.bytes()),
            0,
            "what nobody reads is free"
        );
        assert_eq!(
            pool.life.load(Ordering::SeqCst),
            2,
            "the block was used again, once"
        );
    });
}

#[test]
fn a_block_waits_for_its_readers() {
    reader_and_rounds(Mutant::None);
}

#[test]
#[should_panic(expected = "used again under a reader")]
fn a_block_that_does_not_wait_is_found() {
    reader_and_rounds(Mutant::NoGrace);
}

#[test]
#[should_panic(expected = "used again under a reader")]
fn a_pin_that_nothing_orders_is_found() {
    reader_and_rounds(Mutant::NoFences);
}

/// Runs a thread that retires, a thread that does rounds, and a reader.
fn retirer_beside_rounds(mutant: Mutant) {
    explore("a retirer beside rounds", 100, move || {
        let pool = Arc::new(Pool::new(mutant));
        let reader = thread::spawn({
            let pool = Arc::clone(&pool);
            move || pool.read()
        });
        let retirer = thread::spawn({
            let pool = Arc::clone(&pool);
            move || pool.retire()
        });
        for _ in 0..3 {
            pool.round(mutant);
        }
        reader.join().expect("no panic");
        retirer.join().expect("no panic");
    });
}

#[test]
fn rounds_wait_for_what_was_retired_before_them() {
    retirer_beside_rounds(Mutant::None);
}

#[test]
#[should_panic(expected = "used again under a reader")]
fn a_tag_drawn_before_the_closing_is_found() {
    retirer_beside_rounds(Mutant::TagBeforeClose);
}
