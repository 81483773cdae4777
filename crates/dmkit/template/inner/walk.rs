//! Walks over the leaves from left to right, to find leaves that the array does not have, and to merge neighbours.

use dm_index::{Hops, IndexError, KeyBytes, Lead};
use dm_index::{Neighbours, NodeCopies, NodeCopy, Restructure};
use dm_verbs::{LocalStep, RemotePtr, Verbs, Why};

use super::fences::Fences;

impl<K: KeyBytes, L> Fences<K, L> {
    /// Learns every leaf. Returns the number of leaves that the array then has.
    pub(crate) async fn warm<V: Verbs>(&self, v: &V) -> Result<u64, IndexError>
    where
        L: NodeCopies<V, K>,
    {
        let _unmetered = v.meter().housekeeping();
        self.walk(v, None).await?;
        Ok(self.array.len() as u64)
    }

    /// Walks from the nearest known leaf to the leaf of `key`. Without a key, walks from the first leaf to the last
    /// one. Learns the leaves on the way. Returns `None` if the index has no leaf.
    pub(super) async fn walk<V: Verbs>(
        &self,
        v: &V,
        key: Option<&K>,
    ) -> Result<Option<Lead>, IndexError>
    where
        L: NodeCopies<V, K>,
    {
        let (mut retry, mut hops) = (v.retry(self.attempts), Hops::default());
        let mut copy = NodeCopy::new();
        loop {
            v.local(LocalStep::Section).await;
            let mut lead = match self.array.leaf(key.unwrap_or(&K::MIN)) {
                Some(leaf) => Lead::hint(leaf),
                None => Lead::linked(RemotePtr::from_raw(v.word(self.root_word).await?)),
            };
            if lead.at.is_null() {
                return Ok(None);
            }
            while self.leaves.copy(v, lead.at, &mut copy).await?
                && copy.level == 0
                // An unborn leaf is not used, unless a neighbour's pointer leads to it.
                && (lead.linked || !copy.unborn)
                && key.is_none_or(|key| copy.fences.low <= *key)
            {
                v.local(LocalStep::Section).await;
                self.array.learn(copy.fences.low, lead.at);
                let ends = key.is_some_and(|key| !copy.fences.is_below(key));
                if ends || copy.fences.high.is_none() {
                    return Ok(Some(lead));
                }
                lead = Lead::linked(copy.sibling);
                let _far = hops.step(&mut retry, lead.at).await?;
            }
            // The leaf was merged, or another leaf uses its memory, so the entry is wrong.
            v.local(LocalStep::Section).await;
            self.array.forget(lead.at);
            retry.again_wiser(lead.at, Why::Stale).await?;
        }
    }

    /// Merges the leaf of `key` with its right neighbour, if neither has changed. Otherwise the leaf stays sparse,
    /// which only wastes memory until the next remove from it.
    pub(super) async fn merge<V: Verbs, R: Restructure<V, K>>(
        &self,
        v: &V,
        leaves: &R,
        key: &K,
    ) -> Result<(), IndexError>
    where
        L: NodeCopies<V, K>,
    {
        let Some(left) = self.walk(v, Some(key)).await? else {
            return Ok(());
        };
        let mut copy = NodeCopy::new();
        let alive = leaves.copy(v, left.at, &mut copy).await?;
        let (Some(between), right) = (copy.fences.high.filter(|_| alive), copy.sibling) else {
            return Ok(());
        };
        if !leaves.copy(v, right, &mut copy).await? || copy.fences.low != between {
            return Ok(());
        }
        let pair = Neighbours {
            level: 0,
            left: left.at,
            right,
            between,
            until: copy.fences.high,
            parent: RemotePtr::NULL,
        };
        // No entry of this compute node may lead to memory that is about to be freed. By rule 2, entries of other
        // compute nodes may.
        let unlink = async || {
            v.local(LocalStep::Section).await;
            self.array.forget(right);
            Ok(())
        };
        leaves.join(v, &pair, unlink).await?;
        Ok(())
    }
}
