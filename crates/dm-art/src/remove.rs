//! Remove: the leaf first, then the slot, then what has become superfluous above.

use dm_index::{Applied, IndexError, KeyBytes, Single, SingleStore};
use dm_layout::SlotWord;
use dm_verbs::{Control, RemotePtr, Verbs, Why};

use crate::art::{ArtClient, KeyText};
use crate::errors::misplaced;
use crate::locate::{From, Link, Place, Within, leaf_proves_absence};

impl<'h, V, K, L> ArtClient<'h, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    /// Removes `key`; where there is `before`, only if that is its value.
    pub(crate) async fn remove_key(&self, key: &K, before: Option<&[u8]>) -> Result<Applied, IndexError> {
        let text = KeyText::of(key);
        let mut from = From::Cache;
        loop {
            let place = self.locate(&text, from).await?;
            let proved = match place {
                Place::Leaf(link, within) => {
                    //= docs/protocol/smart.md M8
                    let found = self.art.leaves.remove(self.v, link.child(), key, before).await?;
                    if found == Single::Differs {
                        return Ok(Applied::Differs);
                    }
                    if found == Single::Hit {
                        let unlinked = self.unlink(&text, &link, &within).await;
                        unlinked.map_err(|e| e.after_effect(link.child()))?;
                        return Ok(Applied::Removed);
                    }
                    leaf_proves_absence(&found, link.slot.branch, link.fresh)
                }
                _ => place.proves_absence(),
            };
            if proved {
                return Ok(Applied::Absent);
            }
            if from == From::Root {
                return Err(misplaced(self.art.root));
            }
            from = from.surer();
        }
    }

    /// Takes a removed leaf out of its slot. Nothing depends on it: a slot that still points to such a leaf is as good as
    /// one without a child.
    async fn unlink(&self, key: &KeyText, link: &Link, within: &Within) -> Result<(), IndexError> {
        let word = link.slot.word;
        if word.is_frozen() {
            return match self.reclaims() {
                true => self.clear(key, link.child()).await,
                false => Ok(()),
            };
        }
        //= docs/protocol/smart.md M4
        let removed = if self.art.options.flaws().removal_empties {
            SlotWord::empty(link.slot.incarnation)
        } else {
            SlotWord::removed(word.partial(), link.slot.incarnation)
        };
        let cas = self.v.cas(link.at(), word.raw(), removed.raw());
        // Told first: of several clients that remove from one node at once, the last one finds that nothing is left.
        let left = self.note_slot(key, link, removed).await;
        let left = left.unwrap_or(within.children.saturating_sub(1));
        // The node keeps more than one child, or can't go away: nobody waits for the slot.
        if left > 1 || within.link.is_none() {
            match self.reclaims() {
                true => self.clearing(cas, key, word).await?,
                false => cas.detach(),
            }
            return self.look_again(key, link, within, left).await;
        }
        let old = SlotWord::from_raw(cas.await?);
        let done = old == word;
        if !done {
            self.note_slot(key, link, old).await;
        }
        if done {
            self.retire_leaf(link.child());
            self.renew(key, within).await?;
            self.shrink(key).await?;
        } else if self.reclaims() {
            self.clear(key, link.child()).await?;
        }
        Ok(())
    }

    /// A node that went may have been the last child of the one above, and so on.
    async fn shrink(&self, key: &KeyText) -> Result<(), IndexError> {
        // Once for each byte at most: nodes above one another have different branches.
        for _ in 0..K::LEN {
            if !self.reclaims() {
                break;
            }
            let place = self.locate(key, From::Cache).await?;
            let within = place.within();
            if within.children > 0 || within.link.is_none() {
                break;
            }
            self.renew(key, within).await?;
        }
        Ok(())
    }

    /// Takes a leaf that this client has removed out of its slot, if it is in one still, wherever that is by now, and out of
    /// use.
    pub(crate) async fn clear(&self, key: &KeyText, leaf: RemotePtr) -> Result<(), IndexError> {
        let mut retry = self.v.retry(self.art.options.attempts);
        loop {
            let (link, within) = match self.locate(key, From::Root).await? {
                Place::Leaf(link, within) if link.child() == leaf => (link, within),
                _ => {
                    // Another leaf was put there, or the slot was cleared after all.
                    self.retire_leaf(leaf);
                    return Ok(());
                }
            };
            let word = link.slot.word;
            if word.is_frozen() {
                self.renew(key, &within).await?;
            } else {
                let removed = SlotWord::removed(word.partial(), link.slot.incarnation);
                let old = SlotWord::from_raw(self.v.cas(link.at(), word.raw(), removed.raw()).await?);
                let done = old == word;
                let left = self.note_slot(key, &link, if done { removed } else { old }).await;
                if done {
                    self.retire_leaf(leaf);
                    let left = left.unwrap_or(within.children.saturating_sub(1));
                    if left < 2 && within.link.is_some() {
                        self.renew(key, &within).await?;
                        self.shrink(key).await?;
                    }
                    return Ok(());
                }
            }
            retry.again_wiser(link.slot.node, Why::Raced).await?;
        }
    }

    /// This compute node does not know what others removed from a node. So a client reads the node again when half of
    /// the children that were known of it are gone and `left` remain: once for each halving.
    async fn look_again(
        &self,
        key: &KeyText,
        link: &Link,
        within: &Within,
        left: usize,
    ) -> Result<(), IndexError> {
        if link.fresh || within.link.is_none() || !(left + 1).is_power_of_two() {
            return Ok(());
        }
        let place = self.locate(key, From::Again).await?;
        match place.within() {
            within if within.children < 2 && within.link.is_some() => self.renew(key, within).await,
            _ => Ok(()),
        }
    }
}
