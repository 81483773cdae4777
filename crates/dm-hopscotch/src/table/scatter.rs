//! A permutation of keys that puts them in the order of a hash.

use dm_layout::{KEY_BYTES_MAX, KeyBytes};

/// Applies the finaliser of splitmix64.
const fn spread(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Applies the inverse of `spread`: multiplies by the inverses of the factors modulo 2⁶⁴, and reverses each shift.
const fn unspread(mut x: u64) -> u64 {
    x = (x ^ (x >> 31) ^ (x >> 62)).wrapping_mul(0x3196_42B2_D24D_8EC3);
    x = (x ^ (x >> 27) ^ (x >> 54)).wrapping_mul(0x96DE_1B17_3F11_9089);
    x ^ (x >> 30) ^ (x >> 60)
}

/// Hashes all words of a key except the first.
fn fold(rest: &[u8]) -> u64 {
    let words = rest.as_chunks::<8>().0;
    words.iter().fold(0xD6E8_FEB8_6659_FD93, |hash, word| {
        spread(hash ^ u64::from_be_bytes(*word))
    })
}

/// Replaces the first word of a key by the result of `change`, which is given this word and the hash of the
/// other words.
fn change<K: KeyBytes>(key: &K, change: impl FnOnce(u64, u64) -> u64) -> K {
    let mut bytes = [0; KEY_BYTES_MAX];
    key.write_to(&mut bytes);
    let (first, rest) = bytes.split_at_mut(8);
    // If the length of keys is not a multiple of 8 bytes, zeros fill the last word.
    let by = fold(rest.get(..K::LEN.next_multiple_of(8) - 8).unwrap_or_default());
    let mut word = [0; 8];
    word.copy_from_slice(first);
    first.copy_from_slice(&change(u64::from_be_bytes(word), by).to_be_bytes());
    K::read_from(&bytes)
}

/// Returns the key under which a table stores `key`. The mapping is one to one, and the first bits of the result are
/// practically random.
///
/// ```
/// use dm_hopscotch::{gather, scatter};
/// use dm_index::Key8;
///
/// assert_ne!(scatter(&Key8(1)), Key8(1));
/// assert_eq!(gather(&scatter(&Key8(1))), Key8(1));
/// ```
#[must_use]
pub fn scatter<K: KeyBytes>(key: &K) -> K {
    change(key, |word, by| spread(word ^ by))
}

/// Returns the key that is stored as `scattered`.
///
/// This is the inverse of [`scatter`], which has an example.
#[must_use]
pub fn gather<K: KeyBytes>(scattered: &K) -> K {
    change(scattered, |word, by| unspread(word) ^ by)
}

/// Returns the first 64 bits of a key.
#[inline]
pub(super) fn lead_of<K: KeyBytes>(key: &K) -> u64 {
    let mut bytes = [0; KEY_BYTES_MAX];
    key.write_to(&mut bytes);
    bytes.first_chunk().map_or(0, |lead| u64::from_be_bytes(*lead))
}

/// Returns the smallest key with these first 64 bits.
pub(super) fn first_of<K: KeyBytes>(lead: u64) -> K {
    let mut bytes = [0; KEY_BYTES_MAX];
    let (first, _) = bytes.split_at_mut(8);
    first.copy_from_slice(&lead.to_be_bytes());
    K::read_from(&bytes)
}

/// Returns the smallest key above this one.
pub(super) fn above<K: KeyBytes>(key: &K) -> Option<K> {
    let mut bytes = [0; KEY_BYTES_MAX];
    key.write_to(&mut bytes);
    for byte in bytes.get_mut(..K::LEN)?.iter_mut().rev() {
        let (next, carry) = byte.overflowing_add(1);
        *byte = next;
        if !carry {
            return Some(K::read_from(&bytes));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use dm_layout::{Key8, KeyN};

    #[test]
    fn every_key_has_a_place_of_its_own_and_comes_back() {
        for n in (0..2_000).chain([u64::MAX, u64::MAX - 1, 1 << 63]) {
            assert_eq!(unspread(spread(n)), n);
            assert_eq!(gather(&scatter(&Key8(n))), Key8(n));
            comes_back::<9>(n);
            comes_back::<20>(n);
            comes_back::<32>(n);
        }
    }

    fn comes_back<const N: usize>(n: u64) {
        let mut long = [7; N];
        long[n as usize % N] = (n >> 5) as u8;
        assert_eq!(gather(&scatter(&KeyN(long))), KeyN(long));
    }

    #[test]
    fn neighbours_are_spread_over_the_whole_range() {
        let mut sixteenths = [0; 16];
        for n in 0..1_600 {
            sixteenths[(lead_of(&scatter(&Key8(n))) >> 60) as usize] += 1;
        }
        assert!(
            sixteenths.iter().all(|&found| (60..140).contains(&found)),
            "{sixteenths:?}"
        );
        // These keys differ only in their last bytes.
        let mut long = [3; 32];
        let ends = [0, 1].map(|n| {
            long[31] = n;
            lead_of(&scatter(&KeyN(long)))
        });
        assert_ne!(ends[0] >> 32, ends[1] >> 32);
    }

    /// All clients of a table must use the same permutation, even if they are built from different versions
    /// of this crate.
    #[test]
    fn the_map_is_splitmix64_of_a_key_mixed_with_a_constant() {
        // The generator's first output for the seed 0.
        assert_eq!(spread(0x9E37_79B9_7F4A_7C15), 0xE220_A839_7B1D_CDAF);
        for n in [0, 1, 1 << 40, u64::MAX] {
            assert_eq!(scatter(&Key8(n)), Key8(spread(n ^ 0xD6E8_FEB8_6659_FD93)));
        }
    }

    #[test]
    fn every_bit_of_a_long_key_changes_its_first_bits() {
        fn check<const N: usize>() {
            let base = [5; N];
            let lead = lead_of(&scatter(&KeyN(base)));
            for bit in 0..8 * N {
                let mut other = base;
                other[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(lead_of(&scatter(&KeyN(other))), lead, "bit {bit}");
            }
        }
        check::<9>();
        check::<20>();
        check::<32>();
    }

    #[test]
    fn the_next_key_carries() {
        assert_eq!(above(&Key8(0x1_ffff)), Some(Key8(0x2_0000)));
        assert_eq!(above(&Key8(u64::MAX)), None);
        assert_eq!(first_of::<Key8>(9), Key8(9));
    }
}
