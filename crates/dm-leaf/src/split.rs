//! Splitting a node, in an order that keeps the node readable at every step, even if the writer dies.
//!
//! The client that splits holds the lock of the left node and no other lock:
//! 1. WRITE the whole right node, in state Splitting, and await the WRITE. Nothing points to the node yet.
//! 2. Post one chain to the left node: its header (new fence key, sibling, Splitting), its other lines (moved entries
//!    cleared), its header again (Live), and the unlock. The lines may take effect one by one, because entries that
//!    stay in the left node do not change their slots.
//! 3. Make the right node Live before the left node is unlocked. If both are on one memory node, the chain of step 2
//!    also writes the right node's header. Otherwise a CAS makes the right node Live. The CAS is posted after the WRITE
//!    that clears the moved entries has completed, and awaited before the left node becomes Live. A client that locks
//!    the right node earlier finds it Splitting, releases the lock, and tries again later. In formats that are written
//!    whole, step 2 is one WRITE. In these formats the right node is Live from the start if its memory never was a
//!    node. Otherwise it is made Live after the left node was unlocked (R9).
//! 4. The caller updates the parent after the chain has completed (T-S4).

use dm_alloc::{Allocator, Block, Class};
use dm_index::{Answer, Applied, Created, IndexError, NodeCopy, Split, Write};
use dm_layout::{
    Corrupt, FenceKeys, KeyBytes, NodeFormat, NodeInit, NodeState, Part, Reason, SplitPlan, SplitRequest,
    ValueRef,
};
use dm_lock::Guard;
use dm_verbs::{Control, Effect, Event, RemotePtr, VerbError, Verbs, Why};

use crate::Nodes;
use crate::write::failure;

/// A block with a node to which nothing points yet. If this value is dropped while `armed` is set, the block returns to
/// the allocator.
pub(crate) struct Unlinked<'v, V: Verbs> {
    v: &'v V,
    alloc: &'v Allocator,
    class: Class,
    block: Block,
    /// Whether a WRITE to the node was posted. It may still be in flight.
    pub(crate) written: bool,
    pub(crate) armed: bool,
}

impl<'v, V: Verbs> Unlinked<'v, V> {
    pub(crate) fn new<K: KeyBytes, F: NodeFormat<K>>(v: &'v V, nodes: &'v Nodes<K, F>, block: Block) -> Self {
        Self {
            v,
            alloc: &nodes.alloc,
            class: nodes.class(),
            block,
            written: false,
            armed: true,
        }
    }
}

impl<V: Verbs> Drop for Unlinked<'_, V> {
    fn drop(&mut self) {
        match (self.armed, self.written) {
            (false, _) => {}
            (true, false) => self.alloc.give_back(self.block, self.class),
            (true, true) => {
                //= docs/protocol/reclaim.md R11
                let next = self.block.after(self.block.version);
                self.alloc.give_back_unawaited(self.v.client(), next, self.class);
            }
        }
    }
}

/// The change that makes an unborn node live after it was linked. If this is dropped while `armed` is set, it posts
/// the CAS without awaiting it.
struct Opening<'v, V: Verbs> {
    v: &'v V,
    at: RemotePtr,
    head: Vec<u8>,
    /// The address and the bytes of the new entry, if the right node was written without this entry and is on the left
    /// node's memory node.
    late: Option<(RemotePtr, Vec<u8>)>,
    /// The change of the state word from Splitting to Live.
    flip: Flip,
    armed: bool,
}

/// A change of the word that holds a node's state, from one value to another.
#[derive(Clone, Copy)]
struct Flip {
    at: RemotePtr,
    from: u64,
    to: u64,
}

impl Flip {
    /// Returns the change of the state word from `born` to its value in `open`, an image of the node at `at` in its
    /// live state. Returns `None` for a format without a state word.
    fn between(at: RemotePtr, word: Option<usize>, born: [u8; 8], open: &[u8]) -> Option<Self> {
        let word = word?;
        Some(Self {
            at: at.add(word as u64),
            from: u64::from_le_bytes(born),
            to: u64::from_le_bytes(*open.get(word..)?.first_chunk()?),
        })
    }
}

impl<'v, V: Verbs> Opening<'v, V> {
    /// Makes the node live by CAS. If the two nodes are on different memory nodes, this CAS is not ordered with the
    /// unlock of the left node. It may take effect after another client has finished the split and has written to the
    /// live node. It must then change nothing, so it compares the whole word.
    async fn land(&self) -> Result<(), VerbError> {
        //= docs/protocol/sherman.md S17
        let Flip { at, from, to } = self.flip;
        self.v.cas(at, from, to).await.map(drop)
    }
}

impl<V: Verbs> Drop for Opening<'_, V> {
    fn drop(&mut self) {
        if self.armed {
            let Flip { at, from, to } = self.flip;
            self.v.cas(at, from, to).detach();
        }
    }
}

/// Returns the 8 bytes at offset `word` of a node's image, or zeros if `word` is `None`.
fn state_word(image: &[u8], word: Option<usize>) -> [u8; 8] {
    let bytes = word.and_then(|at| image.get(at..)?.first_chunk());
    bytes.copied().unwrap_or_default()
}

impl<K: KeyBytes, F: NodeFormat<K>> Nodes<K, F> {
    /// Splits a leaf that has no room for `key`, which is absent, and inserts the key with this `value`. `guard` holds
    /// the leaf's lock, and `image` was read under it. If the first field of [`Answer::Split`] is `None`, the leaf was
    /// split, but the key was not inserted.
    ///
    /// # Errors
    /// Returns the same errors as a write.
    pub async fn split_held<'a, V: Verbs + Control>(
        &'a self,
        v: &'a V,
        guard: Guard<'a, V>,
        at: RemotePtr,
        image: &mut [u8],
        (key, value): (&K, &[u8]),
    ) -> Result<Answer<K, Applied>, IndexError> {
        let insert = (*key, Write::Insert(value));
        Box::pin(self.split(v, guard, at, 0, image, insert, None)).await
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "only one function calls this, and passes all of its state"
    )]
    pub(crate) async fn split<'a, V: Verbs + Control>(
        &'a self,
        v: &'a V,
        guard: Guard<'a, V>,
        at: RemotePtr,
        level: u8,
        left: &mut [u8],
        (key, write): (K, Write<'_>),
        after: Option<&mut NodeCopy<K>>,
    ) -> Result<Answer<K, Applied>, IndexError> {
        let near = (!self.options.spread).then_some(at);
        let block = match self.allocate(v, near).await {
            Ok(block) => block,
            Err(e) => {
                guard.release().await?;
                return Err(e);
            }
        };
        let right_at = block.at;
        let mut unlinked = Unlinked::new(v, self, block);
        //= docs/protocol/reclaim.md R8
        let request = SplitRequest {
            right_address: right_at.raw(),
            right_incarnation: block.incarnation,
            right_version: block.version,
            owner: u32::from(v.client().0) + 1,
            new: write.value().map(|value| (key, ValueRef::from(value))),
            bias: self.options.bias,
        };
        let mut right = vec![0; self.format.node_bytes()];
        let plan = match self.format.prepare_split(left, &mut right, &request) {
            Ok(Some(plan)) => plan,
            // A full node has at least two keys, because every format has a capacity of two or more. So the node can be
            // split, unless its keys are outside its fence keys.
            Ok(None) => {
                guard.release().await?;
                let what = Corrupt {
                    offset: 0,
                    reason: Reason::Order,
                };
                return Err(IndexError::Corrupt { node: at, what });
            }
            Err(e) => {
                guard.release().await?;
                return Err(failure(at, e));
            }
        };
        let bad = |e| failure(right_at, e);
        let until = self.format.header(&right).map_err(bad)?.fences.high;
        unlinked.written = true;
        let word = self.format.state_word();
        let born = state_word(&right, word);
        // The right node is live from the start in two cases. The first case is a format that is written whole, if no
        // node has used the memory before. There, one WRITE of the left node links the right node and clears the moved
        // entries, and no old address leads to the right node. The second case is a split with flaw T-S4 or T-C3,
        // because the published splits have no unborn state.
        let flaws = self.options.flaws();
        let born_live =
            word.is_none() && block.is_fresh() || flaws.parent_before_left || flaws.right_born_live;
        if born_live {
            self.format.open(&mut right).map_err(bad)?;
        }
        let put_late = |right: &mut [u8]| {
            let (slot, key, value) = plan.late_right?;
            let range = self.format.put(right, slot, &key, value);
            Some((right_at.add(range.start as u64), right[range].to_vec()))
        };
        if born_live {
            put_late(&mut right);
        }
        let written = v.write(right_at, &right);
        if self.options.flaws().right_unawaited {
            written.detach();
        } else {
            written.await?;
        }
        let apart = right_at.node() != at.node();
        let undone = apart && !born_live && plan.late_right.is_some();
        let late = if apart { None } else { put_late(&mut right) };
        let head = self.format.open(&mut right).map_err(bad)?;
        let flip = Flip::between(right_at, word, born, &right).filter(|_| !born_live);
        let opening = flip.map(|flip| Opening {
            v,
            late,
            at: right_at.add(head.start as u64),
            head: right[head].to_vec(),
            flip,
            armed: false,
        });
        // From here on the left node may point to the right node, even if this future is dropped.
        unlinked.armed = false;
        if let Err(e) = self.switch(v, guard, at, left, &plan, opening).await {
            unlinked.armed = e.effect() == Effect::None;
            return Err(e);
        }
        if word.is_none() && !born_live {
            //= docs/protocol/reclaim.md R9
            let opened = self.open_whole(v, right_at).await;
            opened.map_err(|e| e.after_effect(right_at))?;
        }
        v.meter().note(Event::Split);
        if let Some(after) = after {
            self.decode(at, left, after).map_err(|e| failure(at, e))?;
        }
        let split = Split {
            level,
            separator: plan.separator,
            until,
            left: at,
            right: right_at,
        };
        //= docs/protocol/chime.md H6
        Ok(Answer::Split((!undone).then_some(Applied::Inserted), split))
    }

    /// Makes a linked, unborn node live.
    pub(crate) async fn open_created<V: Verbs + Control>(
        &self,
        v: &V,
        node: &Created,
    ) -> Result<(), IndexError> {
        let bad = |e| failure(node.at, e);
        let Some(word) = self.format.state_word() else {
            return self.open_whole(v, node.at).await;
        };
        // The compare word of the CAS is computed, and not read. It depends only on the values with which the node was
        // created.
        let mut image = vec![0; self.format.node_bytes()];
        let init = NodeInit {
            incarnation: node.incarnation,
            version: node.version,
            state: NodeState::Splitting,
            ..NodeInit::live(node.level, FenceKeys::ALL)
        };
        self.format.build(&mut image, &init, []);
        let born = state_word(&image, Some(word));
        self.format.open(&mut image).map_err(bad)?;
        let Some(flip) = Flip::between(node.at, Some(word), born, &image) else {
            return Ok(());
        };
        let mut opening = Opening {
            v,
            at: node.at,
            late: None,
            head: Vec::new(),
            flip,
            armed: true,
        };
        opening.land().await.map_err(VerbError::after_effect)?;
        opening.armed = false;
        Ok(())
    }

    /// Makes a linked, unborn node live in a format that is written whole, unless another client has done so. This
    /// takes the node's lock, because two clients must not WRITE the whole node at the same time.
    async fn open_whole<V: Verbs + Control>(&self, v: &V, at: RemotePtr) -> Result<(), IndexError> {
        let mut retry = v.retry(self.options.attempts);
        loop {
            let locking = self.locks.lock_and_read(v, at, at, self.node_len());
            let (guard, mut image) = self.alloc.while_announcing(v, locking).await?;
            match self.format.accept(&image) {
                Ok(_) if self.format.is_unborn(&image) => {
                    return self.finish_opening(v, guard, at, &mut image).await;
                }
                Err(e) if e.is_torn() => guard.release().await?,
                Ok(_) => return guard.release().await.map_err(IndexError::from),
                Err(e) => {
                    guard.release().await?;
                    return Err(failure(at, e));
                }
            }
            drop(image);
            retry.again(at, Why::Torn).await?;
            Box::pin(self.have_patience(v, &retry)).await?;
        }
    }

    /// Makes a linked, unborn node live under its lock, which `guard` holds. Releases the lock.
    pub(crate) async fn finish_opening<'a, V: Verbs>(
        &'a self,
        v: &'a V,
        guard: Guard<'a, V>,
        at: RemotePtr,
        image: &mut [u8],
    ) -> Result<(), IndexError> {
        let word = self.format.state_word();
        let born = state_word(image, word);
        let head = self.format.open(image).map_err(|e| failure(at, e))?;
        match Flip::between(at, word, born, image) {
            // The client that created the node may post the same CAS without the lock. This is safe, because the word
            // changes from unborn to live only once.
            Some(Flip { at, from, to }) => {
                v.cas(at, from, to).await?;
                guard.release().await.map_err(IndexError::from)
            }
            None => {
                let chain = v.chain(at.node()).write(at.add(head.start as u64), &image[head]);
                guard.write_back(chain).await.map_err(IndexError::from)
            }
        }
    }

    /// Carries out steps 2 and 3 of a split.
    async fn switch<'a, V: Verbs>(
        &'a self,
        v: &'a V,
        mut guard: Guard<'a, V>,
        at: RemotePtr,
        left: &mut [u8],
        plan: &SplitPlan<'_, K>,
        mut opening: Option<Opening<'a, V>>,
    ) -> Result<(), IndexError> {
        guard.doubt_if_lost();
        let right_at = RemotePtr::from_raw(plan.right_address);
        let bad = |e| failure(at, e);
        let mut chain = v.chain(at.node());
        if self.format.range(Part::Rest).is_empty() {
            // In a format that is written whole, one WRITE does all steps.
            let all = self.format.split_at_once(left, plan).map_err(bad)?;
            chain = chain.write(at, &left[all]);
        } else {
            let head = self.format.announce_split(left, plan).map_err(bad)?;
            chain = chain.write(at.add(head.start as u64), &left[head]);
            let rest = self.format.clear_split(left, plan).map_err(bad)?;
            chain = chain.write(at.add(rest.start as u64), &left[rest]);
        }
        let mut apart = false;
        match &mut opening {
            None => {}
            Some(opening) if opening.at.node() == at.node() => {
                // The right node's header is written in the same chain as the link to it, so either both WRITEs are
                // posted or neither is.
                if let Some((place, entry)) = &opening.late {
                    chain = chain.write(*place, entry);
                }
                chain = chain.write(opening.at, &opening.head);
            }
            Some(opening) => {
                apart = true;
                //= docs/protocol/sherman.md S17
                chain.await?;
                opening.armed = true;
                opening.land().await.map_err(VerbError::after_effect)?;
                opening.armed = false;
                chain = v.chain(at.node());
            }
        }
        if !self.format.range(Part::Rest).is_empty() {
            let head = self.format.finish_split(left).map_err(bad)?;
            chain = chain.write(at.add(head.start as u64), &left[head]);
        }
        if self.options.flaws().parent_before_left {
            // Dropping the guard posts the unlock after the chain. Neither is awaited.
            chain.post().detach();
            drop(guard);
            return Ok(());
        }
        let written = guard.write_back(chain).await.map_err(IndexError::from);
        match apart {
            false => written,
            true => written.map_err(|e| e.after_effect(right_at)),
        }
    }

    /// Finishes a split that another client has abandoned after it had linked the right node. This client holds the
    /// left node's lock, so the other client posts no more requests to the left node.
    pub(crate) async fn finish_split<'a, V: Verbs>(
        &'a self,
        v: &'a V,
        mut guard: Guard<'a, V>,
        at: RemotePtr,
        left: &mut [u8],
    ) -> Result<(), IndexError> {
        let bad = |e| failure(at, e);
        let header = self.format.header(left).map_err(bad)?;
        let Some(separator) = header.fences.high else {
            guard.release().await?;
            let what = Corrupt {
                offset: 0,
                reason: Reason::Fences,
            };
            return Err(IndexError::Corrupt { node: at, what });
        };
        let right_at = RemotePtr::from_raw(header.sibling);
        let mut right = v.read(right_at, self.node_len()).await?;
        let born = self.format.header(&right).map_err(|e| failure(right_at, e))?;
        let plan = SplitPlan {
            separator,
            right_address: header.sibling,
            owner: header.owner,
            new_left: None,
            late_right: None,
        };
        let rest = self.format.clear_split(left, &plan).map_err(bad)?;
        let mut chain = v.chain(at.node()).write(at.add(rest.start as u64), &left[rest]);
        guard.doubt_if_lost();
        if born.state == dm_layout::NodeState::Splitting && born.lag == dm_layout::LineLag::Equal {
            //= docs/protocol/sherman.md S16
            if !F::ANYWHERE {
                //= docs/protocol/chime.md H6
                // The moved entries are cleared before the right node becomes live, as in the original split. A reader
                // may see only lines of the left node from before the split. Its result is correct as long as no client
                // writes to the right node.
                chain.await?;
                chain = v.chain(at.node());
            }
            let word = self.format.state_word();
            let before = state_word(&right, word);
            let head = self.format.open(&mut right).map_err(|e| failure(right_at, e))?;
            match Flip::between(right_at, word, before, &right) {
                // The client that abandoned the split may have posted the same CAS. The CAS that takes effect second
                // changes nothing.
                Some(Flip { at, from, to }) => drop(v.cas(at, from, to).await?),
                // This is not reached, because a format without a state word is split by one WRITE, and shows no
                // unfinished split.
                None => v.write(right_at.add(head.start as u64), &right[head]).await?,
            }
        }
        let head = self.format.finish_split(left).map_err(bad)?;
        chain = chain.write(at.add(head.start as u64), &left[head]);
        guard.write_back(chain).await?;
        v.meter().note(Event::Mended);
        Ok(())
    }
}
