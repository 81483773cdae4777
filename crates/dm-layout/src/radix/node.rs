//! A whole radix node, which is decoded from the bytes of one READ.

use crate::chunks::Chunks as _;
use alloc::vec::Vec;

use crate::error::{Corrupt, Reason};

use super::{NodeTypes, RadixHeader, SlotWord};

/// Number of bytes before the first slot.
pub const RADIX_HEAD_BYTES: usize = 16;
/// The offset of a node's incarnation, which has four bytes.
pub const RADIX_INCARNATION_AT: usize = 8;
/// The characters "rx", after the incarnation.
const MAGIC: u64 = 0x7872 << 32;
const MAGIC_MASK: u64 = !0 << 32;

/// The bytes of a radix node. Its head has been checked.
///
/// ```
/// use dm_layout::{Find, NodeTypes, RadixHeader, RadixNode, SlotWord, build_radix_node};
///
/// let (types, mut bytes) = (NodeTypes::SHIPPED, Vec::new());
/// let child = SlotWord::leaf(b'k', 4096, 1).expect("an address");
/// build_radix_node(&types, RadixHeader::new(0, 1, &[]), 1, &[child], &mut bytes);
/// let node = RadixNode::decode(&bytes, &types, 1)?;
/// assert!(matches!(node.find(b'k')?, Find::Child(_, found) if found == child));
/// assert!(matches!(node.find(b'l')?, Find::Vacant(..)));
/// # Ok::<(), dm_layout::Corrupt>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RadixNode<'a> {
    header: RadixHeader,
    incarnation: u32,
    direct: bool,
    slots: &'a [[u8; 8]],
}

/// The result of searching a node for a key byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// The key byte has this child, in this slot.
    Child(usize, SlotWord),
    /// The key byte has no child. A new child must use this slot, which is empty, or belongs to this key byte and had
    /// a child before.
    Vacant(usize, SlotWord),
    /// The key byte has no child, and every slot belongs to another key byte.
    Full,
}

impl<'a> RadixNode<'a> {
    /// Decodes a node of `node_type` from the bytes of a READ of the whole node.
    ///
    /// # Errors
    /// Returns [`Corrupt`] if the bytes are not such a node. Slots are not checked here ([`find`](Self::find)).
    pub fn decode(bytes: &'a [u8], types: &NodeTypes, node_type: u8) -> Result<Self, Corrupt> {
        let corrupt = |offset, reason| Err(Corrupt { offset, reason });
        let (words, _) = bytes.in_chunks::<8>();
        let [header, identity, slots @ ..] = words else {
            return corrupt(0, Reason::Length);
        };
        let header = RadixHeader::unpack(u64::from_le_bytes(*header))?;
        let identity = u64::from_le_bytes(*identity);
        if identity & MAGIC_MASK != MAGIC {
            return corrupt(RADIX_INCARNATION_AT, Reason::Kind);
        }
        if header.node_type() != node_type {
            return corrupt(0, Reason::Kind);
        }
        let Some(slots) = slots.get(..types.slots(node_type)) else {
            return corrupt(bytes.len(), Reason::Length);
        };
        Ok(Self {
            header,
            incarnation: identity as u32,
            direct: types.is_direct(node_type),
            slots,
        })
    }

    /// Returns the header.
    #[must_use]
    pub const fn header(&self) -> RadixHeader {
        self.header
    }

    /// Returns the number of nodes that were built in this memory so far.
    #[must_use]
    pub const fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// Returns the slots in order.
    pub fn words(&self) -> impl ExactSizeIterator<Item = SlotWord> + Clone + use<'a> {
        self.slots
            .iter()
            .map(|w| SlotWord::from_raw(u64::from_le_bytes(*w)))
    }

    /// Returns whether any slot is frozen, because the node is being replaced or was replaced.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.words().any(SlotWord::is_frozen)
    }

    /// Returns the slot of key byte `partial`.
    ///
    /// If `partial` has no slot, a writer must use the first empty slot. Slots are filled in order and keep their key
    /// byte. So when the first empty slot was read, no slot had `partial`.
    ///
    /// # Errors
    /// Returns [`Corrupt`] if the slot of `partial` is invalid. Of the other slots, at most those without a child are
    /// checked.
    pub fn find(&self, partial: u8) -> Result<Find, Corrupt> {
        if self.direct {
            let index = usize::from(partial);
            let word = SlotWord::from_raw(u64::from_le_bytes(self.slots[index]));
            return self.found(index, word);
        }
        let mut free = None;
        for (index, word) in self.words().enumerate() {
            if word.is_empty() {
                free = free.or(Some((index, word)));
            } else if word.partial() == partial {
                return self.found(index, word);
            } else if !word.has_child() {
                Self::check(index, word)?;
            }
        }
        Ok(free.map_or(Find::Full, |(index, word)| Find::Vacant(index, word)))
    }

    fn check(index: usize, word: SlotWord) -> Result<(), Corrupt> {
        match word.decode() {
            Ok(_) => Ok(()),
            Err(e) => Err(Corrupt {
                offset: RADIX_HEAD_BYTES + 8 * index,
                ..e
            }),
        }
    }

    fn found(&self, index: usize, word: SlotWord) -> Result<Find, Corrupt> {
        Self::check(index, word)?;
        Ok(match word.has_child() {
            true => Find::Child(index, word),
            false => Find::Vacant(index, word),
        })
    }
}

/// Writes the bytes of a new node to `out`, which is cleared first. `children` are slots that have a key byte and a
/// child, and are not frozen. They keep their order, but in a direct node each one is at the index of its key byte. All
/// other slots are empty.
///
/// # Panics
/// Panics if there are more children than slots, or if a slot of `children` has no child or is frozen.
///
/// ```
/// use dm_layout::{NodeTypes, RadixHeader, build_radix_node};
///
/// let (types, mut node) = (NodeTypes::SHIPPED, Vec::new());
/// build_radix_node(&types, RadixHeader::new(0, types.largest(), &[]), 1, &[], &mut node);
/// assert_eq!(node.len(), types.bytes(types.largest()));
/// ```
pub fn build_radix_node(
    types: &NodeTypes,
    header: RadixHeader,
    incarnation: u32,
    children: &[SlotWord],
    out: &mut Vec<u8>,
) {
    let slots = types.slots(header.node_type());
    assert!(
        children.len() <= slots,
        "{} children in {slots} slots",
        children.len()
    );
    out.clear();
    out.reserve(types.bytes(header.node_type()));
    out.extend_from_slice(&header.pack().to_le_bytes());
    out.extend_from_slice(&(MAGIC | u64::from(incarnation)).to_le_bytes());
    for _ in 0..slots {
        out.extend_from_slice(&SlotWord::empty(incarnation).raw().to_le_bytes());
    }
    let direct = types.is_direct(header.node_type());
    for (i, child) in children.iter().enumerate() {
        assert!(child.has_child() && !child.is_frozen(), "a child in every slot");
        let index = if direct { usize::from(child.partial()) } else { i };
        let at = RADIX_HEAD_BYTES + 8 * index;
        out[at..at + 8].copy_from_slice(&child.raw().to_le_bytes());
    }
}
