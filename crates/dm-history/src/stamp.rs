//! Values that identify the write that produced them, in any size from 8 bytes on.
//!
//! ```text
//! byte   0                8                                        len
//!        +----------------+-----------------------------------------+
//!        |  mixed stamp   |  words of a pattern seeded by the stamp  |
//!        +----------------+-----------------------------------------+
//! stamp  63     40 39    28 27             0
//!        | key hash | client |   sequence   |      24 + 12 + 28 bits
//! ```
//!
//! The stamp is passed through a bijection of 64-bit words, so that every bit of the eight bytes depends on every
//! field. A mixture of two 8-byte values therefore decodes to a random key hash, which equals the hash of the key with
//! a probability of 2⁻²⁴. The rest of a longer value is a pattern that is compared byte by byte. No byte string is
//! reserved: a stamped value may be all zeroes or all ones.

use std::fmt;

/// The size in bytes of the smallest value that can be stamped.
pub const STAMP_BYTES: usize = 8;
/// Client numbers are below this.
pub const CLIENT_LIMIT: u32 = 1 << 12;
/// Sequence numbers are below this.
pub const SEQUENCE_LIMIT: u32 = 1 << 28;
/// The client number for the writes that load the initial content.
pub const LOADER: u32 = CLIENT_LIMIT - 1;

const KEY_SHIFT: u32 = 40;
const CLIENT_SHIFT: u32 = 28;

/// The identity of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stamp {
    /// The writer, below [`CLIENT_LIMIT`].
    pub client: u32,
    /// The number of this write among the client's writes, below [`SEQUENCE_LIMIT`].
    pub sequence: u32,
}

/// The reason why a value was not written by a single write of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wrong {
    /// The value is shorter than [`STAMP_BYTES`].
    Short {
        /// The length of the value in bytes.
        len: usize,
    },
    /// The stamp belongs to another key, or the first eight bytes are a mixture of two values.
    OtherKey {
        /// The 24-bit hash of the key that was read.
        expected: u32,
        /// The hash that the value contains.
        found: u32,
        /// The write that the rest of the stamp identifies.
        stamp: Stamp,
    },
    /// A byte does not belong to the write of the stamp.
    Torn {
        /// The position of the first byte that is wrong.
        at: usize,
        /// The length of the value in bytes.
        len: usize,
        /// The write that the first eight bytes identify.
        stamp: Stamp,
    },
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { len } => write!(
                f,
                "a value of {len} bytes is too short for a stamp of {STAMP_BYTES}"
            ),
            Self::OtherKey {
                expected,
                found,
                stamp,
            } => write!(
                f,
                "the value belongs to another key: hash {found:#08x} instead of {expected:#08x} (client {}, write {})",
                stamp.client, stamp.sequence
            ),
            Self::Torn { at, len, stamp } => write!(
                f,
                "torn value: byte {at} of {len} is not of write {} by client {}",
                stamp.sequence, stamp.client
            ),
        }
    }
}

impl std::error::Error for Wrong {}

/// Fills `value` with the stamp of `client`'s write number `sequence` to `key`.
///
/// ```
/// use dm_history::{Stamp, Wrong, check_value, stamp};
/// let (mut old, mut new) = ([0; 100], [0; 100]);
/// stamp(b"key", 3, 17, &mut old);
/// stamp(b"key", 4, 1, &mut new);
/// assert_eq!(check_value(b"key", &new), Ok(Stamp { client: 4, sequence: 1 }));
///
/// new[64..].copy_from_slice(&old[64..]); // the second line is of the older write
/// assert!(matches!(check_value(b"key", &new), Err(Wrong::Torn { at: 64, .. })));
/// ```
///
/// # Panics
/// Panics if `value` is shorter than [`STAMP_BYTES`], or `client` or `sequence` are out of range.
pub fn stamp(key: &[u8], client: u32, sequence: u32, value: &mut [u8]) {
    assert!(value.len() >= STAMP_BYTES, "a stamped value has at least 8 bytes");
    assert!(client < CLIENT_LIMIT, "a stamp numbers clients with 12 bits");
    assert!(sequence < SEQUENCE_LIMIT, "a stamp numbers writes with 28 bits");
    let packed =
        (u64::from(key_hash(key)) << KEY_SHIFT) | (u64::from(client) << CLIENT_SHIFT) | u64::from(sequence);
    let (head, tail) = value.split_at_mut(STAMP_BYTES);
    head.copy_from_slice(&mix(packed).to_le_bytes());
    for (chunk, word) in tail.chunks_mut(8).zip(pattern(packed)) {
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
}

/// Returns the write of `key` that wrote the whole `value`.
///
/// # Errors
/// Returns [`Wrong`] if no single write of `key` wrote it: the value is too short, belongs to another key, or mixes two
/// writes.
///
/// ```
/// use dm_history::{check_value, stamp};
///
/// let (mut value, mut other) = ([0; 16], [0; 16]);
/// stamp(b"key", 3, 17, &mut value);
/// let found = check_value(b"key", &value).unwrap();
/// assert_eq!((found.client, found.sequence), (3, 17));
/// assert!(check_value(b"another key", &value).is_err());
/// // A mixture of two writes.
/// stamp(b"key", 3, 18, &mut other);
/// value[8..].copy_from_slice(&other[8..]);
/// assert!(check_value(b"key", &value).is_err());
/// ```
pub fn check_value(key: &[u8], value: &[u8]) -> Result<Stamp, Wrong> {
    let Some((head, tail)) = value.split_first_chunk::<STAMP_BYTES>() else {
        return Err(Wrong::Short { len: value.len() });
    };
    let packed = unmix(u64::from_le_bytes(*head));
    let low = |word: u64, limit: u32| u32::try_from(word & u64::from(limit - 1)).unwrap_or(0);
    let stamp = Stamp {
        client: low(packed >> CLIENT_SHIFT, CLIENT_LIMIT),
        sequence: low(packed, SEQUENCE_LIMIT),
    };
    for (index, (chunk, word)) in tail.chunks(8).zip(pattern(packed)).enumerate() {
        let word = word.to_le_bytes();
        if let Some(offset) = chunk.iter().zip(word).position(|(&is, should)| is != should) {
            return Err(Wrong::Torn {
                at: STAMP_BYTES + index * 8 + offset,
                len: value.len(),
                stamp,
            });
        }
    }
    let (expected, found) = (key_hash(key), low(packed >> KEY_SHIFT, 1 << 24));
    if expected != found {
        return Err(Wrong::OtherKey {
            expected,
            found,
            stamp,
        });
    }
    Ok(stamp)
}

/// Returns a 24-bit hash of the key.
fn key_hash(key: &[u8]) -> u32 {
    let mut hash = mix(key.len() as u64);
    for chunk in key.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash ^ u64::from_le_bytes(word));
    }
    u32::try_from(hash >> KEY_SHIFT).unwrap_or(0)
}

/// Returns the words that follow the stamp in a value.
fn pattern(packed: u64) -> impl Iterator<Item = u64> {
    (1_u64..).map(move |index| mix(packed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// Applies a bijection of 64-bit words, in which every bit of the result depends on every bit of the input (Stafford's
/// variant 13 of the MurmurHash3 finaliser, as in SplitMix64).
pub(crate) fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Returns the inverse of [`mix`]. It multiplies by the inverses of the multipliers modulo 2⁶⁴, and repeats each shift
/// until all bits are shifted out.
fn unmix(word: u64) -> u64 {
    let word = word ^ (word >> 31) ^ (word >> 62);
    let word = word.wrapping_mul(0x3196_42b2_d24d_8ec3);
    let word = word ^ (word >> 27) ^ (word >> 54);
    let word = word.wrapping_mul(0x96de_1b17_3f11_9089);
    word ^ (word >> 30) ^ (word >> 60)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn mixing_can_be_undone(word: u64) {
            prop_assert_eq!(unmix(mix(word)), word);
            prop_assert_eq!(mix(unmix(word)), word);
        }

        #[test]
        fn a_whole_value_names_its_write(
            key in prop::collection::vec(any::<u8>(), 0..40),
            client in 0..CLIENT_LIMIT, sequence in 0..SEQUENCE_LIMIT, len in 8_usize..300,
        ) {
            let mut value = vec![0xff; len];
            stamp(&key, client, sequence, &mut value);
            prop_assert_eq!(check_value(&key, &value), Ok(Stamp { client, sequence }));
        }

        /// Checks that a value with the beginning of one write and the rest of another is detected, at a byte of the
        /// other write.
        #[test]
        fn a_mixture_of_two_writes_is_found(
            first in (0..CLIENT_LIMIT, 0..SEQUENCE_LIMIT), second in (0..CLIENT_LIMIT, 0..SEQUENCE_LIMIT),
            len in 9_usize..200, cut in any::<prop::sample::Index>(),
        ) {
            prop_assume!(first != second);
            let (mut value, mut other) = (vec![0; len], vec![0; len]);
            stamp(b"k", first.0, first.1, &mut value);
            stamp(b"k", second.0, second.1, &mut other);
            let cut = 8 + cut.index(len - 8);
            prop_assume!(value[cut..] != other[cut..]);
            value[cut..].copy_from_slice(&other[cut..]);
            let found = check_value(b"k", &value);
            prop_assert_eq!(matches!(found, Err(Wrong::Torn { at, .. }) if at >= cut), true, "{:?}", found);
        }

        #[test]
        fn another_keys_value_is_found(left: [u8; 8], right: [u8; 8]) {
            prop_assume!(key_hash(&left) != key_hash(&right)); // 24 bits: one pair in 16 million
            let mut value = [0; 24];
            stamp(&left, 1, 2, &mut value);
            let found = check_value(&right, &value);
            prop_assert_eq!(matches!(found, Err(Wrong::OtherKey { .. })), true, "{:?}", found);
        }

        #[test]
        fn any_bytes_are_answered(key: [u8; 8], bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let found = check_value(&key, &bytes);
            let short = Err(Wrong::Short { len: bytes.len() });
            prop_assert_eq!(found == short, bytes.len() < 8);
        }
    }

    /// Checks that mixtures of halves of two 8-byte values are detected, although only the stamp fits into 8 bytes.
    #[test]
    fn mixed_halves_of_eight_bytes_are_found() {
        let mut passed = 0;
        // Miri is too slow for enough samples to test a hash.
        let mixtures = if cfg!(miri) { 100 } else { 100_000 };
        for sequence in 0..mixtures {
            let (mut value, mut other) = ([0; 8], [0; 8]);
            stamp(b"k", 1, sequence, &mut value);
            stamp(b"k", 2, sequence + 1, &mut other);
            value[4..].copy_from_slice(&other[4..]);
            passed += u32::from(check_value(b"k", &value).is_ok());
        }
        assert!(
            passed <= 1,
            "{passed} of {mixtures} mixtures passed; 2^-24 each allows about 0.006 of 100 000"
        );
    }

    #[test]
    fn a_wrong_value_says_where() {
        let mut value = [0; 32];
        stamp(b"k", 7, 9, &mut value);
        value[20] ^= 1;
        let wrong = check_value(b"k", &value).unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "torn value: byte 20 of 32 is not of write 9 by client 7"
        );
    }
}
