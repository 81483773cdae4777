//! A child's address as an inner node's entry holds it.

use dm_verbs::{LINE, NodeId, RemotePtr};

use crate::IndexError;

/// Bytes of a child in an inner node that is to hold many: 62 with keys of 8 bytes in 1 KB.
///
/// ```text
///  47   node 10   38 37          offset / 64          0    little-endian
/// ```
pub const CHILD_BYTES: usize = 6;
const _: () = assert!(LINE == 1 << LINE_SHIFT);
const LINE_SHIFT: u32 = 6;
const OFFSET_BITS: u32 = 38;
const NODE_BITS: u32 = 10;

/// Memory nodes whose addresses go into [`CHILD_BYTES`].
pub const CHILD_NODES_MAX: u16 = 1 << NODE_BITS;

/// A child's address in as many bytes as inner nodes' values have: [`CHILD_BYTES`], or a remote pointer's 8.
///
/// ```
/// use dm_index::{CHILD_BYTES, Child};
/// use dm_verbs::{NodeId, RemotePtr};
///
/// let at = RemotePtr::new(NodeId(3), 5 << 10).unwrap();
/// for bytes in [CHILD_BYTES, 8] {
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
    /// `at` in `len` bytes.
    ///
    /// # Errors
    /// [`IndexError::Pool`] for an address that has no room there: no multiple of 64, beyond 16 TiB, or on a memory node
    /// beyond the 1024th. [`IndexError::BadInput`] for another `len` than 6 or 8.
    pub fn of(at: RemotePtr, len: usize) -> Result<Self, IndexError> {
        let word = match len {
            8 => at.raw(),
            CHILD_BYTES => {
                let (node, lines) = (u64::from(at.node().0), at.offset() >> LINE_SHIFT);
                let fits = at.offset().is_multiple_of(LINE as u64)
                    && lines >> OFFSET_BITS == 0
                    && at.node().0 < CHILD_NODES_MAX;
                if !fits {
                    let why = "the address of a node has no room in its parent";
                    return Err(IndexError::Pool { at, why });
                }
                node << OFFSET_BITS | lines
            }
            _ => {
                let why = "an inner node's values have 6 or 8 bytes";
                return Err(IndexError::BadInput { why });
            }
        };
        Ok(Self {
            word: word.to_le_bytes(),
            len,
        })
    }

    /// The bytes of the entry's value.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.word[..self.len]
    }

    /// The address that such bytes hold; null for bytes of another length.
    #[inline]
    pub fn decode(bytes: &[u8]) -> RemotePtr {
        if let Ok(bytes) = <[u8; 8]>::try_from(bytes) {
            return RemotePtr::from_raw(u64::from_le_bytes(bytes));
        }
        let Ok([a, b, c, d, e, f]) = <[u8; CHILD_BYTES]>::try_from(bytes) else {
            return RemotePtr::NULL;
        };
        let word = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        // Ten bits.
        let node = NodeId((word >> OFFSET_BITS) as u16);
        let offset = (word & ((1 << OFFSET_BITS) - 1)) << LINE_SHIFT;
        RemotePtr::new(node, offset).unwrap_or(RemotePtr::NULL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(node: u16, offset: u64) -> RemotePtr {
        RemotePtr::new(NodeId(node), offset).expect("48 bits")
    }

    #[test]
    fn the_farthest_address_and_none_beyond() {
        let last = at(1023, (1 << 44) - 64);
        let child = Child::of(last, CHILD_BYTES).expect("it has room");
        assert_eq!(child.bytes(), [0xff; 6]);
        assert_eq!(Child::decode(child.bytes()), last);
        for beyond in [at(1024, 64), at(0, 1 << 44), at(0, 96)] {
            assert!(Child::of(beyond, CHILD_BYTES).is_err(), "{beyond}");
            assert_eq!(Child::of(beyond, 8).map(|c| Child::decode(c.bytes())), Ok(beyond));
        }
        assert!(Child::of(last, 7).is_err());
    }

    #[test]
    fn any_bytes_are_an_address_or_null() {
        assert_eq!(Child::decode(&[0; CHILD_BYTES]), RemotePtr::NULL);
        assert_eq!(Child::decode(&[1; 5]), RemotePtr::NULL);
        assert_eq!(Child::decode(&[1, 0, 0, 0, 0, 0]), at(0, 64));
        assert_eq!(Child::decode(&[0, 0, 0, 0, 0x40, 0]), at(1, 0));
    }
}
