//! The encoding of child addresses in inner nodes.

use dm_verbs::{NodeId, RemotePtr};

use crate::IndexError;

/// Size in bytes of a child's address in the densest inner nodes. A node of 1 KiB then has 77 entries with keys of 8
/// bytes. The addresses of all nodes must be multiples of [`NEAR_CHILD_UNIT`]. The first byte of an encoded address is
/// odd, so that it also shows that the entry is in use.
///
/// ```text
///  31  node 5  27 26       offset / 1024       1 0   1     little-endian
/// ```
pub const NEAR_CHILD_BYTES: usize = 4;
/// Unit of the addresses that fit into [`NEAR_CHILD_BYTES`].
pub const NEAR_CHILD_UNIT: u64 = 1 << NEAR_SHIFT;
/// Number of memory nodes that can be addressed with [`NEAR_CHILD_BYTES`].
pub const NEAR_CHILD_NODES_MAX: u16 = 1 << NEAR_NODE_BITS;
/// Bytes of each memory node that can be addressed with [`NEAR_CHILD_BYTES`]: 64 GiB.
pub const NEAR_CHILD_REACH: u64 = 1 << (NEAR_SHIFT + NEAR_OFFSET_BITS);
const NEAR_SHIFT: u32 = 10;
const NEAR_OFFSET_BITS: u32 = 26;
const NEAR_NODE_BITS: u32 = 5;

/// Size in bytes of a child's address in dense inner nodes whose children may be at any address. A node of 1 KiB then
/// has 62 entries with keys of 8 bytes.
///
/// ```text
///  47   node 10   38 37          offset / 64          0    little-endian
/// ```
pub const CHILD_BYTES: usize = 6;
const _: () = assert!(dm_verbs::LINE == 1 << LINE_SHIFT);
const LINE_SHIFT: u32 = 6;
const OFFSET_BITS: u32 = 38;
const NODE_BITS: u32 = 10;

/// Number of memory nodes that can be addressed with [`CHILD_BYTES`].
pub const CHILD_NODES_MAX: u16 = 1 << NODE_BITS;

/// A child's address, encoded as a value of an inner node. It takes [`NEAR_CHILD_BYTES`], [`CHILD_BYTES`], or the 8
/// bytes of a remote pointer.
///
/// ```
/// use dm_index::{CHILD_BYTES, Child, NEAR_CHILD_BYTES};
/// use dm_verbs::{NodeId, RemotePtr};
///
/// let at = RemotePtr::new(NodeId(3), 5 << 10).unwrap();
/// for bytes in [NEAR_CHILD_BYTES, CHILD_BYTES, 8] {
///     let child = Child::of(at, bytes)?;
///     assert_eq!(child.bytes().len(), bytes);
///     assert_eq!(Child::decode(child.bytes()), at);
/// }
/// # Ok::<(), dm_index::IndexError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Child {
    word: [u8; 8],
    len: usize,
}

impl Child {
    /// Encodes `at` in `len` bytes.
    ///
    /// # Errors
    /// Returns [`IndexError::Pool`] if the address does not fit. An address fits into 6 bytes if its offset is a
    /// multiple of 64 below 16 TiB and its memory node is one of the first 1024. It fits into 4 bytes if its offset is
    /// a multiple of 1024 below 64 GiB and its memory node is one of the first 32. Returns [`IndexError::BadInput`] if
    /// `len` is not 4, 6 or 8.
    pub fn of(at: RemotePtr, len: usize) -> Result<Self, IndexError> {
        let word = match len {
            8 => Some(at.raw()),
            CHILD_BYTES => Self::packed(at, LINE_SHIFT, OFFSET_BITS, NODE_BITS),
            NEAR_CHILD_BYTES => {
                let packed = Self::packed(at, NEAR_SHIFT, NEAR_OFFSET_BITS, NEAR_NODE_BITS);
                packed.map(|word| word << 1 | 1)
            }
            _ => {
                let why = "an inner node's values have 4, 6 or 8 bytes";
                return Err(IndexError::BadInput { why });
            }
        };
        let Some(word) = word else {
            let why = "the address of a node does not fit into its parent's entry";
            return Err(IndexError::Pool { at, why });
        };
        Ok(Self {
            word: word.to_le_bytes(),
            len,
        })
    }

    /// Returns a word whose lowest `offset_bits` bits hold the offset without its lowest `shift` bits. The bits above
    /// them hold the number of the memory node. Returns `None` if this loses a part of the address.
    fn packed(at: RemotePtr, shift: u32, offset_bits: u32, node_bits: u32) -> Option<u64> {
        let (node, units) = (u64::from(at.node().0), at.offset() >> shift);
        let fits = at.offset() == units << shift && units >> offset_bits == 0 && node >> node_bits == 0;
        fits.then_some(node << offset_bits | units)
    }

    fn unpacked(word: u64, shift: u32, offset_bits: u32) -> RemotePtr {
        // The cast loses nothing: the number has at most ten bits.
        let node = NodeId((word >> offset_bits) as u16);
        let offset = (word & ((1 << offset_bits) - 1)) << shift;
        RemotePtr::new(node, offset).unwrap_or(RemotePtr::NULL)
    }

    /// Returns the bytes of the entry's value.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.word[..self.len]
    }

    /// Decodes an address. Returns null if `bytes` does not have 4, 6 or 8 bytes.
    #[inline]
    pub fn decode(bytes: &[u8]) -> RemotePtr {
        if let Ok(bytes) = <[u8; 8]>::try_from(bytes) {
            return RemotePtr::from_raw(u64::from_le_bytes(bytes));
        }
        if let Ok(bytes) = <[u8; NEAR_CHILD_BYTES]>::try_from(bytes) {
            let word = u64::from(u32::from_le_bytes(bytes));
            return Self::unpacked(word >> 1, NEAR_SHIFT, NEAR_OFFSET_BITS);
        }
        let Ok([a, b, c, d, e, f]) = <[u8; CHILD_BYTES]>::try_from(bytes) else {
            return RemotePtr::NULL;
        };
        let word = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        Self::unpacked(word, LINE_SHIFT, OFFSET_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(node: u16, offset: u64) -> RemotePtr {
        RemotePtr::new(NodeId(node), offset).expect("the offset fits into 48 bits")
    }

    #[test]
    fn the_farthest_address_fits_and_none_beyond() {
        let last = at(1023, (1 << 44) - 64);
        let child = Child::of(last, CHILD_BYTES).expect("the address fits");
        assert_eq!(child.bytes(), [0xff; 6]);
        assert_eq!(Child::decode(child.bytes()), last);
        for beyond in [at(1024, 64), at(0, 1 << 44), at(0, 96)] {
            assert!(Child::of(beyond, CHILD_BYTES).is_err(), "{beyond}");
            assert_eq!(Child::of(beyond, 8).map(|c| Child::decode(c.bytes())), Ok(beyond));
        }
        assert!(Child::of(last, 7).is_err());
    }

    #[test]
    fn near_addresses_fit_up_to_their_reach_and_are_odd() {
        let last = at(NEAR_CHILD_NODES_MAX - 1, NEAR_CHILD_REACH - NEAR_CHILD_UNIT);
        let child = Child::of(last, NEAR_CHILD_BYTES).expect("the address fits");
        assert_eq!(child.bytes(), [0xff; 4]);
        assert_eq!(Child::decode(child.bytes()), last);
        let first = Child::of(at(0, 1024), NEAR_CHILD_BYTES).expect("the address fits");
        assert_eq!(first.bytes(), [3, 0, 0, 0]);
        for beyond in [at(32, 1024), at(0, 1 << 36), at(0, 512)] {
            assert!(Child::of(beyond, NEAR_CHILD_BYTES).is_err(), "{beyond}");
            assert!(Child::of(beyond, CHILD_BYTES).is_ok(), "{beyond}");
        }
    }

    #[test]
    fn any_bytes_are_an_address_or_null() {
        assert_eq!(Child::decode(&[0; NEAR_CHILD_BYTES]), RemotePtr::NULL);
        assert_eq!(Child::decode(&[1, 0, 0, 0]), RemotePtr::NULL);
        assert_eq!(Child::decode(&[0; CHILD_BYTES]), RemotePtr::NULL);
        assert_eq!(Child::decode(&[1; 5]), RemotePtr::NULL);
        assert_eq!(Child::decode(&[1, 0, 0, 0, 0, 0]), at(0, 64));
        assert_eq!(Child::decode(&[0, 0, 0, 0, 0x40, 0]), at(1, 0));
    }
}
