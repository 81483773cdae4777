//! The bytes of the i-th key.

use crate::addresses::{self, ADDRESS_BYTES, address};
use crate::permutation::{scramble, unscramble};

/// A numbering of keys: a bijection between indices and 64-bit numbers. So there are no collisions, no gaps,
/// and no reserved keys (0 and `u64::MAX` are ordinary keys).
///
/// A key of 8 bytes is the number in big-endian form, so such keys have the same order as the numbers.
///
/// ```
/// use dm_workload::KeySpace;
/// let keys = KeySpace::scrambled(1);
/// assert_eq!(keys.index(keys.number(42)), 42);
/// assert_eq!(keys.bytes::<8>(42), keys.number(42).to_be_bytes());
/// assert_ne!(keys.bytes::<32>(42), keys.bytes::<32>(43));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpace {
    /// `None` means that the key is the index itself.
    salt: Option<u64>,
    /// Whether keys of 32 bytes are mail addresses.
    addresses: bool,
}

/// Maximum number of different prefixes of longer scrambled keys, which have common prefixes like addresses and names.
const GROUP_COUNT: u64 = 256;

impl KeySpace {
    /// Makes keys in random order, which depends on `seed`.
    #[must_use]
    pub fn scrambled(seed: u64) -> Self {
        Self {
            salt: Some(scramble(seed ^ 0x6b65_7973)),
            addresses: false,
        }
    }

    /// Makes keys in ascending order: the i-th key is the number i, as in published scan experiments.
    #[must_use]
    pub fn dense() -> Self {
        Self {
            salt: None,
            addresses: false,
        }
    }

    /// Makes keys that look like mail addresses if they have 32 bytes: names and domains from lists, such as
    /// `anna.kim7@post.net`, padded with zeros. This works for indices below 819,200,000. Keys of other lengths are
    /// dense.
    #[must_use]
    pub fn addresses() -> Self {
        Self {
            salt: None,
            addresses: true,
        }
    }

    /// Returns the i-th key as a number.
    #[must_use]
    #[inline]
    pub fn number(&self, index: u64) -> u64 {
        self.salt.map_or(index, |salt| scramble(index.wrapping_add(salt)))
    }

    /// Returns the index of the key with this number: the inverse of [`KeySpace::number`].
    #[must_use]
    #[inline]
    pub fn index(&self, number: u64) -> u64 {
        self.salt
            .map_or(number, |salt| unscramble(number).wrapping_sub(salt))
    }

    /// Returns the i-th key in `N` bytes, where `N` is at least 8. A key of 8 bytes is the number itself. A longer key
    /// has a prefix of eight bytes, then the number, then bytes that depend on the number. Scrambled keys have at most
    /// 256 prefixes, and dense keys have only one, so that an index that compares only one word fails. In keys of
    /// less than 16 bytes, the prefix has only the `N` − 8 bytes that the number leaves. Dense keys stay in the order
    /// of their indices. With [`KeySpace::addresses`], a key of 32 bytes is an address instead.
    ///
    /// # Panics
    /// Panics if the key is an address and `index` is too large for an address.
    #[must_use]
    #[inline]
    pub fn bytes<const N: usize>(&self, index: u64) -> [u8; N] {
        const { assert!(N >= 8, "a key has at least 8 bytes") };
        if self.addresses && N == ADDRESS_BYTES {
            let mut key = [0; N];
            key.copy_from_slice(&address(index));
            return key;
        }
        let number = self.number(index);
        let group = if self.salt.is_some() {
            scramble(number % GROUP_COUNT)
        } else {
            0
        };
        let mut key = [0; N];
        let (shared, rest) = key.split_at_mut(number_at::<N>());
        shared.copy_from_slice(&group.to_be_bytes()[..shared.len()]);
        for (place, chunk) in (1_u64..).zip(rest.chunks_mut(8)) {
            let word = if place == 1 {
                number
            } else {
                scramble(number ^ place)
            };
            chunk.copy_from_slice(&word.to_be_bytes()[..chunk.len()]);
        }
        key
    }

    /// Returns the index of the key with these bytes, if the key space contains it: the inverse of
    /// [`KeySpace::bytes`].
    #[must_use]
    pub fn index_of<const N: usize>(&self, key: &[u8; N]) -> Option<u64> {
        if self.addresses && N == ADDRESS_BYTES {
            return addresses::index_of(key.as_slice().try_into().ok()?);
        }
        let number = key.get(number_at::<N>()..)?.first_chunk()?;
        let index = self.index(u64::from_be_bytes(*number));
        (self.bytes::<N>(index) == *key).then_some(index)
    }
}

/// Returns the position of the number in a key: behind the prefix of up to eight bytes.
const fn number_at<const N: usize>() -> usize {
    if N < 16 { N - 8 } else { 8 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_are_a_bijection(seed: u64, index: u64) {
            for keys in [KeySpace::scrambled(seed), KeySpace::dense()] {
                prop_assert_eq!(keys.index(keys.number(index)), index);
                prop_assert_eq!(keys.number(keys.index(index)), index); // every number is a key, 0 and MAX too
            }
        }

        #[test]
        fn bytes_say_which_key_they_are(seed: u64, index: u64, at in 0..32_usize, flip in 1..=255_u8) {
            for keys in [KeySpace::scrambled(seed), KeySpace::dense()] {
                prop_assert_eq!(keys.index_of(&keys.bytes::<8>(index)), Some(index));
                prop_assert_eq!(keys.index_of(&keys.bytes::<9>(index)), Some(index));
                prop_assert_eq!(keys.index_of(&keys.bytes::<15>(index)), Some(index));
                prop_assert_eq!(keys.index_of(&keys.bytes::<16>(index)), Some(index));
                prop_assert_eq!(keys.index_of(&keys.bytes::<20>(index)), Some(index));
                let mut key = keys.bytes::<32>(index);
                prop_assert_eq!(keys.index_of(&key), Some(index));
                key[at] ^= flip;
                prop_assert_ne!(keys.index_of(&key), Some(index));
            }
        }

        #[test]
        fn dense_keys_keep_their_order(left: u64, right: u64) {
            let keys = KeySpace::dense();
            prop_assert_eq!(left.cmp(&right), keys.bytes::<8>(left).cmp(&keys.bytes::<8>(right)));
            prop_assert_eq!(left.cmp(&right), keys.bytes::<12>(left).cmp(&keys.bytes::<12>(right)));
            prop_assert_eq!(left.cmp(&right), keys.bytes::<32>(left).cmp(&keys.bytes::<32>(right)));
        }
    }

    /// Checks that 32-byte keys are all different, although many have the same first word.
    #[test]
    fn long_keys_share_first_halves() {
        let keys = KeySpace::scrambled(5);
        let all: Vec<[u8; 32]> = (0..10_000).map(|index| keys.bytes(index)).collect();
        let distinct = |len: usize| {
            all.iter()
                .map(|key| &key[..len])
                .collect::<std::collections::HashSet<_>>()
                .len()
        };
        assert_eq!((distinct(8), distinct(16)), (256, 10_000));
    }
}
