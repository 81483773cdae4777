//! 128-bit fingerprints. Two 64-bit lanes hash the same input by multiplication, with different constants.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A fingerprint. Equal states have equal fingerprints. Two different states have equal fingerprints with a probability
/// of about 2^-128.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[repr(C)]
pub(crate) struct Fp {
    pub(crate) a: u64,
    pub(crate) b: u64,
}

// The constants are odd and have well-spread bits (splitmix64, golden ratio, wyhash).
const K1: u64 = 0xBF58_476D_1CE4_E5B9;
const K2: u64 = 0x94D0_49BB_1331_11EB;
const K3: u64 = 0x9E37_79B9_7F4A_7C15;
const K4: u64 = 0xA076_1D64_78BD_642F;

#[inline]
const fn mul(x: u64, y: u64) -> u64 {
    let wide = x as u128 * y as u128;
    wide as u64 ^ (wide >> 64) as u64
}

impl Fp {
    #[inline]
    pub(crate) const fn seed(tag: u64) -> Self {
        Self {
            a: mul(tag ^ K3, K1) ^ K2,
            b: mul(tag.wrapping_add(K4), K2) ^ K1,
        }
    }

    #[inline]
    pub(crate) const fn fold(&mut self, x: u64) {
        self.a = mul(self.a ^ x, K1).rotate_left(23).wrapping_add(K3);
        self.b = mul(self.b.wrapping_add(x) ^ K4, K2).rotate_left(29) ^ x;
    }

    /// Folds a fingerprint with one multiplication per lane. Two calls of `fold` would need two.
    #[inline]
    pub(crate) const fn fold2(&mut self, x: Self) {
        self.a = mul(self.a ^ x.a, K1 ^ x.b.rotate_left(31))
            .rotate_left(23)
            .wrapping_add(K3);
        self.b = mul(self.b.wrapping_add(x.b) ^ K4, K2.wrapping_add(x.a)).rotate_left(29) ^ x.b;
    }

    /// Returns the fingerprint of a value at a position. Such fingerprints can be combined in any order.
    #[inline]
    pub(crate) const fn at(position: u64, value: u64) -> Self {
        let mut f = Self {
            a: position.wrapping_mul(K3) ^ K2,
            b: position.wrapping_mul(K4).wrapping_add(K1),
        };
        f.fold(value);
        f
    }

    #[inline]
    pub(crate) const fn xor(&mut self, o: Self) {
        self.a ^= o.a;
        self.b ^= o.b;
    }

    /// Adds a fingerprint. Like `xor`, a sum does not depend on the order; unlike `xor`, it counts
    /// duplicates.
    #[inline]
    pub(crate) const fn add(&mut self, o: Self) {
        self.a = self.a.wrapping_add(o.a);
        self.b = self.b.wrapping_add(o.b);
    }

    #[inline]
    pub(crate) fn bytes(bytes: &[u8]) -> Self {
        let mut f = Self::seed(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            f.fold(u64::from_le_bytes(word));
        }
        f
    }

    pub(crate) fn of<T: core::hash::Hash + ?Sized>(value: &T) -> Self {
        let mut hasher = Hasher(Self::seed(0));
        value.hash(&mut hasher);
        hasher.0
    }
}

struct Hasher(Fp);

impl core::hash::Hasher for Hasher {
    fn finish(&self) -> u64 {
        self.0.a
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0.fold2(Fp::bytes(bytes));
    }
    fn write_u64(&mut self, x: u64) {
        self.0.fold(x);
    }
}

/// A hasher for fingerprints. It only combines their two lanes into 64 bits, because both are hashes already.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Identity(u64);

impl core::hash::Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(b);
        }
    }
    fn write_u64(&mut self, x: u64) {
        self.0 = self.0.rotate_left(32) ^ x;
    }
}

pub(crate) type FpMap<V> = std::collections::HashMap<Fp, V, core::hash::BuildHasherDefault<Identity>>;
pub(crate) type FpSet = std::collections::HashSet<Fp, core::hash::BuildHasherDefault<Identity>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_inputs_do_not_collide_in_either_lane() {
        let (mut a, mut b) = (std::collections::HashSet::new(), std::collections::HashSet::new());
        for x in 0..200 {
            for y in 0..200 {
                let f = Fp::at(x, y);
                assert!(a.insert(f.a) && b.insert(f.b), "({x}, {y})");
            }
        }
    }

    #[test]
    fn folding_a_fingerprint_does_not_collide_in_either_lane() {
        // The inputs are fingerprints of similar contents, and small fingerprints. Each pair is used in both
        // orders.
        let some = (0..150)
            .map(|x| Fp::at(x, 1))
            .chain((0..50).map(|a| Fp { a, b: 3 }));
        let some: Vec<Fp> = some.chain((0..50).map(|b| Fp { a: 3, b: b + 60 })).collect();
        let (mut a, mut b) = (std::collections::HashSet::new(), std::collections::HashSet::new());
        for &x in &some {
            for &y in &some {
                let mut f = Fp::seed(7);
                f.fold2(x);
                f.fold2(y);
                assert!(a.insert(f.a) && b.insert(f.b), "{x:?}, {y:?}");
            }
        }
    }

    #[test]
    fn a_sum_counts_duplicates() {
        let mut twice = Fp::at(1, 2);
        twice.add(Fp::at(1, 2));
        assert_ne!(twice, Fp::default());
        assert_ne!(twice, Fp::at(1, 2));
    }
}
