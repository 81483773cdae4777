//! Merging from the leaves upwards, and replacing a root that has one child.

use dm_index::{Child, IndexError, KeyBytes, Merge, Neighbours, NodeCopy, NodeStore, Restructure};
use dm_verbs::{LocalStep, Verbs, Why};

use crate::blink::Blink;
use crate::descend::Found;
use crate::root::Root;

/// Maximum number of attempts to merge under contention. A node that stays sparse only wastes memory, and the next
/// remove from it tries again.
const MERGE_ATTEMPTS: u32 = 64;

impl<K: KeyBytes, S> Blink<K, S> {
    /// Merges the node of `key` with its neighbours under the same parent as long as the node is sparse. If the parent
    /// has become sparse, continues with the parent, level by level.
    pub(crate) async fn shrink_levels<V: Verbs, L: Restructure<V, K>>(
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
        let mut retry = v.retry(MERGE_ATTEMPTS);
        let mut parent_sparse = false;
        loop {
            // The parent is read again, because a cached copy may be outdated.
            let Some(Found::Node { .. }) = self.descend(v, key, level + 1, &mut copy).await? else {
                return Ok(());
            };
            // If the parent is not live yet, this tries again later, because locking it for a merge would not make it
            // live.
            if copy.unborn {
                if retry.again(copy.at, Why::Changing).await.is_ok() {
                    continue;
                }
                return Ok(());
            }
            let mut merged = Merge::TooFull;
            for side in [Side::Right, Side::Left] {
                let Some(pair) = side.pair(&copy, key) else {
                    continue;
                };
                merged = if level == 0 {
                    leaves.merge(v, &pair, &self.nodes, &mut copy).await?
                } else {
                    self.nodes.merge(v, &pair, &self.nodes, &mut copy).await?
                };
                if merged != Merge::TooFull {
                    break;
                }
            }
            match merged {
                Merge::Done {
                    sparse,
                    parent_sparse: p,
                } => {
                    v.local(LocalStep::Section).await;
                    let _admitted_or_not = self.admit(&copy);
                    parent_sparse = p;
                    if sparse {
                        continue;
                    }
                }
                // Another client is changing one of the three nodes, by a split, another merge, or the insertion of a
                // separator.
                Merge::Changed => {
                    if retry.again(copy.at, Why::Changing).await.is_ok() {
                        continue;
                    }
                }
                Merge::TooFull => {}
            }
            self.lower_root(v, &copy).await?;
            if !parent_sparse {
                return Ok(());
            }
            (level, parent_sparse) = (level + 1, false);
        }
    }

    /// Makes the root's only child the new root. Does nothing if `root` is not a root with one child.
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
                let new = Root {
                    at: Child::decode(child),
                    level: old.level - 1,
                };
                let epoch = self.epoch();
                if v.cas(self.root_word, old.pack(), new.pack()).await? != old.pack() {
                    return Ok(false);
                }
                v.local(LocalStep::Section).await;
                self.set_root(Some(new), epoch);
                Ok(true)
            })
            .await?;
        Ok(())
    }
}

/// The side of the neighbour with which a node is merged.
#[derive(Clone, Copy)]
enum Side {
    Right,
    Left,
}

impl Side {
    /// Returns `key`'s child of `parent` and its neighbour on this side, or `None` if there is no such neighbour.
    fn pair<K: KeyBytes>(self, parent: &NodeCopy<K>, key: &K) -> Option<Neighbours<K>> {
        let after = parent.entries.partition_point(|(separator, _)| separator <= key);
        // The index of the right node of the pair.
        let right = match self {
            Self::Right => after,
            Self::Left => after.checked_sub(1)?,
        };
        let left = right.checked_sub(1)?;
        Some(Neighbours {
            level: parent.level.checked_sub(1)?,
            left: parent.child(left)?,
            right: parent.child(right)?,
            between: parent.entries.get(right)?.0,
            until: parent.entries.get(right + 1).map(|e| e.0).or(parent.fences.high),
            parent: parent.at,
        })
    }
}
