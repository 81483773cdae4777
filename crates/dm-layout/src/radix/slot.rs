//! The slot word of a radix node.

use crate::LINE_BYTES;
use crate::error::{Corrupt, Reason};

const OFFSET_BITS: u32 = 40;
const NODE_BITS: u32 = 8;
const KIND_SHIFT: u32 = 48;
const KIND_MASK: u64 = 0x3f;
const LEAF: u64 = 1 << 54;
const FROZEN: u64 = 1 << 55;
const PARTIAL_SHIFT: u32 = 56;
const STATE_SHIFT: u32 = 32;
const EMPTY: u64 = 1;
const REMOVED: u64 = 2;
/// Number of bits of the offset in a packed remote pointer.
const POINTER_OFFSET_BITS: u32 = 48;

/// Maximum number of lines of a leaf to which a slot can point.
pub const LEAF_LINES_MAX: u8 = 63;

/// The 8 bytes of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct SlotWord(u64);

/// A decoded slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// The slot never had a child.
    Empty,
    /// The slot had a child, which was removed. Only a child with the same key byte may use the slot again.
    Removed {
        /// The key byte.
        partial: u8,
    },
    /// The slot points to an inner node.
    Inner {
        /// The key byte.
        partial: u8,
        /// A packed remote pointer.
        at: u64,
        /// The child's type.
        node_type: u8,
    },
    /// The slot points to a leaf.
    Leaf {
        /// The key byte.
        partial: u8,
        /// A packed remote pointer.
        at: u64,
        /// The size of the leaf in lines.
        lines: u8,
    },
}

impl SlotWord {
    /// Makes a slot that never had a child, in a node with this incarnation.
    #[must_use]
    pub const fn empty(incarnation: u32) -> Self {
        Self(EMPTY << STATE_SHIFT | incarnation as u64)
    }

    /// Returns a slot whose child was removed.
    #[must_use]
    pub const fn removed(partial: u8, incarnation: u32) -> Self {
        Self((partial as u64) << PARTIAL_SHIFT | REMOVED << STATE_SHIFT | incarnation as u64)
    }

    /// Makes a slot that points to an inner node of type `node_type` at the packed remote pointer `at`. Returns `None`
    /// if a slot cannot encode this. It can encode the types 1 to 31, and the addresses of lines in at most 256 memory
    /// nodes of 64 TiB each, except for the first line of a memory node, because offset 0 is no address.
    #[must_use]
    pub const fn inner(partial: u8, at: u64, node_type: u8) -> Option<Self> {
        if node_type == 0 || node_type > 31 {
            return None;
        }
        Self::child(partial, at, node_type as u64)
    }

    /// Makes a slot that points to a leaf of `lines` lines. Returns `None` if a slot cannot encode this. It can encode
    /// 1 to 63 lines, and the same addresses as [`SlotWord::inner`].
    #[must_use]
    pub const fn leaf(partial: u8, at: u64, lines: u8) -> Option<Self> {
        if lines == 0 || lines > LEAF_LINES_MAX {
            return None;
        }
        match Self::child(partial, at, lines as u64) {
            Some(Self(word)) => Some(Self(word | LEAF)),
            None => None,
        }
    }

    const fn child(partial: u8, at: u64, kind: u64) -> Option<Self> {
        let node = at >> POINTER_OFFSET_BITS;
        let offset = at & ((1 << POINTER_OFFSET_BITS) - 1);
        let lines = offset / LINE_BYTES as u64;
        let fits = node >> NODE_BITS == 0 && lines >> OFFSET_BITS == 0;
        if !fits || lines == 0 || offset % LINE_BYTES as u64 != 0 {
            return None;
        }
        Some(Self(
            (partial as u64) << PARTIAL_SHIFT | kind << KIND_SHIFT | node << OFFSET_BITS | lines,
        ))
    }

    /// Converts from the 64-bit form. It accepts every word, but [`decode`](Self::decode) may refuse the result.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns the 64-bit form.
    #[inline]
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns the key byte. It has no meaning in an empty slot.
    #[inline]
    #[must_use]
    pub const fn partial(self) -> u8 {
        (self.0 >> PARTIAL_SHIFT) as u8
    }

    /// Returns whether the slot is frozen. No CAS changes a frozen slot.
    #[inline]
    #[must_use]
    pub const fn is_frozen(self) -> bool {
        self.0 & FROZEN != 0
    }

    /// Returns this slot as a frozen one.
    #[must_use]
    pub const fn frozen(self) -> Self {
        Self(self.0 | FROZEN)
    }

    /// Returns this slot as one that is not frozen, for a new copy of its node.
    #[must_use]
    pub const fn thawed(self) -> Self {
        Self(self.0 & !FROZEN)
    }

    /// Returns whether the slot never had a child.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        !self.has_child() && (self.0 >> STATE_SHIFT) & 0xff == EMPTY
    }

    /// Returns whether the slot points to a child.
    #[inline]
    #[must_use]
    pub const fn has_child(self) -> bool {
        self.0 >> KIND_SHIFT & KIND_MASK != 0
    }

    /// Returns whether the slot points to a leaf.
    #[inline]
    #[must_use]
    pub const fn is_leaf(self) -> bool {
        self.has_child() && self.0 & LEAF != 0
    }

    /// Returns the packed remote pointer to the child, or 0 if there is no child.
    #[inline]
    #[must_use]
    pub const fn pointer(self) -> u64 {
        if !self.has_child() {
            return 0;
        }
        let node = self.0 >> OFFSET_BITS & ((1 << NODE_BITS) - 1);
        let lines = self.0 & ((1 << OFFSET_BITS) - 1);
        (node << POINTER_OFFSET_BITS) | (lines * LINE_BYTES as u64)
    }

    /// Decodes the slot, whether it is frozen or not.
    ///
    /// # Errors
    /// Returns [`Corrupt`] if the word is not a valid slot.
    pub const fn decode(self) -> Result<Slot, Corrupt> {
        let (partial, kind) = (self.partial(), (self.0 >> KIND_SHIFT & KIND_MASK) as u8);
        let at = self.pointer();
        let null = at & ((1 << POINTER_OFFSET_BITS) - 1) == 0;
        match (kind, self.0 & LEAF != 0, (self.0 >> STATE_SHIFT) & 0xff) {
            (0, false, EMPTY) if partial == 0 => Ok(Slot::Empty),
            (0, false, REMOVED) => Ok(Slot::Removed { partial }),
            (1..=31, false, _) if !null => Ok(Slot::Inner {
                partial,
                at,
                node_type: kind,
            }),
            (1.., true, _) if !null => Ok(Slot::Leaf {
                partial,
                at,
                lines: kind,
            }),
            _ => Err(Corrupt {
                offset: 0,
                reason: Reason::State,
            }),
        }
    }
}
