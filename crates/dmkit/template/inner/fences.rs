//! Fences as the inner structure: where each leaf begins, as far as this compute node has learned it.
//!
//! What is learned is local, and it is all that there is: memory nodes hold the leaves, each with its fence keys and a
//! pointer to its right neighbour, and one word that names the first leaf. What the array does not know, a client
//! finds over the leaves' pointers (`walk.rs`), and then the array knows it.
//!
//! # Rules of every inner structure
//! 1. It answers with the leaf of the key **or one to its left**. From there the operation goes right by itself. A
//!    leaf to the right of the key's is a detour: the operation comes back and asks again.
//! 2. Every answer from the array is a hint ([`Lead::hint`]). The leaf may have been split or merged since, and its
//!    memory may be another leaf's by now. Only an address that *this operation* read from the root word or from a
//!    living leaf is [`Lead::linked`].
//! 3. `stale` may keep the entry, `invalidate` may not. The same answer again would lead to the same dead end, for
//!    ever. After `invalidate`, the answer must come from farther left, or from a read.
//! 4. The array may be used for ever, by rule 2, because dead leaves become leaves of the same kind only. A structure
//!    that keeps anything but hints may use it only in the epoch in which it was read (`dm_sync::epoch`).
//! 5. With `reach`, hints are rough: so many steps to the right are normal. After more of them, or after an error on
//!    the way, which may be another leaf's, the operation asks `find`. That answer must come from a read.
//! 6. An async method begins each look at shared local state with `v.local(LocalStep::Section).await`, so that the
//!    explorer can run other clients in between. The methods that are not async are called right behind a step.

use dm_index::{IndexError, Inner, KeyBytes, Lead, Located, NodeCopies, Restructure, Split};
use dm_sync::Fingerprint;
use dm_verbs::{Event, LocalStep, RemotePtr, Verbs};

use super::array::Array;

/// Steps to the right after which a client reads the leaves in between, and learns all of them.
const REACH: u32 = 4;

/// Where each known leaf begins.
#[derive(Debug)]
pub(crate) struct Fences<K, L> {
    pub(super) array: Array<K>,
    /// Names the first leaf, which lives for ever: a merge ends the right one of two leaves.
    pub(super) root_word: RemotePtr,
    pub(super) leaves: L,
    pub(super) attempts: u32,
}

impl<V: Verbs, K: KeyBytes, L: NodeCopies<V, K>> Inner<V, K> for Fences<K, L> {
    /// The leaf that the array named, or `None` if this operation has read the leaf.
    type Proof = Option<RemotePtr>;

    fn known(&self, v: &V, key: &K) -> Option<Located<Self::Proof>> {
        let leaf = self.array.leaf(key)?;
        v.meter().note(Event::CacheHit);
        let (leaf, proof) = (Lead::hint(leaf), Some(leaf));
        Some(Located { leaf, proof })
    }

    async fn find(&self, v: &V, key: &K) -> Result<Option<Located<Self::Proof>>, IndexError> {
        v.meter().note(Event::CacheMiss);
        let lead = self.walk(v, Some(key)).await?;
        Ok(lead.map(|leaf| Located { leaf, proof: None }))
    }

    async fn locate_run(
        &self,
        v: &V,
        key: &K,
        max: usize,
        run: &mut Vec<RemotePtr>,
    ) -> Result<(), IndexError> {
        v.local(LocalStep::Section).await;
        run.clear();
        self.array.run(key, max, run);
        if run.is_empty() {
            run.extend(self.find(v, key).await?.map(|located| located.leaf.at));
        }
        Ok(())
    }

    /// The leaf was split, and the key is to its right. The entry still leads the keys that the leaf kept.
    fn stale(&self, _: &V, _: Self::Proof) {}

    /// There is no such leaf any more.
    fn invalidate(&self, _: &V, proof: Self::Proof) {
        if let Some(leaf) = proof {
            self.array.forget(leaf);
        }
    }

    fn reach(&self, proof: &Self::Proof) -> Option<u32> {
        proof.map(|_| REACH)
    }

    /// The operation has gone right: the next one for this key need not.
    async fn found(&self, v: &V, key: &K, leaf: RemotePtr, _hops: u32) {
        v.local(LocalStep::Section).await;
        self.array.learn(*key, leaf);
    }

    async fn plant(&self, v: &V, leaf: RemotePtr) -> Result<bool, IndexError> {
        Ok(v.cas(self.root_word, 0, leaf.raw()).await? == 0)
    }

    /// Only this compute node learns of the split now. The others find the new leaf from its left neighbour.
    async fn install(&self, v: &V, split: Split<K>) -> Result<(), IndexError> {
        v.local(LocalStep::Section).await;
        self.array.learn(split.separator, split.right);
        Ok(())
    }

    async fn shrink<R>(&self, v: &V, leaves: &R, key: &K) -> Result<(), IndexError>
    where
        R: Restructure<V, K>,
    {
        self.merge(v, leaves, key).await
    }

    async fn build(&self, v: &V, leaves: &[(K, RemotePtr)], _: f64) -> Result<(), IndexError> {
        let first = leaves.first().map_or(RemotePtr::NULL, |(_, leaf)| *leaf);
        let root = v.cas(self.root_word, 0, first.raw()).await?;
        if root != 0 {
            let root = RemotePtr::from_raw(root);
            return Err(IndexError::NotEmpty { root });
        }
        v.local(LocalStep::Section).await;
        self.array.fill(leaves);
        Ok(())
    }
}

impl<K: KeyBytes, L> Fingerprint for Fences<K, L> {
    fn fingerprint(&self) -> u64 {
        self.array.fingerprint()
    }
}
