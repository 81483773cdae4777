//! Walks from leaf to leaf, to find a leaf that this compute node does not know, and to list all of them.

use dm_index::{Hops, IndexError, KeyBound, KeyBytes, Lead, NodeCopies, NodeCopy};
use dm_layout::{Corrupt, Reason};
use dm_verbs::{Control, Effect, LocalStep, RemotePtr, Verbs, Why};

use crate::Learned;

/// Number of attempts to find a leaf's right neighbour while merges change both.
const CHANGES_MAX: u32 = 64;

impl<K: KeyBytes, L> Learned<K, L> {
    /// Walks from the nearest known leaf to the leaf of `key`, and learns the leaves on the way. Before that, reads the
    /// table if there is a newer one. Returns `None` if the index has no leaf.
    pub(crate) async fn walk_to<V: Verbs + Control>(&self, v: &V, key: &K) -> Result<Option<Lead>, IndexError>
    where
        L: NodeCopies<V, K>,
    {
        if !self.look(v).await? {
            return Ok(None);
        }
        let (mut retry, mut hops) = (v.retry(self.options.attempts), Hops::default());
        let mut copy = NodeCopy::new();
        loop {
            v.local(LocalStep::Section).await;
            let Some(hint) = self.known.with(|known| known.entry(key, KeyBound::At)) else {
                return Ok(None);
            };
            let mut lead = Lead::hint(hint.leaf);
            loop {
                match self.leaves.copy(v, lead.at, &mut copy).await {
                    Ok(true) => {}
                    Ok(false) => break,
                    //= docs/protocol/rolex.md X7
                    Err(e) if !lead.linked && e.effect() == Effect::None => {
                        v.local(LocalStep::Section).await;
                        if !self.known.with(|known| known.forget(hint)) {
                            return Err(e);
                        }
                        break;
                    }
                    Err(e) => return Err(e),
                }
                // An unborn leaf is not used, unless a neighbour's pointer leads to it.
                let unlinked = copy.unborn && !lead.linked;
                if copy.level != 0 || unlinked || *key < copy.fences.low {
                    break;
                }
                if lead.linked && !copy.unborn {
                    v.local(LocalStep::Section).await;
                    self.known.with(|known| known.learn(copy.fences.low, lead.at));
                }
                if !copy.fences.is_below(key) {
                    return Ok(Some(lead));
                }
                lead = Lead::linked(copy.sibling);
                let _far = hops.step(&mut retry, lead.at).await?;
                self.alloc.announce_if_due(v).await?;
            }
            //= docs/protocol/rolex.md X6
            v.local(LocalStep::Section).await;
            self.known.with(|known| known.forget(hint));
            retry.again_wiser(lead.at, Why::Stale).await?;
        }
    }

    /// Walks over all leaves from the first one on, and returns those that are live, by their low fence keys. Returns
    /// `None` if there are more than `max`.
    pub(crate) async fn list<V: Verbs>(
        &self,
        v: &V,
        first: RemotePtr,
        max: usize,
    ) -> Result<Option<Vec<(K, RemotePtr)>>, IndexError>
    where
        L: NodeCopies<V, K>,
    {
        let mut retry = v.retry(CHANGES_MAX);
        let mut copy = NodeCopy::new();
        let mut listed: Vec<(K, RemotePtr)> = Vec::new();
        let (mut next, mut farthest) = ((K::MIN, first), K::MIN);
        loop {
            let (low, at) = next;
            let continues =
                self.leaves.copy(v, at, &mut copy).await? && copy.level == 0 && copy.fences.low == low;
            if !continues {
                // The leaf was merged into its left neighbour after that neighbour was read.
                let Some(before) = listed.pop() else {
                    return Err(IndexError::Pool {
                        at,
                        why: "the first entry of the table does not lead to the first leaf",
                    });
                };
                next = before;
                retry.again_wiser(at, Why::Stale).await?;
                continue;
            }
            // An unborn leaf gets no entry, because clients reach it through its left neighbour.
            if !copy.unborn || listed.is_empty() {
                listed.push(next);
            }
            let Some(high) = copy.fences.high else {
                return Ok(Some(listed));
            };
            if listed.len() >= max {
                return Ok(None);
            }
            if high <= low {
                return Err(IndexError::Corrupt {
                    node: at,
                    what: Corrupt {
                        offset: 0,
                        reason: Reason::Fences,
                    },
                });
            }
            next = (high, copy.sibling);
            // The budget is renewed only by progress, so that the loop ends if a leaf never continues its left
            // neighbour.
            if high > farthest {
                (retry, farthest) = (v.retry(CHANGES_MAX), high);
            }
        }
    }
}
