//! Values that are saved and restored, and that mostly have not changed in between.

use core::cell::Cell;
use core::ops::{Deref, DerefMut};

use crate::fp::Fp;

/// A type whose values can become copies of one another and reuse their memory.
pub(crate) trait Copies {
    fn copy_from(&mut self, o: &Self);
}

/// A value with a stamp. **Equal stamps mean equal values**: a value changes only through `deref_mut`, which takes a
/// stamp that no other value has or had, and a value gets another's stamp only together with that value. So
/// `copy_from` copies nothing if nothing has changed since the last copy.
#[derive(Debug)]
pub(crate) struct Stamped<T> {
    value: T,
    stamp: u64,
    /// A hash of the value, and the stamp that the value had then.
    memo: Cell<(u64, Fp)>,
}

std::thread_local! {
    // Stamps start at 1, so that a memo of stamp 0 belongs to no value.
    static NEXT: Cell<u64> = const { Cell::new(1) };
}

#[inline]
fn stamp() -> u64 {
    // 2^64 stamps do not run out. The counter may be thread-local, because a machine and its saved states stay on one
    // thread (they hold `Rc`s, or are lent by a value that does).
    NEXT.replace(NEXT.get() + 1)
}

impl<T> From<T> for Stamped<T> {
    fn from(value: T) -> Self {
        Self {
            value,
            stamp: stamp(),
            memo: Cell::default(),
        }
    }
}

impl<T: Default> Default for Stamped<T> {
    fn default() -> Self {
        T::default().into()
    }
}

impl<T> Deref for Stamped<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Stamped<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.stamp = stamp();
        &mut self.value
    }
}

impl<T: Copies> Stamped<T> {
    /// Copies `o`, unless both have the same stamp.
    #[inline]
    pub(crate) fn copy_from(&mut self, o: &Self) {
        if self.stamp != o.stamp {
            self.value.copy_from(&o.value);
            self.stamp = o.stamp;
            self.memo.set(o.memo.get());
        }
    }
}

impl<T> Stamped<T> {
    /// Returns `hash` of the value, which must depend on nothing else. It is computed anew only if the stamp has
    /// changed. The caller must always pass the same function, so that the hash of an equal value is the same.
    #[inline]
    pub(super) fn memo(&self, hash: impl FnOnce(&T) -> Fp) -> Fp {
        let (of, known) = self.memo.get();
        if of == self.stamp {
            return known;
        }
        let known = hash(&self.value);
        self.memo.set((self.stamp, known));
        known
    }
}

impl<T: Copy> Copies for Vec<T> {
    fn copy_from(&mut self, o: &Self) {
        refill(self, o);
    }
}

/// Copies `from` to `to` and reuses the memory of `to`. Most lists of a state are empty.
#[inline]
pub(super) fn refill<T: Copy>(to: &mut Vec<T>, from: &[T]) {
    to.clear();
    if !from.is_empty() {
        to.extend_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Copies for (u32, u32) {
        fn copy_from(&mut self, o: &Self) {
            *self = (o.0, self.1 + 1);
        }
    }

    #[test]
    fn what_changed_is_copied_and_what_did_not_is_not() {
        let mut now = Stamped::from((1u32, 0u32));
        let mut kept = Stamped::from((0, 0));
        kept.copy_from(&now);
        assert_eq!(*kept, (1, 1), "a new value is no copy of another");
        kept.copy_from(&now);
        now.copy_from(&kept);
        assert_eq!((*now, *kept), ((1, 0), (1, 1)), "both are the same already");
        now.0 = 2;
        now.copy_from(&kept);
        assert_eq!(*now, (1, 1));
        // A value that was changed and changed back is copied, although it is equal.
        kept.0 = 3;
        kept.0 = 1;
        now.copy_from(&kept);
        assert_eq!(*now, (1, 2));
    }

    #[test]
    fn a_memo_is_of_the_value_as_it_is() {
        let hash = |v: &Stamped<(u32, u32)>| v.memo(|v| Fp::at(u64::from(v.0), 0));
        let of = |x| Fp::at(x, 0);
        let mut now = Stamped::from((1u32, 0u32));
        let mut kept = Stamped::from((0, 0));
        assert_eq!(hash(&now), of(1));
        kept.copy_from(&now);
        now.0 = 2;
        assert_eq!((hash(&now), hash(&kept)), (of(2), of(1)));
        now.0 = 3;
        now.copy_from(&kept);
        assert_eq!(hash(&now), of(1));
        now.0 = 4;
        kept.copy_from(&now);
        assert_eq!(
            hash(&kept),
            of(4),
            "copied with a memo that was of an earlier value"
        );
    }

    #[test]
    fn two_that_change_alike_are_not_taken_for_each_other() {
        let mut one = Stamped::from((1u32, 0u32));
        let mut other = Stamped::from((0, 0));
        other.copy_from(&one);
        (one.0, other.0) = (5, 7);
        other.copy_from(&one);
        assert_eq!(other.0, 5);
    }
}
