//! The descent from the root, or from a cached node, to a node of a given level.

use dm_index::{Hops, IndexError, KeyBytes, Lead, Located, NodeCopy, NodeStore, Reclaim};
use dm_verbs::{LocalStep, RemotePtr, Verbs, Why};

use crate::blink::{Blink, Proof};
use crate::root::Root;

/// Maximum level. A higher tree would have more than 2^32 leaves, even with a fan-out of two.
const LEVEL_MAX: u8 = 32;

/// The next node of a descent, its level, and the source of its address.
struct Step<K> {
    at: Lead,
    level: u8,
    proof: Proof<K>,
}

impl<K: KeyBytes, S> Blink<K, S> {
    /// Returns the cached root if it may be used, and otherwise the root to which the root word points. Returns `None`
    /// for an empty tree.
    pub(crate) async fn root<V: Verbs>(&self, v: &V) -> Result<Option<Root>, IndexError> {
        v.local(LocalStep::Section).await;
        //= docs/protocol/reclaim.md R12
        let epoch = self.epoch();
        let known = self.root.with(|root| *root);
        if let Some((root, _)) = known.filter(|(_, seen)| *seen == epoch) {
            return Ok(Some(root));
        }
        let root = Root::unpack(v.word(self.root_word).await?);
        v.local(LocalStep::Section).await;
        self.set_root(root, epoch);
        Ok(root)
    }

    /// Finds the leaf of `key` by reading inner nodes. Offers each node on the path to this leaf to the cache.
    pub(crate) async fn find_leaf<V: Verbs>(
        &self,
        v: &V,
        key: &K,
    ) -> Result<Option<Located<Proof<K>>>, IndexError>
    where
        S: NodeStore<V, K>,
    {
        let mut copy = NodeCopy::new();
        let Some(found) = self.descend(v, key, 1, &mut copy).await? else {
            return Ok(None);
        };
        Ok(Some(match found {
            Found::Node { .. } => Located {
                leaf: Lead::hint(child_below(&copy, key)?),
                proof: Proof::Read,
            },
            Found::RootBelow(root) => Located {
                leaf: Lead::linked(root.at),
                proof: Proof::Root,
            },
        }))
    }

    /// Descends to the node of `level` (at least 1) that covers `key`, and reads it into `copy`. Returns
    /// [`Found::RootBelow`] if the root is below `level`, and `None` for an empty tree.
    pub(crate) async fn descend<V: Verbs>(
        &self,
        v: &V,
        key: &K,
        level: u8,
        copy: &mut NodeCopy<K>,
    ) -> Result<Option<Found>, IndexError>
    where
        S: NodeStore<V, K>,
    {
        let mut retry = v.retry(self.options.attempts);
        let mut hops = Hops::default();
        'restart: loop {
            // The node whose sibling pointer led to the current node, if any.
            let mut left = None;
            let Some(mut step) = self.entrance(v, key, level).await? else {
                return Ok(None);
            };
            if step.level < level {
                // Only a root can be below `level`. It may be a leaf, so it must not be read as an inner node.
                return Ok(Some(Found::RootBelow(Root {
                    at: step.at.at,
                    level: step.level,
                })));
            }
            loop {
                let alive = self.nodes.copy(v, step.at.at, copy).await?;
                if !alive && !copy.sibling.is_null() && copy.level == step.level {
                    // The node was merged into the node that it points to. Its parent might not be updated yet.
                    self.blame(v, step.proof).await;
                    left = None;
                    step = Step {
                        //= docs/protocol/reclaim.md R10
                        at: Lead::hint(copy.sibling),
                        level: copy.level,
                        proof: Proof::Read,
                    };
                    retry.again_wiser(step.at.at, Why::Stale).await?;
                    continue;
                }
                //= docs/protocol/reclaim.md R9
                let unlinked = copy.unborn && !step.at.linked;
                if !alive || unlinked || *key < copy.fences.low || copy.level != step.level {
                    self.blame(v, step.proof).await;
                    retry.again(step.at.at, Why::Stale).await?;
                    self.nodes.reclaim().announce_if_due(v).await?;
                    continue 'restart;
                }
                if copy.fences.is_below(key) {
                    if copy.sibling.is_null() {
                        return Err(no_sibling(copy.at));
                    }
                    self.blame(v, step.proof).await;
                    if hops.step(&mut retry, copy.sibling).await? {
                        //= docs/protocol/reclaim.md R10
                        continue 'restart;
                    }
                    left = Some(copy.at);
                    step = Step {
                        at: Lead::linked(copy.sibling),
                        level: copy.level,
                        proof: Proof::Read,
                    };
                    continue;
                }
                v.local(LocalStep::Section).await;
                let _admitted_or_not = self.admit(copy);
                if copy.level == level {
                    let left = left.filter(|_| copy.unborn);
                    return Ok(Some(Found::Node { left }));
                }
                left = None;
                step = Step {
                    at: Lead::hint(child_below(copy, key)?),
                    level: copy.level - 1,
                    proof: Proof::Read,
                };
            }
        }
    }

    /// Returns the node where a descent to `level` begins. It is a child of a cached node that covers `key`: of all
    /// such children at or above `level`, the lowest one. If there is no such child, returns the root, which may be
    /// below `level`. Returns `None` for an empty tree.
    async fn entrance<V: Verbs>(&self, v: &V, key: &K, level: u8) -> Result<Option<Step<K>>, IndexError> {
        v.local(LocalStep::Section).await;
        // A cached node above `level` has a child at or above `level`. From the lowest such child, the fewest nodes
        // remain to be read.
        for above in level + 1..=LEVEL_MAX {
            if let Some(hit) = self.cache.lookup_at(above, key) {
                let proof = Proof::Cached(hit.origin);
                return Ok(Some(Step {
                    at: Lead::hint(hit.child),
                    level: hit.child_level,
                    proof,
                }));
            }
        }
        let root = self.root(v).await?;
        Ok(root.map(|Root { at, level }| Step {
            at: Lead::linked(at),
            level,
            proof: Proof::Root,
        }))
    }

    async fn blame<V: Verbs>(&self, v: &V, proof: Proof<K>) {
        v.local(LocalStep::Section).await;
        match proof {
            Proof::Cached(origin) => {
                self.cache.invalidate(origin);
            }
            Proof::Root => self.root.with(|root| *root = None),
            Proof::Read => {}
        }
    }
}

/// The result of a descent.
pub(crate) enum Found {
    /// The node of the requested level was read into the copy.
    Node {
        /// The left half of the split, if the node is the right half of a split that is not finished yet, and the
        /// descent came from the left half.
        left: Option<RemotePtr>,
    },
    /// The tree's root is below the requested level.
    RootBelow(Root),
}

/// Returns the child of an inner node that covers `key`.
pub(crate) fn child_below<K: KeyBytes>(copy: &NodeCopy<K>, key: &K) -> Result<RemotePtr, IndexError> {
    let after = copy.entries.partition_point(|(separator, _)| separator <= key);
    let child = after
        .checked_sub(1)
        .and_then(|i| copy.child(i))
        .filter(|child| !child.is_null());
    child.ok_or(IndexError::Corrupt {
        node: copy.at,
        what: dm_layout::Corrupt {
            offset: 0,
            reason: dm_layout::Reason::Order,
        },
    })
}

fn no_sibling(node: RemotePtr) -> IndexError {
    IndexError::Corrupt {
        node,
        what: dm_layout::Corrupt {
            offset: 0,
            reason: dm_layout::Reason::Fences,
        },
    }
}
