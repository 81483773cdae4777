//! Numbered keys for tests.

use dm_index::{Key8, Key32, KeyBytes};

/// A key type with numbered keys and a largest one.
pub trait TestKey: KeyBytes {
    /// The largest key.
    const MAX: Self;

    /// Returns the key number `n`: different for different numbers, and in their order.
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

/// The first bytes of keys of a size in which comparing eight bytes decides nothing: the number is in the
/// middle.
const PREFIX: [u8; 8] = [0x5a; 8];

impl TestKey for Key32 {
    const MAX: Self = Self([0xff; 32]);

    fn nth(n: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&PREFIX);
        bytes[8..16].copy_from_slice(&n.to_be_bytes());
        // The tail differs between neighbours, so that a mixture of two keys is not a key.
        bytes[16..24].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        bytes[24..].copy_from_slice(&(!n).to_be_bytes());
        Self(bytes)
    }

    fn number(&self) -> Option<u64> {
        let n = u64::from_be_bytes(*self.0[8..].first_chunk::<8>()?);
        (Self::nth(n) == *self).then_some(n)
    }
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

    #[test]
    fn keys_are_in_the_order_of_their_numbers() {
        numbered::<Key8>();
        numbered::<Key32>();
        let mut mixed = Key32::nth(7);
        mixed.0[20] ^= 1;
        assert_eq!((mixed.number(), Key32::MIN.number()), (None, None));
    }
}
