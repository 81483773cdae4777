//! Merges two nodes without a parent, for inner structures that do not consist of nodes. Such a structure has no parent
//! that could be locked.

use dm_index::{IndexError, Merge, Neighbours};
use dm_layout::{KeyBytes, NodeFormat};
use dm_verbs::{Control, Event, LocalStep, Verbs};

use crate::Nodes;
use crate::merge::{can_merge, carry_out};
use crate::write::failure;

impl<K: KeyBytes, F: NodeFormat<K>> Nodes<K, F> {
    /// Merges a node into its left neighbour as `merge.rs` describes, without locking a parent. Instead of step 1,
    /// which removes the parent's entry, this calls `unlink` after the locks are released. Until then the inner
    /// structure may still hold the address of the right node, although the node is dead. This is allowed, because
    /// addresses in such an inner structure are only hints.
    pub(crate) async fn join_nodes<V: Verbs + Control>(
        &self,
        v: &V,
        pair: &Neighbours<K>,
        unlink: impl AsyncFnOnce() -> Result<(), IndexError>,
    ) -> Result<Merge, IndexError> {
        //= docs/protocol/sherman.md S23
        if !can_merge(pair) {
            return Ok(Merge::TooFull);
        }
        if let Some(not) = self.look(v, pair).await? {
            return Ok(not);
        }
        let nodes = [pair.left, pair.right];
        let locked = self
            .alloc
            .while_announcing(v, self.locks.lock_set(v, &nodes))
            .await;
        let mut set = locked?;
        let (left, right) = (
            v.read(pair.left, self.node_len()),
            v.read(pair.right, self.node_len()),
        );
        let (mut left, mut right) = (left.await?, right.await?);
        if let Some(not) = self.unsuitable(pair, &left, &right)? {
            set.release().await?;
            return Ok(not);
        }
        let plan = self.plan_merge(pair, (&mut left, &mut right), None)?;
        for at in nodes {
            if let Some(guard) = set.of(at) {
                guard.doubt_if_lost();
            }
        }
        let done = Merge::Done {
            sparse: self.is_sparse(&left).map_err(|e| failure(pair.left, e))?,
            parent_sparse: false,
        };
        let dead = self.format.header(&right).map_err(|e| failure(pair.right, e))?;
        carry_out(v, set, plan).await?;
        v.meter().note(Event::Merge);
        //= docs/protocol/dolphin.md D6
        unlink().await.map_err(|e| e.after_effect(pair.right))?;
        v.local(LocalStep::Section).await;
        self.retire(pair.right, &dead);
        Ok(done)
    }
}
