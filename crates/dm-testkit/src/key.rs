//! Numbered keys for tests.

use dm_index::{Key8, KeyBytes, KeyN};

/// A key type with numbered keys and a largest one.
pub trait TestKey: KeyBytes {
    /// The largest key.
    const MAX: Self;

    /// Returns the key number `n`. Different numbers have different keys, and the keys are in the order of the numbers.
    fn nth(n: u64) -> Self;

    /// Returns the number of this key, if it has one.
    fn number(&self) -> Option<u64>;
}

impl TestKey for Key8 {
    const MAX: Self = Self(u64::MAX);

    fn nth(n: u64) -> Self {
        Self(n)
    }

    fn number(&self) -> Option<u64> {
        Some(self.0)
    }
}

/// The byte that is repeated in the common prefix of all keys of a size.
const PREFIX: u8 = 0x5a;

/// A key consists of a common prefix, its number, and a tail that is computed from the number. The prefix has half of
/// the bytes beside the number (rounded down), but at most eight. So the first eight bytes of all keys of 24 bytes or
/// more are the same. The tails of neighbours differ, so the front of one neighbour and the rear of the other are not a
/// third key. `KeyN<8>`, like [`Key8`], has neither prefix nor tail, so a mixture of two of its keys may be a third
/// key.
impl<const N: usize> TestKey for KeyN<N> {
    const MAX: Self = Self([0xff; N]);

    fn nth(n: u64) -> Self {
        let mut bytes = [PREFIX; N];
        let (number, tail) = bytes[number_at::<Self>()..].split_at_mut(8);
        number.copy_from_slice(&n.to_be_bytes());
        for (tail, word) in tail
            .chunks_mut(8)
            .zip([n.wrapping_mul(0x9e37_79b9_7f4a_7c15), !n, n])
        {
            tail.copy_from_slice(&word.to_be_bytes()[..tail.len()]);
        }
        Self(bytes)
    }

    fn number(&self) -> Option<u64> {
        let n = u64::from_be_bytes(*self.0[number_at::<Self>()..].first_chunk()?);
        (Self::nth(n) == *self).then_some(n)
    }
}

/// Returns the length of the common prefix of keys `K`.
const fn number_at<K: KeyBytes>() -> usize {
    let half = (K::LEN - 8) / 2;
    if half < 8 { half } else { 8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered<K: TestKey>() {
        let numbers = [0, 1, 2, 255, 256, u64::MAX / 2, u64::MAX];
        let keys = numbers.map(K::nth);
        assert!(keys.is_sorted_by(|a, b| a < b));
        assert_eq!(keys.map(|k| k.number()), numbers.map(Some));
        assert!(K::MIN <= keys[0] && keys[6] <= K::MAX);
    }

    /// Checks that the front of a key and the rear of its neighbour are not a third key, wherever the keys are cut.
    fn mixed<const N: usize>() {
        numbered::<KeyN<N>>();
        for n in (0..2_000).chain([1 << 40, u64::MAX - 1]) {
            let [one, two] = [n, n + 1].map(KeyN::<N>::nth);
            for (front, rear) in [(one, two), (two, one)] {
                for cut in 1..N {
                    let mut key = front;
                    key.0[cut..].copy_from_slice(&rear.0[cut..]);
                    assert!(key == one || key == two || key.number().is_none(), "{key:?}");
                }
            }
        }
    }

    #[test]
    fn keys_are_in_the_order_of_their_numbers() {
        numbered::<Key8>();
        numbered::<KeyN<8>>();
        numbered::<KeyN<9>>();
        numbered::<KeyN<10>>();
        mixed::<12>();
        mixed::<16>();
        mixed::<24>();
        mixed::<31>();
        mixed::<32>();
        assert_eq!(KeyN::<32>::MIN.number(), None);
    }
}
