//! Out-of-place updates: a new leaf replaces the leaf of a key.
//!
//! The update takes effect with the CAS on the old leaf's state. No slot leads to the new leaf yet at that moment. But
//! the old leaf's state then contains the address of the new leaf, so every client that finds the old leaf can continue
//! there.

use dm_index::{IndexError, KeyBytes};
use dm_layout::SlotWord;
use dm_verbs::{Control, Event, RemotePtr, Verbs, Why};

use crate::art::{ArtClient, KeyText, Scratch, shared};
use crate::block::Block;
use crate::errors::unaddressable;
use crate::locate::{From, Link, Place, Within};
use crate::publish::{Deeper, Published};
use crate::write::{Attempt, Wanted, link_kind};
use crate::{Single, SingleStore};

impl<V, K, L> ArtClient<'_, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    /// Replaces the leaf of `link` by a leaf with the new value, if it is the live leaf of the key. If `before` is
    /// given, replaces the leaf only if its value is `before`. Returns [`Single::Hit`] if the leaf was replaced.
    pub(crate) async fn replace_leaf<'a>(
        &'a self,
        wanted: &Wanted<'_, K>,
        link: &Link,
        before: Option<&[u8]>,
        leaf: &mut Option<Block<'a>>,
        scratch: &mut Scratch,
    ) -> Result<Single<K>, IndexError> {
        let (leaves, old) = (&self.art.leaves, link.child());
        loop {
            let found = leaves.get(self.v, old, wanted.key, &mut scratch.value).await?;
            if found != Single::Hit {
                return Ok(found);
            }
            if before.is_some_and(|before| before != scratch.value) {
                return Ok(Single::Differs);
            }
            let next = self.leaf_block(leaf, Some(old)).await?;
            let branch = usize::from(link.slot.branch);
            let depth = self.art.leaf_depth(branch);
            leaves.image(wanted.key, wanted.value, depth, &mut scratch.leaf);
            leaf.iter_mut().for_each(|leaf| self.busy(leaf));
            let flaws = self.art.options.flaws();
            if flaws.swings_first {
                self.v.write(next, &scratch.leaf).await?;
                self.swing(&wanted.text, link, next, Some(depth)).await?;
            }
            //= docs/protocol/smart.md M26
            let replaced = leaves.replace(self.v, old, next, &scratch.leaf).await?;
            if replaced {
                let swung = self.swing(&wanted.text, link, next, Some(depth)).await;
                swung.map_err(|e| e.after_effect(old))?;
                //= docs/protocol/smart.md M21
                match flaws.frees_at_once {
                    true => self.give_back_leaf(old),
                    false => self.retire_leaf(old),
                }
                return Ok(Single::Hit);
            }
            // The leaf is not live any more, so the loop ends at the next READ.
            leaf.iter_mut().for_each(|leaf| leaf.written(branch));
        }
    }

    /// Changes the slot that leads to the leaf of `link`, so that it leads to `next`, which replaces this leaf. If a
    /// renewal or a split has moved the leaf to another slot, changes that slot. Does nothing more when no slot leads
    /// to the old leaf, because another client has made the change then. `depth` is the link depth of `next`, if it is
    /// known.
    pub(crate) async fn swing(
        &self,
        key: &KeyText,
        link: &Link,
        next: RemotePtr,
        depth: Option<u64>,
    ) -> Result<(), IndexError> {
        let (old, mut link) = (link.child(), *link);
        let mut within: Option<Within> = None;
        let mut retry = self.v.retry(self.art.options.attempts);
        loop {
            if let (true, Some(within)) = (link.slot.word.is_frozen(), &within) {
                self.renew(key, within).await?;
            } else if !link.slot.word.is_frozen() {
                let depth = match depth {
                    Some(depth) => depth,
                    None => self.v.word(self.art.leaves.depth_at(next)).await?,
                };
                //= docs/protocol/smart.md M27
                let deeper = (depth < u64::from(link.slot.branch)).then(|| Deeper {
                    at: self.art.leaves.depth_at(next),
                    by: self.art.leaf_depth(usize::from(link.slot.branch)) - depth,
                });
                let word = SlotWord::leaf(link.slot.word.partial(), next.raw(), link_kind(&link));
                let word = word.ok_or_else(unaddressable)?;
                //= docs/protocol/smart.md M27
                let elsewhere = match self.publish_unlocked(key, &link, &[], deeper, word).await? {
                    Published::Done => true,
                    Published::Lost(word) => {
                        leads_elsewhere(word, old) || self.art.options.flaws().swings_once
                    }
                };
                if elsewhere {
                    return Ok(());
                }
            }
            match self.locate(key, From::Root).await? {
                Place::Leaf(found, around) if found.child() == old => (link, within) = (found, Some(around)),
                _ => return Ok(()),
            }
            retry.again_wiser(link.slot.node, Why::Raced).await?;
        }
    }

    /// Continues a write or a removal that has found a replaced leaf through `link`. `by` is the leaf that has replaced
    /// it, and `others` is the key of both.
    pub(crate) async fn past_replaced(
        &self,
        key: &KeyText,
        link: &Link,
        within: Within,
        (others, by): (K, RemotePtr),
    ) -> Result<Attempt, IndexError> {
        if link.fresh && self.art.options.flaws().renewal_waits {
            return Ok(Attempt::Raced(link.slot.node));
        }
        if link.fresh {
            self.swing(key, link, by, None).await?;
            return Ok(Attempt::Raced(link.slot.node));
        }
        let fresh = self.reread(key, link, &others).await?;
        Ok(fresh.map_or(Attempt::Surer, |link| {
            Attempt::At(Box::new(Place::Leaf(link, within)))
        }))
    }

    /// Reads the slot of `link` again, which led to a leaf of the key `others`. Returns `None` if its node may no
    /// longer be part of the tree, if `key` does not have the node's prefix, or if the slot does not lead to a leaf.
    async fn reread(&self, key: &KeyText, link: &Link, others: &K) -> Result<Option<Link>, IndexError> {
        let word = SlotWord::from_raw(self.v.word(link.at()).await?);
        self.note_slot(key, link, word).await;
        //= docs/protocol/smart.md M12
        //= docs/protocol/smart.md M30
        let below = shared(key, &KeyText::of(others)) >= usize::from(link.slot.branch);
        if word.is_frozen() || !word.is_leaf() || !below {
            return Ok(None);
        }
        // This is counted after the early return, so that no stale read is counted twice: if this function returns
        // `None`, the caller searches again from a more reliable starting point, and that search counts the stale read.
        self.v.meter().note(Event::StaleRead);
        let slot = dm_cache::CachedSlot { word, ..link.slot };
        Ok(Some(Link { slot, fresh: true }))
    }

    /// Continues a get that has found a replaced leaf through `link`, until it finds a leaf that was not replaced.
    /// Reads the slot again if it was not read within the operation, and updates `link`. If this returns
    /// [`Single::Replaced`], the slot cannot be used (see `reread`), and nothing is proved.
    pub(crate) async fn follow(
        &self,
        key: &K,
        link: &mut Link,
        mut found: Single<K>,
        value: &mut Vec<u8>,
    ) -> Result<Single<K>, IndexError> {
        let leaves = &self.art.leaves;
        if !link.fresh {
            let Single::Replaced { key: others, .. } = &found else {
                return Ok(found);
            };
            let Some(fresh) = self.reread(&KeyText::of(key), link, others).await? else {
                return Ok(found);
            };
            if fresh.child() != link.child() {
                found = leaves.get(self.v, fresh.child(), key, value).await?;
            }
            *link = fresh;
        }
        let mut retry = self.v.retry(self.art.options.attempts);
        let mut hops = 0;
        while let Single::Replaced { key: others, by } = found {
            if others != *key {
                // Another key's leaf was in the slot when the slot was read. So no other key was below the slot, and
                // the searched key was absent.
                return Ok(Single::Other {
                    key: others,
                    depth: u64::MAX,
                });
            }
            //= docs/protocol/smart.md M28
            // The slot led to the first of these leaves within this operation. So all later leaves got into the slot
            // after the operation began, and their memory is not reused before it ends.
            if hops > 0 {
                retry.again_wiser(by, Why::Stale).await?;
            }
            hops += 1;
            found = leaves.get(self.v, by, key, value).await?;
        }
        Ok(found)
    }
}

/// Returns whether a slot that led to the leaf `old`, and now holds `word`, proves that no slot leads to this leaf.
fn leads_elsewhere(word: SlotWord, old: RemotePtr) -> bool {
    // If the word is frozen, a copy of the node may lead to the leaf. If the word leads to a node, that node may lead
    // to the leaf.
    !word.is_frozen() && (!word.has_child() || word.is_leaf() && word.pointer() != old.raw())
}
