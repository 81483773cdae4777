//! Keys of a fixed size as byte strings, and the fence keys between nodes.

use crate::chunks::Chunks as _;
use core::fmt::Debug;
use core::hash::Hash;

pub(crate) mod sealed {
    /// Seals the traits of this crate. Each new implementation would store other bytes, so it would need a page with
    /// its layout, and tests.
    #[expect(
        unnameable_types,
        reason = "a sealed trait needs a supertrait that users cannot name"
    )]
    pub trait Sealed {}

    /// Arithmetic on keys as numbers.
    #[expect(unnameable_types, reason = "only formats compute with keys")]
    pub trait Number: Sized {
        /// Returns this key minus `low`. The difference wraps if this key is less than `low`.
        fn above(&self, low: &Self) -> super::Rise;
        /// Returns this key plus `rise`. The sum wraps.
        fn raised(&self, rise: super::Rise) -> Self;
    }
}

/// The difference of two keys: a number of 256 bits, with the lowest word first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(unnameable_types, reason = "only formats compute with keys")]
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
        for (word, bytes) in words.iter_mut().zip(all.in_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self(words)
    }

    /// Writes the number to the first `width` bytes of `bytes`. Panics if it needs more bytes, because it could not be
    /// read back.
    #[inline]
    pub(crate) fn write_to(self, bytes: &mut [u8], width: usize) {
        assert!(self.bytes() <= width, "a number of more than {width} bytes");
        let mut all = [0; Self::BYTES];
        for (bytes, word) in all.in_chunks_mut().iter_mut().zip(self.0) {
            *bytes = word.to_le_bytes();
        }
        bytes[..width].copy_from_slice(&all[..width]);
    }

    #[inline]
    pub(crate) fn is_below(self, other: Self) -> bool {
        self.0.iter().rev().lt(other.0.iter().rev())
    }

    /// Returns the number of bytes that this number needs. The number 0 needs no byte.
    #[inline]
    pub(crate) fn bytes(self) -> usize {
        let Some(word) = self.0.iter().rposition(|word| *word != 0) else {
            return 0;
        };
        8 * word + (u64::BITS - self.0[word].leading_zeros()).div_ceil(8) as usize
    }
}

/// Returns the little-endian number in the first `width` bytes of `bytes`, or in the first 8 bytes if `width` is
/// larger.
#[inline(always)]
pub(crate) fn low_word(bytes: &[u8], width: usize) -> u64 {
    match bytes.first_chunk() {
        Some(chunk) if width >= 8 => u64::from_le_bytes(*chunk),
        Some(chunk) => u64::from_le_bytes(*chunk) & !(u64::MAX << (8 * width)),
        // At the end of a line, fewer than eight bytes may follow.
        None => {
            let mut chunk = [0; 8];
            chunk[..width].copy_from_slice(&bytes[..width]);
            u64::from_le_bytes(chunk)
        }
    }
}

/// A key of a fixed size: a byte string, in lexicographic order. No value is reserved.
///
/// The trait is sealed. Its implementations are [`Key8`] for numbers, and [`KeyN`] for byte strings of 8 to 32 bytes.
///
/// ```
/// use dm_layout::{Key8, KeyBytes, KeyN};
///
/// let mut bytes = [0; Key8::LEN];
/// Key8(7).write_to(&mut bytes);
/// assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 7]); // numbers and byte strings have the same order
/// assert_eq!(Key8::read_from(&bytes), Key8(7));
/// assert_eq!(KeyN::<24>::LEN, 24);
/// ```
pub trait KeyBytes:
    Copy + Ord + Debug + Hash + Send + Sync + 'static + sealed::Sealed + sealed::Number
{
    /// Size of a key in bytes: 8 to 32.
    const LEN: usize;
    /// The smallest key (all bytes are zero). It is an ordinary key, and the low fence key of a leftmost node.
    const MIN: Self;
    /// The stored bytes of a key, in the form that a search can compare fastest.
    type Probe: Copy + Eq + Debug;

    /// Reads the key at the start of `bytes`. Panics if `bytes` is shorter than `LEN`.
    fn read_from(bytes: &[u8]) -> Self;
    /// Writes the key at the start of `bytes`. Panics if `bytes` is shorter than `LEN`.
    fn write_to(&self, bytes: &mut [u8]);
    /// Returns this key in its stored form.
    fn probe(&self) -> Self::Probe;
    /// Returns the stored form of the key at the start of `bytes`. Panics if `bytes` is shorter than `LEN`.
    fn probe_at(bytes: &[u8]) -> Self::Probe;
    /// Returns the last byte. Neighbouring keys are most likely to differ in this byte.
    fn last_byte(&self) -> u8;
}

/// Maximum number of bytes of a key.
pub const KEY_BYTES_MAX: usize = 32;

/// A key that is a number of 64 bits. It is stored big-endian, so that numbers and byte strings have the same order.
///
/// Use it for numbers: a search compares an entry in one instruction. Use [`KeyN`] for byte strings of 8 to 32 bytes.
/// `Key8` and `KeyN<8>` are stored as the same bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key8(pub u64);

/// A key of `N` bytes, from 8 to 32: a byte string in the order of its bytes.
///
/// Use [`Key8`] for numbers of 64 bits. Use this for everything else: hashes, UUIDs, names, or several numbers one
/// after another, each big-endian. Pad shorter strings with zeros at their end. This keeps their order, but makes
/// strings equal that differ only in zeros at their end. Whatever `N` is, a comparison of two keys compares at most two
/// numbers of each key.
///
/// ```
/// use dm_layout::KeyN;
///
/// let (user, post) = (7_u64, 41_u64);
/// let mut key = KeyN([0; 16]);
/// key.0[..8].copy_from_slice(&user.to_be_bytes());
/// key.0[8..].copy_from_slice(&post.to_be_bytes());
/// assert!(key < KeyN([1; 16]));
/// ```
///
/// Other sizes do not compile:
///
/// ```compile_fail
/// use dm_layout::{KeyBytes, KeyN};
/// let long = KeyN::<33>::read_from(&[0; 33]);
/// ```
///
/// ```compile_fail
/// use dm_layout::{KeyN, Slotted};
/// let short = Slotted::<KeyN<7>>::with_node_bytes(1024, 8);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyN<const N: usize>(pub [u8; N]);

/// Returns the mask of one 64-bit word of a number of `bits` bits. `from` is the first bit of the word.
const fn word_mask(bits: usize, from: usize) -> u64 {
    match bits.saturating_sub(from) {
        0 => 0,
        more if more < 64 => (1 << more) - 1,
        _ => u64::MAX,
    }
}

impl<const N: usize> KeyN<N> {
    /// The size `N`. [`KeyBytes::LEN`] and the functions that read, write and compare keys use this constant, so that
    /// the compiler checks the size of the keys of every index.
    const SIZE: usize = {
        assert!(8 <= N && N <= KEY_BYTES_MAX, "a key `KeyN<N>` has 8 to 32 bytes");
        N
    };

    /// Returns the first bytes and the last bytes as big-endian numbers. Together the two numbers contain all bytes of
    /// the key, and some bytes may be in both. These bytes do not change the order of keys: if the first numbers of two
    /// keys are equal, these bytes are equal too. The function has no loop, and no branch that depends on the key.
    #[inline(always)]
    fn ends(&self) -> [u128; 2] {
        if Self::SIZE < 16 {
            let at = |from: usize| u128::from(u64::from_be_bytes(*first(&self.0[from..])));
            return [at(0), at(Self::SIZE - 8)];
        }
        let at = |from: usize| u128::from_be_bytes(*first(&self.0[from..]));
        [at(0), at(Self::SIZE - 16)]
    }

    /// Returns the key as a number of 256 bits: the upper half and the lower half.
    #[inline(always)]
    fn number(&self) -> [u128; 2] {
        let [head, tail] = self.ends();
        // The bytes of the first part that are also in the last part are shifted out.
        match Self::SIZE {
            size @ ..16 => [0, head >> (8 * (16 - size)) << 64 | tail],
            16 => [0, tail],
            size => [head >> (8 * (KEY_BYTES_MAX - size)), tail],
        }
    }
}

impl<const N: usize> Default for KeyN<N> {
    fn default() -> Self {
        Self::MIN
    }
}

impl<const N: usize> Ord for KeyN<N> {
    #[inline]
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.ends().cmp(&other.ends())
    }
}

impl<const N: usize> PartialOrd for KeyN<N> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }

    /// Compares by two subtractions with borrow, without a branch that depends on the keys.
    #[inline]
    fn le(&self, other: &Self) -> bool {
        let ([a, b], [c, d]) = (self.ends(), other.ends());
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
impl<const N: usize> sealed::Sealed for KeyN<N> {}

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

impl<const N: usize> sealed::Number for KeyN<N> {
    #[inline]
    fn above(&self, low: &Self) -> Rise {
        let ([a, b], [c, d]) = (self.number(), low.number());
        let (down, borrow) = b.overflowing_sub(d);
        let up = a.wrapping_sub(c).wrapping_sub(u128::from(borrow));
        let mask = |from| word_mask(8 * Self::SIZE, from);
        // The difference wraps at the size of a key, so it never needs more bytes than a key.
        Rise([
            down as u64,
            (down >> 64) as u64 & mask(64),
            up as u64 & mask(128),
            (up >> 64) as u64 & mask(192),
        ])
    }

    #[inline]
    fn raised(&self, Rise(words): Rise) -> Self {
        let half = |at: usize| u128::from(words[at + 1]) << 64 | u128::from(words[at]);
        let [a, b] = self.number();
        let (down, carry) = b.overflowing_add(half(0));
        let up = a.wrapping_add(half(2)).wrapping_add(u128::from(carry));
        let mut key = [0; N];
        let (high, low) = key.split_at_mut(Self::SIZE.saturating_sub(16));
        low.copy_from_slice(&down.to_be_bytes()[16 - low.len()..]);
        high.copy_from_slice(&up.to_be_bytes()[16 - high.len()..]);
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
        // This is read as a little-endian number, as in `probe_at`. So bytes are swapped once per search instead of
        // once per entry.
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

impl<const N: usize> KeyBytes for KeyN<N> {
    const LEN: usize = Self::SIZE;
    const MIN: Self = Self([0; N]);
    type Probe = [u8; N];

    #[inline]
    fn read_from(bytes: &[u8]) -> Self {
        const { assert!(Self::SIZE == N) };
        Self(*first(bytes))
    }

    #[inline]
    fn write_to(&self, bytes: &mut [u8]) {
        bytes[..Self::SIZE].copy_from_slice(&self.0);
    }

    #[inline]
    fn probe(&self) -> [u8; N] {
        self.0
    }

    #[inline]
    fn probe_at(bytes: &[u8]) -> [u8; N] {
        *first(bytes)
    }

    #[inline]
    fn last_byte(&self) -> u8 {
        self.0[Self::SIZE - 1]
    }
}

impl From<u64> for Key8 {
    fn from(key: u64) -> Self {
        Self(key)
    }
}

impl<const N: usize> From<[u8; N]> for KeyN<N> {
    fn from(key: [u8; N]) -> Self {
        Self(key)
    }
}

/// The range of keys that a node covers: from `low` (inclusive) to `high` (exclusive). Without `high`, it has no upper
/// end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FenceKeys<K> {
    /// The smallest key that may be in the node.
    pub low: K,
    /// The smallest key that is greater than the range; `None` in the rightmost node of a level.
    pub high: Option<K>,
}

impl<K: KeyBytes> FenceKeys<K> {
    /// The range of all keys.
    pub const ALL: Self = Self {
        low: K::MIN,
        high: None,
    };

    /// Makes the range from `low` to `high`.
    #[must_use]
    pub const fn new(low: K, high: Option<K>) -> Self {
        Self { low, high }
    }

    /// Returns whether `key` is in the range.
    #[inline]
    #[must_use]
    pub fn contains(&self, key: &K) -> bool {
        *key >= self.low && !self.is_below(key)
    }

    /// Returns whether the whole range is less than `key`, so that a reader must continue at the sibling.
    #[inline]
    #[must_use]
    pub fn is_below(&self, key: &K) -> bool {
        self.high.is_some_and(|high| *key >= high)
    }

    /// Returns whether some key can be in the range.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.high.is_none_or(|high| self.low < high)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::sealed::Number as _;
    use super::*;

    /// Calls a function that is generic over the size of keys, once for every size.
    macro_rules! for_key_sizes {
        ($check:ident $(, $argument:expr)?) => {
            for_key_sizes!(@ $check ($($argument)?) 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32)
        };
        (@ $check:ident $arguments:tt $($size:literal)*) => { $($check::<$size> $arguments;)* };
    }

    #[test]
    fn a_number_is_what_lies_below_it_and_the_rise() {
        let numbers = [0, 1, 255, 256, 1 << 63, u64::MAX - 1, u64::MAX];
        for (a, b) in numbers.iter().flat_map(|a| numbers.iter().map(move |b| (*a, *b))) {
            let rise = Key8(a).above(&Key8(b));
            assert_eq!(Key8(b).raised(rise), Key8(a));
            assert_eq!(
                rise.bytes(),
                (a.wrapping_sub(b).checked_ilog2().map_or(0, |bits| bits / 8 + 1)) as usize
            );
        }
    }

    /// Returns keys, most of which differ from the first one in one or two bytes.
    fn near_keys<const N: usize>() -> Vec<KeyN<N>> {
        let mut keys = alloc::vec![KeyN([7; N]), KeyN([0; N]), KeyN([0xff; N])];
        for at in 0..N {
            for byte in [0, 6, 8, 0x80, 0xff] {
                let mut key = [7; N];
                key[at] = byte;
                key[N - 1 - at] ^= 1;
                keys.push(KeyN(key));
            }
        }
        keys
    }

    /// Returns the difference of two keys, computed byte by byte.
    fn distance<const N: usize>(a: [u8; N], b: [u8; N]) -> [u8; N] {
        let (mut far, mut borrow) = ([0; N], false);
        for at in (0..N).rev() {
            let (less, one) = a[at].overflowing_sub(b[at]);
            let (least, two) = less.overflowing_sub(u8::from(borrow));
            (far[at], borrow) = (least, one | two);
        }
        far
    }

    fn pair<const N: usize>(a: KeyN<N>, b: KeyN<N>) {
        assert_eq!(a.cmp(&b), a.0.cmp(&b.0), "{a:?} {b:?}");
        assert_eq!((a <= b, a < b), (a.0 <= b.0, a.0 < b.0), "{a:?} {b:?}");
        assert_eq!(a.probe() == b.probe(), a == b, "{a:?} {b:?}");
        let rise = a.above(&b);
        assert_eq!(b.raised(rise), a, "{a:?} {b:?}");
        let mut far = distance(a.0, b.0);
        far.reverse();
        assert_eq!(rise, Rise::read(&far, N), "{a:?} {b:?}");
        for width in rise.bytes()..=N {
            let mut bytes = [0xee; 40];
            rise.write_to(&mut bytes, width);
            assert_eq!(Rise::read(&bytes, width), rise);
            // No bytes follow the key, as at the end of a line.
            assert_eq!(Rise::read(&bytes[..width], width), rise);
            assert_eq!(bytes[width..], [0xee; 40][width..]);
        }
    }

    #[test]
    fn keys_are_ordered_as_their_bytes_and_have_distances() {
        fn check<const N: usize>() {
            let keys = near_keys::<N>();
            // Only some keys are compared with all others, so that Miri is fast enough for this test.
            let step = if cfg!(miri) { 31 } else { 3 };
            for a in keys.iter().step_by(step) {
                keys.iter().for_each(|b| pair(*a, *b));
            }
        }
        for_key_sizes!(check);
    }

    #[test]
    fn keys_are_stored_as_their_bytes() {
        fn check<const N: usize>() {
            let key: KeyN<N> = core::array::from_fn(|at| at as u8 + 1).into();
            let mut bytes = [0xee; 40];
            key.write_to(&mut bytes);
            assert_eq!((&bytes[..N], bytes[N]), (&key.0[..], 0xee));
            assert_eq!((KeyN::read_from(&bytes), key.last_byte()), (key, N as u8));
            assert_eq!(KeyN::<N>::probe_at(&bytes), key.probe());
            assert_eq!((KeyN::<N>::LEN, KeyN::<N>::default()), (N, KeyN::MIN));
        }
        for_key_sizes!(check);
        let (mut number, mut string) = ([0; 8], [0; 8]);
        Key8(0x0102_0304_0506_0708).write_to(&mut number);
        KeyN([1, 2, 3, 4, 5, 6, 7, 8]).write_to(&mut string);
        assert_eq!(number, string);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn any_two_keys(a: [u8; 32], b: [u8; 32], shared in 0..32_usize) {
            let mut close = b;
            close[..shared].copy_from_slice(&a[..shared]);
            fn check<const N: usize>((a, b): (&[u8], &[u8])) {
                pair(KeyN::<N>::read_from(a), KeyN::<N>::read_from(b));
                pair(KeyN::<N>::read_from(b), KeyN::<N>::read_from(a));
            }
            for_key_sizes!(check, (&a, &b));
            for_key_sizes!(check, (&a, &close));
        }
    }
}
