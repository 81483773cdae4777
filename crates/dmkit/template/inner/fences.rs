//! An inner structure made of fence keys: the first key of each leaf, as far as this compute node knows it.
//!
//! The fence keys are only in local memory. Memory nodes hold the leaves, each with its fence keys and a pointer to its
//! right neighbour, and one word that points to the first leaf. If the array does not have a leaf, a client finds it by
//! following these pointers (`walk.rs`), and adds it to the array.
//!
//! # Rules of every inner structure
//! 1. It returns the leaf of the key **or a leaf to the left of it**. From there, the operation moves right by itself.
//!    If the structure returns a leaf to the right of the key's leaf, the operation has to ask again.
//! 2. Every address from the array is a hint ([`Lead::hint`]). The leaf may have been split or merged since, and
//!    another leaf may use its memory. Only an address that *this operation* has read from the root word or from a live
//!    leaf is [`Lead::linked`].
//! 3. `stale` may keep the entry, but `invalidate` must not: the same address would lead to the same failure again, for
//!    ever. After `invalidate`, the next address must be one further to the left, or one that was read.
//! 4. By rule 2, an entry of the array never expires, because the memory of a dead leaf is reused only for leaves. A
//!    structure that keeps more than hints may use it only in the epoch in which it was read (`dm_sync::epoch`).
//! 5. If `reach` returns a number, hints are rough, and this many steps to the right are normal. After more steps, or
//!    after an error on the way, which may belong to another key's leaf, the operation calls `find`. `find` must return
//!    an address that it has read.
//! 6. An async method awaits `v.local(LocalStep::Section)` before each access to shared local state, so that the
//!    explorer can run other clients at this point. For the other methods, the caller has done so.

use dm_index::{IndexError, Inner, KeyBytes, Lead, Located, NodeCopies, Restructure, Run, Split};
use dm_sync::Fingerprint;
use dm_verbs::{Event, LocalStep, RemotePtr, Verbs};

use super::array::Array;

/// Number of steps to the right after which a client reads the leaves on the way, and learns all of them.
const REACH: u32 = 4;

/// The known leaves by their first keys.
#[derive(Debug)]
pub(crate) struct Fences<K, L> {
    pub(super) array: Array<K>,
    /// The word that points to the first leaf. The first leaf never dies, because a merge removes the right one of two
    /// leaves.
    pub(super) root_word: RemotePtr,
    pub(super) leaves: L,
    pub(super) attempts: u32,
}

impl<V: Verbs, K: KeyBytes, L: NodeCopies<V, K>> Inner<V, K> for Fences<K, L> {
    /// The leaf that the array returned, or `None` if this operation has read the leaf's address.
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
        run: &mut Run<K>,
    ) -> Result<(), IndexError> {
        v.local(LocalStep::Section).await;
        run.clear();
        self.array.run(key, max, run);
        if run.leaves().is_empty()
            && let Some(located) = self.find(v, key).await?
        {
            run.push_alone(located.leaf.at);
        }
        Ok(())
    }

    /// Keeps the entry: the leaf was split and the key is to its right, but the entry is still right for the leaf's
    /// other keys.
    fn stale(&self, _: &V, _: Self::Proof) {}

    /// Removes the entries of a leaf that no longer exists.
    fn invalidate(&self, _: &V, proof: Self::Proof) {
        if let Some(leaf) = proof {
            self.array.forget(leaf);
        }
    }

    fn reach(&self, proof: &Self::Proof) -> Option<u32> {
        proof.map(|_| REACH)
    }

    /// Learns the leaf that the operation has reached, so that the next operation on this key finds it at once.
    async fn found(&self, v: &V, key: &K, leaf: RemotePtr, _hops: u32) {
        v.local(LocalStep::Section).await;
        self.array.learn(*key, leaf);
    }

    async fn plant(&self, v: &V, leaf: RemotePtr) -> Result<bool, IndexError> {
        Ok(v.cas(self.root_word, 0, leaf.raw()).await? == 0)
    }

    /// Teaches only this compute node the new leaf. Other compute nodes reach it from its left neighbour.
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
