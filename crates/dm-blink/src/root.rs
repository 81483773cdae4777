//! The root word.

use dm_verbs::{LINE, RemotePtr};

/// Bits that the alignment of nodes leaves free in an address.
const LEVEL_MASK: u64 = LINE as u64 - 1;

/// Where the root lies, and its level: leaves and inner nodes may be of different formats, so a reader must know which
/// it is before it reads.
///
/// ```text
///  63      node      48 47            offset / 64             6 5 level 0
/// ┌────────────────────┬───────────────────────────────────────┬─────────┐
/// └────────────────────┴───────────────────────────────────────┴─────────┘   0: no root
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Root {
    pub(crate) at: RemotePtr,
    pub(crate) level: u8,
}

impl Root {
    /// The word.
    pub(crate) fn pack(self) -> u64 {
        let raw = self.at.raw();
        assert!(
            raw & LEVEL_MASK == 0,
            "nodes lie at multiples of 64 bytes, not at {}",
            self.at
        );
        raw | u64::from(self.level) & LEVEL_MASK
    }

    /// From the word; `None` for an empty tree.
    pub(crate) fn unpack(word: u64) -> Option<Self> {
        let at = RemotePtr::from_raw(word & !LEVEL_MASK);
        (!at.is_null()).then_some(Self {
            at,
            level: (word & LEVEL_MASK) as u8,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dm_verbs::NodeId;

    #[test]
    fn the_word_is_the_address_and_the_level_in_its_free_bits() {
        let at = RemotePtr::new(NodeId(3), 0x1_2340).expect("in range");
        let root = Root { at, level: 5 };
        assert_eq!(root.pack(), 0x0003_0000_0001_2345);
        assert_eq!(Root::unpack(root.pack()), Some(root));
        assert_eq!((Root::unpack(0), Root::unpack(7)), (None, None));
    }
}
