//! The request of a split, and its plan.

use crate::format::Slot;
use crate::header::{Header, NodeInit, NodeState};
use crate::key::{FenceKeys, KeyBytes};
use crate::value::ValueRef;

/// The rule that selects the place of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum SplitBias {
    /// The split leaves about half of the entries on each side.
    #[default]
    Median,
    /// The split is at the key with the fewest significant bits near the middle. If keys are hashes, this is usually
    /// the middle of their range. Formats other than hopscotch nodes treat this as [`Median`](Self::Median).
    Coarse,
    /// If the node is the last of its level (it has no high fence key) and the new key is greater than all its keys,
    /// only the new key moves to the right node. So ascending inserts fill nodes completely.
    ///
    /// In all other cases, the split is as with [`Median`](Self::Median). Without the condition on the last node, keys
    /// that are inserted in descending order above the keys of a full node would split this node at every insert, and
    /// its version could wrap during a READ.
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
    /// The client that splits, as its id + 1.
    pub owner: u32,
    /// The new key that has no room, and its value.
    pub new: Option<(K, ValueRef<'v>)>,
    /// The rule that selects the place of the split.
    pub bias: SplitBias,
}

impl<'v, K: KeyBytes> SplitRequest<'v, K> {
    /// Describes the right node of a split at `separator`, of a node with this header.
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

    /// Returns the new entry, if its key is not less than `separator`.
    pub(crate) fn new_from(&self, separator: &K) -> Option<(K, ValueRef<'v>)> {
        self.new.filter(|(key, _)| key >= separator)
    }

    /// Returns the new key, if only this key moves to the right node. This is so if the bias is
    /// [`SplitBias::Ascending`], the node with this header is the last of its level, and none of its `keys` is greater
    /// than the new key.
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

    /// Plans a split at `separator`. If the new entry belongs in the right node, the right node already contains it.
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
    /// The client that splits, as its id + 1.
    pub owner: u32,
    /// The new entry, if it belongs in the left node.
    pub new_left: Option<(K, ValueRef<'v>)>,
    /// The new entry and its slot, if it belongs in the right node, but the right node was built without it. This is
    /// needed if readers read parts of nodes: some readers may still see the old state of the left node, and no reader
    /// may find the new entry before the left node has changed.
    pub late_right: Option<(Slot, K, ValueRef<'v>)>,
}
