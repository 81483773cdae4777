//! Values that a state shares with the saved states until one of them changes.

use core::cell::Cell;
use core::ops::{Deref, DerefMut};
use std::rc::Rc;

use crate::fp::Fp;

/// A value that is copied only when one of several owners changes it. Therefore, saving a state and returning to it
/// only change reference counts, and a step copies only the values that it changes. `D` is derived from the value on
/// demand; a change resets it to its default.
#[derive(Debug, Default)]
pub(crate) struct Shared<T, D = ()>(Rc<Inner<T, D>>);

// In this order, the parts that are used most share a cache line with the reference count.
#[derive(Debug, Default)]
#[repr(C)]
struct Inner<T, D> {
    /// A hash of the value, if it was computed since the last change.
    hash: Cell<Option<Fp>>,
    derived: D,
    value: T,
}

impl<T: Clone, D: Default> Clone for Inner<T, D> {
    /// Copies a value that is about to change.
    fn clone(&self) -> Self {
        self.value.clone().into()
    }
}

impl<T, D: Default> From<T> for Inner<T, D> {
    fn from(value: T) -> Self {
        Self {
            value,
            hash: Cell::default(),
            derived: D::default(),
        }
    }
}

impl<T, D: Default> From<T> for Shared<T, D> {
    fn from(value: T) -> Self {
        Self(Rc::new(value.into()))
    }
}

// A derived implementation would demand `T: Clone`.
impl<T, D> Clone for Shared<T, D> {
    #[inline]
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }

    #[inline]
    fn clone_from(&mut self, o: &Self) {
        // Most values have not changed between a save and a return.
        if !Rc::ptr_eq(&self.0, &o.0) {
            self.0 = Rc::clone(&o.0);
        }
    }
}

impl<T, D> Deref for Shared<T, D> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: Clone, D: Default> DerefMut for Shared<T, D> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        let inner = Rc::make_mut(&mut self.0);
        inner.hash.set(None);
        inner.derived = D::default();
        &mut inner.value
    }
}

impl<T, D> Shared<T, D> {
    #[inline]
    pub(super) fn derived(&self) -> &D {
        &self.0.derived
    }

    /// Returns `hash` of the value, which must depend only on the value. It is computed only once for each value. The
    /// caller must always pass the same function.
    #[inline]
    pub(super) fn hash(&self, hash: impl FnOnce(&T) -> Fp) -> Fp {
        if let Some(known) = self.0.hash.get() {
            return known;
        }
        let known = hash(&self.0.value);
        self.0.hash.set(Some(known));
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_one_owner_leaves_the_others_alone() {
        let mut now = Shared::<u64>::from(1);
        let kept = now.clone();
        *now = 2;
        assert_eq!((*now, *kept), (2, 1));
        now.clone_from(&kept);
        assert_eq!(*now, 1);
    }

    #[test]
    fn a_hash_is_of_the_value_as_it_is() {
        let of = |x: u64| Fp::at(x, 0);
        let hash = |v: &Shared<u64>| v.hash(|&v| of(v));
        let mut now = Shared::<u64>::from(1);
        assert_eq!(hash(&now), of(1));
        let kept = now.clone();
        *now = 2;
        assert_eq!((hash(&now), hash(&kept)), (of(2), of(1)));
        *now = 3;
        now.clone_from(&kept);
        assert_eq!(hash(&now), of(1));
    }
}
