//! The sizes of radix nodes.

use crate::LINE_BYTES;
use crate::error::GeometryError;

use super::node::RADIX_HEAD_BYTES;

/// Number of slots of a direct node. It has one slot for each key byte, at the index that equals the byte.
pub const DIRECT: usize = 256;

/// Maximum number of types of one tree.
const TYPES_MAX: usize = 10;
/// Number of slots of the smallest type of [`NodeTypes::geometric`].
const SMALLEST: u16 = 4;

/// The sizes of the nodes of a tree, one for each type. Type 1 is the smallest. The number of types can be chosen
/// (SMART §5.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeTypes {
    slots: [u16; TYPES_MAX],
    count: u8,
}

impl NodeTypes {
    /// The shipped sizes: nodes of 64, 256 and 2,064 bytes. A node grows at most twice.
    pub const SHIPPED: Self = Self {
        slots: [6, 30, 256, 0, 0, 0, 0, 0, 0, 0],
        count: 3,
    };
    /// Seven sizes, as in the paper. A READ of a node usually fetches fewer bytes than with [`SHIPPED`](Self::SHIPPED),
    /// but growing nodes are copied more often.
    pub const FINE: Self = Self {
        slots: [4, 8, 16, 32, 64, 128, 256, 0, 0, 0],
        count: 7,
    };
    /// The four sizes of ART.
    pub const ART: Self = Self {
        slots: [4, 16, 48, 256, 0, 0, 0, 0, 0, 0],
        count: 4,
    };
    /// One size: all nodes have a slot for each key byte.
    pub const ONE: Self = Self {
        slots: [256, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        count: 1,
    };
    /// Small sizes for models. Nodes fit into a line, and there is no direct node. A root with four key bytes cannot
    /// grow.
    pub const TINY: Self = Self {
        slots: [2, 4, 0, 0, 0, 0, 0, 0, 0, 0],
        count: 2,
    };

    /// Makes node types with these numbers of slots. The numbers must ascend, the first must be at least 2, and the
    /// last must be 256.
    ///
    /// # Errors
    /// Returns [`GeometryError::Span`], with the first invalid number, or with 0 if there are no numbers or too many.
    pub fn new(slots: &[u16]) -> Result<Self, GeometryError> {
        if slots.is_empty() || slots.len() > TYPES_MAX {
            return Err(GeometryError::Span(0));
        }
        let ascending = |i: &usize| slots[*i] < 2 || *i > 0 && slots[i - 1] >= slots[*i];
        if let Some(i) = (0..slots.len()).find(ascending) {
            return Err(GeometryError::Span(usize::from(slots[i])));
        }
        match slots.last() {
            Some(&last) if usize::from(last) == DIRECT => {}
            last => return Err(GeometryError::Span(last.copied().map_or(0, usize::from))),
        }
        let mut all = [0; TYPES_MAX];
        all[..slots.len()].copy_from_slice(slots);
        Ok(Self {
            slots: all,
            count: slots.len() as u8,
        })
    }

    /// Makes `count` node types (1 to 10) whose numbers of slots are approximately a geometric sequence from 4 to 256,
    /// as in SMART §5.4.3. A single type has 256 slots.
    ///
    /// # Errors
    /// Returns [`GeometryError::Span`] if there cannot be so many types.
    ///
    /// ```
    /// use dm_layout::NodeTypes;
    ///
    /// assert_eq!(NodeTypes::geometric(7), Ok(NodeTypes::FINE));
    /// assert_eq!(NodeTypes::geometric(1), NodeTypes::new(&[256]));
    /// assert!(NodeTypes::geometric(11).is_err());
    /// ```
    pub fn geometric(count: usize) -> Result<Self, GeometryError> {
        let mut slots = [DIRECT as u16; TYPES_MAX];
        let Some(slots) = slots.get_mut(..count) else {
            return Err(GeometryError::Span(0));
        };
        let steps = count.saturating_sub(1) as u32;
        for (i, slots) in slots.iter_mut().enumerate().take(steps as usize) {
            // The exact size is 4 · 64^(i / steps). The comparison uses powers of twice the size, so that it rounds to
            // the nearest number and stays in integers: below 2^81.
            let exact =
                u128::from(2 * SMALLEST).pow(steps) * (DIRECT as u128 / u128::from(SMALLEST)).pow(i as u32);
            let above = |size: &u16| (2 * u128::from(*size) + 1).pow(steps) > exact;
            *slots = (SMALLEST..DIRECT as u16).find(above).unwrap_or(*slots);
        }
        Self::new(slots)
    }

    /// Returns the largest type, which is the type of a root.
    #[must_use]
    pub const fn largest(&self) -> u8 {
        self.count
    }

    /// Returns the number of slots of a node of this type; 0 if there is no such type.
    #[inline]
    #[must_use]
    pub const fn slots(&self, node_type: u8) -> usize {
        if node_type == 0 || node_type > self.count {
            return 0;
        }
        self.slots[node_type as usize - 1] as usize
    }

    /// Returns whether a node of this type has a slot for each key byte.
    #[must_use]
    pub const fn is_direct(&self, node_type: u8) -> bool {
        self.slots(node_type) == DIRECT
    }

    /// Returns the number of bytes of a node of this type. A READ fetches all of them.
    #[must_use]
    pub const fn bytes(&self, node_type: u8) -> usize {
        RADIX_HEAD_BYTES + 8 * self.slots(node_type)
    }

    /// Returns the number of bytes that a node of this type takes in its memory node.
    #[must_use]
    pub const fn block_bytes(&self, node_type: u8) -> usize {
        self.bytes(node_type).next_multiple_of(LINE_BYTES)
    }

    /// Returns the smallest type with at least this number of slots, or the largest type if there is none.
    #[must_use]
    pub fn fitting(&self, slots: usize) -> u8 {
        let fits = |node_type: &u8| self.slots(*node_type) >= slots;
        (1..=self.count).find(fits).unwrap_or(self.count)
    }

    /// Returns one byte per type for the description of a pool: the number of slots minus one. The first word has the
    /// first eight types.
    #[must_use]
    pub fn describe(&self) -> [u64; 2] {
        let byte = |slots: &u16| u64::from(slots.saturating_sub(1) as u8);
        let word = |slots: &[u16]| slots.iter().rev().fold(0, |word, slots| word << 8 | byte(slots));
        [word(&self.slots[..8]), word(&self.slots[8..])]
    }
}
