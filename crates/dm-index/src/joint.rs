//! The joint: what an inner structure and a node say to each other.

use core::future::Future;

use dm_layout::{FenceKeys, Fullness, ValueRef};
use dm_sync::epoch::Seat;
use dm_verbs::{LocalStep, RemotePtr, Verbs};

use crate::{Applied, IndexError};

/// An address, and what is known of how it came about.
///
/// An address out of a cache or a parent may be of another time: the memory may be another node's by now, one perhaps
/// that is written and not linked yet. An address that a node of the index held when it was read within this operation
/// is that of a linked node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lead {
    /// The node's address.
    pub at: RemotePtr,
    /// Whether the node was linked when the address was read, within this operation.
    pub linked: bool,
}

impl Lead {
    /// An address that proves nothing.
    #[inline]
    pub const fn hint(at: RemotePtr) -> Self {
        Self { at, linked: false }
    }
    /// The sibling of a node just read, or the root as just read.
    #[inline]
    pub const fn linked(at: RemotePtr) -> Self {
        Self { at, linked: true }
    }
}

/// Where a key's leaf probably is, and what to blame if it is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Located<P> {
    /// The leaf to try.
    pub leaf: Lead,
    /// What the address was taken from; goes back to [`Inner::stale`].
    pub proof: P,
}

/// A node does not answer for the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stale {
    /// The key lies at or above the high fence, or the node is dead and was merged into another: that one is next. Where
    /// a dead node points is a hint: the node there may have died since.
    Right(Lead),
    /// The key lies below the low fence, or this is no such node, or one that is not linked: find it anew.
    Elsewhere,
}

/// A node was split: `right` took over the keys from `separator` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split<K> {
    /// Level of the two nodes, 0 for leaves.
    pub level: u8,
    /// First key of the right node.
    pub separator: K,
    /// Where the right node ends.
    pub until: Option<K>,
    /// The node that was split.
    pub left: RemotePtr,
    /// The new node.
    pub right: RemotePtr,
}

/// What a node answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer<K, T> {
    /// Done.
    Done(T),
    /// Done, and the node was split; the inner structure has to learn of the new one.
    Split(T, Split<K>),
    /// Done, and the node is so empty now that it should be merged with a neighbour.
    Sparse(T),
    /// Not this node.
    Stale(Stale),
}

/// What came of an attempt to merge two neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merge {
    /// The left node took over all that the right one held; the right one is dead, and out of its parent.
    Done {
        /// The merged node is so empty that it should be merged again.
        sparse: bool,
        /// So is its parent now.
        parent_sparse: bool,
    },
    /// Together they hold too much, or they lie on two memory nodes.
    TooFull,
    /// They are not (or no longer) what the caller took them for. Nothing was changed.
    Changed,
}

/// Two neighbours that are to be merged, as their parent shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbours<K> {
    /// Level of the two.
    pub level: u8,
    /// The left one.
    pub left: RemotePtr,
    /// The right one.
    pub right: RemotePtr,
    /// Where they meet.
    pub between: K,
    /// Where the right one ends.
    pub until: Option<K>,
    /// Their parent.
    pub parent: RemotePtr,
}

/// A write to one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Write<'a> {
    /// Add, unless present.
    Insert(&'a [u8]),
    /// Replace, if present.
    Update(&'a [u8]),
    /// Add or replace.
    Upsert(&'a [u8]),
    /// Remove.
    Remove,
    /// What is to be there, if something else is: [`Exchange::exchange`](crate::Exchange::exchange).
    Exchange {
        /// What must be there.
        before: Option<&'a [u8]>,
        /// What is to be there.
        after: Option<&'a [u8]>,
    },
}

impl<'a> Write<'a> {
    /// The value that it brings.
    #[inline]
    pub fn value(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Insert(v) | Self::Update(v) | Self::Upsert(v) => Some(v),
            Self::Remove => None,
            Self::Exchange { after, .. } => after,
        }
    }

    /// What it is where the key has `found`, under the lock that keeps it so: an exchange is an upsert or a remove then, or
    /// nothing (`None`).
    #[inline]
    pub fn meeting(self, found: Option<ValueRef<'_>>) -> Option<Self> {
        let Self::Exchange { before, after } = self else {
            return Some(self);
        };
        let meets = match (before, found) {
            (None, None) => true,
            (Some(before), Some(found)) => ValueRef::from(before) == found,
            _ => false,
        };
        meets.then_some(after.map_or(Self::Remove, Self::Upsert))
    }
}

/// One node as it was at one moment: fences and sorted entries. A buffer, used again.
#[derive(Clone, Debug)]
pub struct NodeCopy<K> {
    /// Where it lies.
    pub at: RemotePtr,
    /// 0 for a leaf.
    pub level: u8,
    /// The right half of a split under way, or a new root: whoever has not read its link yet can't know whether there
    /// is one.
    pub unborn: bool,
    /// How often this memory was a node.
    pub incarnation: u32,
    /// The keys that it answers for.
    pub fences: FenceKeys<K>,
    /// The next node of its level.
    pub sibling: RemotePtr,
    /// Entries by ascending key: key, and where its value lies in `values`.
    pub entries: Vec<(K, u32)>,
    /// Value bytes.
    pub values: Vec<u8>,
    /// Bytes of one value.
    pub value_bytes: usize,
    /// The node's bytes, where a write left them without looking at the entries: then these are what `entries` and
    /// `values` are still to be made of ([`NodeStore::unfold`]). Empty elsewhere.
    pub folded: Vec<u8>,
    /// How many entries the folded bytes hold.
    pub folded_entries: usize,
}

impl<K: crate::KeyBytes> NodeCopy<K> {
    /// An empty buffer.
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
    /// The entries.
    pub fn iter(&self) -> impl Iterator<Item = (K, &[u8])> {
        self.entries
            .iter()
            .map(|&(k, at)| (k, &self.values[at as usize..at as usize + self.value_bytes]))
    }
    /// The entries of an inner node: separators and children.
    pub fn children(&self) -> impl Iterator<Item = (K, RemotePtr)> + Clone {
        self.entries.iter().map(|&(k, at)| (k, self.pointer(at)))
    }
    /// The `i`-th child of an inner node.
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

/// A node that nothing points to yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "it is lost unless it is linked or forgotten"]
pub struct Created {
    /// Where it lies.
    pub at: RemotePtr,
    /// How often this memory was a node.
    pub incarnation: u32,
    /// The version that it was written with.
    pub version: u8,
    /// 0 for a leaf.
    pub level: u8,
}

/// Nodes that hold entries: how one node is read, written under its lock, split, and made.
///
/// The same store serves leaves and the inner nodes of a B-link tree (whose values are 8-byte child pointers).
pub trait NodeStore<V: Verbs, K> {
    /// Bytes of one value.
    fn value_bytes(&self) -> usize;
    /// Entries that fit into one node, at most: it may depend on their keys.
    fn capacity(&self) -> usize;
    /// Whether a node of the entries of `copy` has a place for `key` too. (Where it has not, though it is not full, the
    /// next node of a bulk load begins.)
    fn takes(&self, _copy: &NodeCopy<K>, _key: &K) -> bool {
        true
    }
    /// What an entry of `key` takes of a node of this low fence.
    fn share(&self, _low: &K, _key: &K) -> Fullness {
        Fullness {
            taken: 1,
            of: self.capacity(),
        }
    }

    /// Reads the value of `key` from the node at `at`, which should be of `level`.
    fn get(
        &self,
        v: &V,
        at: Lead,
        level: u8,
        key: &K,
        value: &mut Vec<u8>,
    ) -> impl Future<Output = Result<Answer<K, bool>, IndexError>>;

    /// Writes one key under the node's lock, splitting the node if it is full. `after`, if given, receives the node
    /// as this write left it (its left half, after a split), perhaps folded.
    fn write(
        &self,
        v: &V,
        at: Lead,
        level: u8,
        key: &K,
        write: Write<'_>,
        after: Option<&mut NodeCopy<K>>,
    ) -> impl Future<Output = Result<Answer<K, Applied>, IndexError>>;

    /// Makes the entries of a copy that a write has left folded. (Most who write an inner node need but its header.)
    ///
    /// # Errors
    /// Bytes that are no node.
    fn unfold(&self, copy: &mut NodeCopy<K>) -> Result<(), IndexError>;

    /// Reads all of the node at `at`; `false` if it is dead.
    fn copy(
        &self,
        v: &V,
        at: RemotePtr,
        copy: &mut NodeCopy<K>,
    ) -> impl Future<Output = Result<bool, IndexError>>;

    /// Reads several nodes at once, in one round trip, and shows each in the order of `at` to `each` in `copy`;
    /// stops when `each` answers `false`, or at the first node whose READ was torn or found no living node.
    fn copies(
        &self,
        v: &V,
        at: &[RemotePtr],
        copy: &mut NodeCopy<K>,
        each: impl FnMut(&NodeCopy<K>) -> bool,
    ) -> impl Future<Output = Result<(), IndexError>>;

    /// Makes a node that nothing points to yet, by WRITE: a live one, or one that is born only when it is linked, by
    /// [`NodeStore::open`].
    fn create(
        &self,
        v: &V,
        level: u8,
        fences: FenceKeys<K>,
        entries: &[(K, &[u8])],
        unborn: bool,
    ) -> impl Future<Output = Result<Created, IndexError>>;

    /// Makes a node live that was created unborn, and has been linked. Dropped midway it happens all the same.
    fn open(&self, v: &V, node: &Created) -> impl Future<Output = Result<(), IndexError>>;

    /// Room for a node, for [`NodeStore::load`].
    fn reserve(&self, v: &V) -> impl Future<Output = Result<RemotePtr, IndexError>>;

    /// Makes the node of `copy` at `copy.at` directly, outside the cost model, or by a WRITE where there is no such
    /// way.
    fn load(&self, v: &V, copy: &NodeCopy<K>) -> impl Future<Output = Result<(), IndexError>>;

    /// Merges a node into its left neighbour and takes it out of their parent (a node of `parents`), if all three are
    /// what `pair` says, and the entries fit into one node with room to spare. `after` receives the parent as it is then.
    ///
    /// All three are locked meanwhile, so whoever was to enter the right node in the parent has done so, and nobody will
    /// again.
    fn merge<P: NodeStore<V, K>>(
        &self,
        v: &V,
        pair: &Neighbours<K>,
        parents: &P,
        after: &mut NodeCopy<K>,
    ) -> impl Future<Output = Result<Merge, IndexError>>;

    /// The same where the inner structure is not made of nodes that can be locked along (`pair.parent` means nothing):
    /// the two are merged first, and then `unlink` takes the right one out of the inner structure; only after that is it
    /// retired. The inner structure may come to name it again, by whoever was late to enter it: it must take all it says
    /// for hints.
    fn join(
        &self,
        v: &V,
        pair: &Neighbours<K>,
        unlink: impl AsyncFnOnce() -> Result<(), IndexError>,
    ) -> impl Future<Output = Result<Merge, IndexError>>;

    /// Bytes of a node.
    fn node_bytes(&self) -> u32;

    /// Takes the right one of `pair` out of `image`, which was read of their parent under its lock; the bytes to write
    /// back. `None`, and nothing is changed, if the parent does not show them as `pair` does.
    ///
    /// # Errors
    /// Bytes that contradict themselves.
    fn unlink(
        &self,
        image: &mut [u8],
        pair: &Neighbours<K>,
    ) -> Result<Option<core::ops::Range<usize>>, IndexError>;

    /// Shows an image of the node at `at`, as it is under its lock, in `copy`; `true` if the node is sparse.
    ///
    /// # Errors
    /// Bytes that contradict themselves.
    fn show(&self, at: RemotePtr, image: &[u8], copy: &mut NodeCopy<K>) -> Result<bool, IndexError>;

    /// Ends the node at `at`, if it is a live node of `level` that answers for all keys and has one entry. `commit`
    /// is told that entry's value under the node's lock, and says whether the node's life is over.
    fn collapse(
        &self,
        v: &V,
        at: RemotePtr,
        level: u8,
        commit: impl AsyncFnOnce(&[u8]) -> Result<bool, IndexError>,
    ) -> impl Future<Output = Result<bool, IndexError>>;

    /// Gives back a node that was never pointed to.
    fn forget(&self, node: Created);

    /// Returns a seat for a client of `v`, if the memory of dead nodes is used again.
    fn seat(&self, _v: &V) -> Option<Seat> {
        None
    }

    /// Whether [`NodeStore::attend`] is to be awaited before an operation in any case: a look at the clock.
    fn is_due(&self, _v: &V) -> bool {
        false
    }

    /// Await this where a seat lets no operation begin, or has [forgotten](Seat::has_forgotten) some.
    fn attend(&self, _v: &V, _seat: &Seat) -> impl Future<Output = Result<(), IndexError>> {
        core::future::ready(Ok(()))
    }

    /// To be awaited now and then in an operation that takes long: its compute node must not seem silent.
    fn beat(&self, _v: &V, _seat: &Seat) -> impl Future<Output = Result<(), IndexError>> {
        core::future::ready(Ok(()))
    }

    /// To be awaited where an operation tries again what others are in the way of: as [`NodeStore::beat`], of whatever
    /// client.
    fn tend(&self, _v: &V) -> impl Future<Output = Result<(), IndexError>> {
        core::future::ready(Ok(()))
    }

    /// Takes back the seat of a client that leaves; it may have been the last of its compute node. Never waits.
    fn vacate(&self, _v: &V, _seat: Seat) {}
}

/// An inner structure: from a key to its leaf.
pub trait Inner<V: Verbs, K> {
    /// What an address was taken from.
    type Proof: Copy;

    /// Where `key`'s leaf probably is, as far as the compute node remembers it. A section: a local step comes before it.
    fn known(&self, v: &V, key: &K) -> Option<Located<Self::Proof>>;

    /// Where `key`'s leaf probably is, by reading, where it is not [known](Inner::known); `None` while the index has no
    /// leaf at all.
    fn find(&self, v: &V, key: &K) -> impl Future<Output = Result<Option<Located<Self::Proof>>, IndexError>>;

    /// Where `key`'s leaf probably is; `None` while the index has no leaf at all.
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

    /// Up to `max` consecutive leaves from `key`'s on, as far as they are known without reading more than
    /// [`Inner::locate`] would; at least one unless the index has no leaf.
    fn locate_run(
        &self,
        v: &V,
        key: &K,
        max: usize,
        run: &mut Vec<RemotePtr>,
    ) -> impl Future<Output = Result<(), IndexError>>;

    /// The address that `proof` gave was wrong.
    fn stale(&self, v: &V, proof: Self::Proof);

    /// The same, and what lay there did not even tell where to go on: if it was read within this operation, reading it
    /// again will not do.
    fn misled(&self, v: &V, proof: Self::Proof) {
        self.stale(v, proof);
    }

    /// If `proof` is of a rough hint, which names `key`'s leaf or one to its left: how many steps to the right that may well be.
    /// What befalls an operation on the way does not concern its key: it goes once more, to where [`Inner::find`] leads.
    fn reach(&self, _proof: &Self::Proof) -> Option<u32> {
        None
    }

    /// Makes `leaf` (which answers for all keys) the first leaf, if there is none yet; `false` if another was
    /// quicker.
    fn plant(&self, v: &V, leaf: RemotePtr) -> impl Future<Output = Result<bool, IndexError>>;

    /// Enters a split leaf.
    fn install(&self, v: &V, split: Split<K>) -> impl Future<Output = Result<(), IndexError>>;

    /// The leaf of `key` has become sparse: merges it with a neighbour if there is a suitable one, and so on upwards.
    fn shrink<L: NodeStore<V, K>>(
        &self,
        v: &V,
        leaves: &L,
        key: &K,
    ) -> impl Future<Output = Result<(), IndexError>>;

    /// Enters the leaves of a bulk load (first keys, ascending, the first one the smallest key; and addresses) into
    /// an empty structure.
    fn build(
        &self,
        v: &V,
        leaves: &[(K, RemotePtr)],
        fill: f64,
    ) -> impl Future<Output = Result<(), IndexError>>;
}

/// What is at a leaf of one entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Single<K> {
    /// The entry of the key that was asked for.
    Hit,
    /// Another key's entry; no other key shares its first `depth + 1` bytes.
    Other {
        /// That key.
        key: K,
        /// How deep it is linked, at most.
        depth: u64,
    },
    /// An entry that was removed. It stays so: there will be another leaf if its key comes back.
    Removed,
    /// The entry of the key, whose value is not the one that a write was to meet.
    Differs,
}

/// Leaves of one entry each: read with one READ, written in place under a lock of their own, removed for good.
///
/// They know nothing of what links them, but keep a *link depth* for it: a word that only grows, by FAA.
pub trait SingleStore<V: Verbs, K> {
    /// Bytes of one value.
    fn value_bytes(&self) -> usize;
    /// Bytes of a leaf, in whole lines.
    fn block_bytes(&self) -> u32;
    /// The bytes of a new leaf into `out` (cleared first). The caller writes them before it links the leaf.
    fn image(&self, key: &K, value: &[u8], depth: u64, out: &mut Vec<u8>);
    /// Where the link depth of the leaf at `at` lies.
    fn depth_at(&self, at: RemotePtr) -> RemotePtr;

    /// Reads `key`'s value into `value` (cleared first).
    fn get(
        &self,
        v: &V,
        at: RemotePtr,
        key: &K,
        value: &mut Vec<u8>,
    ) -> impl Future<Output = Result<Single<K>, IndexError>>;

    /// Replaces `key`'s value; where there is `before`, only that one.
    fn update(
        &self,
        v: &V,
        at: RemotePtr,
        key: &K,
        value: &[u8],
        before: Option<&[u8]>,
    ) -> impl Future<Output = Result<Single<K>, IndexError>>;

    /// Removes `key`'s entry; where there is `before`, only with that value.
    fn remove(
        &self,
        v: &V,
        at: RemotePtr,
        key: &K,
        before: Option<&[u8]>,
    ) -> impl Future<Output = Result<Single<K>, IndexError>>;

    /// Reads several leaves at once, in one round trip, and shows those that are not removed in the order of `at`: key
    /// and value.
    fn entries(
        &self,
        v: &V,
        at: &[RemotePtr],
        each: impl FnMut(K, &[u8]),
    ) -> impl Future<Output = Result<(), IndexError>>;
}
