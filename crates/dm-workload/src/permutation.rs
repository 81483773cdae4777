//! A permutation of `0..count` for any count. It is computed and not stored.

/// The permutation is a multiply-and-shift function over the next power of two. It is repeated until its result is
/// below the count (at most twice on average).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutation {
    count: u64,
    mask: u64,
    shift: u32,
    salt: u64,
}

impl Permutation {
    /// Makes a permutation of `0..count`, which depends on `salt`. `count` must be at least 1.
    pub(crate) fn new(count: u64, salt: u64) -> Self {
        let bits = u64::BITS - (count - 1).leading_zeros();
        let mask = if bits == 0 {
            0
        } else {
            u64::MAX >> (u64::BITS - bits)
        };
        Self {
            count,
            mask,
            shift: (bits / 2).max(1),
            salt: scramble(salt),
        }
    }

    /// Returns the result of the permutation for `place`, which must be below the count.
    #[inline]
    pub(crate) fn at(&self, place: u64) -> u64 {
        debug_assert!(
            place < self.count,
            "a permutation of {} has no place {place}",
            self.count
        );
        let mut place = place;
        loop {
            for odd in [
                0x9e37_79b9_7f4a_7c15,
                0xbf58_476d_1ce4_e5b9,
                0x94d0_49bb_1331_11eb_u64,
            ] {
                // Three operations are bijections modulo a power of two: an addition, a multiplication by an odd
                // number, and an exclusive or of higher bits into lower bits.
                place = place.wrapping_add(self.salt).wrapping_mul(odd) & self.mask;
                place ^= place >> self.shift;
            }
            if place < self.count {
                return place;
            }
        }
    }
}

/// Applies a bijection of 64-bit words, in which every bit of the result depends on every bit of the input
/// (SplitMix64's).
#[inline]
pub(crate) fn scramble(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Returns the inverse of [`scramble`].
#[inline]
pub(crate) fn unscramble(word: u64) -> u64 {
    let word = (word ^ (word >> 31) ^ (word >> 62)).wrapping_mul(0x3196_42b2_d24d_8ec3);
    let word = (word ^ (word >> 27) ^ (word >> 54)).wrapping_mul(0x96de_1b17_3f11_9089);
    word ^ (word >> 30) ^ (word >> 60)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_place_is_hit_once(count in 1_u64..3000, salt: u64) {
            let permutation = Permutation::new(count, salt);
            let mut hit = vec![false; count as usize];
            for place in 0..count {
                let to = permutation.at(place) as usize;
                prop_assert!(!hit[to]);
                hit[to] = true;
            }
        }

        #[test]
        fn large_counts_stay_below(count: u64, salt: u64, place: u64) {
            prop_assume!(place < count);
            prop_assert!(Permutation::new(count, salt).at(place) < count);
        }

        #[test]
        fn scrambling_can_be_undone(word: u64) {
            prop_assert_eq!(unscramble(scramble(word)), word);
        }
    }

    /// Checks that hot ranks are not mapped to neighbouring keys, which would all lie in a single leaf.
    #[test]
    fn neighbours_are_scattered() {
        let permutation = Permutation::new(1_000_000, 1);
        let close =
            (0..10_000).filter(|&place| permutation.at(place).abs_diff(permutation.at(place + 1)) < 1000);
        assert!(close.count() < 60); // 0.2 % of random pairs, that is 20, are as close
    }
}
