//! A mutex without a guard: sections are closures, and they are counted.

use core::cell::Cell;

use crate::backend::sync::Mutex as Inner;

// This is std's under every checker, because the counter belongs to the checker and not to the checked
// program. shuttle's threads are coroutines of one OS thread, so they share the counter, which is not read
// there.
std::thread_local! {
    static SECTIONS: Cell<u64> = const { Cell::new(0) };
}

/// Returns how many sections on shared state this thread has entered so far: those of [`Mutex`] and [`crate::RwLock`],
/// and those that [`count_section`] has recorded.
///
/// A checker that polls a client compares the count before and after. If the count has changed, the poll accessed
/// shared state of the compute node, and the checker adds this access to the history of the compute node.
#[inline]
pub fn local_sections() -> u64 {
    SECTIONS.with(Cell::get)
}

/// Records that this thread enters a section on shared state. Code that accesses such state through an atomic
/// instead of a section must call this too.
///
/// ```
/// use dm_sync::{count_section, local_sections};
///
/// let before = local_sections();
/// count_section();
/// assert_eq!(local_sections(), before + 1);
/// ```
#[inline]
pub fn count_section() {
    SECTIONS.with(|count| count.set(count.get().wrapping_add(1)));
}

/// Mutual exclusion whose critical section is a closure.
///
/// There is no guard type, so a section cannot span an await: it is one atomic step of the explorer. If a
/// section panics, the content stays as it was at the panic, and later sections continue with it. A section
/// must not enter the same mutex again; it would wait for itself.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    inner: Inner<T>,
}

impl<T> Mutex<T> {
    /// Makes a mutex around `value`.
    pub fn new(value: T) -> Self {
        Self {
            inner: Inner::new(value),
        }
    }

    /// Runs `section` alone on the content, and counts it in [`local_sections`].
    // This is always inlined, because a section is short, and a call would force its variables into memory.
    #[inline(always)]
    pub fn with<R>(&self, section: impl FnOnce(&mut T) -> R) -> R {
        count_section();
        self.peek(section)
    }

    /// Returns the content.
    pub fn into_inner(self) -> T {
        self.inner
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Does the same as [`Mutex::with`] without counting, to read the state from outside the checked program.
    #[inline(always)]
    pub(crate) fn peek<R>(&self, section: impl FnOnce(&mut T) -> R) -> R {
        let mut guard = self
            .inner
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        section(&mut guard)
    }
}

#[cfg(all(test, not(any(dm_loom, dm_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_counted_once_and_per_thread() {
        let mutex = Mutex::new(1u32);
        let before = local_sections();
        assert_eq!(mutex.with(|n| core::mem::replace(n, 2)), 1);
        assert_eq!(mutex.with(|n| *n), 2);
        assert_eq!(local_sections() - before, 2);
        let elsewhere = std::thread::spawn(local_sections).join().expect("no panic");
        assert_eq!(elsewhere, 0);
        assert_eq!(mutex.into_inner(), 2);
    }

    #[test]
    fn a_panicked_section_does_not_stop_the_next() {
        let mutex = Mutex::new(0u32);
        let outcome = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
            mutex.with(|n| {
                *n = 5;
                panic!("on purpose");
            })
        }));
        assert!(outcome.is_err());
        assert_eq!(mutex.with(|n| *n), 5);
    }
}
