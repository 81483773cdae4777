//! Runs a program of several threads under many schedules that shuttle draws. This exists only in builds with
//! `--cfg dm_shuttle`.
//!
//! Schedules come in *batches*, numbered from 0. A batch's number is its seed, and determines how its
//! schedules are drawn: at random, or by PCT (Burckhardt et al., ASPLOS 2010) with a depth of 2, 3 or 5. So a
//! number gives the same schedules on every machine, and running its batch alone repeats a failure:
//!
//! ```text
//! cargo xtask shuttle <test> --batch <number>
//! ```
//!
//! shuttle explores interleavings of SeqCst accesses. loom finds the behaviour that weaker orderings allow.
//!
//! ```
//! # #[cfg(dm_shuttle)] {
//! use dm_sync::schedules::{Witness, below, block_on, explore, must_fail};
//! use dm_sync::{Arc, Mutex, thread};
//!
//! static EVEN: Witness = Witness::new("an even draw");
//! fn count(in_one_section: bool) {
//!     let total = Arc::new(Mutex::new(0));
//!     let threads = [(); 3].map(|()| {
//!         let total = Arc::clone(&total);
//!         thread::spawn(move || match in_one_section {
//!             true => total.with(|t| *t += 1),
//!             false => {
//!                 let seen = total.with(|t| *t);
//!                 total.with(|t| *t = seen + 1);
//!             }
//!         })
//!     });
//!     if below(2) == 0 {
//!         EVEN.seen();
//!     }
//!     threads.into_iter().for_each(|t| t.join().expect("no panic"));
//!     assert_eq!(block_on(async { total.with(|t| *t) }), 3, "lost update");
//! }
//! explore("three add one", &[&EVEN], || count(true));
//! must_fail("in two sections", "lost update", || count(false));
//! # }
//! ```

use core::any::Any;
use core::ops::Range;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
// This is std's, because the counter belongs to the checker and not to the checked program.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shuttle::rand::RngCore;
use shuttle::scheduler::{
    PctScheduler, RandomScheduler, Scheduler, UncontrolledNondeterminismCheckScheduler,
};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

pub use shuttle::future::block_on;

/// Number of schedules per batch. PCT draws only the later ones, because the first one counts the steps.
const BATCH: usize = 10;
/// Batches of a run by default.
const BATCHES: u64 = 1500;
/// Steps after which a schedule's threads are assumed to be in a deadlock or an endless loop.
const STEPS_MAX: usize = 400_000;
/// A thread's stack in bytes. An overflow ends the process by a signal, without a message.
const STACK_BYTES: usize = 256 << 10;

/// An event for which a model was written, and which some schedule must reach.
#[derive(Debug)]
pub struct Witness {
    what: &'static str,
    times: AtomicU64,
}

impl Witness {
    /// Makes a witness of the event `what`, which has not been seen.
    pub const fn new(what: &'static str) -> Self {
        Self {
            what,
            times: AtomicU64::new(0),
        }
    }

    /// Counts one occurrence.
    pub fn seen(&self) {
        // Relaxed: the counter is read only when all threads have ended.
        self.times.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of occurrences.
    fn times(&self) -> u64 {
        // Relaxed: as above.
        self.times.load(Ordering::Relaxed)
    }
}

/// Draws a number below `bound`, which must not be 0. The number is part of the schedule, so repeating the schedule
/// gives the same number.
///
/// # Panics
/// Panics if `bound` is 0.
pub fn below(bound: u64) -> u64 {
    shuttle::rand::thread_rng().next_u64() % bound
}

/// Runs `body` under the schedules of all batches that `DM_SHUTTLE_FROM` and `DM_SHUTTLE_BATCHES` select, and prints
/// how often it ran. With the default batches, each witness must have been seen.
///
/// # Panics
/// Panics if `body` does, after printing the command that repeats the failure. With the default batches, also panics if
/// a witness was not seen. Panics if one of the environment variables is not a number.
pub fn explore(name: &str, witnesses: &[&Witness], body: impl Fn() + Send + Sync + 'static) {
    let body = Arc::new(body);
    let batches = asked();
    let usual = batches.start == 0 && batches.end >= BATCHES;
    let mut schedules = 0;
    for batch in batches {
        let (ran, done) = run(batch, &body);
        schedules += ran;
        if let Err(panic) = done {
            // The test has the same name as its thread.
            let test = std::thread::current().name().unwrap_or(name).to_owned();
            say(&format!(
                "{name}: schedule {ran} of batch {batch} fails: {}\nrepeat it by `cargo xtask shuttle {test} --batch {batch}`",
                message(&*panic)
            ));
            resume_unwind(panic);
        }
    }
    let met = witnesses
        .iter()
        .map(|w| format!("; {} {} times", w.what, w.times()));
    say(&format!(
        "{name}: {schedules} schedules{}",
        met.collect::<String>()
    ));
    for witness in witnesses {
        assert!(
            !usual || witness.times() > 0,
            "{name}: never met: {}",
            witness.what
        );
    }
}

/// Runs `body`, a broken twin, until a schedule fails; the failure must contain `why`. Then it runs the same
/// batch again, which must fail in the same schedule with the same message.
///
/// # Panics
/// Panics if no schedule of the default batches fails, if one fails for another reason, or if the repeated batch does
/// not fail in the same way.
pub fn must_fail(name: &str, why: &str, body: impl Fn() + Send + Sync + 'static) {
    let body = Arc::new(body);
    let mut schedules = 0;
    for batch in 0..BATCHES {
        let (ran, done) = run(batch, &body);
        schedules += ran;
        let Err(panic) = done else { continue };
        let said = message(&*panic);
        assert!(said.contains(why), "{name} failed for another reason: {said}");
        let (again, done) = run(batch, &body);
        let repeated = done.err().map(|panic| message(&*panic));
        assert_eq!(
            (again, repeated),
            (ran, Some(said)),
            "{name}: a batch that is repeated does something else"
        );
        say(&format!(
            "{name}: found in schedule {schedules}, of batch {batch}"
        ));
        return;
    }
    panic!("{name} was not noticed in {schedules} schedules");
}

#[expect(clippy::print_stderr, reason = "read where a test fails, or by --nocapture")]
fn say(what: &str) {
    eprintln!("{what}");
}

/// Returns the batches that `DM_SHUTTLE_FROM` (the first one) and `DM_SHUTTLE_BATCHES` (their number) select. Panics if
/// one of them is not a number.
fn asked() -> Range<u64> {
    let number = |name: &str| {
        let text = env::var(name).ok()?;
        let number = text.parse();
        Some(number.unwrap_or_else(|e| panic!("{name}={text}: {e}")))
    };
    let from = number("DM_SHUTTLE_FROM").unwrap_or(0);
    from..from + number("DM_SHUTTLE_BATCHES").unwrap_or(BATCHES)
}

type Ended = Result<(), Box<dyn Any + Send>>;

/// Runs the schedules of a batch until one fails. Returns how often `body` began, and how the run ended.
fn run<F: Fn() + Send + Sync + 'static>(batch: u64, body: &Arc<F>) -> (u64, Ended) {
    let (random, pct) = (
        |batch| RandomScheduler::new_from_seed(batch, BATCH),
        |depth| PctScheduler::new_from_seed(batch, depth, BATCH),
    );
    match batch {
        // Each schedule runs twice, to check that the run depends only on the schedule.
        0 => run_with(UncontrolledNondeterminismCheckScheduler::new(random(0)), body),
        _ => match batch % 4 {
            0 => run_with(random(batch), body),
            1 => run_with(pct(2), body),
            2 => run_with(pct(3), body),
            _ => run_with(pct(5), body),
        },
    }
}

fn run_with<S, F>(scheduler: S, body: &Arc<F>) -> (u64, Ended)
where
    S: Scheduler + 'static,
    F: Fn() + Send + Sync + 'static,
{
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    // The number of the batch replaces shuttle's own record of a failure.
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    let began = Arc::new(AtomicU64::new(0));
    let (counted, body) = (Arc::clone(&began), Arc::clone(body));
    let runner = Runner::new(scheduler, config);
    let done = catch_unwind(AssertUnwindSafe(|| {
        runner.run(move || {
            // Relaxed: one schedule after the other.
            counted.fetch_add(1, Ordering::Relaxed);
            body();
        });
    }));
    // Relaxed: as above.
    (began.load(Ordering::Relaxed), done)
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "a panic without words".to_owned())
}
