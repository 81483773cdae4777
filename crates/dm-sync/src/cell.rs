//! An `UnsafeCell` whose accesses are closures, the form that loom can watch for races.

#[cfg(dm_loom)]
pub use loom::cell::UnsafeCell;

/// A cell whose content is reached through closures over raw pointers, as loom spells it.
#[cfg(not(dm_loom))]
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(dm_loom))]
impl<T> UnsafeCell<T> {
    /// Wraps `value`.
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Calls `f` with a pointer for reading. Following it is the caller's `unsafe` and needs that nobody writes.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Calls `f` with a pointer for writing. Following it is the caller's `unsafe` and needs exclusive access.
    #[inline]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }

    /// The content, by value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}
