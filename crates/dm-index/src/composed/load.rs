//! Bulk load: fills an empty index, leaf by leaf from the left.

use dm_layout::{FenceKeys, KeyBytes};
use dm_verbs::{RemotePtr, Verbs};

use crate::{Fill, IndexError, NodeCopy, NodeStore};

/// A load in progress. The current leaf is written when the next one begins, because only then are its high fence key
/// and its sibling known.
pub(super) struct Load<K> {
    fill: Fill,
    copy: NodeCopy<K>,
    /// The part of the leaf that its entries use, in the unit of [`crate::BulkLoad::share`].
    taken: usize,
    /// The low fence keys and addresses of all leaves, including the one being filled.
    leaves: Vec<(K, RemotePtr)>,
    last: Option<K>,
    total: u64,
}

impl<K: KeyBytes> Load<K> {
    pub(super) async fn begin<V: Verbs, L: NodeStore<V, K>>(
        v: &V,
        leaves: &L,
        fill: Fill,
    ) -> Result<Self, IndexError> {
        let mut copy = NodeCopy::new();
        copy.value_bytes = leaves.value_bytes();
        copy.incarnation = 1;
        copy.at = leaves.reserve(v).await?;
        Ok(Self {
            fill,
            leaves: vec![(K::MIN, copy.at)],
            copy,
            taken: 0,
            last: None,
            total: 0,
        })
    }

    /// Adds the next entry. If the current leaf is full, writes that leaf first.
    pub(super) async fn push<V: Verbs, L: NodeStore<V, K>>(
        &mut self,
        v: &V,
        leaves: &L,
        (key, value): (K, &[u8]),
    ) -> Result<(), IndexError> {
        let (found, expected) = (value.len(), self.copy.value_bytes);
        if found != expected {
            return Err(IndexError::ValueLength { found, expected });
        }
        if self.last.is_some_and(|last| last >= key) {
            return Err(IndexError::BadInput {
                why: "a bulk load's keys must ascend strictly",
            });
        }
        self.last = Some(key);
        if self.is_full(leaves, &key) {
            self.cut(v, leaves, &key).await?;
        }
        self.taken += leaves.share(&self.copy.fences.low, &key).taken;
        let at = u32::try_from(self.copy.values.len()).expect("a node has less than 4 GiB");
        self.copy.entries.push((key, at));
        self.copy.values.extend_from_slice(value);
        self.total += 1;
        Ok(())
    }

    /// Returns whether the current leaf has as many entries as the fill level allows, so that `next` must go to a new
    /// leaf.
    fn is_full<V: Verbs, L: NodeStore<V, K>>(&self, leaves: &L, next: &K) -> bool {
        let mut full = leaves.share(&self.copy.fences.low, next);
        full.taken += self.taken;
        !self.copy.entries.is_empty() && !self.fill.allows(full)
    }

    /// Returns how many of the current entries the current leaf takes. This is asked when a leaf is written and not for
    /// each entry, because the answer takes a pass over all entries.
    fn accepted<V: Verbs, L: NodeStore<V, K>>(&self, leaves: &L) -> usize {
        let all = self.copy.entries.len();
        if leaves.takes(&self.copy, all) {
            return all;
        }
        // One entry always has room.
        let (mut accepted, mut refused) = (1, all);
        while accepted + 1 < refused {
            let count = usize::midpoint(accepted, refused);
            match leaves.takes(&self.copy, count) {
                true => accepted = count,
                false => refused = count,
            }
        }
        accepted
    }

    /// Writes the current leaf with the entries that it accepts and that the fill level allows. The next leaf begins
    /// with the other entries if there are any, and otherwise with `next`.
    async fn cut<V: Verbs, L: NodeStore<V, K>>(
        &mut self,
        v: &V,
        leaves: &L,
        next: &K,
    ) -> Result<(), IndexError> {
        let wanted = self.fill.entries(self.accepted(leaves), self.leaves.len() as u64);
        let copy = &mut self.copy;
        let entries = copy.entries.split_off(wanted);
        let values = copy.values.split_off(wanted * copy.value_bytes);
        let low = entries.first().map_or(*next, |(key, _)| *key);
        let at = leaves.reserve(v).await?;
        copy.fences.high = Some(low);
        copy.sibling = at;
        leaves.load(v, copy).await?;
        self.leaves.push((low, at));
        copy.at = at;
        copy.fences = FenceKeys::new(low, None);
        copy.sibling = RemotePtr::NULL;
        copy.entries.clear();
        let moved = (wanted * copy.value_bytes) as u32;
        copy.entries
            .extend(entries.iter().map(|(key, at)| (*key, at - moved)));
        copy.values = values;
        let share = |(key, _): &(K, u32)| leaves.share(&low, key).taken;
        self.taken = copy.entries.iter().map(share).sum();
        Ok(())
    }

    /// Writes the remaining entries, usually as one leaf. Returns all leaves and the number of their entries.
    pub(super) async fn end<V: Verbs, L: NodeStore<V, K>>(
        mut self,
        v: &V,
        leaves: &L,
    ) -> Result<(Vec<(K, RemotePtr)>, u64), IndexError> {
        while let Some((last, _)) = self.copy.entries.last().copied()
            && self.accepted(leaves) < self.copy.entries.len()
        {
            self.cut(v, leaves, &last).await?;
        }
        leaves.load(v, &self.copy).await?;
        Ok((self.leaves, self.total))
    }
}
