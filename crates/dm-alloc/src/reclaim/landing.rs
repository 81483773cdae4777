//! Ensures that a client's earlier requests have landed: WRITEs to blocks that it has given back, and all requests of
//! failed operations.

use dm_sync::Mutex;
use dm_sync::epoch::{Epochs, Seat};
use dm_verbs::{ClientId, LocalStep, NodeId, RemotePtr, VerbErrorKind, Verbs};

use super::{Abandoned, Reclaim};
use crate::pool::{NodePool, Orphan, Trip};
use crate::{AllocError, Allocator};

/// The orphans of a client while it waits for their WRITEs to land.
struct Landing<'p> {
    pool: &'p Mutex<NodePool>,
    away: Option<(Vec<Orphan>, Trip)>,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        if let Some(away) = self.away.take() {
            self.pool.with(|p| p.put_back(away));
        }
    }
}

impl Allocator {
    /// Waits until this client's WRITEs to blocks that it gave back have landed, by posting READs behind them. Posts
    /// nothing if there are no such blocks.
    ///
    /// # Errors
    /// Returns the first error of a READ. The WRITEs to the memory node of that READ, and to all memory nodes with
    /// higher numbers, then count as not landed.
    pub async fn land<V: Verbs>(&self, v: &V) -> Result<(), AllocError> {
        for (node, pool) in (0..).zip(&self.pools) {
            v.local(LocalStep::Section).await;
            // This takes only the orphans that exist now. The WRITE to a later orphan may be posted after the READ.
            let away = pool.with(|p| p.take_orphans(v.client()));
            if away.is_none() {
                continue;
            }
            let mut landing = Landing { pool, away };
            let at = RemotePtr::new(NodeId(node), 0).unwrap_or(RemotePtr::NULL);
            // A READ completes only after the earlier WRITEs of its queue pair have landed.
            v.word(at).await?;
            v.local(LocalStep::Section).await;
            if let Some(landed) = landing.away.take() {
                pool.with(|p| p.landed(landed));
            }
        }
        Ok(())
    }
}

impl Allocator {
    /// Returns a seat for a client of this connection; `None` if nothing is reclaimed. If an earlier client of this
    /// connection has left a seat with [forgotten](dm_sync::epoch::Running::forget) operations, returns that seat.
    pub fn seat<V: Verbs>(&self, v: &V) -> Option<Seat> {
        let reclaim = self.reclaim.as_ref()?;
        let left = reclaim.abandoned_of(v.client());
        Some(left.unwrap_or_else(|| Epochs::seat(&reclaim.epochs)))
    }

    /// Takes back a client's seat. If the seat has forgotten operations, they stay announced until a later client of
    /// this connection prepares its seat and finds that their requests have landed. If it has none and this was the
    /// last client of the compute node, the compute node leaves the pool.
    pub fn vacate<V: Verbs>(&self, v: &V, seat: Seat) {
        //= docs/protocol/reclaim.md R2a
        if let Some(reclaim) = self.reclaim.as_ref().filter(|_| seat.has_forgotten()) {
            let client = v.client();
            reclaim.abandoned.with(|all| all.push(Abandoned { client, seat }));
            return;
        }
        drop(seat);
        self.leave_if_empty(v);
    }
}

impl Reclaim {
    fn abandoned_of(&self, client: ClientId) -> Option<Seat> {
        self.abandoned.with(|all| {
            let of_this = all.iter().position(|left| left.client == client);
            of_this.map(|i| all.swap_remove(i).seat)
        })
    }

    /// Returns whether this seat, or a seat that earlier clients of this connection have left, has forgotten
    /// operations. Returns `false` while `seat` runs an operation. Call it in a section.
    pub(super) fn has_forgotten(&self, client: ClientId, seat: &Seat) -> bool {
        let left = || {
            self.abandoned
                .with(|all| all.iter().any(|left| left.client == client))
        };
        !seat.is_running() && (seat.has_forgotten() || left())
    }

    /// Ends the client's forgotten operations if all requests that they posted have landed.
    pub(super) async fn end_forgotten<V: Verbs>(&self, v: &V, memory_nodes: u16, seat: &Seat) {
        if !self.all_landed(v, memory_nodes).await {
            return;
        }
        v.local(LocalStep::Section).await;
        seat.end_forgotten();
        while let Some(seat) = self.abandoned_of(v.client()) {
            seat.end_forgotten();
        }
    }

    /// Reads a word from each memory node, one after the other. Returns whether all answers together prove that no
    /// earlier request of this client can still land.
    pub(super) async fn all_landed<V: Verbs>(&self, v: &V, memory_nodes: u16) -> bool {
        for node in 0..memory_nodes {
            let at = RemotePtr::new(NodeId(node), 0).unwrap_or(RemotePtr::NULL);
            //= docs/protocol/reclaim.md R2a
            match v.word(at).await {
                Ok(_) => {}
                // Requests of a fenced client never land.
                Err(e) if e.kind == VerbErrorKind::Fenced => {}
                Err(_) if self.options.flaws().error_proves => {}
                Err(_) => return false,
            }
        }
        true
    }
}
