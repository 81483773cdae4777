//! The header word of a radix node.

use crate::error::{Corrupt, Reason};

/// Maximum number of key bytes in a header.
pub const PARTIAL_MAX: usize = 6;

/// The part of a key that a node represents. The header contains the key bytes `depth..branch`, and byte `branch`
/// selects the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RadixHeader {
    depth: u8,
    node_type: u8,
    len: u8,
    partial: [u8; PARTIAL_MAX],
}

impl RadixHeader {
    /// Makes the header of a node of type `node_type` (1 to 31) that begins at key byte `depth` and contains
    /// `partial`.
    ///
    /// # Panics
    /// Panics if `partial` is longer than [`PARTIAL_MAX`], if the branch, `depth` plus this length, does not fit into a
    /// byte, or if `node_type` is not from 1 to 31.
    #[must_use]
    pub fn new(depth: u8, node_type: u8, partial: &[u8]) -> Self {
        assert!(
            partial.len() <= PARTIAL_MAX && (1..32).contains(&node_type),
            "a header holds at most {PARTIAL_MAX} key bytes, and types 1 to 31"
        );
        assert!(
            usize::from(depth) + partial.len() <= usize::from(u8::MAX),
            "the branch of a header is at most 255"
        );
        let mut bytes = [0; PARTIAL_MAX];
        bytes[..partial.len()].copy_from_slice(partial);
        Self {
            depth,
            node_type,
            len: partial.len() as u8,
            partial: bytes,
        }
    }

    /// Returns the index of the first key byte in the header.
    #[must_use]
    pub const fn depth(&self) -> u8 {
        self.depth
    }

    /// Returns the index of the key byte that selects a slot. It never changes in a node.
    #[inline]
    #[must_use]
    pub const fn branch(&self) -> u8 {
        self.depth + self.len
    }

    /// Returns the node's type.
    #[must_use]
    pub const fn node_type(&self) -> u8 {
        self.node_type
    }

    /// Returns the key bytes `depth..branch`.
    #[inline]
    #[must_use]
    pub fn partial(&self) -> &[u8] {
        &self.partial[..usize::from(self.len)]
    }

    /// Returns the key bytes from byte `from` to the branch, or `None` if the header begins after byte `from`, or if
    /// byte `from` is after the branch.
    #[inline]
    #[must_use]
    pub fn partial_from(&self, from: u8) -> Option<&[u8]> {
        self.partial().get(usize::from(from.checked_sub(self.depth)?)..)
    }

    /// Returns the header of the same node with `before` in front of its key bytes. Returns `None` if a header cannot
    /// hold so many key bytes, or if `before` is longer than the depth.
    #[must_use]
    pub fn extended(&self, before: &[u8]) -> Option<Self> {
        let len = before.len() + usize::from(self.len);
        if len > PARTIAL_MAX || before.len() > usize::from(self.depth) {
            return None;
        }
        let mut partial = [0; PARTIAL_MAX];
        partial[..before.len()].copy_from_slice(before);
        partial[before.len()..len].copy_from_slice(self.partial());
        Some(Self {
            depth: self.depth - before.len() as u8,
            len: len as u8,
            partial,
            ..*self
        })
    }

    /// Returns this header with another type.
    #[must_use]
    pub fn typed(self, node_type: u8) -> Self {
        Self { node_type, ..self }
    }

    /// Returns the header as a word.
    #[must_use]
    pub fn pack(&self) -> u64 {
        let [a, b, c, d, e, f] = self.partial;
        u64::from_le_bytes([self.depth, self.node_type | self.len << 5, a, b, c, d, e, f])
    }

    /// Decodes a header word.
    ///
    /// # Errors
    /// Returns [`Corrupt`] if the word has too many key bytes, no type, a branch that does not fit into a byte, or
    /// non-zero bytes after its key bytes.
    pub fn unpack(word: u64) -> Result<Self, Corrupt> {
        let [depth, kind, a, b, c, d, e, f] = word.to_le_bytes();
        let (node_type, len) = (kind & 0x1f, kind >> 5);
        let partial = [a, b, c, d, e, f];
        let corrupt = |reason| Err(Corrupt { offset: 0, reason });
        if node_type == 0 {
            return corrupt(Reason::Kind);
        }
        let beyond = partial
            .get(usize::from(len)..)
            .is_none_or(|rest| rest.iter().any(|b| *b != 0));
        if beyond || depth.checked_add(len).is_none() {
            return corrupt(Reason::Count);
        }
        Ok(Self {
            depth,
            node_type,
            len,
            partial,
        })
    }
}
