//! The traits of all node formats. Leaves and inner levels are generic over their format.

use alloc::vec::Vec;

use crate::error::{CheckFailure, Reason};
use crate::header::{Header, LineLag, NodeState};
use crate::key::KeyBytes;
use crate::value::ValueRef;

mod edit;
mod read;
mod shape;
mod steps;
mod structure;

pub use edit::NodeEdit;
pub(crate) use edit::sort_distinct;
pub use read::NodeRead;
pub use shape::NodeShape;
pub use steps::NodeSteps;
pub use structure::NodeStructure;

/// The place of one entry in a node: the offset of its first byte, or in a packed node its line and its number in the
/// line. A slot has a meaning only for the format that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u32);

impl Slot {
    #[inline]
    pub(crate) const fn at(offset: usize) -> Self {
        // The cast loses nothing: a node has at most 65,536 bytes.
        Self(offset as u32)
    }

    /// Returns the offset of the slot's first byte in the node. In a packed node, returns the offset of its line plus
    /// its number in the line.
    #[inline]
    #[must_use]
    pub const fn offset(self) -> usize {
        self.0 as usize
    }
}

/// The result of looking up a key in the bytes of one READ of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// The node contains the key.
    Found {
        /// The slot of the key.
        slot: Slot,
        /// The value of the key.
        value: ValueRef<'a>,
    },
    /// The node covers the key, but does not contain it.
    Absent,
    /// The key is not less than the high fence key. Continue at the sibling (a packed remote pointer).
    GoRight {
        /// The next node.
        sibling: u64,
    },
    /// The address of the node was stale.
    Stale(Stale),
}

/// The reason why a node cannot answer for the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stale {
    /// The key is less than the low fence key.
    Below,
    /// The node has this other level.
    Level(u8),
    /// The node is dead. Its keys have moved to another node (a packed remote pointer, 0 if it is unknown).
    Dead {
        /// The node to continue with.
        forward: u64,
    },
}

/// The slot in which a writer puts a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The key is in this slot.
    Present(Slot),
    /// The key is absent, and this slot is free for it.
    Free(Slot),
    /// The key is absent, and no slot is free for it. The node must be split, unless hops can free a slot.
    Full,
}

/// The decision about a write of a key to a node that the writer has locked and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Judged {
    /// The node covers the key, and this is the place for it.
    Here(Place),
    /// The key is not less than the high fence key. Continue at the sibling (a packed remote pointer).
    GoRight {
        /// The next node.
        sibling: u64,
    },
    /// The address of the node was stale.
    Stale(Stale),
    /// A client began a split of this node and has not finished it. The caller must finish the split first.
    Unfinished,
    /// The node is the right node of an unfinished split, or another node that might not be linked yet. In formats that
    /// are written in steps, the client that splits makes the right node live before it unlocks the left node.
    Unborn,
    /// The node takes part in a merge in progress.
    Frozen,
}

/// The part of a node that a step edits: the header's line, or all other lines. In formats that write whole nodes, the
/// head is the whole node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The header's line, which may contain entries too.
    Head,
    /// All other lines.
    Rest,
}

/// A node format: pure functions over a node's bytes.
///
/// It combines [`NodeShape`], [`NodeRead`], [`NodeEdit`], [`NodeStructure`] and [`NodeSteps`].
///
/// Structural changes consist of steps, and each step is one WRITE. If a client dies between two steps, readers still
/// read the node correctly, and its header shows the unfinished change:
///
/// | split of L into L and R | merge of R into L |
/// |---|---|
/// | [`prepare_split`](NodeStructure::prepare_split): WRITE R (Splitting), **await** | remove R from the parent; [`freeze`](NodeSteps::freeze) R |
/// | [`announce_split`](NodeSteps::announce_split): WRITE L's head (Splitting, new fence and sibling) | [`announce_merge`](NodeSteps::announce_merge): WRITE L's head (Frozen, lines may already have the next version) |
/// | [`clear_split`](NodeSteps::clear_split): WRITE L's rest | [`copy_merge`](NodeStructure::copy_merge): WRITE L's rest |
/// | [`open`](NodeSteps::open) R (if R is on another memory node, await all of L's WRITEs before, and **await** this) | [`widen_merge`](NodeSteps::widen_merge): WRITE L's head (R's fence and sibling, still Frozen) |
/// | [`finish_split`](NodeSteps::finish_split): WRITE L's head (Live); unlock L | [`bury`](NodeStructure::bury) R; then [`open`](NodeSteps::open) L; unlock all |
///
/// The three WRITEs of L may share a chain, because the WRITEs of one queue pair take effect in order, and readers
/// accept a node in which only some lines of a WRITE have taken effect.
///
/// This trait is sealed.
pub trait NodeFormat<K: KeyBytes>: NodeSteps<K> {}

impl<K: KeyBytes, F: NodeSteps<K>> NodeFormat<K> for F {}

/// Returns the slot of `key` in an accepted image.
///
/// # Errors
/// Returns [`CheckFailure::Torn`] if an entry's own guard does not match.
pub fn find<K: KeyBytes, F: NodeRead<K>>(
    format: &F,
    bytes: &[u8],
    key: &K,
) -> Result<Option<Slot>, CheckFailure> {
    Ok(match format.place(bytes, key)? {
        Place::Present(slot) => Some(slot),
        Place::Free(_) | Place::Full => None,
    })
}

/// Checks all properties of a node that is not being changed: it is accepted, every entry's guard and presence byte are
/// valid, and all keys differ and are within the fence keys. If the header shows a split or merge in progress (its lag
/// is not *equal*), keys may be outside the fence keys. This is for checking whole pools, not for the read path.
///
/// # Errors
/// Returns [`CheckFailure`] under the same conditions as [`accept`](super::NodeRead::accept) and
/// [`entry`](super::NodeRead::entry), and [`Reason::Order`] if a key is outside the fence keys or duplicate.
pub fn audit<K: KeyBytes, F: NodeRead<K>>(format: &F, bytes: &[u8]) -> Result<Header<K>, CheckFailure> {
    let header = format.accept(bytes)?;
    let mut seen = Vec::with_capacity(format.capacity());
    for slot in format.slots(bytes) {
        if let Some((key, _)) = format.entry(bytes, slot)? {
            if !header.fences.contains(&key) && header.lag == LineLag::Equal {
                return Err(CheckFailure::corrupt(slot.offset(), Reason::Order));
            }
            seen.push((key, slot));
        }
    }
    seen.sort_unstable();
    for pair in seen.windows(2) {
        if pair[0].0 == pair[1].0 {
            return Err(CheckFailure::corrupt(pair[1].1.offset(), Reason::Order));
        }
    }
    Ok(header)
}

/// Implements [`NodeRead::judge`] in two passes.
pub(crate) fn judge<K: KeyBytes, F: NodeRead<K>>(
    format: &F,
    bytes: &[u8],
    key: &K,
    level: u8,
) -> Result<Judged, CheckFailure> {
    let header = format.accept(bytes)?;
    Ok(match header.state {
        NodeState::Dead => Judged::Stale(Stale::Dead {
            forward: header.sibling,
        }),
        _ if header.level != level => Judged::Stale(Stale::Level(header.level)),
        _ if *key < header.fences.low => Judged::Stale(Stale::Below),
        NodeState::Splitting if header.lag == LineLag::Behind => Judged::Unfinished,
        NodeState::Splitting => Judged::Unborn,
        NodeState::Frozen => Judged::Frozen,
        NodeState::Live if header.fences.is_below(key) => Judged::GoRight {
            sibling: header.sibling,
        },
        NodeState::Live => Judged::Here(format.place(bytes, key)?),
    })
}
