//! The pool through which the threads of one search share work.

use dm_sync::Mutex;
use dm_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use dm_sync::thread::{Thread, current, park};

/// A pool of work for idle threads.
pub(super) struct Pool<J> {
    inner: Mutex<Inner<J>>,
    /// A hint: the number of threads that wait for work, minus the pieces of work that were given to them. It may be
    /// negative (the number wraps) if more work was given than needed.
    hungry: AtomicUsize,
    /// Set when all threads must stop.
    stop: AtomicBool,
    /// The number of states that all threads have reported.
    states: AtomicU64,
}

struct Inner<J> {
    jobs: Vec<J>,
    waiting: Vec<Thread>,
    /// The number of threads that have work and may give some away.
    busy: usize,
}

impl<J> Pool<J> {
    /// Creates a pool for this many threads. All of them count as working until they wait for work.
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

    /// Returns whether some thread waits for work.
    #[inline]
    pub(super) fn is_hungry(&self) -> bool {
        // Relaxed: this is a hint; a thread that gives work takes the lock.
        self.hungry.load(Ordering::Relaxed) as isize > 0
    }

    pub(super) fn give(&self, job: J) {
        let taker = self.inner.with(|inner| {
            inner.jobs.push(job);
            // Relaxed: this is a hint.
            self.hungry.fetch_sub(1, Ordering::Relaxed);
            inner.waiting.pop()
        });
        if let Some(taker) = taker {
            taker.unpark();
        }
    }

    /// Returns the next piece of work for an idle thread, or `None` if no thread has any work or all must stop.
    pub(super) fn take(&self) -> Option<J> {
        // Relaxed, here and below: this is a hint.
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
                // A thread may have woken spuriously. Its old entry is removed, so that it is listed only
                // once.
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

    /// Stops all threads.
    pub(super) fn stop(&self) {
        // Relaxed: a waiting thread checks the flag under the lock, and a working thread may continue for a
        // while.
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

    /// Adds the number of states that this thread has found, and returns the total.
    pub(super) fn add_states(&self, new: u64) -> u64 {
        // Relaxed: this is only a sum.
        self.states.fetch_add(new, Ordering::Relaxed) + new
    }
}

/// A guard that stops all threads when the thread that owns the guard ends. A thread ends if it has found a failure or
/// reached a limit, if no work is left, or if it panics. Without the guard, other threads would wait for a panicked
/// thread for ever.
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
        // Each piece of work of size n gives away n − 1 pieces, and is then done.
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
