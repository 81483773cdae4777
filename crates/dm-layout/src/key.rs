//! Fixed-size keys as byte strings, and the fence keys between nodes.

use core::fmt::Debug;
use core::hash::Hash;

pub(crate) mod sealed {
    /// Keeps layout traits closed: a new implementation is a new format, with its own pictures and tests.
    #[expect(unnameable_types, reason = "that is how a sealed trait is sealed")]
    pub trait Sealed {}

    /// Keys as numbers, and the distance of one above another.
    #[expect(unnameable_types, reason = "only formats reckon with keys")]
    pub trait Number: Sized {
        /// Returns how far this is above `low`. It wraps if this is below.
        fn above(&self, low: &Self) -> super::Rise;
        /// Returns the key this far above. Wraps.
        fn raised(&self, rise: super::Rise) -> Self;
    }
}

/// The distance of one key above another: a number of 256 bits, the lowest word first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(unnameable_types, reason = "only formats reckon with keys")]
pub struct Rise(pub(crate) [u64; 4]);

impl Rise {
    const BYTES: usize = 32;

    /// Returns the number in the first `width` bytes of `bytes`, little-endian.
    #[inline(always)]
    pub(crate) fn read(bytes: &[u8], width: usize) -> Self {
        if width <= 8 {
            return Self([low_word(bytes, width), 0, 0, 0]);
        }
        let mut all = [0; Self::BYTES];
        all[..width].copy_from_slice(&bytes[..width]);
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(all.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self(words)
    }

    /// Writes it to the first `width` bytes of `bytes`. Panics if `bytes` is shorter, because the number
    /// could not be read back.
    #[inline]
    pub(crate) fn write_to(self, bytes: &mut [u8], width: usize) {
        assert!(self.bytes() <= width, "a number of more than {width} bytes");
        let mut all = [0; Self::BYTES];
        for (bytes, word) in all.as_chunks_mut().0.iter_mut().zip(self.0) {
            *bytes = word.to_le_bytes();
        }
        bytes[..width].copy_from_slice(&all[..width]);
    }

    #[inline]
    pub(crate) fn is_below(self, other: Self) -> bool {
        self.0.iter().rev().lt(other.0.iter().rev())
    }

    /// Returns how many bytes it takes: 0 for 0.
    #[inline]
    pub(crate) fn bytes(self) -> usize {
        let Some(word) = self.0.iter().rposition(|word| *word != 0) else {
            return 0;
        };
        8 * word + (u64::BITS - self.0[word].leading_zeros()).div_ceil(8) as usize
    }
}

/// Returns the number in the first `width` bytes of `bytes`; at most eight bytes are used.
#[inline(always)]
pub(crate) fn low_word(bytes: &[u8], width: usize) -> u64 {
    match bytes.first_chunk() {
        Some(chunk) if width >= 8 => u64::from_le_bytes(*chunk),
        Some(chunk) => u64::from_le_bytes(*chunk) & !(u64::MAX << (8 * width)),
        // At a line's end no further bytes follow.
        None => {
            let mut chunk = [0; 8];
            chunk[..width].copy_from_slice(&bytes[..width]);
            u64::from_le_bytes(chunk)
        }
    }
}

/// A key of fixed size: a byte string, ordered lexicographically. Every value is an ordinary key.
///
/// Sealed: [`Key8`] and [`Key32`].
///
/// ```
/// use dm_layout::{Key8, KeyBytes};
///
/// let mut bytes = [0; Key8::LEN];
/// Key8(7).write_to(&mut bytes);
/// assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 7]); // as strings compare, so do numbers
/// assert_eq!(Key8::read_from(&bytes), Key8(7));
/// ```
pub trait KeyBytes:
    Copy + Ord + Debug + Hash + Send + Sync + 'static + sealed::Sealed + sealed::Number
{
    /// Bytes of a key.
    const LEN: usize;
    /// The smallest key (all zero bytes): an ordinary key, and the low fence of a leftmost node.
    const MIN: Self;
    /// The form of a key that a search compares: the stored bytes, in whatever form compares fastest.
    type Probe: Copy + Eq + Debug;

    /// Reads the key at the start of `bytes`. Panics if `bytes` is shorter than `LEN`, which is a programming
    /// error.
    fn read_from(bytes: &[u8]) -> Self;
    /// Writes the key at the start of `bytes`. Panics if `bytes` is shorter than `LEN`.
    fn write_to(&self, bytes: &mut [u8]);
    /// Returns this key in its stored form.
    fn probe(&self) -> Self::Probe;
    /// Returns the stored form at the start of `bytes`, unconverted. Panics if `bytes` is shorter than `LEN`.
    fn probe_at(bytes: &[u8]) -> Self::Probe;
    /// Returns the last byte: neighbouring keys differ in it more than in any other.
    fn last_byte(&self) -> u8;
}

/// An 8-byte key. Stored big-endian, so that comparing numbers is comparing byte strings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key8(pub u64);

/// A 32-byte key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key32(pub [u8; 32]);

impl Key32 {
    /// Returns its bytes as big-endian numbers, which have the same order as the bytes.
    #[inline]
    fn halves(&self) -> [u128; 2] {
        let (high, low) = self.0.split_at(16);
        [high, low].map(|half| u128::from_be_bytes(*first(half)))
    }
}

impl Ord for Key32 {
    #[inline]
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.halves().cmp(&other.halves())
    }
}

impl PartialOrd for Key32 {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }

    /// Compares by two subtractions with borrow, without a branch that depends on the keys.
    #[inline]
    fn le(&self, other: &Self) -> bool {
        let ([a, b], [c, d]) = (self.halves(), other.halves());
        a < c || a == c && b <= d
    }
}

#[inline]
fn first<const N: usize>(bytes: &[u8]) -> &[u8; N] {
    match bytes.first_chunk::<N>() {
        Some(chunk) => chunk,
        None => panic!("a buffer of {} bytes holds no {N}-byte key", bytes.len()),
    }
}

impl sealed::Sealed for Key8 {}
impl sealed::Sealed for Key32 {}

impl sealed::Number for Key8 {
    #[inline]
    fn above(&self, low: &Self) -> Rise {
        Rise([self.0.wrapping_sub(low.0), 0, 0, 0])
    }

    #[inline]
    fn raised(&self, rise: Rise) -> Self {
        Self(self.0.wrapping_add(rise.0[0]))
    }
}

impl sealed::Number for Key32 {
    #[inline]
    fn above(&self, low: &Self) -> Rise {
        let ([a, b], [c, d]) = (self.halves(), low.halves());
        let (down, borrow) = b.overflowing_sub(d);
        let up = a.wrapping_sub(c).wrapping_sub(u128::from(borrow));
        Rise([down as u64, (down >> 64) as u64, up as u64, (up >> 64) as u64])
    }

    #[inline]
    fn raised(&self, Rise(words): Rise) -> Self {
        let half = |at: usize| u128::from(words[at + 1]) << 64 | u128::from(words[at]);
        let [a, b] = self.halves();
        let (down, carry) = b.overflowing_add(half(0));
        let up = a.wrapping_add(half(2)).wrapping_add(u128::from(carry));
        let mut key = [0; 32];
        key[..16].copy_from_slice(&up.to_be_bytes());
        key[16..].copy_from_slice(&down.to_be_bytes());
        Self(key)
    }
}

impl KeyBytes for Key8 {
    const LEN: usize = 8;
    const MIN: Self = Self(0);
    type Probe = u64;

    #[inline]
    fn read_from(bytes: &[u8]) -> Self {
        Self(u64::from_be_bytes(*first(bytes)))
    }

    #[inline]
    fn write_to(&self, bytes: &mut [u8]) {
        bytes[..8].copy_from_slice(&self.0.to_be_bytes());
    }

    #[inline]
    fn probe(&self) -> u64 {
        // Read back little-endian, as `probe_at` does: one swap per search instead of one per entry.
        u64::from_le_bytes(self.0.to_be_bytes())
    }

    #[inline]
    fn probe_at(bytes: &[u8]) -> u64 {
        u64::from_le_bytes(*first(bytes))
    }

    #[inline]
    fn last_byte(&self) -> u8 {
        self.0.to_be_bytes()[7]
    }
}

impl KeyBytes for Key32 {
    const LEN: usize = 32;
    const MIN: Self = Self([0; 32]);
    type Probe = [u8; 32];

    #[inline]
    fn read_from(bytes: &[u8]) -> Self {
        Self(*first(bytes))
    }

    #[inline]
    fn write_to(&self, bytes: &mut [u8]) {
        bytes[..32].copy_from_slice(&self.0);
    }

    #[inline]
    fn probe(&self) -> [u8; 32] {
        self.0
    }

    #[inline]
    fn probe_at(bytes: &[u8]) -> [u8; 32] {
        *first(bytes)
    }

    #[inline]
    fn last_byte(&self) -> u8 {
        self.0[31]
    }
}

impl From<u64> for Key8 {
    fn from(key: u64) -> Self {
        Self(key)
    }
}

impl From<[u8; 32]> for Key32 {
    fn from(key: [u8; 32]) -> Self {
        Self(key)
    }
}

/// The keys for which a node answers: from `low` inclusive to `high` exclusive; no `high` means +infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FenceKeys<K> {
    /// The smallest key that may be in the node.
    pub low: K,
    /// The smallest key that is too large for the node; `None` for the rightmost node of a level.
    pub high: Option<K>,
}

impl<K: KeyBytes> FenceKeys<K> {
    /// All keys.
    pub const ALL: Self = Self {
        low: K::MIN,
        high: None,
    };

    /// Fences from `low` to `high`.
    #[must_use]
    pub const fn new(low: K, high: Option<K>) -> Self {
        Self { low, high }
    }

    /// Returns whether `key` belongs here.
    #[inline]
    #[must_use]
    pub fn contains(&self, key: &K) -> bool {
        *key >= self.low && !self.is_below(key)
    }

    /// Returns whether the whole range is below `key`, so that a reader goes on to the sibling.
    #[inline]
    #[must_use]
    pub fn is_below(&self, key: &K) -> bool {
        self.high.is_some_and(|high| *key >= high)
    }

    /// Returns whether some key could be inside.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.high.is_none_or(|high| self.low < high)
    }
}

#[cfg(test)]
mod tests {
    use super::sealed::Number as _;
    use super::*;

    #[test]
    fn a_key_is_what_lies_below_it_and_the_rise() {
        let long = |n: u128| {
            let mut key = [0; 32];
            key[5..21].copy_from_slice(&n.to_be_bytes());
            Key32(key)
        };
        let numbers = [0, 1, 255, 256, 1 << 63, u64::MAX - 1, u64::MAX];
        for (a, b) in numbers.iter().flat_map(|a| numbers.iter().map(move |b| (*a, *b))) {
            let rise = Key8(a).above(&Key8(b));
            assert_eq!(Key8(b).raised(rise), Key8(a));
            assert_eq!(
                rise.bytes(),
                (a.wrapping_sub(b).checked_ilog2().map_or(0, |bits| bits / 8 + 1)) as usize
            );
            let (a, b) = (long(u128::from(a) << 40), long(u128::from(b) * 3));
            let rise = a.above(&b);
            assert_eq!(b.raised(rise), a);
            assert!(rise.bytes() <= 27 || a < b, "{a:?} {b:?}");
            for width in rise.bytes()..=32 {
                let mut bytes = [0xee; 40];
                rise.write_to(&mut bytes, width);
                assert_eq!(Rise::read(&bytes, width), rise);
                // The key ends the buffer.
                assert_eq!(Rise::read(&bytes[..width], width), rise);
                assert_eq!(bytes[width..], [0xee; 40][width..]);
            }
        }
    }

    #[test]
    fn long_keys_are_ordered_as_their_bytes() {
        // Keys that differ from the first in one byte or two.
        let mut keys = alloc::vec![Key32([7; 32])];
        for at in 0..32 {
            for byte in [0, 6, 8, 0x80, 0xff] {
                let mut key = [7; 32];
                key[at] = byte;
                key[31 - at] ^= 1;
                keys.push(Key32(key));
            }
        }
        // Some keys are compared with all, so that Miri can run this too.
        for a in keys.iter().step_by(9) {
            for b in &keys {
                assert_eq!(a.cmp(b), a.0.cmp(&b.0), "{a:?} {b:?}");
                assert_eq!(a <= b, a.0 <= b.0, "{a:?} {b:?}");
                assert_eq!(a < b, a.0 < b.0, "{a:?} {b:?}");
            }
        }
    }
}
