//! The word that points to a block.

use dm_alloc::Class;
use dm_layout::{Corrupt, Reason};
use dm_verbs::{LINE, NodeId, RemotePtr};

/// Size of a reference in bytes. The values of the index must have this size.
pub const REFERENCE_BYTES: usize = 8;
/// Bytes of the largest block: 2^14 lines, which is 1 MiB.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;
/// Number of memory nodes that a reference can distinguish.
pub const REFERENCE_NODES_MAX: u16 = 1 << NODE_BITS;

/// The kind of the blocks of items, which distinguishes them from nodes of the same size.
pub const KIND: u8 = b'i';
const NODE_BITS: u32 = 8;
const LENGTH_BITS: u32 = 14;
const LENGTH_SHIFT: u32 = 64 - NODE_BITS - LENGTH_BITS;
const PLACE_BITS: u32 = LENGTH_SHIFT - 1;
/// The lowest bit of every reference. A leaf can take it as the mark of a present entry.
const MARK: u64 = 1;

/// The address of a block and its number of lines, so that one READ of the right length fetches it.
///
/// ```text
/// bit 63      56 55           42 41                 1  0
///     | node, 8 | lines - 1, 14 | offset in lines, 41 | 1 |
/// ```
///
/// ```
/// use dm_indirect::Reference;
/// use dm_verbs::{NodeId, RemotePtr};
///
/// let block = RemotePtr::new(NodeId(3), 4096).unwrap();
/// let reference = Reference::new(block, 100).expect("the address and the length fit");
/// assert_eq!((reference.at(), reference.bytes()), (block, 128));
/// assert_eq!(Reference::decode(&reference.encode()), Ok(reference));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference {
    at: RemotePtr,
    lines: u32,
}

impl Reference {
    /// Makes a reference to a block of `bytes` bytes at `at`. Returns `None` if the address or the length does not fit:
    /// a reference can address 256 memory nodes, 128 TiB of each, and blocks of 1 byte to 1 MiB that begin at a line
    /// other than the first one, because offset 0 is no address.
    #[must_use]
    pub fn new(at: RemotePtr, bytes: usize) -> Option<Self> {
        let fits = at.node().0 < REFERENCE_NODES_MAX
            && at.offset() > 0
            && at.offset().is_multiple_of(LINE as u64)
            && at.offset() / (LINE as u64) < 1 << PLACE_BITS
            && (1..=BLOCK_BYTES_MAX).contains(&bytes);
        fits.then_some(Self {
            at,
            // The cast loses nothing: the number is at most 2^14.
            lines: bytes.div_ceil(LINE) as u32,
        })
    }

    /// Returns the address of the block.
    #[must_use]
    pub const fn at(self) -> RemotePtr {
        self.at
    }

    /// Returns the number of bytes to read.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.lines * LINE as u32
    }

    /// Returns the bytes that an index stores for this reference.
    #[must_use]
    pub fn encode(self) -> [u8; REFERENCE_BYTES] {
        let node = u64::from(self.at.node().0) << (64 - NODE_BITS);
        let length = u64::from(self.lines - 1) << LENGTH_SHIFT;
        let place = (self.at.offset() / LINE as u64) << 1;
        (node | length | place | MARK).to_le_bytes()
    }

    /// Decodes the bytes that an index stores.
    ///
    /// # Errors
    /// Returns [`Corrupt`] if the bytes are not a reference, because they have another length, lack the mark, or
    /// contain an address that cannot be that of a block.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let bad = Corrupt {
            offset: 0,
            reason: Reason::Length,
        };
        let word = u64::from_le_bytes(bytes.try_into().map_err(|_| bad)?);
        if word & MARK == 0 {
            return Err(bad);
        }
        let offset = ((word >> 1) & ((1 << PLACE_BITS) - 1)) * LINE as u64;
        let node = NodeId((word >> (64 - NODE_BITS)) as u16);
        let lines = ((word >> LENGTH_SHIFT) as u32) & ((1 << LENGTH_BITS) - 1);
        let at = RemotePtr::new(node, offset).filter(|at| at.offset() > 0);
        Ok(Self {
            at: at.ok_or(bad)?,
            lines: lines + 1,
        })
    }

    /// Returns the class of the block. There are four sizes per power of two, so that a block can be reused for items
    /// of similar length.
    #[must_use]
    pub(crate) fn class(self) -> Class {
        class_of(self.lines)
    }
}

/// Decodes a value of an index of items, for a check. Returns the address and the size in bytes of the block.
///
/// # Errors
/// Returns [`Corrupt`] if the bytes are not a reference.
pub fn referred(value: &[u8]) -> Result<(RemotePtr, u64), Corrupt> {
    let reference = Reference::decode(value)?;
    Ok((reference.at(), u64::from(reference.class().bytes)))
}

/// Returns the class of blocks for `lines` lines.
pub(crate) fn class_of(lines: u32) -> Class {
    let step = 1 << lines.max(1).ilog2().saturating_sub(2);
    Class {
        bytes: lines.next_multiple_of(step) * LINE as u32,
        kind: KIND,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_survive_encoding_and_decoding() {
        let far = RemotePtr::new(NodeId(255), (1 << 47) - 64).expect("the offset fits into 48 bits");
        let near = RemotePtr::new(NodeId(0), 64).expect("the offset fits into 48 bits");
        for (at, bytes, read) in [(near, 1, 64), (far, 65, 128), (near, BLOCK_BYTES_MAX, 1 << 20)] {
            let reference = Reference::new(at, bytes).expect("the address and the length fit");
            assert_eq!((reference.at(), reference.bytes()), (at, read));
            assert_eq!(Reference::decode(&reference.encode()), Ok(reference));
            assert_eq!(referred(&reference.encode()), Ok((at, u64::from(read))));
        }
        let beyond = RemotePtr::new(NodeId(256), 64).expect("the offset fits into 48 bits");
        assert_eq!(Reference::new(beyond, 1), None);
        assert_eq!(Reference::new(far.add(64), 1), None);
        assert_eq!(Reference::new(near.add(8), 1), None);
        assert_eq!(Reference::new(near, BLOCK_BYTES_MAX + 1), None);
        assert_eq!(Reference::new(near, 0), None);
        let null = RemotePtr::new(NodeId(3), 0).expect("the offset fits into 48 bits");
        assert_eq!(Reference::new(null, 1), None);
        assert!(Reference::decode(&[0; 8]).is_err() && Reference::decode(&[1; 7]).is_err());
        assert!(
            Reference::decode(&[2; 8]).is_err(),
            "the lowest bit is set in every reference"
        );
    }

    #[test]
    fn a_class_wastes_at_most_a_quarter() {
        let lines = [1, 2, 7, 8, 9, 15, 16, 17, 31].map(|lines| class_of(lines).bytes / LINE as u32);
        assert_eq!(lines, [1, 2, 7, 8, 10, 16, 16, 20, 32]);
        let mut classes = std::collections::BTreeSet::new();
        for lines in 1..=(BLOCK_BYTES_MAX / LINE) as u32 {
            let class = class_of(lines);
            let bytes = lines * LINE as u32;
            assert!(
                class.bytes >= bytes && class.bytes - bytes <= bytes / 4,
                "{lines}"
            );
            assert_eq!(class_of(class.bytes / LINE as u32), class);
            classes.insert(class);
        }
        assert!(classes.len() < 60, "{} classes", classes.len());
    }
}
