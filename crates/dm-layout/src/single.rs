//! The bytes of a leaf with one entry (SMART, TOS 2024 §4.1.1). It is written in place under its own lock word, which
//! is at its end.
//!
//! ```text
//!  byte 0  │ link depth 8 │ state 8 │ key │ checksum 8 │ value … │ (to 8) │ lock 8 │
//!            FAA            WRITE     never  WRITE together               CAS
//! ```
//!
//! In one tree, each field is changed in one way only. A WRITE changes the state, or the value and its checksum. In a
//! tree with out-of-place updates, a CAS changes the state, and nothing changes the value. The *link depth* replaces
//! the paper's reverse pointer. It is at least the *branch* of the node that links the leaf: the index of the key byte
//! by which this node selects a child. It is increased before a deeper node links the leaf. So if a reader has followed
//! a link at branch b and finds a depth of at most b, no other key has the key bytes of this link. Unlike an address,
//! the depth stays valid when the parent node is copied.

use core::marker::PhantomData;

use twox_hash::XxHash3_64;

use crate::error::{CheckFailure, GeometryError, Reason};
use crate::key::KeyBytes;
use crate::radix::{LEAF_LINES_MAX, Slot, SlotWord};
use crate::{LINE_BYTES, checksum_of};

const DEPTH_AT: usize = 0;
const STATE_AT: usize = 8;
const KEY_AT: usize = 16;
const LIVE: u64 = u64::from_le_bytes(*b"live\0\0\0\x01");
const REMOVED: u64 = u64::from_le_bytes(*b"gone\0\0\0\x02");

/// The positions of a leaf's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SingleLeaf<K> {
    value_bytes: usize,
    _key: PhantomData<fn() -> K>,
}

/// A leaf that was read completely and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SingleEntry<'a, K> {
    /// The key, which never changes.
    pub key: K,
    /// The value.
    pub value: &'a [u8],
    /// Whether the key is present in this leaf. After it was `false` once, it stays `false`.
    pub live: bool,
    /// A packed remote pointer to the leaf that has replaced this one, if an out-of-place update has done so.
    pub next: Option<u64>,
    /// The link depth: at some time during the READ, no other key had the same first `depth + 1` bytes.
    pub depth: u64,
}

impl<K: KeyBytes> SingleLeaf<K> {
    /// Makes the layout of leaves with values of `value_bytes` bytes.
    ///
    /// # Errors
    /// Returns [`GeometryError::ValueBytes`] if no slot can encode the size of such a leaf.
    pub fn new(value_bytes: usize) -> Result<Self, GeometryError> {
        let leaf = Self {
            value_bytes,
            _key: PhantomData,
        };
        // This excludes values that are so large that the sums would overflow.
        if value_bytes > 1 << 16 || leaf.block_bytes() > usize::from(LEAF_LINES_MAX) * LINE_BYTES {
            return Err(GeometryError::ValueBytes(value_bytes));
        }
        Ok(leaf)
    }

    /// Returns the number of bytes of a value.
    #[must_use]
    pub const fn value_bytes(&self) -> usize {
        self.value_bytes
    }
    const fn checksum_at(&self) -> usize {
        KEY_AT + K::LEN
    }
    const fn value_at(&self) -> usize {
        self.checksum_at() + 8
    }
    /// Returns the offset of the lock word. It follows all bytes that a reader needs.
    #[must_use]
    pub const fn lock_at(&self) -> usize {
        (self.value_at() + self.value_bytes).next_multiple_of(8)
    }
    /// Returns the number of bytes that a reader must fetch.
    #[must_use]
    pub const fn read_bytes(&self) -> usize {
        self.value_at() + self.value_bytes
    }
    /// Returns the number of bytes that a leaf takes, which are whole lines.
    #[must_use]
    pub const fn block_bytes(&self) -> usize {
        (self.lock_at() + 8).next_multiple_of(LINE_BYTES)
    }
    /// Returns the number of lines that a leaf takes.
    #[must_use]
    pub const fn lines(&self) -> u8 {
        (self.block_bytes() / LINE_BYTES) as u8
    }
    /// Returns the offset of the link depth.
    #[must_use]
    pub const fn depth_at(&self) -> usize {
        DEPTH_AT
    }
    /// Returns the offset and the bytes of the WRITE that removes the entry.
    #[must_use]
    pub const fn removal(&self) -> (usize, [u8; 8]) {
        (STATE_AT, REMOVED.to_le_bytes())
    }
    /// Returns the CAS by which a live leaf stops being live: the offset, the expected word and the new word. `next` is
    /// the packed remote pointer to the leaf of the same size that replaces it; without one, the entry is removed.
    /// Returns `None` if a slot cannot encode the pointer.
    #[must_use]
    pub const fn ending(&self, next: Option<u64>) -> Option<(usize, u64, u64)> {
        match next {
            None => Some((STATE_AT, LIVE, REMOVED)),
            // The word of a leaf is neither `LIVE` nor `REMOVED`, which do not have the bit of a leaf.
            Some(at) => match SlotWord::leaf(0, at, self.lines()) {
                Some(word) => Some((STATE_AT, LIVE, word.raw())),
                None => None,
            },
        }
    }
    /// Returns the range of the WRITE that replaces the value.
    #[must_use]
    pub const fn value_range(&self) -> core::ops::Range<usize> {
        self.checksum_at()..self.read_bytes()
    }

    #[inline]
    fn checksum(&self, key: &[u8], value: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(checksum_of(key), value)
    }

    /// Writes a live leaf with a free lock to `out`, which must have [`SingleLeaf::block_bytes`] bytes.
    ///
    /// # Panics
    /// Panics if `value` does not have the length of the leaf's values, or if `out` does not have the length of a leaf.
    pub fn build(&self, key: &K, value: &[u8], depth: u64, out: &mut [u8]) {
        assert_eq!(out.len(), self.block_bytes(), "an image of one leaf");
        out.fill(0);
        out[DEPTH_AT..DEPTH_AT + 8].copy_from_slice(&depth.to_le_bytes());
        out[STATE_AT..STATE_AT + 8].copy_from_slice(&LIVE.to_le_bytes());
        key.write_to(&mut out[KEY_AT..]);
        self.replace(out, value);
    }

    /// Puts `value` and its checksum into the bytes of a leaf. [`SingleLeaf::value_range`] is the range that changes.
    ///
    /// # Panics
    /// Panics if `value` does not have the length of the leaf's values, or if `bytes` has fewer than
    /// [`SingleLeaf::read_bytes`] bytes.
    pub fn replace(&self, bytes: &mut [u8], value: &[u8]) {
        assert_eq!(value.len(), self.value_bytes, "a value of the leaf's length");
        let sum = self.checksum(&bytes[KEY_AT..KEY_AT + K::LEN], value);
        let (at, value_at) = (self.checksum_at(), self.value_at());
        bytes[at..at + 8].copy_from_slice(&sum.to_le_bytes());
        bytes[value_at..value_at + value.len()].copy_from_slice(value);
    }

    /// Decodes the bytes of a READ of at least [`SingleLeaf::read_bytes`].
    ///
    /// # Errors
    /// Returns [`CheckFailure::Torn`] if another client is replacing the value or has died meanwhile, and
    /// [`CheckFailure::Corrupt`] if the bytes are not a leaf.
    #[inline]
    pub fn open<'a>(&self, bytes: &'a [u8]) -> Result<SingleEntry<'a, K>, CheckFailure> {
        let (Some(value), Some((depth, rest))) = (
            bytes.get(self.value_at()..self.read_bytes()),
            bytes.split_first_chunk::<8>(),
        ) else {
            return Err(CheckFailure::corrupt(bytes.len(), Reason::Length));
        };
        let Some(state) = rest.first_chunk::<8>() else {
            return Err(CheckFailure::corrupt(bytes.len(), Reason::Length));
        };
        let (live, next) = match u64::from_le_bytes(*state) {
            LIVE => (true, None),
            REMOVED => (false, None),
            other => match SlotWord::from_raw(other).decode() {
                Ok(Slot::Leaf {
                    partial: 0,
                    at,
                    lines,
                }) if lines == self.lines() => (false, Some(at)),
                _ => return Err(CheckFailure::corrupt(STATE_AT, Reason::State)),
            },
        };
        let key = &bytes[KEY_AT..KEY_AT + K::LEN];
        let sum = self.checksum(key, value).to_le_bytes();
        if bytes[self.checksum_at()..self.value_at()] != sum {
            return Err(CheckFailure::node_torn(self.checksum_at()));
        }
        Ok(SingleEntry {
            key: K::read_from(key),
            value,
            live,
            next,
            depth: u64::from_le_bytes(*depth),
        })
    }
}
