//! The request of a split, and its plan.

use crate::format::Slot;
use crate::header::{Header, NodeInit, NodeState};
use crate::key::{FenceKeys, KeyBytes};
use crate::value::ValueRef;

/// The place at which a split cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum SplitBias {
    /// The split leaves half of the entries on each side.
    #[default]
    Median,
    /// The split is at the key of fewest bits near the middle. If keys are hashes, this is usually the middle
    /// of their range. Formats other than hopscotch nodes treat this as [`Median`](Self::Median).
    Coarse,
    /// If the new key is above all present ones in the last node of its level (the one without a high fence
    /// key), only this key goes to the right node, so that ascending inserts fill nodes completely. Otherwise
    /// this is the same as [`Median`](Self::Median). It applies to the last node only, because elsewhere
    /// descending keys above a full node would split that node at every insert, and its version could wrap
    /// during a READ.
    Ascending,
}

/// A request to split a node.
///
/// ```
/// use dm_layout::{FenceKeys, Key8, NodeEdit, NodeInit, NodeRead, NodeSteps, NodeStructure};
/// use dm_layout::{Slotted, SplitBias, SplitPlan, SplitRequest};
///
/// let format = Slotted::<Key8>::with_node_bytes(1024, 8)?;
/// let (mut left, mut right) = (vec![0; 1024], vec![0; 1024]);
/// let value = 0_u64.to_le_bytes();
/// let entries = (0..10).map(|key| (Key8(key), (&value).into()));
/// format.build(&mut left, &NodeInit::live(0, FenceKeys::ALL), entries);
///
/// let request = SplitRequest {
///     right_address: 4096,
///     right_incarnation: 1,
///     right_version: 1,
///     owner: 3,
///     new: None,
///     bias: SplitBias::Median,
/// };
/// // The right node is WRITTEN first, then the left one.
/// let plan: SplitPlan<'_, Key8> = format.prepare_split(&left, &mut right, &request)?.expect("two keys and more");
/// format.split_at_once(&mut left, &plan)?;
/// assert_eq!((plan.separator, format.len(&left)?, format.len(&right)?), (Key8(5), 5, 5));
/// assert_eq!(format.header(&left)?.sibling, 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SplitRequest<'v, K> {
    /// The address of the right node, as a packed remote pointer.
    pub right_address: u64,
    /// Incarnation of the right node (see [`NodeInit::incarnation`]).
    pub right_incarnation: u32,
    /// Version of the right node (see [`NodeInit::version`]).
    pub right_version: u8,
    /// The client that splits.
    pub owner: u32,
    /// The new key for which there is no room, with its value.
    pub new: Option<(K, ValueRef<'v>)>,
    /// The place at which to cut.
    pub bias: SplitBias,
}

impl<'v, K: KeyBytes> SplitRequest<'v, K> {
    /// Describes the right node of a cut at `separator` through a node with this header.
    pub(crate) fn right(&self, header: &Header<K>, separator: K) -> NodeInit<K> {
        NodeInit {
            level: header.level,
            incarnation: self.right_incarnation,
            version: self.right_version,
            state: NodeState::Splitting,
            owner: self.owner,
            fences: FenceKeys::new(separator, header.fences.high),
            sibling: header.sibling,
        }
    }

    /// Returns the new entry, if it is at `separator` or above.
    pub(crate) fn new_from(&self, separator: &K) -> Option<(K, ValueRef<'v>)> {
        self.new.filter(|(key, _)| key >= separator)
    }

    /// Returns the new key, if only this key goes to the right node. This is so if the node with this header
    /// is the last of its level, and none of its `keys` is above the new key.
    pub(crate) fn appended<'k>(&self, header: &Header<K>, keys: impl IntoIterator<Item = &'k K>) -> Option<K>
    where
        K: 'k,
    {
        //= docs/protocol/sherman.md S4
        if self.bias != SplitBias::Ascending || header.fences.high.is_some() {
            return None;
        }
        let (new, _) = self.new?;
        keys.into_iter().all(|key| *key <= new).then_some(new)
    }

    /// Plans a cut at `separator`. If the new entry goes to the right, the right node already contains it.
    pub(crate) fn cut_at(&self, separator: K) -> SplitPlan<'v, K> {
        SplitPlan {
            separator,
            right_address: self.right_address,
            owner: self.owner,
            new_left: self.new.filter(|(key, _)| *key < separator),
            late_right: None,
        }
    }
}

/// A split that [`prepare_split`](crate::NodeStructure::prepare_split) has decided.
#[derive(Clone, Copy, Debug)]
pub struct SplitPlan<'v, K> {
    /// The right node's low fence key and the left node's new high fence key.
    pub separator: K,
    /// The address of the right node.
    pub right_address: u64,
    /// The client that splits.
    pub owner: u32,
    /// The new entry, if it goes left.
    pub new_left: Option<(K, ValueRef<'v>)>,
    /// The new entry and its slot, if it goes right but the right node was built without it. This is needed
    /// if readers read parts of nodes. Some readers may then still see the left node's old state, and no
    /// reader may find the new entry before the left node has changed.
    pub late_right: Option<(Slot, K, ValueRef<'v>)>,
}
