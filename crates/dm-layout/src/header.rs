//! The node header, which all formats share. All its fields that can change are in one line.

use core::mem::offset_of;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::LINE_BYTES;
use crate::error::{Corrupt, Reason};
use crate::key::{FenceKeys, KEY_BYTES_MAX, KeyBytes};

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NodeState {
    /// The node is in service: readers may read it, and writers may lock and write it.
    Live = 1,
    /// The node is one half of an unfinished split, or a new root that was not opened yet. Readers may read it. A
    /// writer that finds the left half in this state under its lock finishes the split. A writer that finds another
    /// node in this state releases the lock, unless it must [open](crate::NodeSteps::open) the node.
    Splitting = 2,
    /// The node is part of an unfinished merge. Readers may read it. A writer that finds this state under the node's
    /// lock finishes the merge first. The header identifies the other node of the merge ([`Header::owner`]).
    Frozen = 3,
    /// The node was removed from the index. It holds no keys, and its sibling pointer leads to the node that has its
    /// keys now, or is 0 if that node is unknown.
    Dead = 4,
}

/// The versions that a node's lines may have during a split or a merge, relative to the version in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LineLag {
    /// Every line has the header's version.
    Equal,
    /// During a split: lines may still have the version before the header's.
    Behind,
    /// During a merge: lines may already have the version after the header's.
    Ahead,
}

/// A decoded node header.
///
/// ```
/// use dm_layout::{FenceKeys, Header, Key8, LineLag, NodeEdit, NodeInit, NodeRead, NodeShape, NodeState, NodeSteps, Slotted};
///
/// let format = Slotted::<Key8>::with_node_bytes(1024, 8)?;
/// let mut node = vec![0; format.node_bytes()];
/// format.build(&mut node, &NodeInit::live(0, FenceKeys::ALL), []);
/// let header: Header<Key8> = format.header(&node)?;
/// assert_eq!((header.level, header.state, header.lag), (0, NodeState::Live, LineLag::Equal));
/// // Freezing the node for a merge with the node in line 48 WRITEs only the header's line.
/// assert_eq!(format.freeze(&mut node, 48)?, 0..64);
/// assert_eq!((format.header(&node)?.state, format.header(&node)?.owner), (NodeState::Frozen, 48));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header<K> {
    /// Node version. It grows with each structural change, modulo 2<sup>version bits</sup>.
    pub version: u8,
    /// The level; 0 for a leaf.
    pub level: u8,
    /// The node's state.
    pub state: NodeState,
    /// The line versions that a reader accepts.
    pub lag: LineLag,
    /// The number of nodes that were built in this memory so far. It is set when the node is built, and then never
    /// changes.
    pub incarnation: u32,
    /// The next node to the right as a packed remote pointer; 0 if there is none. In a dead node, the node that has its
    /// keys now, or 0 if that node is unknown.
    pub sibling: u64,
    /// The client that splits the node, or has made it as a new root, as its id + 1. In a [`Frozen`](NodeState::Frozen)
    /// node, the other node of the merge, as the number of its first line in the memory node of both. Otherwise 0.
    pub owner: u32,
    /// The keys that the node covers. `low` never changes.
    pub fences: FenceKeys<K>,
}

/// The fixed part of the header. The high fence key and the owner follow it. The place of the low fence key depends on
/// the format.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Prefix {
    pub(crate) version: u8,
    pub(crate) kind: u8,
    pub(crate) level: u8,
    pub(crate) state: u8,
    pub(crate) incarnation: U32,
    pub(crate) sibling: U64,
}

impl<K> Header<K> {
    /// The place of the version, one byte, in the bytes of a header.
    pub const VERSION_AT: usize = offset_of!(Prefix, version);
    /// The place of the incarnation, four bytes, in the bytes of a header.
    pub const INCARNATION_AT: usize = offset_of!(Prefix, incarnation);
}

pub(crate) const PREFIX_BYTES: usize = size_of::<Prefix>();
pub(crate) const OWNER_BYTES: usize = 4;
pub(crate) const KIND_AT: usize = offset_of!(Prefix, kind);
pub(crate) const STATE_AT: usize = offset_of!(Prefix, state);
const _: () = assert!(PREFIX_BYTES == 16);

/// Returns the number of bytes of a header without the low fence key.
pub(crate) const fn header_bytes(key_len: usize) -> usize {
    PREFIX_BYTES + key_len + OWNER_BYTES
}

/// Returns whether a format can have keys of `key_len` bytes: the header must fit into one line, and a key of no bytes
/// could not tell entries apart.
pub(crate) const fn takes_keys(key_len: usize) -> bool {
    // The sum in `header_bytes` would overflow for the largest lengths.
    key_len > 0 && key_len <= LINE_BYTES - header_bytes(0)
}

pub(crate) const HAS_HIGH: u8 = 0x10;
const BEHIND: u8 = 0x20;
const AHEAD: u8 = 0x40;

/// The place of the low fence key: one piece, or two pieces if it must be divided among the spare bytes of two lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LowPlace {
    pub(crate) first_at: usize,
    pub(crate) first_len: usize,
    pub(crate) second_at: usize,
}

impl LowPlace {
    pub(crate) const fn whole(at: usize, key_len: usize) -> Self {
        Self {
            first_at: at,
            first_len: key_len,
            second_at: 0,
        }
    }

    #[inline]
    pub(crate) fn read<K: KeyBytes>(self, node: &[u8]) -> K {
        if self.first_len == K::LEN {
            return K::read_from(&node[self.first_at..]);
        }
        self.read_pieces(node)
    }

    fn read_pieces<K: KeyBytes>(self, node: &[u8]) -> K {
        let mut key = [0; KEY_BYTES_MAX];
        let second_len = K::LEN - self.first_len;
        key[..self.first_len].copy_from_slice(&node[self.first_at..self.first_at + self.first_len]);
        key[self.first_len..K::LEN].copy_from_slice(&node[self.second_at..self.second_at + second_len]);
        K::read_from(&key)
    }

    fn write<K: KeyBytes>(self, low: &K, node: &mut [u8]) {
        let mut key = [0; KEY_BYTES_MAX];
        low.write_to(&mut key);
        let second_len = K::LEN - self.first_len;
        node[self.first_at..self.first_at + self.first_len].copy_from_slice(&key[..self.first_len]);
        node[self.second_at..self.second_at + second_len].copy_from_slice(&key[self.first_len..K::LEN]);
    }
}

/// Decodes a state byte. Returns `None` if it is invalid.
#[inline]
pub(crate) const fn unpack_state(byte: u8) -> Option<(NodeState, LineLag, bool)> {
    let state = match byte & 0x0f {
        1 => NodeState::Live,
        2 => NodeState::Splitting,
        3 => NodeState::Frozen,
        4 => NodeState::Dead,
        _ => return None,
    };
    let lag = match byte & !(0x0f | HAS_HIGH) {
        0 => LineLag::Equal,
        BEHIND => LineLag::Behind,
        AHEAD => LineLag::Ahead,
        _ => return None,
    };
    Some((state, lag, byte & HAS_HIGH != 0))
}

pub(crate) const fn pack_state(state: NodeState, lag: LineLag, has_high: bool) -> u8 {
    let lag = match lag {
        LineLag::Equal => 0,
        LineLag::Behind => BEHIND,
        LineLag::Ahead => AHEAD,
    };
    state as u8 | lag | if has_high { HAS_HIGH } else { 0 }
}

/// The place of a format's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HeaderPlace {
    pub(crate) base: usize,
    pub(crate) kind: u8,
    pub(crate) low: LowPlace,
    /// The mask of the node version: the low bits of a version byte.
    pub(crate) version_mask: u8,
}

/// Returns the mask of a version of `bits` bits, at most 8.
pub(crate) const fn mask_of(bits: u8) -> u8 {
    (0xff_u16 >> (8 - bits)) as u8
}

impl HeaderPlace {
    pub(crate) const fn version_bits(&self) -> u8 {
        self.version_mask.count_ones() as u8
    }

    /// Returns the node version `steps` after `version`. It wraps.
    #[inline]
    pub(crate) const fn version_after(&self, version: u8, steps: u8) -> u8 {
        version.wrapping_add(steps) & self.version_mask
    }

    /// Returns whether the state byte belongs to a node that might not be linked yet. This accepts any bytes.
    #[inline]
    pub(crate) fn is_unborn(&self, bytes: &[u8]) -> bool {
        let state = bytes.get(self.base + STATE_AT).copied();
        matches!(
            state.and_then(unpack_state),
            Some((NodeState::Splitting, LineLag::Equal, _))
        )
    }

    /// Decodes the header of `node`, which must be long enough for this format.
    #[inline]
    pub(crate) fn decode<K: KeyBytes>(&self, node: &[u8]) -> Result<Header<K>, Corrupt> {
        let at = self.base;
        let Ok((prefix, _)) = Prefix::ref_from_prefix(&node[at..]) else {
            return Err(Corrupt {
                offset: at,
                reason: Reason::Length,
            });
        };
        if prefix.kind != self.kind {
            return Err(Corrupt {
                offset: at + KIND_AT,
                reason: Reason::Kind,
            });
        }
        let Some((state, lag, has_high)) = unpack_state(prefix.state) else {
            return Err(Corrupt {
                offset: at + STATE_AT,
                reason: Reason::State,
            });
        };
        let high_at = at + PREFIX_BYTES;
        let mut owner = [0; OWNER_BYTES];
        owner.copy_from_slice(&node[high_at + K::LEN..high_at + K::LEN + OWNER_BYTES]);
        let high = has_high.then(|| K::read_from(&node[high_at..]));
        Ok(Header {
            version: prefix.version & self.version_mask,
            level: prefix.level,
            state,
            lag,
            incarnation: prefix.incarnation.get(),
            sibling: prefix.sibling.get(),
            owner: u32::from_le_bytes(owner),
            fences: FenceKeys::new(self.low.read(node), high),
        })
    }

    /// Decodes the header. Returns an error if no key is between its fence keys.
    pub(crate) fn decode_sound<K: KeyBytes>(&self, node: &[u8]) -> Result<Header<K>, Corrupt> {
        self.sound(self.decode::<K>(node)?)
    }

    #[inline]
    pub(crate) fn sound<K: KeyBytes>(&self, header: Header<K>) -> Result<Header<K>, Corrupt> {
        if !header.fences.is_sound() {
            return Err(Corrupt {
                offset: self.base + PREFIX_BYTES,
                reason: Reason::Fences,
            });
        }
        Ok(header)
    }

    /// Writes the whole header. The other bits of the version byte do not change.
    pub(crate) fn encode<K: KeyBytes>(&self, header: &Header<K>, node: &mut [u8]) {
        let at = self.base;
        let high_at = at + PREFIX_BYTES;
        let mask = self.version_mask;
        let prefix = Prefix {
            version: (node[at] & !mask) | (header.version & mask),
            kind: self.kind,
            level: header.level,
            state: pack_state(header.state, header.lag, header.fences.high.is_some()),
            incarnation: U32::new(header.incarnation),
            sibling: U64::new(header.sibling),
        };
        node[at..high_at].copy_from_slice(prefix.as_bytes());
        // If there is no high fence key, its bytes are zero, so that equal headers have equal bytes.
        header
            .fences
            .high
            .unwrap_or(K::MIN)
            .write_to(&mut node[high_at..]);
        let owner_at = high_at + K::LEN;
        node[owner_at..owner_at + OWNER_BYTES].copy_from_slice(&header.owner.to_le_bytes());
        self.low.write(&header.fences.low, node);
    }
}

/// The properties of a new node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeInit<K> {
    /// The level; 0 for a leaf.
    pub level: u8,
    /// One more than the last incarnation in this memory.
    pub incarnation: u32,
    /// One more than the last version of the previous node in this memory; [`FIRST_VERSION`] in fresh, zeroed memory.
    /// So lines of the previous node never match the header of this node.
    pub version: u8,
    /// [`NodeState::Live`], or [`NodeState::Splitting`] for a node that is not linked yet.
    pub state: NodeState,
    /// The client that splits, or that makes a new root, as its id + 1; 0 for a live node.
    pub owner: u32,
    /// The keys that the node covers.
    pub fences: FenceKeys<K>,
    /// The next node to the right; 0 if there is none.
    pub sibling: u64,
}

/// The version of the first node in zeroed memory. It is not 0, so that zeroed lines are never accepted as lines of
/// this node.
pub const FIRST_VERSION: u8 = 1;
/// The incarnation of the first node in zeroed memory.
pub const FIRST_INCARNATION: u32 = 1;

impl<K: KeyBytes> NodeInit<K> {
    /// Describes a live node without a sibling, in fresh memory.
    #[must_use]
    pub const fn live(level: u8, fences: FenceKeys<K>) -> Self {
        Self {
            level,
            incarnation: FIRST_INCARNATION,
            version: FIRST_VERSION,
            state: NodeState::Live,
            owner: 0,
            fences,
            sibling: 0,
        }
    }

    /// Adapts the description to memory that held another node before. The arguments are the last version and
    /// incarnation of that node.
    #[must_use]
    pub const fn reusing(mut self, dead_version: u8, dead_incarnation: u32) -> Self {
        self.version = dead_version.wrapping_add(1);
        self.incarnation = dead_incarnation.wrapping_add(1);
        self
    }

    pub(crate) fn header(&self) -> Header<K> {
        Header {
            version: self.version,
            level: self.level,
            state: self.state,
            lag: LineLag::Equal,
            incarnation: self.incarnation,
            sibling: self.sibling,
            owner: self.owner,
            fences: self.fences,
        }
    }
}
