//! Merging a node into its left neighbour, and removing a root that has only one child.
//!
//! The merging client holds the locks of both nodes and of their parent P, as a set. L is left of R:
//! 1. WRITE P's entry of R, which removes it. Readers reach R through L from now on. This is the first step, so that no
//!    entry leads to a dead node, even if the sequence is cut off.
//! 2. WRITE R's header: Frozen, with L's name.
//! 3. WRITE L in three parts: its header (Frozen, with R's name, which allows newer lines), its other lines (R's
//!    entries in free slots, version + 1), and its header again (version + 1, R's fence key and sibling, still Frozen).
//!    A reader that sees a mixture of these finds one state of L (S2). In a format that is written whole, this is one
//!    WRITE.
//! 4. WRITE the whole of R: Dead, with L's address, version + 1 on every line.
//! 5. WRITE L's header: Live. This must be the last WRITE. If it came earlier and the sequence were cut off, a client
//!    could write a key in L while readers still find the old value in R.
//! 6. Unlock all three. No pointer of the index leads to R any more, so R is retired.
//!
//! L and R are on one memory node. Steps 2 to 5 are one chain. If P is on the same memory node, step 1 is the first
//! WRITE of this chain. Otherwise step 1 is awaited before the chain is posted.
//!
//! If the sequence is cut off after step 2, the next client that locks one of the two nodes finishes or undoes the
//! merge ([`crate::mend`]).

use core::ops::Range;

use dm_alloc::Block;
use dm_index::{Child, IndexError, Merge, Neighbours, NodeCopy, Restructure};
use dm_layout::{CheckFailure, FenceKeys, Header, KeyBytes, NodeFormat, NodeState, Part, Place, ValueRef};
use dm_lock::SetGuard;
use dm_verbs::{Control, Event, LocalStep, NodeId, RemotePtr, Verbs};
use smallvec::SmallVec;

use crate::Nodes;
use crate::mend::name;
use crate::write::failure;

/// A node is sparse if at most one part in this number is in use.
const SPARSE: usize = 4;
/// A merge must leave at least one part in this number of the merged node free, so that the node is not split at once.
const SPARE: usize = 4;

/// Bytes with their target address.
type Piece = (RemotePtr, Vec<u8>);

/// The entry of the right node that a merge has removed from a parent on another memory node. If the merge is dropped
/// before its chain is posted, the destructor writes the entry again.
struct Relisting<'v, V: Verbs> {
    v: &'v V,
    piece: Option<Piece>,
}

impl<V: Verbs> Drop for Relisting<'_, V> {
    fn drop(&mut self) {
        // The guards post their unlocks after this WRITE. So on the parent's memory node, the WRITE takes effect before
        // the unlock.
        if let Some((at, bytes)) = &self.piece {
            self.v.write(*at, bytes).detach();
        }
    }
}

/// The removal of the right node from the parent.
pub(crate) struct Unlisting {
    /// The WRITE that removes the entry.
    removal: Piece,
    /// The bytes that the removal overwrites.
    entry: Piece,
}

/// All WRITEs of a merge, prepared before the first one is posted.
pub(crate) struct Plan {
    /// The memory node of both nodes.
    node: NodeId,
    /// The right node's header, frozen.
    frozen: Piece,
    /// The WRITEs to the left node, in this order.
    steps: SmallVec<[Piece; 3]>,
    /// The whole right node, marked as dead.
    buried: Piece,
    /// The left node's header, live. It is written after the right node is dead.
    opened: Option<Piece>,
    /// The removal of the right node's entry from the parent; `None` if the parent is not a node.
    unlisting: Option<Unlisting>,
}

impl<K: KeyBytes, F: NodeFormat<K>> Nodes<K, F> {
    pub(crate) fn is_sparse(&self, image: &[u8]) -> Result<bool, CheckFailure> {
        Ok(self.format.fullness(image)?.is_at_most_one_in(SPARSE))
    }

    /// Returns the header of an image if the image shows a live node of `level`. Returns `None` if it shows anything
    /// else, or is torn.
    fn settled(&self, at: RemotePtr, bytes: &[u8], level: u8) -> Result<Option<Header<K>>, IndexError> {
        match self.format.accept(bytes) {
            Ok(header) if header.state == NodeState::Live && header.level == level => Ok(Some(header)),
            Ok(_) => Ok(None),
            Err(e) if e.is_torn() => Ok(None),
            Err(e) => Err(failure(at, e)),
        }
    }

    /// Reads both nodes of `pair` without a lock. Returns the reason why they cannot be merged, or `None` if a merge
    /// seems possible. Most impossible merges are detected here, without delaying other clients.
    pub(crate) async fn look<V: Verbs>(
        &self,
        v: &V,
        pair: &Neighbours<K>,
    ) -> Result<Option<Merge>, IndexError> {
        let (left, right) = (
            v.read(pair.left, self.node_len()),
            v.read(pair.right, self.node_len()),
        );
        self.unsuitable(pair, &left.await?, &right.await?)
    }

    /// Returns the reason why the two nodes cannot be merged, or `None` if they can.
    pub(crate) fn unsuitable(
        &self,
        pair: &Neighbours<K>,
        left: &[u8],
        right: &[u8],
    ) -> Result<Option<Merge>, IndexError> {
        let headers = (
            self.settled(pair.left, left, pair.level)?,
            self.settled(pair.right, right, pair.level)?,
        );
        let (Some(l), Some(r)) = headers else {
            return Ok(Some(Merge::Changed));
        };
        //= docs/protocol/sherman.md S23
        let meet = l.fences.high == Some(pair.between)
            && l.sibling == pair.right.raw()
            && r.fences.low == pair.between
            && r.fences.high == pair.until;
        if !meet {
            return Ok(Some(Merge::Changed));
        }
        let fits = match self.fit(left, right) {
            Ok(fits) => fits,
            // `settled` checks only the versions of lines. So an entry that spans several lines may be torn, because
            // another client may be writing it.
            Err(e) if e.is_torn() => return Ok(Some(Merge::Changed)),
            Err(e) => return Err(failure(pair.left, e)),
        };
        Ok((!fits).then_some(Merge::TooFull))
    }

    /// Returns whether the entries of both nodes fit into one node with the required free space.
    fn fit(&self, left: &[u8], right: &[u8]) -> Result<bool, CheckFailure> {
        let spare = self.format.fullness_merged(left, right)?.leaves_one_in(SPARE);
        Ok(spare && (F::ANYWHERE || self.format.merge_fits(left, right)?))
    }

    pub(crate) async fn merge_nodes<V: Verbs + Control, P: Restructure<V, K>>(
        &self,
        v: &V,
        pair: &Neighbours<K>,
        parents: &P,
        after: &mut NodeCopy<K>,
    ) -> Result<Merge, IndexError> {
        //= docs/protocol/sherman.md S23
        if !can_merge(pair) {
            return Ok(Merge::TooFull);
        }
        if let Some(not) = self.look(v, pair).await? {
            return Ok(not);
        }
        //= docs/protocol/sherman.md S23
        let nodes = [pair.left, pair.right, pair.parent];
        let locked = self
            .alloc
            .while_announcing(v, self.locks.lock_set(v, &nodes))
            .await;
        let mut set = locked?;
        let reads = [
            v.read(pair.left, self.node_len()),
            v.read(pair.right, self.node_len()),
            v.read(pair.parent, parents.node_bytes()),
        ];
        let [left, right, parent] = reads;
        let (mut left, mut right, mut parent) = (left.await?, right.await?, parent.await?);
        if let Some(not) = self.unsuitable(pair, &left, &right)? {
            set.release().await?;
            return Ok(not);
        }
        let before = parent.to_vec();
        let Some(gone) = parents.unlink(&mut parent, pair)? else {
            set.release().await?;
            return Ok(Merge::Changed);
        };
        let unlisting = Unlisting {
            removal: piece(pair.parent, &parent, gone.clone()),
            entry: piece(pair.parent, &before, gone),
        };
        let plan = self.plan_merge(pair, (&mut left, &mut right), Some(unlisting))?;
        for at in nodes {
            if let Some(guard) = set.of(at) {
                guard.doubt_if_lost();
            }
        }
        let done = Merge::Done {
            sparse: self.is_sparse(&left).map_err(|e| failure(pair.left, e))?,
            parent_sparse: parents.show(pair.parent, &parent, after)?,
        };
        let dead = self.format.header(&right).map_err(|e| failure(pair.right, e))?;
        carry_out(v, set, plan).await?;
        v.meter().note(Event::Merge);
        v.local(LocalStep::Section).await;
        self.retire(pair.right, &dead);
        Ok(done)
    }

    pub(crate) fn plan_merge(
        &self,
        pair: &Neighbours<K>,
        (left, right): (&mut [u8], &mut [u8]),
        unlisting: Option<Unlisting>,
    ) -> Result<Plan, IndexError> {
        let bad = |e| failure(pair.left, e);
        //= docs/protocol/sherman.md S23
        // Both nodes have such a number, because the caller has checked `can_merge`. A frozen node that does not name
        // the other node could not be mended.
        let (of_left, of_right) = (name(pair.left).unwrap_or(0), name(pair.right).unwrap_or(0));
        let was = self.format.header(right).map_err(bad)?;
        let range = self.format.freeze(right, of_left).map_err(bad)?;
        let frozen = piece(pair.right, right, range);
        let mut steps = SmallVec::new();
        let announced = self.format.announce_merge(left, of_right).map_err(bad)?;
        // A format that is written whole needs only one step, which adds the right node's keys to the left node.
        let by_steps = !self.format.range(Part::Rest).is_empty();
        if by_steps {
            steps.push(piece(pair.left, left, announced));
        }
        let copied = self.format.copy_merge(left, right).map_err(bad)?;
        if by_steps {
            steps.push(piece(pair.left, left, copied));
        }
        let mut widened = self.format.widen_merge(left, &was).map_err(bad)?;
        if self.options.flaws().open_before_burial {
            widened = self.format.open(left).map_err(bad)?;
        }
        steps.push(piece(pair.left, left, widened));
        let opened = match self.options.flaws().open_before_burial {
            false => Some(self.format.open(left).map_err(bad)?),
            true => None,
        };
        let whole = self.format.bury(right, pair.left.raw()).map_err(bad)?;
        let buried = match self.options.flaws().unburied {
            false => piece(pair.right, right, whole),
            true => frozen.clone(),
        };
        Ok(Plan {
            node: pair.left.node(),
            frozen,
            steps,
            buried,
            opened: opened.map(|range| piece(pair.left, left, range)),
            unlisting,
        })
    }

    /// Removes the right node of `pair` from the image of their parent, if the parent lists both nodes as `pair` does.
    pub(crate) fn unlink_right(
        &self,
        image: &mut [u8],
        pair: &Neighbours<K>,
    ) -> Result<Option<Range<usize>>, IndexError> {
        let bad = |e| failure(pair.parent, e);
        let Some(header) = self.settled(pair.parent, image, pair.level + 1)? else {
            return Ok(None);
        };
        let mut entries = Vec::with_capacity(self.format.capacity());
        self.format
            .gather(image, &header.fences, &mut entries)
            .map_err(bad)?;
        let at = entries.partition_point(|(separator, _)| *separator < pair.between);
        let child = |i: usize, address: RemotePtr| {
            entries
                .get(i)
                .is_some_and(|(_, value)| child_of(*value) == address)
        };
        //= docs/protocol/sherman.md S25
        // The first entry is never removed, because its child's left neighbour is a child of another parent.
        let shown = at > 0
            && entries
                .get(at)
                .is_some_and(|(separator, _)| *separator == pair.between)
            && child(at - 1, pair.left)
            && child(at, pair.right)
            && entries
                .get(at + 1)
                .map(|(separator, _)| *separator)
                .or(header.fences.high)
                == pair.until;
        if !shown {
            return Ok(None);
        }
        match self.format.place(image, &pair.between).map_err(bad)? {
            Place::Present(slot) => Ok(Some(self.format.remove(image, slot))),
            Place::Free(_) | Place::Full => Ok(None),
        }
    }

    pub(crate) async fn collapse_node<V: Verbs + Control>(
        &self,
        v: &V,
        at: RemotePtr,
        level: u8,
        commit: impl AsyncFnOnce(&[u8]) -> Result<bool, IndexError>,
    ) -> Result<bool, IndexError> {
        let locking = self.locks.lock_and_read(v, at, at, self.node_len());
        let (guard, mut image) = self.alloc.while_announcing(v, locking).await?;
        let bad = |e| failure(at, e);
        let alone = self
            .settled(at, &image, level)?
            .is_some_and(|h| h.fences == FenceKeys::ALL && h.sibling == 0);
        let mut entries = Vec::new();
        if alone {
            self.format
                .gather(&image, &FenceKeys::ALL, &mut entries)
                .map_err(bad)?;
        }
        let [(_, only)] = entries[..] else {
            guard.release().await?;
            return Ok(false);
        };
        let value = only.to_vec();
        drop(entries);
        if !commit(&value).await? {
            guard.release().await?;
            return Ok(false);
        }
        //= docs/protocol/sherman.md S27
        // The dead root has no forwarding address, because its child has another level, and perhaps another format.
        self.format.bury(&mut image, 0).map_err(bad)?;
        guard.write_back(v.chain(at.node()).write(at, &image)).await?;
        let dead = self.format.header(&image).map_err(bad)?;
        v.local(LocalStep::Section).await;
        self.retire(at, &dead);
        Ok(true)
    }

    /// Retires the block of a node. The WRITE that marks the node as dead must have completed, and no pointer of the
    /// index may lead to the node.
    pub(crate) fn retire(&self, at: RemotePtr, dead: &Header<K>) {
        //= docs/protocol/reclaim.md R1
        let block = Block {
            at,
            incarnation: dead.incarnation,
            version: dead.version,
        };
        self.alloc.retire(block.after(dead.version), self.class());
    }
}

/// Returns the child address in an inner node's entry.
fn child_of(value: ValueRef<'_>) -> RemotePtr {
    let mut bytes = [0; 8];
    let Some(bytes) = bytes.get_mut(..value.len()) else {
        return RemotePtr::NULL;
    };
    value.copy_to(bytes);
    Child::decode(bytes)
}

fn piece(at: RemotePtr, image: &[u8], range: Range<usize>) -> Piece {
    (at.add(range.start as u64), image[range].to_vec())
}

/// Returns whether the addresses of two nodes allow a merge. Both nodes must be on one memory node, because if a merge
/// over two memory nodes were abandoned, the WRITE to the right node and the unlock of the left node could take effect
/// in any order. Also, the header of each node must be able to name the other node.
pub(crate) fn can_merge<K>(pair: &Neighbours<K>) -> bool {
    pair.left.node() == pair.right.node() && name(pair.left).is_some() && name(pair.right).is_some()
}

/// Posts the WRITEs of `plan` in their order, and unlocks.
pub(crate) async fn carry_out<'a, V: Verbs>(
    v: &'a V,
    set: SetGuard<'a, V>,
    plan: Plan,
) -> Result<(), IndexError> {
    //= docs/protocol/sherman.md S24
    // All WRITEs to the two nodes are in one chain. The unlocks of both nodes follow it, even if this future is
    // dropped.
    let mut chain = v.chain(plan.node);
    let mut relisting = Relisting { v, piece: None };
    if let Some(Unlisting { removal, entry }) = plan.unlisting {
        let parent = removal.0.node();
        if plan.node == parent {
            chain = chain.write(removal.0, &removal.1);
        } else {
            //= docs/protocol/sherman.md S28
            relisting.piece = Some(entry);
            v.chain(parent).write(removal.0, &removal.1).await?;
        }
    }
    chain = chain.write(plan.frozen.0, &plan.frozen.1);
    for (at, bytes) in &plan.steps {
        chain = chain.write(*at, bytes);
    }
    chain = chain.write(plan.buried.0, &plan.buried.1);
    if let Some((at, bytes)) = &plan.opened {
        chain = chain.write(*at, bytes);
    }
    relisting.piece = None;
    set.write_back([chain]).await.map_err(IndexError::from)
}
