//! Work that the threads of one search give each other.

use dm_sync::Mutex;
use dm_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use dm_sync::thread::{Thread, current, park};

/// Work for whoever has none.
pub(super) struct Pool<J> {
    inner: Mutex<Inner<J>>,
    /// How many wait for work that nobody has given yet, a hint: below zero, wrapped, where more was given.
    hungry: AtomicUsize,
    /// Everybody is to stop.
    stop: AtomicBool,
    /// States that all threads have found, as far as told.
    states: AtomicU64,
}

struct Inner<J> {
    jobs: Vec<J>,
    waiting: Vec<Thread>,
    /// Threads that have work, and may give some.
    busy: usize,
}

impl<J> Pool<J> {
    /// For so many threads, all of which are taken to be at work, or about to ask for some.
    pub(super) fn new(threads: usize) -> Self {
        Self {
            inner: Mutex::new(Inner {
                jobs: Vec::new(),
                waiting: Vec::new(),
                busy: threads,
            }),
            hungry: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            states: AtomicU64::new(0),
        }
    }

    /// Whether work is wanted.
    #[inline]
    pub(super) fn is_hungry(&self) -> bool {
        // Relaxed: a hint; whoever gives takes the lock.
        self.hungry.load(Ordering::Relaxed) as isize > 0
    }

    pub(super) fn give(&self, job: J) {
        let taker = self.inner.with(|inner| {
            inner.jobs.push(job);
            // Relaxed: a hint.
            self.hungry.fetch_sub(1, Ordering::Relaxed);
            inner.waiting.pop()
        });
        if let Some(taker) = taker {
            taker.unpark();
        }
    }

    /// The next piece of work, for a thread that has none. `None` when nobody has any, or all are to stop.
    pub(super) fn take(&self) -> Option<J> {
        // Relaxed, here and below: a hint.
        self.hungry.fetch_add(1, Ordering::Relaxed);
        self.inner.with(|inner| inner.busy -= 1);
        loop {
            let taken = self.inner.with(|inner| {
                if self.is_stopped() {
                    return Some(None);
                }
                if let Some(job) = inner.jobs.pop() {
                    inner.busy += 1;
                    return Some(Some(job));
                }
                if inner.busy == 0 {
                    return Some(None);
                }
                // A thread may wake for no reason: it waits once.
                let me = current();
                inner.waiting.retain(|other| other.id() != me.id());
                inner.waiting.push(me);
                None
            });
            match taken {
                Some(Some(job)) => return Some(job),
                Some(None) => {
                    self.stop();
                    return None;
                }
                None => park(),
            }
        }
    }

    /// Nobody is to go on.
    pub(super) fn stop(&self) {
        // Relaxed: who waits looks at it under the lock; who works may go on for a while.
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.inner.with(|inner| core::mem::take(&mut inner.waiting)) {
            thread.unpark();
        }
    }

    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        // Relaxed: see `stop`.
        self.stop.load(Ordering::Relaxed)
    }

    /// Adds states that this thread has found; answers how many there are.
    pub(super) fn add_states(&self, new: u64) -> u64 {
        // Relaxed: a sum.
        self.states.fetch_add(new, Ordering::Relaxed) + new
    }
}

/// Stops all threads when one of them ends: it has found something, there is no work left, or it panicked, and then
/// nobody may wait for it for ever.
pub(super) struct StopAll<'a, J>(pub(super) &'a Pool<J>);

impl<J> Drop for StopAll<'_, J> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_work_is_done_once_and_then_all_end() {
        let pool = Pool::new(4);
        let done = Mutex::new(Vec::new());
        // Each piece of work of size n gives n − 1 pieces away, and is done.
        let work = || {
            let _stop = StopAll(&pool);
            while let Some((size, name)) = pool.take() {
                for i in 1..size {
                    pool.give((i, name * 10 + i));
                }
                done.with(|done| done.push(name));
            }
        };
        pool.inner.with(|inner| inner.busy += 1);
        dm_sync::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(work);
            }
            pool.give((7, 7));
            pool.inner.with(|inner| inner.busy -= 1);
            if pool.inner.with(|inner| inner.busy == 0 && inner.jobs.is_empty()) {
                pool.stop();
            }
        });
        let mut done = done.into_inner();
        let all = done.len();
        done.sort_unstable();
        done.dedup();
        assert_eq!((all, done.len()), (64, 64));
    }

    #[test]
    fn nobody_waits_for_one_that_panics() {
        let pool: Pool<()> = Pool::new(2);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            dm_sync::thread::scope(|scope| {
                scope.spawn(|| pool.take());
                let _stop = StopAll(&pool);
                panic!("on purpose");
            })
        }));
        assert!(outcome.is_err());
        assert!(pool.is_stopped());
    }
}
