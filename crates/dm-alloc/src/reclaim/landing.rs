//! WRITEs to blocks that were given up, and when they have landed.

use dm_sync::Mutex;
use dm_verbs::{LocalStep, NodeId, RemotePtr, Verbs};

use crate::pool::{NodePool, Orphan};
use crate::{AllocError, Allocator};

/// Orphans whose WRITEs are being waited for.
struct Landing<'p> {
    pool: &'p Mutex<NodePool>,
    orphans: Vec<Orphan>,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        let orphans = core::mem::take(&mut self.orphans);
        if !orphans.is_empty() {
            self.pool.with(|p| p.put_back(orphans));
        }
    }
}

impl Allocator {
    /// Reads behind this client's unawaited WRITEs to blocks that were given up: they have landed then.
    pub(super) async fn land<V: Verbs>(&self, v: &V) -> Result<(), AllocError> {
        for (node, pool) in (0..).zip(&self.pools) {
            v.local(LocalStep::Section).await;
            // Those of now: one that comes later may be written to behind the READ.
            let orphans = pool.with(|p| p.take_orphans(v.client()));
            if orphans.is_empty() {
                continue;
            }
            let mut landing = Landing { pool, orphans };
            let at = RemotePtr::new(NodeId(node), 0).unwrap_or(RemotePtr::NULL);
            // WRITE→READ of one queue pair is in order.
            v.word(at).await?;
            v.local(LocalStep::Section).await;
            let landed = core::mem::take(&mut landing.orphans);
            pool.with(|p| p.landed(landed));
        }
        Ok(())
    }
}
