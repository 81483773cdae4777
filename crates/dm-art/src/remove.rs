//! Remove: the leaf first, then the slot, then what has become superfluous above.

use dm_index::{Applied, IndexError, KeyBytes, Single, SingleStore};
use dm_layout::SlotWord;
use dm_verbs::{Control, Verbs};

use crate::art::{ArtClient, KeyText};
use crate::errors::misplaced;
use crate::locate::{From, Link, Place, Within, leaf_proves_absence};

impl<V, K, L> ArtClient<'_, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    pub(crate) async fn remove_key(&self, key: &K) -> Result<Applied, IndexError> {
        let text = KeyText::of(key);
        let mut from = From::Cache;
        loop {
            let place = self.locate(&text, from).await?;
            let proved = match place {
                Place::Leaf(link, within) => {
                    //= docs/protocol/smart.md M8
                    let found = self.art.leaves.remove(self.v, link.child(), key).await?;
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
            return Ok(());
        }
        //= docs/protocol/smart.md M4
        let removed = if self.art.options.flaws.removal_empties {
            SlotWord::empty(link.slot.incarnation)
        } else {
            SlotWord::removed(word.partial(), link.slot.incarnation)
        };
        let cas = self.v.cas(link.at(), word.raw(), removed.raw());
        // The node keeps more than one child, or can't go away: nobody waits for the slot.
        if within.children > 2 || within.link.is_none() {
            cas.detach();
            self.note_slot(key, link, removed).await;
            return self.look_again(key, link, within).await;
        }
        let old = SlotWord::from_raw(cas.await?);
        let done = old == word;
        self.note_slot(key, link, if done { removed } else { old }).await;
        if done {
            self.renew(key, within).await?;
        }
        Ok(())
    }

    /// What other compute nodes removed from a node is not known here. So whoever has removed half of what he knew of it
    /// reads it again: once for each halving.
    async fn look_again(&self, key: &KeyText, link: &Link, within: &Within) -> Result<(), IndexError> {
        if link.fresh || within.link.is_none() || !within.children.is_power_of_two() {
            return Ok(());
        }
        let place = self.locate(key, From::Again).await?;
        match place.within() {
            within if within.children < 2 && within.link.is_some() => self.renew(key, within).await,
            _ => Ok(()),
        }
    }
}
