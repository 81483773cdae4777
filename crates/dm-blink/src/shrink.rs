//! Merging upwards, and lowering the root.

use dm_index::{Answer, Applied, Hops, IndexError, KeyBytes, Merge, NodeCopy, NodeStore, Stale, Write};
use dm_verbs::{LocalStep, RemotePtr, Verbs, Why};

use crate::blink::Blink;
use crate::descend::Found;
use crate::root::Root;

impl<K: KeyBytes, S> Blink<K, S> {
    /// Merges the node of `key` with a neighbour under the same parent, level by level, as long as that leaves a
    /// sparse parent.
    pub(crate) async fn shrink_levels<V: Verbs, L: NodeStore<V, K>>(
        &self,
        v: &V,
        leaves: &L,
        key: &K,
    ) -> Result<(), IndexError>
    where
        S: NodeStore<V, K>,
    {
        let mut copy = NodeCopy::new();
        let mut level = 0;
        loop {
            // The parent as it is now: a merge trusts no cache.
            let Some(Found::Node) = self.descend(v, key, level + 1, &mut copy).await? else {
                return Ok(());
            };
            let Some(pair) = Pair::of(&copy, key) else {
                return self.lower_root(v, &copy).await;
            };
            let Pair {
                left,
                right,
                between,
                until,
            } = pair;
            let merged = if level == 0 {
                leaves.merge(v, left, right, 0, &between, until.as_ref()).await?
            } else {
                self.nodes
                    .merge(v, left, right, level, &between, until.as_ref())
                    .await?
            };
            if merged != Merge::Done {
                return Ok(());
            }
            let sparse = self.unlink(v, &mut copy, &between, [left, right]).await?;
            self.lower_root(v, &copy).await?;
            if !sparse {
                return Ok(());
            }
            level += 1;
        }
    }

    /// Removes the separator of the dead node `dead` from its parent, which `parent` shows as last seen and then as
    /// it is afterwards; `true` if that left it sparse.
    async fn unlink<V: Verbs>(
        &self,
        v: &V,
        parent: &mut NodeCopy<K>,
        separator: &K,
        [left, dead]: [RemotePtr; 2],
    ) -> Result<bool, IndexError>
    where
        S: NodeStore<V, K>,
    {
        let level = parent.level;
        let mut at = parent.at;
        let (child, left) = (dead.raw().to_le_bytes(), left.raw().to_le_bytes());
        let mut retry = v.retry(self.options.attempts);
        let mut hops = Hops::default();
        loop {
            // Exactly this pointer: the left node may have been split again at the same key.
            // And where the parent was split just there, the separator is its low fence: the left node takes its place.
            let write = Write::RemoveExact(&child, &left);
            let answer = self
                .nodes
                .write(v, at, level, separator, write, Some(parent))
                .await?;
            self.nodes.unfold(parent)?;
            let (applied, sparse) = match answer {
                Answer::Done(applied) | Answer::Split(applied, _) => (applied, false),
                Answer::Sparse(applied) => (applied, true),
                Answer::Stale(Stale::Right(right)) => {
                    hops.step(&mut retry, right).await?;
                    at = right;
                    continue;
                }
                Answer::Stale(Stale::Elsewhere) => {
                    retry.again(at, Why::Stale).await?;
                    let Some(Found::Node) = self.descend(v, separator, level, parent).await? else {
                        return Ok(false);
                    };
                    at = parent.at;
                    continue;
                }
            };
            if applied == Applied::Removed {
                v.local(LocalStep::Section).await;
                let _admitted_or_not = self.admit(parent);
            }
            return Ok(sparse);
        }
    }

    /// Makes the only child of the root the root, if `root` shows a root with one child.
    async fn lower_root<V: Verbs>(&self, v: &V, root: &NodeCopy<K>) -> Result<(), IndexError>
    where
        S: NodeStore<V, K>,
    {
        let one_child = root.level > 0 && root.entries.len() == 1 && root.sibling.is_null();
        if !one_child || root.fences != dm_index::FenceKeys::ALL {
            return Ok(());
        }
        let old = Root {
            at: root.at,
            level: root.level,
        };
        self.nodes
            .collapse(v, root.at, root.level, async |child: &[u8]| {
                let raw = child
                    .first_chunk::<8>()
                    .map_or(0, |word| u64::from_le_bytes(*word));
                let new = Root {
                    at: RemotePtr::from_raw(raw),
                    level: old.level - 1,
                };
                if v.cas(self.root_word, old.pack(), new.pack()).await? != old.pack() {
                    return Ok(false);
                }
                v.local(LocalStep::Section).await;
                self.root.with(|known| *known = Some(new));
                Ok(true)
            })
            .await?;
        Ok(())
    }
}

/// Two neighbours under one parent.
struct Pair<K> {
    left: RemotePtr,
    right: RemotePtr,
    between: K,
    /// Where the right one ends.
    until: Option<K>,
}

impl<K: KeyBytes> Pair<K> {
    /// `key`'s child of `parent` and its right neighbour, or else its left one; `None` for an only child.
    fn of(parent: &NodeCopy<K>, key: &K) -> Option<Self> {
        let after = parent.entries.partition_point(|(separator, _)| separator <= key);
        // The index of the right one of the two.
        let right = if after < parent.entries.len() {
            after
        } else {
            after.checked_sub(1)?
        };
        let left = right.checked_sub(1)?;
        let until = parent.entries.get(right + 1).map(|e| e.0).or(parent.fences.high);
        Some(Self {
            left: parent.child(left)?,
            right: parent.child(right)?,
            between: parent.entries.get(right)?.0,
            until,
        })
    }
}
