//! Merging a leaf of many keys with a neighbour.

use dm_index::{Approach, IndexError, KeyBound, KeyBytes, Merge, Neighbours, Restructure};
use dm_verbs::{Control, LocalStep, RemotePtr, Verbs};

use crate::SingleStore;
use crate::art::ArtClient;
use crate::separators::Separators;

/// The separators, and a client of their radix tree.
pub(crate) struct Reading<'h, V: Verbs, K: KeyBytes, S> {
    pub(crate) separators: &'h Separators<K, S>,
    pub(crate) client: ArtClient<'h, V, K, S>,
}

impl<V, K, S> Approach<V, K> for Reading<'_, V, K, S>
where
    V: Verbs + Control,
    K: KeyBytes,
    S: SingleStore<V, K>,
{
    async fn leaf_near(&self, _: &V, key: &K, bound: KeyBound) -> Result<Option<RemotePtr>, IndexError> {
        let read = self.separators.read(&self.client, key, bound).await?;
        Ok(read.map(|(_, leaf)| leaf))
    }

    async fn join<L: Restructure<V, K>>(
        &self,
        v: &V,
        leaves: &L,
        pair: &Neighbours<K>,
    ) -> Result<Merge, IndexError> {
        //= docs/protocol/dolphin.md D6
        let unlink = async || {
            let strike = self.separators.strike(&self.client, &pair.between, pair.right);
            strike.await
        };
        let merged = leaves.join(v, pair, unlink).await?;
        if matches!(merged, Merge::Done { .. }) {
            v.local(LocalStep::Section).await;
            self.separators.merged(&pair.between, pair.right);
        }
        Ok(merged)
    }
}
