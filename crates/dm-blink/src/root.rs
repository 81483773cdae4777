//! The root word.

use dm_verbs::{LINE, RemotePtr};

/// The bits of an address that are always zero because of the alignment of nodes.
const LEVEL_MASK: u64 = LINE as u64 - 1;

/// The root's address and level. Leaves and inner nodes may have different formats, so a reader must know whether the
/// root is a leaf before it reads the root.
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
    /// Returns the root word.
    pub(crate) fn pack(self) -> u64 {
        let raw = self.at.raw();
        assert!(
            raw & LEVEL_MASK == 0,
            "the address of a node must be a multiple of 64, not {}",
            self.at
        );
        raw | u64::from(self.level) & LEVEL_MASK
    }

    /// Unpacks a root word. Returns `None` for an empty tree.
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
    fn the_root_word_holds_the_address_and_the_level() {
        let at = RemotePtr::new(NodeId(3), 0x1_2340).expect("the address is in range");
        let root = Root { at, level: 5 };
        assert_eq!(root.pack(), 0x0003_0000_0001_2345);
        assert_eq!(Root::unpack(root.pack()), Some(root));
        assert_eq!((Root::unpack(0), Root::unpack(7)), (None, None));
    }
}
