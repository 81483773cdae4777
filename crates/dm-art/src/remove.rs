//! Removing a key: first its entry, then the link to its leaf, then the nodes above that are no longer needed.

use dm_index::{Applied, IndexError, KeyBytes};
use dm_layout::SlotWord;
use dm_verbs::{Control, RemotePtr, Verbs, Why};

use crate::art::{ArtClient, KeyText};
use crate::errors::misplaced;
use crate::locate::{From, Link, Place, Within, leaf_proves_absence};
use crate::write::Attempt;
use crate::{Single, SingleStore};

impl<'h, V, K, L> ArtClient<'h, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    /// Removes `key`. If `before` is given, removes the key only if its value is `before`. Returns
    /// [`Applied::Removed`], [`Applied::Absent`] or [`Applied::Differs`].
    pub(crate) async fn remove_key(&self, key: &K, before: Option<&[u8]>) -> Result<Applied, IndexError> {
        let text = KeyText::of(key);
        let mut from = From::Cache;
        let mut retry = self.v.retry(self.art.options.attempts);
        let mut next: Option<Box<Place>> = None;
        loop {
            let place = match next.take() {
                Some(place) => *place,
                None => self.locate(&text, from).await?,
            };
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
                    if let Single::Replaced { key, by } = found {
                        match Box::pin(self.past_replaced(&text, &link, within, (key, by))).await? {
                            Attempt::At(place) => next = Some(place),
                            Attempt::Surer => from = from.surer(),
                            // The slot has changed, and the cache was updated. So the search begins in the cache again.
                            _ => {
                                from = From::Cache;
                                retry.again_wiser(link.slot.node, Why::Raced).await?;
                            }
                        }
                        continue;
                    }
                    leaf_proves_absence(&found, &text, link.slot.branch, link.fresh)
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

    /// Clears the slot that points to a removed leaf. Correctness does not depend on this, because a slot that still
    /// points to such a leaf counts as a slot without a child. Renews the node if it has at most one child left, unless
    /// it is the root or not known.
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
        let lock = self.lock_node(link.slot.node).await?;
        let cas = self.v.cas(link.at(), word.raw(), removed.raw());
        // The cache is updated before the CAS completes. So if several clients of the compute node remove children of
        // one node at once, the last of them sees how few children are left.
        let left = self.note_slot(key, link, removed).await;
        let left = left.unwrap_or(within.children.saturating_sub(1));
        let stays = left > 1 || self.is_top(within);
        // If the node keeps more than one child, or is the root or not known, nothing after the CAS depends on its
        // result. So the CAS need not be awaited, except under a lock.
        if stays && !lock.is_held() {
            match self.reclaims() {
                true => self.clearing(cas, key, word).await?,
                false => cas.detach(),
            }
            return self.look_again(key, link, within, left).await;
        }
        let old = SlotWord::from_raw(cas.await?);
        lock.release().await?;
        let done = old == word;
        if !done {
            self.note_slot(key, link, old).await;
        }
        if done {
            self.retire_leaf(link.child());
            if stays {
                return self.look_again(key, link, within, left).await;
            }
            self.renew(key, within).await?;
            self.shrink(key).await?;
        } else if self.reclaims() {
            self.clear(key, link.child()).await?;
        }
        Ok(())
    }

    /// Renews the lowest node on `key`'s path as long as it has no child left, because the removal of a node can leave
    /// its parent without a child. Does nothing if memory is not reused.
    async fn shrink(&self, key: &KeyText) -> Result<(), IndexError> {
        // The loop renews at most one node per key byte, because nodes on one path have different branches.
        for _ in 0..K::LEN {
            if !self.reclaims() {
                break;
            }
            let place = self.locate(key, From::Cache).await?;
            let within = place.within();
            if within.children > 0 || self.is_top(within) {
                break;
            }
            self.renew(key, within).await?;
        }
        Ok(())
    }

    /// Clears the slot that leads to a leaf that this client has removed, even if the slot is in another node by now.
    /// Retires the leaf. If the node then has fewer than two children, renews it, unless it is the root.
    pub(crate) async fn clear(&self, key: &KeyText, leaf: RemotePtr) -> Result<(), IndexError> {
        let mut retry = self.v.retry(self.art.options.attempts);
        loop {
            let (link, within) = match self.locate(key, From::Root).await? {
                Place::Leaf(link, within) if link.child() == leaf => (link, within),
                _ => {
                    // The slot holds another leaf, or has been cleared.
                    self.retire_leaf(leaf);
                    return Ok(());
                }
            };
            let word = link.slot.word;
            if word.is_frozen() {
                self.renew(key, &within).await?;
            } else {
                let removed = SlotWord::removed(word.partial(), link.slot.incarnation);
                let lock = self.lock_node(link.slot.node).await?;
                let old = SlotWord::from_raw(self.v.cas(link.at(), word.raw(), removed.raw()).await?);
                lock.release().await?;
                let done = old == word;
                let left = self.note_slot(key, &link, if done { removed } else { old }).await;
                if done {
                    self.retire_leaf(leaf);
                    let left = left.unwrap_or(within.children.saturating_sub(1));
                    if left < 2 && !self.is_top(&within) {
                        self.renew(key, &within).await?;
                        self.shrink(key).await?;
                    }
                    return Ok(());
                }
            }
            retry.again_wiser(link.slot.node, Why::Raced).await?;
        }
    }

    /// Reads the node again if the link came from the cache, because the cache does not show which children other
    /// compute nodes have removed. `left` is the number of children that the cache shows. To save READs, this reads
    /// only if `left` + 1 is a power of two. Renews the node if it has fewer than two children, unless it is the root
    /// or not known.
    async fn look_again(
        &self,
        key: &KeyText,
        link: &Link,
        within: &Within,
        left: usize,
    ) -> Result<(), IndexError> {
        if link.fresh || self.is_top(within) || !(left + 1).is_power_of_two() {
            return Ok(());
        }
        let place = self.locate(key, From::Again).await?;
        match place.within() {
            within if within.children < 2 && !self.is_top(within) => self.renew(key, within).await,
            _ => Ok(()),
        }
    }
}
