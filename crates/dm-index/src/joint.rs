//! The interface between an inner structure and a node store.

use core::cell::RefCell;
use core::future::Future;

use dm_layout::{FenceKeys, ValueRef};
use dm_verbs::{LocalStep, RemotePtr, Verbs};

use crate::survey::{Listing, Survey, count_keys, survey_level};
use crate::{Applied, IndexError, Restructure, Run};

/// An address, and whether it is known to lead to a linked node.
///
/// An address from a cache or a parent may be outdated: another node may use its memory by now, even a node that is
/// written but not linked yet. If this operation has read the address from a sibling pointer of a linked node or from
/// the root word, the address is that of a linked node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lead {
    /// The node's address.
    pub at: RemotePtr,
    /// Whether the node was linked when the address was read, within this operation.
    pub linked: bool,
}

impl Lead {
    /// Makes a lead to a node that might not be linked.
    #[inline]
    pub const fn hint(at: RemotePtr) -> Self {
        Self { at, linked: false }
    }
    /// Makes a lead from an address that was just read from a linked node's sibling pointer or from the root word.
    #[inline]
    pub const fn linked(at: RemotePtr) -> Self {
        Self { at, linked: true }
    }
}

/// The probable leaf of a key, and the source of its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Located<P> {
    /// The leaf to try.
    pub leaf: Lead,
    /// The source of the address, for [`Inner::stale`].
    pub proof: P,
}

/// The reason why a node is not responsible for a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stale {
    /// The key is at or above the high fence key, or the node is dead and was merged into another one. This variant
    /// holds the next node to try. If its address was read from a dead node, the address is only a hint, because the
    /// next node may be dead too.
    Right(Lead),
    /// The key lies below the low fence key, the address leads to another kind of node or to one that is not linked, or
    /// the node is dead and names no other node. The caller must search for the leaf again.
    Elsewhere,
}

/// A split of a node: `right` took over the keys from `separator` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split<K> {
    /// Level of the two nodes, 0 for leaves.
    pub level: u8,
    /// First key of the right node.
    pub separator: K,
    /// High fence key of the right node.
    pub until: Option<K>,
    /// The node that was split.
    pub left: RemotePtr,
    /// The new node.
    pub right: RemotePtr,
}

/// The result of an operation on a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer<K, T> {
    /// Done.
    Done(T),
    /// The node was split, and the new node must be installed in the inner structure. If the first field is `None`, the
    /// operation itself was not carried out, and must be tried again at the new node.
    Split(Option<T>, Split<K>),
    /// Done, and the node is now so empty that it should be merged with a neighbour.
    Sparse(T),
    /// This node is not responsible for the key.
    Stale(Stale),
}

/// The result of an attempt to merge two neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merge {
    /// The left node took over all entries of the right one. The right one is dead, and the parent has no entry for it
    /// any more.
    Done {
        /// Whether the merged node is so empty that it should be merged again.
        sparse: bool,
        /// Whether the parent is now so empty that it should be merged too.
        parent_sparse: bool,
    },
    /// The merged node would not have enough free space, or the nodes are on different memory nodes.
    TooFull,
    /// The nodes are not as the caller described them, or have changed since. Nothing was changed.
    Changed,
}

/// The result of [`Restructure::tend`](crate::Restructure::tend).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tended {
    /// There was nothing to finish.
    Sound,
    /// Something was finished.
    Mended,
}

/// Two neighbouring nodes to merge, as their parent lists them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbours<K> {
    /// Level of the two nodes.
    pub level: u8,
    /// The left node.
    pub left: RemotePtr,
    /// The right node.
    pub right: RemotePtr,
    /// The key at which the left node ends and the right one begins.
    pub between: K,
    /// High fence key of the right node.
    pub until: Option<K>,
    /// Their parent; null if the inner structure has no nodes to lock
    /// ([`Restructure::join`](crate::Restructure::join)).
    pub parent: RemotePtr,
}

/// A write to one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Write<'a> {
    /// Add the key, unless it is present.
    Insert(&'a [u8]),
    /// Replace the value, if the key is present.
    Update(&'a [u8]),
    /// Add the key or replace its value.
    Upsert(&'a [u8]),
    /// Remove the key.
    Remove,
    /// Set the key to `after` if it has `before`: [`Exchange::exchange`](crate::Exchange::exchange).
    Exchange {
        /// The expected value; `None` means that the key is absent.
        before: Option<&'a [u8]>,
        /// The new value; `None` removes the key.
        after: Option<&'a [u8]>,
    },
    /// Replace the value, or remove the key, if the key is present, and return the old value:
    /// [`Exchange::swap`](crate::Exchange::swap).
    Swap {
        /// Receives the old value.
        before: &'a OldValue,
        /// The new value; `None` removes the key.
        after: Option<&'a [u8]>,
    },
}

/// Receives the value that a [`Write::Swap`] replaces or removes.
#[derive(PartialEq, Eq, Debug, Default)]
pub struct OldValue(RefCell<Vec<u8>>);

impl OldValue {
    /// Makes an empty value that uses this buffer.
    pub(crate) fn in_buffer(mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        Self(RefCell::new(buffer))
    }

    /// Returns the value that was stored last.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0.into_inner()
    }

    fn set(&self, value: ValueRef<'_>) {
        let mut bytes = self.0.borrow_mut();
        bytes.clear();
        value.append_to(&mut bytes);
    }
}

impl<'a> Write<'a> {
    /// Returns the value that this write stores, if it stores one.
    #[inline]
    pub fn value(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Insert(v) | Self::Update(v) | Self::Upsert(v) => Some(v),
            Self::Remove => None,
            Self::Exchange { after, .. } | Self::Swap { after, .. } => after,
        }
    }

    /// Returns the result of this write if the key is absent and the write does not add it; `None` if the write adds it.
    #[inline]
    #[must_use]
    pub const fn if_absent(&self) -> Option<Applied> {
        match self {
            Self::Update(_) | Self::Remove | Self::Swap { .. } => Some(Applied::Absent),
            Self::Exchange { before: Some(_), .. } => Some(Applied::Differs),
            Self::Exchange { after: None, .. } => Some(Applied::Absent),
            Self::Insert(_) | Self::Upsert(_) | Self::Exchange { .. } => None,
        }
    }

    /// Returns whether [`Write::meeting`] needs the current value.
    #[inline]
    #[must_use]
    pub const fn needs_old(&self) -> bool {
        matches!(self, Self::Exchange { .. } | Self::Swap { .. })
    }

    /// Resolves an exchange or a swap against the current value, which must stay the key's value until the write has
    /// taken effect: the caller's lock protects it, or the write compares it. Returns an update, an upsert, a remove,
    /// or `None` if the value is not the expected one. Returns any other write unchanged.
    #[inline]
    #[must_use]
    pub fn meeting(self, found: Option<ValueRef<'_>>) -> Option<Self> {
        match self {
            Self::Exchange { before, after } => {
                let meets = match (before, found) {
                    (None, None) => true,
                    (Some(before), Some(found)) => ValueRef::from(before) == found,
                    _ => false,
                };
                meets.then_some(after.map_or(Self::Remove, Self::Upsert))
            }
            Self::Swap { before, after } => {
                if let Some(found) = found {
                    before.set(found);
                }
                Some(after.map_or(Self::Remove, Self::Update))
            }
            other => Some(other),
        }
    }
}

/// A copy of one node as it was at one moment: fence keys and sorted entries. The buffer can be reused.
#[derive(Clone, Debug)]
pub struct NodeCopy<K> {
    /// Address of the node.
    pub at: RemotePtr,
    /// 0 for a leaf.
    pub level: u8,
    /// Whether the node is the right half of a split in progress, or a new root. A client that has not read a link
    /// to it cannot know whether it is linked.
    pub unborn: bool,
    /// The incarnation of the node's block.
    pub incarnation: u32,
    /// The node's fence keys.
    pub fences: FenceKeys<K>,
    /// The next node of the same level. For a dead node, the node that took over its keys, if it names one.
    pub sibling: RemotePtr,
    /// Entries by ascending key: the key, and the offset of its value in `values`.
    pub entries: Vec<(K, u32)>,
    /// The bytes of the values.
    pub values: Vec<u8>,
    /// Bytes of one value.
    pub value_bytes: usize,
    /// The node's bytes, if a write returned them without decoding the entries; empty otherwise.
    /// [`NodeCopies::unfold`](crate::NodeCopies::unfold) decodes the bytes into `entries` and `values`.
    pub folded: Vec<u8>,
    /// Number of entries in the folded bytes.
    pub folded_entries: usize,
}

impl<K: crate::KeyBytes> NodeCopy<K> {
    /// Makes an empty buffer.
    pub const fn new() -> Self {
        Self {
            at: RemotePtr::NULL,
            level: 0,
            unborn: false,
            incarnation: 0,
            fences: FenceKeys::ALL,
            sibling: RemotePtr::NULL,
            entries: Vec::new(),
            values: Vec::new(),
            value_bytes: 0,
            folded: Vec::new(),
            folded_entries: 0,
        }
    }
    /// Returns the entries.
    pub fn iter(&self) -> impl Iterator<Item = (K, &[u8])> {
        self.entries
            .iter()
            .map(|&(k, at)| (k, &self.values[at as usize..at as usize + self.value_bytes]))
    }
    /// Returns the entries of an inner node: separators and children.
    pub fn children(&self) -> impl Iterator<Item = (K, RemotePtr)> + Clone {
        self.entries.iter().map(|&(k, at)| (k, self.pointer(at)))
    }
    /// Returns child `i` of an inner node.
    pub fn child(&self, i: usize) -> Option<RemotePtr> {
        self.entries.get(i).map(|&(_, at)| self.pointer(at))
    }
    fn pointer(&self, at: u32) -> RemotePtr {
        let at = at as usize;
        let value = self.values.get(at..at + self.value_bytes);
        value.map_or(RemotePtr::NULL, crate::Child::decode)
    }
}

impl<K: crate::KeyBytes> Default for NodeCopy<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// A new node to which nothing points yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the node's memory is lost unless the node is linked or forgotten"]
pub struct Created {
    /// Address of the node.
    pub at: RemotePtr,
    /// The incarnation of the node's block.
    pub incarnation: u32,
    /// The line version with which the node was written.
    pub version: u8,
    /// 0 for a leaf.
    pub level: u8,
}

/// An inner structure, which leads from a key to its leaf.
pub trait Inner<V: Verbs, K> {
    /// The source of an address.
    type Proof: Copy;

    /// Returns the probable leaf of `key`, if the compute node has cached its address. This accesses shared local
    /// state, so the caller must await [`Env::local`](dm_verbs::Env::local) first.
    fn known(&self, v: &V, key: &K) -> Option<Located<Self::Proof>>;

    /// Finds the probable leaf of `key`, and reads remote memory if necessary. Callers use this if [`Inner::known`]
    /// returns `None`, or if the address that it returned did not lead to the leaf. Returns `None` if the index has no
    /// leaf.
    fn find(&self, v: &V, key: &K) -> impl Future<Output = Result<Option<Located<Self::Proof>>, IndexError>>;

    /// Returns the probable leaf of `key`; `None` if the index has no leaf.
    fn locate(
        &self,
        v: &V,
        key: &K,
    ) -> impl Future<Output = Result<Option<Located<Self::Proof>>, IndexError>> {
        async {
            v.local(LocalStep::Section).await;
            match self.known(v, key) {
                Some(located) => Ok(Some(located)),
                None => self.find(v, key).await,
            }
        }
    }

    /// Collects consecutive leaves into `run`, beginning with the probable leaf of `key`. Stops after `max` leaves,
    /// when the run takes no more, or when the next leaf is not known without a further search. The result has at least
    /// one leaf unless the index is empty.
    fn locate_run(
        &self,
        v: &V,
        key: &K,
        max: usize,
        run: &mut Run<K>,
    ) -> impl Future<Output = Result<(), IndexError>>;

    /// Reports that the address from `proof` was wrong.
    fn stale(&self, v: &V, proof: Self::Proof);

    /// Reports that the address from `proof` was wrong, and that the memory at the address did not show where to
    /// continue. If the operation has just read this address from an entry of the inner structure, reading the entry
    /// again does not help. So the next search must not rely on this entry.
    fn invalidate(&self, v: &V, proof: Self::Proof) {
        self.stale(v, proof);
    }

    /// Returns the number of steps to the right that are normal if `proof` is a rough hint, and `None` if it is an
    /// exact hint. A rough hint leads to the leaf of `key` or to a leaf to its left. Errors on the way may belong to
    /// another key's leaf; the caller then retries via [`Inner::find`].
    fn reach(&self, _proof: &Self::Proof) -> Option<u32> {
        None
    }

    /// Reports that `leaf` is the leaf of `key`, and that it took `hops` steps along sibling pointers to find it. A
    /// structure that guesses leaves remembers this one, so that the next operation takes fewer steps. An
    /// implementation that changes shared state must first await a local step. This is called only after at least one
    /// step. The default does nothing.
    fn found(&self, _v: &V, _key: &K, _leaf: RemotePtr, _hops: u32) -> impl Future<Output = ()> {
        core::future::ready(())
    }

    /// Makes `leaf`, which covers all keys, the first leaf if there is none yet. Returns `false` if another client was
    /// faster.
    fn plant(&self, v: &V, leaf: RemotePtr) -> impl Future<Output = Result<bool, IndexError>>;

    /// Adds a new leaf to the inner structure after a split.
    fn install(&self, v: &V, split: Split<K>) -> impl Future<Output = Result<(), IndexError>>;

    /// Merges the leaf of `key`, which has become sparse, with a suitable neighbour if there is one. If their parent
    /// becomes sparse, the merging continues on the level above.
    fn shrink<L: Restructure<V, K>>(
        &self,
        v: &V,
        leaves: &L,
        key: &K,
    ) -> impl Future<Output = Result<(), IndexError>>;

    /// Adds the leaves of a bulk load to an empty inner structure. `leaves` has their low fence keys, ascending from
    /// the smallest possible key, and their addresses. `fill` is the average fill level of the leaves, and an inner
    /// structure may fill its own nodes to the same level.
    fn build(
        &self,
        v: &V,
        leaves: &[(K, RemotePtr)],
        fill: f64,
    ) -> impl Future<Output = Result<(), IndexError>>;

    /// Visits all nodes of the inner structure and all leaves for a check, and adds the results to `survey`. With
    /// [`Survey::mends`], the visit also finishes what other clients have left unfinished.
    ///
    /// The default does not visit the inner structure: it finds the first leaf, and walks along sibling pointers. Then
    /// a sweep gives no memory back, because it does not know which blocks the inner structure uses.
    fn survey<L: Restructure<V, K>>(
        &self,
        v: &V,
        leaves: &L,
        survey: &mut Survey,
    ) -> impl Future<Output = Result<(), IndexError>>
    where
        K: dm_layout::KeyBytes,
    {
        async move {
            survey.misses_nodes();
            let Some(first) = self.find(v, &K::MIN).await? else {
                return Ok(());
            };
            let unknown = (&[][..], Listing::Unknown);
            survey_level(v, leaves, (0, first.leaf.at), unknown, survey, count_keys).await
        }
    }
}
