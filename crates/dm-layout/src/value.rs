//! A value in a node's bytes, which may be striped over several lines.

use alloc::vec::Vec;

use crate::LINE_BYTES;

/// A value in a node: contiguous, or divided among several lines, between their versions. It borrows the node's bytes.
#[derive(Clone, Copy, Debug)]
pub struct ValueRef<'a> {
    head: &'a [u8],
    /// Whole lines that hold the rest of the value, with their versions; empty for a contiguous value.
    lines: &'a [[u8; LINE_BYTES]],
    /// Number of version bytes at the start of each line.
    skip: usize,
    len: usize,
}

impl<'a> ValueRef<'a> {
    /// Makes a value of `len` bytes that begins with `head` and continues in `lines`, each of which begins with `skip`
    /// bytes of versions.
    pub(crate) const fn striped(
        skip: usize,
        head: &'a [u8],
        lines: &'a [[u8; LINE_BYTES]],
        len: usize,
    ) -> Self {
        Self {
            head,
            lines,
            skip,
            len,
        }
    }

    /// Returns the size of the value in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the value has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the value without copying, if it is contiguous.
    #[inline]
    #[must_use]
    pub const fn as_contiguous(&self) -> Option<&'a [u8]> {
        if self.lines.is_empty() {
            Some(self.head)
        } else {
            None
        }
    }

    /// Returns the pieces in order. Together they have [`len`](Self::len) bytes.
    pub fn pieces(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut left = self.len - self.head.len();
        let skip = self.skip;
        core::iter::once(self.head).chain(self.lines.iter().map(move |line| {
            let piece = left.min(LINE_BYTES - skip);
            left -= piece;
            &line[skip..skip + piece]
        }))
    }

    /// Copies the value to the start of `out`. Panics if `out` is shorter than the value.
    #[inline]
    pub fn copy_to(&self, out: &mut [u8]) {
        match self.as_contiguous() {
            // A copy of constant length needs no function call.
            Some(value) => match <&[u8; 8]>::try_from(value) {
                Ok(value) => out[..8].copy_from_slice(value),
                Err(_) => out[..value.len()].copy_from_slice(value),
            },
            None => self.copy_pieces_to(out),
        }
    }

    fn copy_pieces_to(&self, out: &mut [u8]) {
        let mut at = 0;
        for piece in self.pieces() {
            out[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
    }

    /// Appends the value to `out`.
    #[inline]
    pub fn append_to(&self, out: &mut Vec<u8>) {
        match self.as_contiguous() {
            // A copy of constant length needs no function call.
            Some(value) => match <&[u8; 8]>::try_from(value) {
                Ok(value) => out.extend_from_slice(value),
                Err(_) => out.extend_from_slice(value),
            },
            None => self.pieces().for_each(|piece| out.extend_from_slice(piece)),
        }
    }

    /// Returns the value as a vector.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = alloc::vec![0; self.len];
        self.copy_to(&mut out);
        out
    }

    /// Returns the first 8 bytes as a little-endian number: a pointer to a child, or an 8-byte value. A shorter value
    /// is extended with zeroes.
    #[inline]
    #[must_use]
    pub fn as_u64(&self) -> u64 {
        if let Some(bytes) = self.head.first_chunk::<8>() {
            return u64::from_le_bytes(*bytes);
        }
        let mut bytes = [0; 8];
        let mut at = 0;
        for piece in self.pieces() {
            let take = piece.len().min(8 - at);
            bytes[at..at + take].copy_from_slice(&piece[..take]);
            at += take;
        }
        u64::from_le_bytes(bytes)
    }
}

impl<'a> From<&'a [u8]> for ValueRef<'a> {
    fn from(value: &'a [u8]) -> Self {
        Self {
            head: value,
            lines: &[],
            skip: 0,
            len: value.len(),
        }
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for ValueRef<'a> {
    fn from(value: &'a [u8; N]) -> Self {
        Self::from(value.as_slice())
    }
}

impl PartialEq for ValueRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.pieces().flatten().eq(other.pieces().flatten())
    }
}

impl Eq for ValueRef<'_> {}

impl PartialEq<[u8]> for ValueRef<'_> {
    fn eq(&self, other: &[u8]) -> bool {
        *self == ValueRef::from(other)
    }
}
