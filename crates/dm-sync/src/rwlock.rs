//! A readers-writer lock without guards: sections are closures, and they are counted.

use crate::backend::sync::RwLock as Inner;
use crate::mutex::count_section;

/// Shared or exclusive access to a `T`; both kinds of section are closures, as in [`crate::Mutex`].
///
/// Reading sections of several threads run at the same time, but each of them writes the lock word twice. So
/// use this lock for sections of 50 ns and more, and for content that is seldom written. A section must not
/// enter the same lock again, not even to read, because a writer may be waiting in between.
///
/// ```
/// use dm_sync::{RwLock, local_sections};
///
/// let table = RwLock::new(vec![1, 2, 3]);
/// let before = local_sections();
/// table.with_write(|table| table.push(4));
/// assert_eq!(table.with_read(|table| table.len()), 4);
/// assert_eq!(local_sections() - before, 2);
/// ```
#[derive(Debug, Default)]
pub struct RwLock<T> {
    inner: Inner<T>,
}

impl<T> RwLock<T> {
    /// Makes a lock around `value`.
    pub fn new(value: T) -> Self {
        Self {
            inner: Inner::new(value),
        }
    }

    /// Runs `section` while no other thread writes, and counts it in [`crate::local_sections`].
    #[inline]
    pub fn with_read<R>(&self, section: impl FnOnce(&T) -> R) -> R {
        count_section();
        self.peek(section)
    }

    /// Runs `section` alone on the content, and counts it in [`crate::local_sections`].
    #[inline]
    pub fn with_write<R>(&self, section: impl FnOnce(&mut T) -> R) -> R {
        count_section();
        let mut guard = self
            .inner
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        section(&mut guard)
    }

    /// Returns the content.
    pub fn into_inner(self) -> T {
        self.inner
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Does the same as [`RwLock::with_read`] without counting, to read the state from outside the checked
    /// program.
    #[inline]
    pub(crate) fn peek<R>(&self, section: impl FnOnce(&T) -> R) -> R {
        let guard = self
            .inner
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        section(&guard)
    }
}

#[cfg(all(test, not(any(dm_loom, dm_shuttle))))]
mod tests {
    use super::*;
    use crate::local_sections;

    #[test]
    fn readers_share_and_every_section_counts() {
        let lock = RwLock::new(1u32);
        let before = local_sections();
        let both = lock.with_read(|a| std::thread::scope(|s| s.spawn(|| lock.with_read(|b| a + b)).join()));
        assert_eq!(both.expect("no panic"), 2);
        lock.with_write(|n| *n = 7);
        assert_eq!(local_sections() - before, 2, "the other thread counts its own");
        assert_eq!(lock.into_inner(), 7);
    }

    #[test]
    fn a_panicked_writer_does_not_stop_the_next() {
        let lock = RwLock::new(0u32);
        let outcome = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
            lock.with_write(|n| {
                *n = 5;
                panic!("on purpose");
            })
        }));
        assert!(outcome.is_err());
        assert_eq!(lock.with_read(|n| *n), 5);
    }
}
