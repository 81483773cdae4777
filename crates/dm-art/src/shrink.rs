//! Merging a leaf of many keys with a neighbour.

use dm_index::{IndexError, KeyBytes, Merge, Neighbours, NodeCopy, Restructure};
use dm_verbs::{Control, LocalStep, RemotePtr, Verbs, Why};

use crate::SingleStore;
use crate::art::ArtClient;
use crate::floor::Bound;
use crate::separators::Separators;

/// Maximum number of attempts to merge under contention. A leaf that stays sparse only wastes memory, and the next
/// remove from it tries again.
const MERGE_ATTEMPTS: u32 = 64;
/// Maximum number of leaves that are read, beginning with the one to which the entries lead. If the wanted leaf is
/// further to the right, it is not merged now; the next remove from it tries again.
const STEPS_MAX: usize = 64;

impl<K: KeyBytes, S> Separators<K, S> {
    /// Merges the leaf of `key` with its neighbours as long as it is sparse.
    pub(crate) async fn shrink_leaf<V, L>(&self, v: &V, leaves: &L, key: &K) -> Result<(), IndexError>
    where
        V: Verbs + Control,
        S: SingleStore<V, K>,
        L: Restructure<V, K>,
    {
        let client = self.art.client_within(v);
        let mut copy = NodeCopy::new();
        let mut retry = v.retry(MERGE_ATTEMPTS);
        loop {
            if !self.reach(&client, leaves, key, Bound::At, &mut copy).await? {
                return Ok(());
            }
            let (at, fences, right) = (copy.at, copy.fences, copy.sibling);
            let mut merged = Merge::TooFull;
            if let Some(high) = fences.high {
                let alive = leaves.copy(v, right, &mut copy).await?;
                let pair = Neighbours {
                    level: 0,
                    left: at,
                    right,
                    between: high,
                    until: copy.fences.high,
                    parent: RemotePtr::NULL,
                };
                merged = match alive && copy.level == 0 && copy.fences.low == high {
                    true => self.merge(&client, leaves, &pair).await?,
                    false => Merge::Changed,
                };
            }
            // The first leaf has no left neighbour.
            if merged == Merge::TooFull
                && fences.low > K::MIN
                && self
                    .reach(&client, leaves, &fences.low, Bound::Below, &mut copy)
                    .await?
            {
                let pair = Neighbours {
                    level: 0,
                    left: copy.at,
                    right: at,
                    between: fences.low,
                    until: fences.high,
                    parent: RemotePtr::NULL,
                };
                merged = self.merge(&client, leaves, &pair).await?;
            }
            match merged {
                Merge::Done { sparse: true, .. } => {}
                Merge::Done { .. } | Merge::TooFull => return Ok(()),
                // Another client is changing one of the two leaves.
                Merge::Changed => {
                    if retry.again(at, Why::Changing).await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Copies the leaf that covers `key`, or with [`Bound::Below`] the leaf that ends at `key`. Returns `false` if the
    /// entries and at most [`STEPS_MAX`] READs do not lead to it.
    async fn reach<V, L>(
        &self,
        client: &ArtClient<'_, V, K, S>,
        leaves: &L,
        key: &K,
        bound: Bound,
        copy: &mut NodeCopy<K>,
    ) -> Result<bool, IndexError>
    where
        V: Verbs + Control,
        S: SingleStore<V, K>,
        L: Restructure<V, K>,
    {
        let Some((_, mut at)) = self.read(client, key, bound).await? else {
            return Ok(false);
        };
        for _ in 0..STEPS_MAX {
            let alive = leaves.copy(client.verbs(), at, copy).await?;
            if alive {
                let (low, high) = (copy.fences.low, copy.fences.high);
                let begins = low < *key || bound == Bound::At && low == *key;
                if copy.level != 0 || copy.unborn || !begins {
                    return Ok(false);
                }
                let ends = high.is_none_or(|high| high > *key || bound == Bound::Below && high == *key);
                if ends {
                    return Ok(bound == Bound::At || high == Some(*key));
                }
            }
            if copy.sibling.is_null() {
                return Ok(false);
            }
            at = copy.sibling;
        }
        Ok(false)
    }

    async fn merge<V, L>(
        &self,
        client: &ArtClient<'_, V, K, S>,
        leaves: &L,
        pair: &Neighbours<K>,
    ) -> Result<Merge, IndexError>
    where
        V: Verbs + Control,
        S: SingleStore<V, K>,
        L: Restructure<V, K>,
    {
        let v = client.verbs();
        //= docs/protocol/dolphin.md D6
        let unlink = async || self.strike(client, &pair.between, pair.right).await;
        let merged = leaves.join(v, pair, unlink).await?;
        if matches!(merged, Merge::Done { .. }) {
            v.local(LocalStep::Section).await;
            self.merged(&pair.between, pair.right);
        }
        Ok(merged)
    }
}
