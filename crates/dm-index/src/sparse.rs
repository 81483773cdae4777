//! Merging a sparse leaf with a neighbour, for inner structures without nodes that could be locked.

use core::future::Future;

use dm_layout::KeyBytes;
use dm_verbs::{RemotePtr, Verbs, Why};

use crate::{IndexError, Merge, Neighbours, NodeCopy, Restructure};

/// Maximum number of attempts to merge under contention. Exceeding it is not an error, because a leaf that stays sparse
/// only wastes memory. The next remove from this leaf tries again.
const MERGE_ATTEMPTS: u32 = 64;
/// Maximum number of leaves that are read, beginning with the one to which the inner structure leads. If the wanted
/// leaf is further to the right, it is not merged now; the next remove from it tries again.
const STEPS_MAX: usize = 64;

/// The bound of a search for an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyBound {
    /// The last key that is at most the given one.
    At,
    /// The last key below the given one.
    Below,
}

/// The part of an inner structure that [`merge_sparse`] needs.
pub trait Approach<V: Verbs, K> {
    /// Returns a leaf from which steps to the right lead to the leaf that covers `key`, or with [`KeyBound::Below`] to
    /// the leaf that ends at `key`. Returns `None` if the inner structure has no such entry.
    fn leaf_near(
        &self,
        v: &V,
        key: &K,
        bound: KeyBound,
    ) -> impl Future<Output = Result<Option<RemotePtr>, IndexError>>;

    /// Merges the leaves of `pair` by [`Restructure::join`], and removes the right leaf from the inner structure.
    fn join<L: Restructure<V, K>>(
        &self,
        v: &V,
        leaves: &L,
        pair: &Neighbours<K>,
    ) -> impl Future<Output = Result<Merge, IndexError>>;
}

/// Merges the leaf of `key` with a neighbour, and repeats this as long as the merged leaf is sparse.
///
/// # Errors
/// Returns the errors of `approach`, and those of reading and merging leaves.
pub async fn merge_sparse<V: Verbs, K: KeyBytes, L: Restructure<V, K>>(
    v: &V,
    leaves: &L,
    key: &K,
    approach: &impl Approach<V, K>,
) -> Result<(), IndexError> {
    let mut copy = NodeCopy::new();
    let mut retry = v.retry(MERGE_ATTEMPTS);
    loop {
        if !reach(v, leaves, key, KeyBound::At, approach, &mut copy).await? {
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
                true => approach.join(v, leaves, &pair).await?,
                false => Merge::Changed,
            };
        }
        // The first leaf has no left neighbour.
        if merged == Merge::TooFull
            && fences.low > K::MIN
            && reach(v, leaves, &fences.low, KeyBound::Below, approach, &mut copy).await?
        {
            let pair = Neighbours {
                level: 0,
                left: copy.at,
                right: at,
                between: fences.low,
                until: fences.high,
                parent: RemotePtr::NULL,
            };
            merged = approach.join(v, leaves, &pair).await?;
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

/// Copies the leaf that covers `key`, or with [`KeyBound::Below`] the leaf that ends at `key`. Returns `false` if the
/// inner structure leads to no leaf, or if the wanted leaf is not among the first [`STEPS_MAX`] leaves from there on.
/// Also returns `false` if one of these nodes is unborn, is not a leaf, or begins too far to the right.
async fn reach<V: Verbs, K: KeyBytes, L: Restructure<V, K>>(
    v: &V,
    leaves: &L,
    key: &K,
    bound: KeyBound,
    approach: &impl Approach<V, K>,
    copy: &mut NodeCopy<K>,
) -> Result<bool, IndexError> {
    let Some(mut at) = approach.leaf_near(v, key, bound).await? else {
        return Ok(false);
    };
    for _ in 0..STEPS_MAX {
        let alive = leaves.copy(v, at, copy).await?;
        if alive {
            let (low, high) = (copy.fences.low, copy.fences.high);
            let begins = low < *key || bound == KeyBound::At && low == *key;
            if copy.level != 0 || copy.unborn || !begins {
                return Ok(false);
            }
            let ends = high.is_none_or(|high| high > *key || bound == KeyBound::Below && high == *key);
            if ends {
                return Ok(bound == KeyBound::At || high == Some(*key));
            }
        }
        if copy.sibling.is_null() {
            return Ok(false);
        }
        at = copy.sibling;
    }
    Ok(false)
}
