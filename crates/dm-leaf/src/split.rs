//! Splitting a node, in an order that any reader and any survivor can live with.
//!
//! With the left node locked (and no other):
//! 1. WRITE the right node whole, born in state Splitting; await. Nothing points to it yet.
//! 2. One chain to the left node: its head (new fence, sibling, Splitting), the rest (moved entries cleared), its
//!    head again (Live), and the unlock. Lines may land one by one: entries that stay never move.
//! 3. The right node is made Live before the left node is unlocked: by its head in that chain if both lie on one
//!    memory node, else by an atomic awaited between clearing and finishing. Whoever locks the right node sooner finds
//!    it Splitting, releases, and pauses. Formats that are written whole have it born Live: step 2 is one WRITE there.
//! 4. The parent, by the caller, after the chain has completed (T-S4).

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

/// A node that nothing leads to yet. Given up, its block comes back.
pub(crate) struct Unlinked<'v, V: Verbs> {
    v: &'v V,
    alloc: &'v Allocator,
    class: Class,
    block: Block,
    /// A WRITE to it was posted, and may still be under way.
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

/// What makes the right node live. Given up between linking it and that, it is posted unawaited.
struct Opening<'v, V: Verbs> {
    v: &'v V,
    at: RemotePtr,
    head: Vec<u8>,
    /// The new entry, and where it goes in the right node, if that was built without it.
    late: Option<(RemotePtr, Vec<u8>)>,
    /// The word that holds the state, as it was born and live.
    flip: Flip,
    armed: bool,
}

/// A change of the word that holds a node's state.
#[derive(Clone, Copy)]
struct Flip {
    at: RemotePtr,
    from: u64,
    to: u64,
}

impl Flip {
    /// From `born` to what `open` made of it, of the node at `at`.
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
    /// Away from the left node's queue pair nothing orders this with the left node's lock: it may land after whoever
    /// finished the split in our place, and after writes to the live node. So it must do nothing then.
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

/// The 8 bytes of a node's image at `word`.
fn state_word(image: &[u8], word: Option<usize>) -> [u8; 8] {
    let bytes = word.and_then(|at| image.get(at..)?.first_chunk());
    bytes.copied().unwrap_or_default()
}

impl<K: KeyBytes, F: NodeFormat<K>> Nodes<K, F> {
    #[expect(
        clippy::too_many_arguments,
        reason = "one call site: the write that found no room hands all it has"
    )]
    pub(crate) async fn split<'a, V: Verbs + Control>(
        &'a self,
        v: &'a V,
        guard: Guard<'a, V>,
        at: RemotePtr,
        level: u8,
        mut left: V::Lease,
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
        let plan = match self.format.prepare_split(&left, &mut right, &request) {
            Ok(Some(plan)) => plan,
            // A full node has two keys, every format's capacity being at least two; but not if they lie outside of it.
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
        // Written whole, the left node links it and is rid of the moved entries in one step: nothing is in the making,
        // and nobody comes by an old address to memory that never was a node. Published splits know no such state at all
        // (T-S4, T-C3).
        let flaws = &self.options.flaws;
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
        if self.options.flaws.right_unawaited {
            written.detach();
        } else {
            written.await?;
        }
        let late = put_late(&mut right);
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
        // From here on the left node may lead to it, whatever becomes of this.
        unlinked.armed = false;
        if let Err(e) = self.switch(v, guard, at, &mut left, &plan, opening).await {
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
            self.decode(at, &left, after).map_err(|e| failure(at, e))?;
        }
        let split = Split {
            level,
            separator: plan.separator,
            until,
            left: at,
            right: right_at,
        };
        Ok(Answer::Split(Applied::Inserted, split))
    }

    /// Makes a created node live that was born unborn and is linked now.
    pub(crate) async fn open_created<V: Verbs + Control>(
        &self,
        v: &V,
        node: &Created,
    ) -> Result<(), IndexError> {
        let bad = |e| failure(node.at, e);
        let Some(word) = self.format.state_word() else {
            return self.open_whole(v, node.at).await;
        };
        // The word depends on nothing but what the node was created with.
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

    /// Makes a linked node live that was born unborn, of a format that is written whole, unless somebody has. Such nodes
    /// are opened under their locks alone: a WRITE of all of it must not meet another's.
    async fn open_whole<V: Verbs + Control>(&self, v: &V, at: RemotePtr) -> Result<(), IndexError> {
        let mut retry = v.retry(self.options.attempts);
        loop {
            let locking = self.locks.lock_and_read(v, at, at, self.node_len());
            let (guard, mut image) = self.alloc.tending(v, locking).await?;
            match self.format.accept(&image) {
                Ok(_) if self.format.is_unborn(&image) => {
                    return self.finish_birth(v, guard, at, &mut image).await;
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
        }
    }

    /// Makes a linked node live whose maker has not done so yet, and perhaps gave up. It is locked, and unlocked then.
    pub(crate) async fn finish_birth<'a, V: Verbs>(
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
            // Its maker may post the same without the lock: the word changes from unborn to live once.
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

    /// Steps 2 and 3.
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
            // Formats that are written back whole know no steps.
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
                // In the one chain: posted with the link, or not at all.
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
                if let Some((place, entry)) = &opening.late {
                    let written = v.write(*place, entry).await;
                    written.map_err(VerbError::after_effect)?;
                }
                // The link is there, and the new entry with it if it went right.
                opening.land().await.map_err(VerbError::after_effect)?;
                opening.armed = false;
                chain = v.chain(at.node());
            }
        }
        if !self.format.range(Part::Rest).is_empty() {
            let head = self.format.finish_split(left).map_err(bad)?;
            chain = chain.write(at.add(head.start as u64), &left[head]);
        }
        if self.options.flaws.parent_before_left {
            // The unlock goes behind it, as unsignalled as the chain.
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

    /// Finishes a split whose writer gave up after linking the right node. The lock is held, so that writer posts
    /// nothing more.
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
                // In the splitter's order: what a reader takes from the left node's lines alone is true as long as
                // nobody writes to the right one.
                chain.await?;
                chain = v.chain(at.node());
            }
            let word = self.format.state_word();
            let before = state_word(&right, word);
            let head = self.format.open(&mut right).map_err(|e| failure(right_at, e))?;
            match Flip::between(right_at, word, before, &right) {
                // Who gave up may have posted the same: then this finds it done, or that does.
                Some(Flip { at, from, to }) => drop(v.cas(at, from, to).await?),
                // Such a format shows no split under way.
                None => v.write(right_at.add(head.start as u64), &right[head]).await?,
            }
        }
        let head = self.format.finish_split(left).map_err(bad)?;
        chain = chain.write(at.add(head.start as u64), &left[head]);
        guard.write_back(chain).await.map_err(IndexError::from)
    }
}
