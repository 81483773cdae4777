//! The part of a member in a census. First, the member records the blocks that leave its stock. Later, it clears the
//! bits of the listed blocks that it holds or has recorded.
//!
//! Each look of a compute node does the next step. Nothing here waits for other members.

use dm_sync::atomic::Ordering;
use dm_verbs::{LocalStep, Verbs};

use super::Reclaim;
use crate::lists::{List, ListPtr};
use crate::members::{CensusWord, Phase};
use crate::pool::{Holdings, NodePool};
use crate::{AllocError, Allocator};

/// A census that this compute node has not answered yet, as a look found it.
pub(super) struct CensusLook {
    word: CensusWord,
    /// The slot of this compute node.
    slot: u16,
}

/// A client's answer in progress. Only one client of a compute node answers at a time.
struct Telling<'r>(&'r Reclaim);

impl<'r> Telling<'r> {
    fn begin(reclaim: &'r Reclaim, word: CensusWord) -> Option<Self> {
        reclaim.membership.with(|m| {
            let may = !m.telling && m.census == word;
            m.telling |= may;
            may.then_some(Self(reclaim))
        })
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        self.0.membership.with(|m| m.telling = false);
    }
}

impl Reclaim {
    /// Returns whether operations of an earlier membership still run, although a census may have given their blocks to
    /// others. If so, blocks that come back are forgotten, because the allocator does not know to which membership
    /// their operation belongs. Call it in the section of a pool or of the limbo.
    pub(crate) fn forgets_blocks(&self) -> bool {
        //= docs/protocol/recovery.md V23
        // Relaxed: the caller is in the section of a pool or of the limbo. `forget_memory` stores the value before it
        // enters these sections. So a caller whose section comes later sees the value. If the caller's section comes
        // earlier, `forget_memory` forgets the blocks that the caller puts back.
        let until = self.forgets.load(Ordering::Relaxed);
        until > 0 && {
            let forgets = self.epochs.oldest().is_some_and(|oldest| oldest < until);
            if !forgets {
                // Relaxed: as above.
                let _ = self
                    .forgets
                    .compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
            forgets
        }
    }
}

impl Allocator {
    /// Learns the word of the census, if it is later than all words before. Begins or ends the records of the pools
    /// accordingly.
    pub(super) fn learn_census(&self, reclaim: &Reclaim, word: CensusWord) {
        reclaim.membership.with(|m| {
            if word.order() <= m.census.order() {
                return;
            }
            m.census = word;
            let change = |pool: &mut NodePool| match word.is_closed() {
                true => pool.end_record(),
                false => pool.begin_record(word.round()),
            };
            self.pools.iter().for_each(|pool| pool.with(change));
        });
    }

    /// Learns the word of the census from an image of the area. Returns the census if this compute node must still
    /// answer it.
    #[inline(never)]
    pub(super) fn look_at_census(
        &self,
        reclaim: &Reclaim,
        image: &[u8],
        slot: u16,
    ) -> Option<Box<CensusLook>> {
        let word = reclaim.area.census_of(image);
        self.learn_census(reclaim, word);
        let answers = !word.is_closed() && reclaim.area.told_of(image, slot) < word.order();
        answers.then(|| Box::new(CensusLook { word, slot }))
    }

    /// Answers the census that a look has found. If this compute node cannot answer yet, returns without an answer, and
    /// the next look tries again. If its record has overflowed, ends the census.
    ///
    /// # Errors
    /// Returns [`AllocError::Corrupt`] if the bytes in the place of a list are not the list of this census, and the
    /// errors of verbs. The next look tries again.
    pub(super) async fn after_census<V: Verbs>(
        &self,
        v: &V,
        reclaim: &Reclaim,
        look: &CensusLook,
    ) -> Result<(), AllocError> {
        v.local(LocalStep::Section).await;
        let Some(_telling) = Telling::begin(reclaim, look.word) else {
            return Ok(());
        };
        if self.pools.iter().any(|pool| pool.with(|p| p.has_overflown())) {
            return self.close_census(v, reclaim).await;
        }
        //= docs/protocol/recovery.md V18
        if !self.pools.iter().all(|pool| pool.with(|p| p.is_recorded())) {
            return Ok(());
        }
        if look.word.phase() == Phase::Asking {
            //= docs/protocol/recovery.md V21
            let marking = self.within(v, reclaim, self.mark_holdings(v, reclaim, look));
            if marking.await? != Some(true) {
                return Ok(());
            }
        }
        let told = look.word.order().to_le_bytes();
        v.write(reclaim.area.told(look.slot), &told).await?;
        Ok(())
    }

    /// Clears the bits of the blocks that this compute node holds or has recorded, in all lists. Returns `false` if
    /// some lists are left for the next look, if the record is not complete, or if the census has left this phase.
    async fn mark_holdings<V: Verbs>(
        &self,
        v: &V,
        reclaim: &Reclaim,
        look: &CensusLook,
    ) -> Result<bool, AllocError> {
        // The census's word is read again within this operation, so that the lists are not reused before the operation
        // ends. The word that leads to the lists is read after that, because the look may have read an older one.
        let found = CensusWord(v.word(reclaim.area.census()).await?);
        if found != look.word {
            return Ok(false);
        }
        let first = ListPtr(v.word(reclaim.area.lists()).await?);
        let marked = reclaim.membership.with(|m| m.marked);
        let (mut next, mut number) = match marked {
            Some((word, next, number)) if word == look.word => (next, number),
            _ => (first, 0),
        };
        while !next.is_null() {
            let at = next.at();
            let image = v.read(at, next.bytes()).await?;
            let is_next = |list: &List| (list.round, list.number) == (look.word.round(), number);
            let list = List::decode(&image).filter(is_next).ok_or(AllocError::Corrupt {
                at,
                what: "the lists of a census lead to no list of this census",
            })?;
            drop(image);
            v.local(LocalStep::Section).await;
            let (holdings, complete) = self.holdings(reclaim);
            if !complete {
                return Ok(false);
            }
            list.clear(v, at, &holdings).await?;
            (next, number) = (list.next, number + 1);
            //= docs/protocol/reclaim.md R7a
            if reclaim.is_due(v) {
                // A round is due, so this stops here. The compute node announces itself before it goes on with the next
                // list.
                reclaim
                    .membership
                    .with(|m| m.marked = Some((look.word, next, number)));
                return Ok(next.is_null());
            }
        }
        Ok(true)
    }

    /// Returns everything that this compute node holds or has recorded, and whether the records are complete. The
    /// blocks are sorted.
    pub(crate) fn holdings(&self, reclaim: &Reclaim) -> (Holdings, bool) {
        let mut holdings = Holdings::default();
        // The limbo comes first, because its blocks move to the free lists, within its section.
        reclaim.limbo.with(|limbo| holdings.blocks.extend(limbo.blocks()));
        let recorded = !reclaim.options.flaws().unrecorded;
        let mut complete = true;
        for pool in &self.pools {
            complete &= pool.with(|p| {
                p.add_holdings(&mut holdings, recorded);
                // A block that is taken later may not fit into the record. So the record is checked in the section that
                // has read it.
                p.is_recorded()
            });
        }
        holdings.blocks.sort_unstable();
        (holdings, complete)
    }

    /// Ends the census, if one is being taken. Call this if a record is lost or incomplete.
    pub(super) async fn close_census<V: Verbs>(&self, v: &V, reclaim: &Reclaim) -> Result<(), AllocError> {
        //= docs/protocol/recovery.md V22
        let at = reclaim.area.census();
        let mut word = CensusWord(v.word(at).await?);
        while !word.is_closed() {
            let found = CensusWord(v.cas(at, word.0, word.closed().0).await?);
            if found == word {
                break;
            }
            // The census has entered its next phase, or has ended.
            word = found;
        }
        Ok(())
    }

    /// Ends the census of which this compute node knows, because the compute node leaves and its record is lost. The
    /// requests are posted, not awaited.
    pub(super) fn quit_census<V: Verbs>(&self, v: &V, reclaim: &Reclaim, census: CensusWord) {
        self.pools.iter().for_each(|pool| pool.with(NodePool::end_record));
        if census.is_closed() || reclaim.options.flaws().leaves_open {
            return;
        }
        //= docs/protocol/recovery.md V22
        // The census may enter the second phase between the two CASes, but never returns to the first phase.
        for word in [census.recording(), census.asking()] {
            v.cas(reclaim.area.census(), word.0, word.closed().0).detach();
        }
    }

    /// Forgets the stock of this compute node, because a census may have given its blocks to others while this compute
    /// node was not a member. Returns the epoch in which operations must begin from now on. All operations of earlier
    /// memberships began in earlier epochs.
    pub(super) async fn forget_memory<V: Verbs>(&self, v: &V, reclaim: &Reclaim) -> Result<u64, AllocError> {
        //= docs/protocol/recovery.md V23
        let epoch = v.faa(reclaim.area.epoch(), 1).await? + 1;
        v.local(LocalStep::Section).await;
        // Relaxed: see `forgets_blocks`.
        reclaim.forgets.store(epoch, Ordering::Relaxed);
        reclaim.limbo.with(|limbo| {
            core::mem::take(limbo);
            // The pools are emptied within the section of the limbo, so that no held block of the earlier membership
            // gets into the limbo.
            self.pools.iter().for_each(|pool| pool.with(NodePool::forget));
        });
        Ok(epoch)
    }

    /// Returns whether this compute node holds no memory, has never fetched any, and runs no operation that may give
    /// some back.
    pub(super) fn holds_nothing(&self, reclaim: &Reclaim) -> bool {
        let untouched = |pool: &NodePool| pool.is_untouched();
        reclaim.epochs.oldest().is_none()
            && reclaim.limbo.with(|limbo| limbo.is_empty())
            && self.pools.iter().all(|pool| pool.with(|p| untouched(p)))
    }
}
