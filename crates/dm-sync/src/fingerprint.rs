//! Deterministic hashes of states, for checkers that must decide whether two states are the same.

use core::hash::{Hash, Hasher};

use crate::{Arc, Mutex, RwLock};

/// A hash of a structure's state: equal states give equal fingerprints, in every run and process.
///
/// The explorer's cached search skips a state that it has seen before. A structure that the threads of one
/// compute node share is part of that state: either the explorer adds the order of all sections to the state,
/// or the structure implements this trait. Include everything on which later behaviour depends. Exclude
/// addresses, capacities and the order of maps, which differ between equal states.
///
/// ```
/// use dm_sync::{Fingerprint, fingerprint_of};
/// struct Slots { free: Vec<u32> }
/// impl Fingerprint for Slots {
///     fn fingerprint(&self) -> u64 { fingerprint_of(&self.free) }
/// }
/// assert_eq!(Slots { free: vec![1, 2] }.fingerprint(), Slots { free: vec![1, 2] }.fingerprint());
/// assert_ne!(Slots { free: vec![1, 2] }.fingerprint(), Slots { free: vec![2, 1] }.fingerprint());
/// ```
pub trait Fingerprint {
    /// Returns the hash of the current state.
    fn fingerprint(&self) -> u64;
}

/// A 64-bit hasher with a fixed seed: multiply, fold, rotate. It does not resist hostile input.
#[derive(Clone, Debug)]
pub struct FingerprintHasher(u64);

/// The start value, digits of the golden ratio: an empty state must not hash to zero.
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;
/// An odd multiplier with well-spread bits (from the 64-bit finaliser of the splitmix generator).
const SPREAD: u64 = 0xBF58_476D_1CE4_E5B9;

impl FingerprintHasher {
    /// Makes a hasher that has no input yet.
    pub const fn new() -> Self {
        Self(SEED)
    }
}

impl Default for FingerprintHasher {
    fn default() -> Self {
        Self::new()
    }
}

impl Hasher for FingerprintHasher {
    fn finish(&self) -> u64 {
        let mut hash = self.0 ^ (self.0 >> 30);
        hash = hash.wrapping_mul(SPREAD);
        hash ^ (hash >> 27)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
        // The length distinguishes "a" from "a\0".
        self.write_u64(bytes.len() as u64);
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        let wide = u128::from(self.0 ^ value) * u128::from(SPREAD);
        self.0 = ((wide as u64) ^ ((wide >> 64) as u64))
            .rotate_left(23)
            .wrapping_add(SEED);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

/// Returns the fingerprint of any value that can be hashed.
///
/// ```
/// use dm_sync::{fingerprint_of, fingerprint_unordered};
///
/// assert_eq!(fingerprint_of(&(1, "one")), fingerprint_of(&(1, "one")));
/// assert_ne!(fingerprint_of(&[1, 2]), fingerprint_of(&[2, 1]));
/// assert_eq!(fingerprint_unordered([1, 2]), fingerprint_unordered([2, 1]));
/// ```
pub fn fingerprint_of<T: Hash + ?Sized>(value: &T) -> u64 {
    let mut hasher = FingerprintHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Returns one fingerprint of a collection whose order does not matter (a hash map's values, for instance).
///
/// See the example of [`fingerprint_of`].
pub fn fingerprint_unordered<T: Hash>(values: impl IntoIterator<Item = T>) -> u64 {
    // A sum of well-mixed hashes does not depend on the order, and counts duplicates, unlike an exclusive or.
    let (sum, count) = values.into_iter().fold((0u64, 0u64), |(sum, count), value| {
        (sum.wrapping_add(fingerprint_of(&value)), count + 1)
    });
    fingerprint_of(&(sum, count))
}

impl<T: Fingerprint> Fingerprint for Mutex<T> {
    /// Returns the content's fingerprint. This does not count as a section, because computing a fingerprint
    /// is not a step of the program.
    fn fingerprint(&self) -> u64 {
        self.peek(|content| content.fingerprint())
    }
}

impl<T: Fingerprint> Fingerprint for RwLock<T> {
    /// Returns the content's fingerprint. This does not count as a section, because computing a fingerprint
    /// is not a step of the program.
    fn fingerprint(&self) -> u64 {
        self.peek(|content| content.fingerprint())
    }
}

impl<T: Fingerprint> Fingerprint for Arc<T> {
    fn fingerprint(&self) -> u64 {
        (**self).fingerprint()
    }
}

impl<T: Fingerprint> Fingerprint for [T] {
    fn fingerprint(&self) -> u64 {
        let mut hasher = FingerprintHasher::new();
        hasher.write_usize(self.len());
        for item in self {
            hasher.write_u64(item.fingerprint());
        }
        hasher.finish()
    }
}

impl<T: Fingerprint> Fingerprint for Vec<T> {
    fn fingerprint(&self) -> u64 {
        self.as_slice().fingerprint()
    }
}

impl<T: Fingerprint> Fingerprint for Option<T> {
    fn fingerprint(&self) -> u64 {
        fingerprint_of(&self.as_ref().map(Fingerprint::fingerprint))
    }
}

#[cfg(all(test, not(any(dm_loom, dm_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_a_constant_of_the_format() {
        // The expected values are constants, because a fingerprint must be the same in every run and process.
        assert_eq!(fingerprint_of(&0u64), PINNED_ZERO);
        assert_eq!(fingerprint_of("dmkit"), PINNED_TEXT);
    }

    const PINNED_ZERO: u64 = 628_379_560_583_043_473;
    const PINNED_TEXT: u64 = 16_834_062_633_156_233_191;

    #[test]
    fn order_matters_only_where_it_should() {
        assert_ne!(fingerprint_of(&[1, 2]), fingerprint_of(&[2, 1]));
        assert_eq!(fingerprint_unordered([1, 2, 2]), fingerprint_unordered([2, 1, 2]));
        assert_ne!(fingerprint_unordered([1, 2, 2]), fingerprint_unordered([1, 2]));
        assert_ne!(fingerprint_unordered([3, 3]), fingerprint_unordered([4, 4]));
    }

    #[test]
    fn small_counters_do_not_collide() {
        let mut seen = std::collections::HashSet::new();
        let side = crate::scaled(64, 8) as u64;
        for a in 0..side {
            for b in 0..side {
                assert!(seen.insert(fingerprint_of(&(a, b))), "({a}, {b}) collides");
            }
        }
    }

    #[test]
    fn looking_at_a_mutex_is_no_section() {
        struct Count(u64);
        impl Fingerprint for Count {
            fn fingerprint(&self) -> u64 {
                fingerprint_of(&self.0)
            }
        }
        let mutex = Mutex::new(Count(3));
        let before = crate::local_sections();
        assert_eq!(mutex.fingerprint(), Count(3).fingerprint());
        assert_eq!(crate::local_sections(), before);
    }
}
