//! The roles of a node store. Each role is a trait.

use core::future::Future;

use dm_layout::{FenceKeys, Fullness};
use dm_sync::epoch::Seat;
use dm_verbs::{RemotePtr, Verbs};

use crate::{
    Answer, Applied, Created, IndexError, Inspected, Lead, Merge, Neighbours, NodeCopy, Tended, Write,
};

/// Reads and writes one key of a node.
pub trait NodeAccess<V: Verbs, K> {
    /// The store that has all other roles for these nodes. Often this is the implementor itself.
    type Whole: NodeStore<V, K>;

    /// Returns the store of whole nodes.
    fn whole(&self) -> &Self::Whole;

    /// Returns the size of a value in bytes.
    fn value_bytes(&self) -> usize;

    /// Reads the value of `key` into `value` from the node at `at`, which should have level `level`. The result is
    /// `true` if the key is present.
    fn get(
        &self,
        v: &V,
        at: Lead,
        level: u8,
        key: &K,
        value: &mut Vec<u8>,
    ) -> impl Future<Output = Result<Answer<K, bool>, IndexError>>;

    /// Writes one key under the node's lock, or under a share of it, and splits the node if it is full. If `after` is
    /// given, it receives a copy of the node after this write (after a split, of the left half). The caller may have to
    /// decode the entries of this copy by [`NodeCopies::unfold`].
    fn write(
        &self,
        v: &V,
        at: Lead,
        level: u8,
        key: &K,
        write: Write<'_>,
        after: Option<&mut NodeCopy<K>>,
    ) -> impl Future<Output = Result<Answer<K, Applied>, IndexError>>;
}

/// Reads whole nodes.
pub trait NodeCopies<V: Verbs, K> {
    /// Decodes the entries of a copy if a write left them undecoded (`folded`). Most callers that write an inner node
    /// need only its header, so a write does not decode the entries.
    ///
    /// # Errors
    /// Returns [`IndexError::Corrupt`] if the bytes are not a node.
    fn unfold(&self, copy: &mut NodeCopy<K>) -> Result<(), IndexError>;

    /// Reads the whole node at `at`. Returns `false` if the node is dead, or if it is torn and need not be read again,
    /// because it was merged or replaced, or is not linked. Then `copy.sibling` is the node to continue with, or null.
    fn copy(
        &self,
        v: &V,
        at: RemotePtr,
        copy: &mut NodeCopy<K>,
    ) -> impl Future<Output = Result<bool, IndexError>>;

    /// Reads several nodes at the same time, and passes each to `each` as `copy`, in the order of `at`. Stops when
    /// `each` returns `false`, or at the first address whose READ was torn, took too long, or found a dead node. A
    /// corrupt node is an error.
    fn copies(
        &self,
        v: &V,
        at: &[RemotePtr],
        copy: &mut NodeCopy<K>,
        each: impl FnMut(&NodeCopy<K>) -> bool,
    ) -> impl Future<Output = Result<(), IndexError>>;

    /// Reads several nodes with one doorbell for each memory node, waits for all of them, and passes each to `each` as
    /// `copy`, in the order of `at`. An implementation may leave out nodes that are dead, torn or corrupt. The default
    /// rings a doorbell for each node, and stops at the first node that it leaves out. It returns an error if this node
    /// is corrupt.
    fn copies_at_once(
        &self,
        v: &V,
        at: &[RemotePtr],
        copy: &mut NodeCopy<K>,
        mut each: impl FnMut(&NodeCopy<K>),
    ) -> impl Future<Output = Result<(), IndexError>> {
        self.copies(v, at, copy, move |copy| {
            each(copy);
            true
        })
    }
}

/// Creates, merges and frees nodes.
pub trait Restructure<V: Verbs, K>: NodeCopies<V, K> {
    /// Writes a node to which nothing points yet. The node is live at once, unless `unborn` is set. An unborn node
    /// becomes live by [`Restructure::open`], after it has been linked.
    fn create(
        &self,
        v: &V,
        level: u8,
        fences: FenceKeys<K>,
        entries: &[(K, &[u8])],
        unborn: bool,
    ) -> impl Future<Output = Result<Created, IndexError>>;

    /// Makes an unborn node live, after it has been linked. This happens even if the future is dropped midway.
    fn open(&self, v: &V, node: &Created) -> impl Future<Output = Result<(), IndexError>>;

    /// Merges a node into its left neighbour and removes it from their parent (a node of `parents`). This happens only
    /// if all three nodes match `pair`, if the two neighbours are on one memory node, and if the merged node has some
    /// free space. Then `after` receives a copy of the changed parent.
    ///
    /// All three nodes are locked during the merge, and the parent lists the right node. So the operation that had to
    /// install the right node in the parent has already done so, and no later operation installs it again.
    fn merge<P: Restructure<V, K>>(
        &self,
        v: &V,
        pair: &Neighbours<K>,
        parents: &P,
        after: &mut NodeCopy<K>,
    ) -> impl Future<Output = Result<Merge, IndexError>>;

    /// Merges two nodes if the inner structure has no node that could be locked with them. `pair.parent` is ignored.
    /// Then `unlink` removes the right node from the inner structure, and the node is retired. A late operation may
    /// still add the dead node to the inner structure again, so the inner structure must treat its addresses as hints.
    fn join(
        &self,
        v: &V,
        pair: &Neighbours<K>,
        unlink: impl AsyncFnOnce() -> Result<(), IndexError>,
    ) -> impl Future<Output = Result<Merge, IndexError>>;

    /// Returns the size of a node in bytes.
    fn node_bytes(&self) -> u32;

    /// Removes the right node of `pair` from `image`, which was read from the parent under its lock. Returns the range
    /// of bytes to write back. Returns `None` and changes nothing if the parent does not list the two nodes as `pair`
    /// does.
    ///
    /// # Errors
    /// Returns [`IndexError::Corrupt`] if the bytes contradict each other.
    fn unlink(
        &self,
        image: &mut [u8],
        pair: &Neighbours<K>,
    ) -> Result<Option<core::ops::Range<usize>>, IndexError>;

    /// Decodes an image of the node at `at`, read under its lock, into `copy`. Returns `true` if the node is sparse. A
    /// node that covers all keys never counts as sparse, because it has no neighbour.
    ///
    /// # Errors
    /// Returns [`IndexError::Corrupt`] if the bytes contradict each other.
    fn show(&self, at: RemotePtr, image: &[u8], copy: &mut NodeCopy<K>) -> Result<bool, IndexError>;

    /// Marks the node at `at` as dead and frees it, if it is a live node of `level` that covers all keys and has one
    /// entry. `commit` receives that entry's value under the node's lock, and decides whether to mark the node. Returns
    /// whether the node was marked.
    fn collapse(
        &self,
        v: &V,
        at: RemotePtr,
        level: u8,
        commit: impl AsyncFnOnce(&[u8]) -> Result<bool, IndexError>,
    ) -> impl Future<Output = Result<bool, IndexError>>;

    /// Frees a node that nothing has ever pointed to.
    fn forget(&self, node: Created);

    /// Reads the node at `at`, and finishes a split, a merge or a hop that another client has left
    /// unfinished there, as the next writer of the node would. It changes no entry's value. If there is nothing to
    /// finish, this costs one READ.
    ///
    /// Call this only with the address of a linked node: an address that was read within this operation from a parent,
    /// a sibling pointer or the root word.
    fn tend(&self, v: &V, at: RemotePtr) -> impl Future<Output = Result<Tended, IndexError>>;

    /// Reads the node at `at` for a check, and decodes as much of it as possible into `copy`. A torn READ is repeated a
    /// few times. Torn and corrupt nodes are reported in the result, and are not an error.
    fn inspect(
        &self,
        v: &V,
        at: RemotePtr,
        copy: &mut NodeCopy<K>,
    ) -> impl Future<Output = Result<Inspected, IndexError>>;
}

/// Fills an empty index, beginning with the leaves.
pub trait BulkLoad<V: Verbs, K> {
    /// Returns the maximum number of entries in one node. With some keys, fewer entries may fit.
    fn capacity(&self) -> usize;

    /// Returns whether a node can hold the first `count` entries of `copy`. A node that can hold them must also be able
    /// to hold fewer. If the result is `false`, a bulk load gives this node fewer entries and begins the next one, even
    /// if this node is not full.
    fn takes(&self, _copy: &NodeCopy<K>, _count: usize) -> bool {
        true
    }

    /// Returns the part of a node with this low fence key that an entry of `key` uses.
    fn share(&self, _low: &K, _key: &K) -> Fullness {
        Fullness {
            taken: 1,
            of: self.capacity(),
        }
    }

    /// Reserves a block for a node that [`BulkLoad::load`] will write.
    fn reserve(&self, v: &V) -> impl Future<Output = Result<RemotePtr, IndexError>>;

    /// Writes the node of `copy` at `copy.at` directly, without a verb. If the world does not support direct loading,
    /// this is a WRITE.
    fn load(&self, v: &V, copy: &NodeCopy<K>) -> impl Future<Output = Result<(), IndexError>>;
}

/// The interface through which an index announces the operations of its compute node, so that the memory of dead nodes
/// can be reused. The default methods are for memory that is never reused.
pub trait Reclaim<V: Verbs> {
    /// Returns a seat for the client `v`, or `None` if the memory of dead nodes is not reused.
    fn seat(&self, _v: &V) -> Option<Seat> {
        None
    }

    /// Returns whether [`Reclaim::prepare`] must be awaited before the next operation, even if the seat would start the
    /// operation. Calling this reads the clock.
    fn is_due(&self, _v: &V) -> bool {
        false
    }

    /// Prepares `seat` for operations. Await this when the seat refuses to start an operation, or when
    /// [`Seat::has_forgotten`] or [`Reclaim::is_due`] returns `true`.
    fn prepare(&self, _v: &V, _seat: &Seat) -> impl Future<Output = Result<(), IndexError>> {
        core::future::ready(Ok(()))
    }

    /// Announces that the compute node is alive, so that other members do not fence it. Await this regularly during a
    /// long operation.
    fn keep_alive(&self, _v: &V, _seat: &Seat) -> impl Future<Output = Result<(), IndexError>> {
        core::future::ready(Ok(()))
    }

    /// Announces that the compute node is alive, like [`Reclaim::keep_alive`], but without a seat. Await this when an
    /// operation retries because of contention.
    fn announce_if_due(&self, _v: &V) -> impl Future<Output = Result<(), IndexError>> {
        core::future::ready(Ok(()))
    }

    /// Runs `work`, and meanwhile announces that the compute node is alive. Use this for a long part of an operation.
    fn while_announcing<T>(&self, _v: &V, work: impl Future<Output = T>) -> impl Future<Output = T> {
        work
    }

    /// Waits until this client's WRITEs to blocks that it gave back have landed. Await this before a direct load
    /// ([`Verbs::load`]): a load is not a request, so no queue pair delays it until those WRITEs have landed.
    fn land(&self, _v: &V) -> impl Future<Output = Result<(), IndexError>> {
        core::future::ready(Ok(()))
    }

    /// Gives back the seat of a client that leaves. The client may be the last one of its compute node. This never
    /// waits.
    fn vacate(&self, _v: &V, _seat: Seat) {}
}

/// A store of nodes that hold entries, in all of its roles.
///
/// One store serves leaves as well as the inner nodes of a B-link tree, whose values are addresses of children.
pub trait NodeStore<V: Verbs, K>: NodeAccess<V, K> + Restructure<V, K> + BulkLoad<V, K> {
    /// The allocator that announces operations.
    type Reclaim: Reclaim<V>;

    /// Returns the handle by which operations on these nodes are announced.
    fn reclaim(&self) -> &Self::Reclaim;
}
