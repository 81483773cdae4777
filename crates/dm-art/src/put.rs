//! A new leaf where the cache shows an empty slot: in one plain function, as far as nothing has to wait.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use dm_index::{Applied, CpuCost, KeyBytes, SingleStore};
use dm_layout::{LINE_BYTES, SlotWord};
use dm_verbs::{Control, LocalStep, Old, Step, Ticket, VerbError, Verbs};

use crate::art::{ArtClient, KeyText};
use crate::block::{Block, leaf_class};
use crate::locate::{self, From, Link, Place, Within};
use crate::presence::Running;
use crate::publish::Published;

/// A leaf on its way into a slot.
#[derive(Debug)]
pub(crate) struct Put<'s> {
    pub(crate) link: Link,
    pub(crate) within: Within,
    /// The leaf's.
    pub(crate) block: Block<'s>,
    word: SlotWord,
}

/// How far a write of a key came without waiting.
pub(crate) enum Begun<'s, V: Verbs> {
    /// Nowhere, or to the local step before its seat's section.
    Entering(Option<Step<'s, V>>),
    /// To its seat.
    Nothing,
    /// To the local step before the cache's section.
    Coming(Step<'s, V>),
    /// To a node that is not cached.
    Reading(locate::Step),
    /// To a place that takes more than a new leaf, or has no block at hand; perhaps to the local step before the
    /// allocator's section.
    Placed(Place, Option<Block<'s>>, Option<Step<'s, V>>),
    /// To the leaf's WRITE and the slot's CAS.
    Posted(Put<'s>, Ticket<'s, V, (Old,)>),
    /// These failed.
    Failed(VerbError),
    /// Past them, to the local step before the cache's section.
    Noting(Put<'s>, Published, Step<'s, V>),
    /// Another was quicker.
    Lost(Put<'s>, Published),
}

impl<V: Verbs> fmt::Debug for Begun<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Begun").finish_non_exhaustive()
    }
}

impl<V, K, L> ArtClient<'_, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    /// The usual way of a new key, as far as it goes without waiting. `Pending`: not to its end, but as far as `running` and
    /// `begun` say.
    #[inline(always)]
    pub(crate) fn begin_put<'s>(
        &'s self,
        key: &K,
        value: &[u8],
        cx: &mut Context<'_>,
        running: &mut Option<Running<'s>>,
        begun: &mut Begun<'s, V>,
    ) -> Poll<Applied> {
        if self.art.options.cpu != CpuCost::NONE {
            return Poll::Pending;
        }
        match self.begin_now(cx) {
            Ok(begun) => *running = begun,
            Err(step) => {
                *begun = Begun::Entering(step);
                return Poll::Pending;
            }
        }
        let mut step = self.v.local(LocalStep::Section);
        if Pin::new(&mut step).poll(cx).is_pending() {
            *begun = Begun::Coming(step);
            return Poll::Pending;
        }
        let text = KeyText::of(key);
        let place = match self.cached(&text, From::Cache) {
            Ok(place) => place,
            Err(step) => {
                *begun = Begun::Reading(step);
                return Poll::Pending;
            }
        };
        let (link, within) = match place {
            Place::Vacant(link, within) if !link.slot.word.is_frozen() => (link, within),
            other => {
                *begun = Begun::Placed(other, None, None);
                return Poll::Pending;
            }
        };
        let Some(near) = Self::near(&within) else {
            *begun = Begun::Placed(place, None, None);
            return Poll::Pending;
        };
        let (leaves, alloc) = (&self.art.leaves, &self.art.alloc);
        let mut block = match Block::at_hand(self.v, alloc, leaf_class(leaves.block_bytes()), near, cx) {
            Ok(block) => block,
            Err(step) => {
                *begun = Begun::Placed(place, None, step);
                return Poll::Pending;
            }
        };
        let branch = link.slot.branch;
        let lines = (leaves.block_bytes() as usize / LINE_BYTES) as u8;
        let word = text.get(usize::from(branch));
        let word = word.and_then(|&byte| SlotWord::leaf(byte, block.at().raw(), lines));
        let (Some(word), true) = (word, block.at().node() == link.at().node()) else {
            *begun = Begun::Placed(place, Some(block), None);
            return Poll::Pending;
        };
        let mut scratch = self.scratch.borrow_mut();
        let depth = self.art.leaf_depth(usize::from(branch));
        leaves.image(key, value, depth, &mut scratch.leaf);
        self.busy(&mut block);
        let before = link.slot.word;
        //= docs/protocol/smart.md M14
        let chain = self.v.chain(link.at().node());
        let chain = chain.write(block.at(), &scratch.leaf);
        let ticket = chain.cas(link.at(), before.raw(), word.raw()).post();
        let put = Put {
            link,
            within,
            block,
            word,
        };
        let published = match ticket.now(cx) {
            Err(ticket) => {
                *begun = Begun::Posted(put, ticket);
                return Poll::Pending;
            }
            Ok(Err(e)) => {
                *begun = Begun::Failed(e);
                return Poll::Pending;
            }
            Ok(Ok(old)) => Published::of(before, old),
        };
        let mut step = self.v.local(LocalStep::Section);
        if Pin::new(&mut step).poll(cx).is_pending() {
            *begun = Begun::Noting(put, published, step);
            return Poll::Pending;
        }
        if published != Published::Done {
            *begun = Begun::Lost(put, published);
            return Poll::Pending;
        }
        self.note_put(&text, &put, published);
        Poll::Ready(Applied::Inserted)
    }

    /// Tells the cache what became of a new leaf.
    #[inline]
    pub(crate) fn note_put(&self, text: &KeyText, put: &Put<'_>, published: Published) {
        match published {
            Published::Done => {
                let slot = &put.link.slot;
                let cache = self.cache();
                cache.learn(text, slot.node, slot.seen, slot.index, put.word);
            }
            Published::Lost(old) => {
                self.learn(text, &put.link, old);
            }
        }
    }
}
