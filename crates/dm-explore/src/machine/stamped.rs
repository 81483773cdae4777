//! Values that are kept and gone back to, and mostly have not changed in between.

use core::cell::Cell;
use core::ops::{Deref, DerefMut};

use crate::fp::Fp;

/// What can become a copy of another, in the room that it has.
pub(crate) trait Copies {
    fn copy_from(&mut self, o: &Self);
}

/// A value with a stamp. **Equal stamps mean equal values**: there is no way to change a value but through `deref_mut`,
/// which takes a stamp that nobody else has or had, and none to have another's stamp but with its value. So a copy
/// of what has not changed since the last copy is none.
#[derive(Debug)]
pub(crate) struct Stamped<T> {
    value: T,
    stamp: u64,
    /// A hash of the value, and the stamp that it had then.
    memo: Cell<(u64, Fp)>,
}

std::thread_local! {
    // From 1: a memo of stamp 0 is nobody's.
    static NEXT: Cell<u64> = const { Cell::new(1) };
}

#[inline]
fn stamp() -> u64 {
    // 2^64 of them do not run out. Of the thread: a machine and what is kept of it stay on one (they hold `Rc`s, or
    // are lent by one that does).
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
    /// Becomes a copy of `o`.
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
    /// What `hash`, which must look at nothing but the value, makes of it. It is asked anew only when the stamp has
    /// changed: always the same function, so that what it said of an equal value is what it would say now.
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

/// `to` becomes `from`, in the room that it has. Most lists of a state are empty.
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
        // Changed and changed back: equal or not, it is copied.
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
