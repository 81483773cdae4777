//! Looks at the other members, for a check and for the sweep of an index.

use dm_verbs::{Control, ControlReply, ControlRequest, Nanos, NodeId, RESERVED_BYTES, Space, Verbs};

use crate::superblock::PAGE;
use crate::{AllocError, Allocator, members};

/// Maximum number of rounds that a client does to learn that a member is gone. It must ask twice (V5), and each round
/// can answer one question.
const ROUNDS: u32 = 8;
/// Maximum number of leases for which a client waits until a member has announced itself or was expelled.
const LEASES: u64 = 8;
/// Between two rounds, a client waits for a lease divided by this number.
const PARTS: u64 = 16;

/// The members of a pool, as one look found them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Members {
    /// The numbers of the members that are not expelled.
    pub active: Vec<u16>,
    /// The numbers of the members that are marked as expelled, and whose locks might not be free yet.
    pub expelled: Vec<u16>,
    /// The number of the next member.
    next: u16,
    /// Number, word and beat of each slot in use.
    looks: Vec<(u16, u64, u64)>,
}

impl Members {
    /// Returns whether this member is neither active nor being expelled. Returns `false` for 0, which is no member.
    pub fn lacks(&self, member: u16) -> bool {
        member != 0 && !self.active.contains(&member) && !self.expelled.contains(&member)
    }

    /// Returns whether all members of this look are still active in the look `later`, and no member was being expelled.
    /// Also returns `false` if another member has joined in between, because it may have been expelled already.
    pub fn are_all_in(&self, later: &Self) -> bool {
        let stayed = self.active.iter().all(|member| later.active.contains(member));
        self.next == later.next && self.expelled.is_empty() && stayed
    }
}

/// The memory use of a pool, in bytes over all memory nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolBytes {
    /// Memory that the memory nodes have handed out, without the pool's own tables.
    pub allocated: u64,
    /// Memory that this compute node holds in free lists, in its limbo, and in rests of chunks, and memory that it can
    /// never use.
    pub own: u64,
    /// Free blocks in the depots, and the magazines that list them.
    pub depots: u64,
}

impl Allocator {
    /// Reads the slots of the members. Returns no members if the pool reclaims nothing.
    ///
    /// # Errors
    /// Returns the error of the READ.
    pub async fn members<V: Verbs>(&self, v: &V) -> Result<Members, AllocError> {
        let Some(area) = self.area() else {
            return Ok(Members::default());
        };
        let _unmetered = v.meter().housekeeping();
        let image = v.read(area.at, area.bytes()).await?;
        let mut found = Members {
            next: area.next_of(&image),
            ..Members::default()
        };
        for (_, look) in area.looks(&image).filter(|(_, look)| !look.word.is_free()) {
            match look.word.is_expelled() {
                true => found.expelled.push(look.word.number()),
                false => found.active.push(look.word.number()),
            }
            found.looks.push((look.word.number(), look.word.0, look.beat));
        }
        Ok(found)
    }

    /// Returns the time for which a member may be silent; 0 if this compute node has never joined, or if the pool
    /// reclaims nothing.
    pub fn lease(&self) -> Nanos {
        let lease = |reclaim: &super::Reclaim| reclaim.membership.with(|m| m.lease);
        self.reclaim.as_ref().map_or(Nanos(0), lease)
    }

    /// Does rounds until every other member has announced itself or has lost its slot, for at most eight leases.
    /// Returns the number of members that have lost their slots. This takes about one lease if a member is silent.
    ///
    /// # Errors
    /// Returns the errors of [`Allocator::prepare`].
    pub async fn outlast_silent<V: Verbs + Control>(&self, v: &V) -> Result<u64, AllocError> {
        let Some(epochs) = self.epochs() else { return Ok(0) };
        let seat = dm_sync::epoch::Epochs::seat(epochs);
        self.collect(v, &seat).await?;
        let first = self.members(v).await?;
        let lease = self.lease();
        let own = self.roster.own();
        let since = v.now();
        loop {
            self.collect(v, &seat).await?;
            let now = self.members(v).await?;
            let silent = first.looks.iter().filter(|(number, ..)| *number != own);
            let silent = silent.filter(|look| now.looks.contains(look) || now.expelled.contains(&look.0));
            if silent.count() == 0 || v.elapsed(since, Nanos(lease.0.saturating_mul(LEASES))) {
                let gone = first.looks.iter().filter(|(number, ..)| now.lacks(*number));
                return Ok(gone.count() as u64);
            }
            rest(v, Nanos(lease.0 / PARTS)).await;
        }
    }

    /// Fences `member`, which has no slot, and frees its locks in the pool's tables. Returns the number of freed locks.
    /// Returns `None` if this compute node cannot find out that the member is gone, for example because the number is
    /// its own or will soon be given to a new member.
    ///
    /// # Errors
    /// Returns the errors of [`Allocator::prepare`] and of the sweep.
    pub async fn free_locks_of<V: Verbs + Control>(
        &self,
        v: &V,
        member: u16,
    ) -> Result<Option<u64>, AllocError> {
        let Some(epochs) = self.epochs() else {
            return Ok(None);
        };
        let seat = dm_sync::epoch::Epochs::seat(epochs);
        for _ in 0..ROUNDS {
            if self.roster.is_gone(member) {
                let swept = match &self.sweep {
                    Some(sweep) => sweep.run(v, member).await?,
                    None => 0,
                };
                return Ok(Some(swept));
            }
            //= docs/protocol/recovery.md V5
            self.roster.ask(member);
            self.collect(v, &seat).await?;
        }
        Ok(None)
    }

    /// Returns how the memory of the pool is used. Other compute nodes may change this meanwhile.
    ///
    /// # Errors
    /// Returns errors of verbs and of the control plane.
    pub async fn pool_bytes<V: Verbs + Control>(&self, v: &V) -> Result<PoolBytes, AllocError> {
        let mut bytes = PoolBytes::default();
        for node in (0..self.memory_nodes()).map(NodeId) {
            if let ControlReply::Region(region) = v.call(ControlRequest::Describe { node }).await? {
                bytes.allocated += region.used.saturating_sub(RESERVED_BYTES);
            }
            bytes.depots += self.depot_bytes(v, node).await?;
        }
        let tables = self.sweep.as_ref().map_or(0, |sweep| {
            let bytes = (8 * u64::from(sweep.words.max(1))).next_multiple_of(PAGE);
            bytes
                * sweep
                    .tables
                    .iter()
                    .filter(|table| table.space() == Space::Host)
                    .count() as u64
        });
        let area = self.area().map_or(0, |area| {
            members::area_bytes(area.slots, self.memory_nodes()).next_multiple_of(PAGE)
        });
        bytes.allocated = bytes.allocated.saturating_sub(tables + area);
        let stats = self.stats();
        let spare: u64 = self.pools.iter().map(|pool| pool.with(|p| p.spare())).sum();
        bytes.own = spare + stats.free_bytes + stats.limbo_bytes + stats.wasted_bytes;
        Ok(bytes)
    }
}

/// Waits until `time` has passed, as [`Env::elapsed`](dm_verbs::Env::elapsed) measures it.
pub async fn rest<V: Verbs>(v: &V, time: Nanos) {
    let since = v.now();
    while !v.elapsed(since, time) {
        // In a simulator this is one long step.
        v.charge(time).await;
        v.pause().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_leaves_or_joins_is_noticed() {
        let look = |active: &[u16], expelled: &[u16], next| Members {
            active: active.to_vec(),
            expelled: expelled.to_vec(),
            next,
            looks: Vec::new(),
        };
        let before = look(&[3, 4], &[], 5);
        assert!(before.are_all_in(&before));
        assert!(!before.are_all_in(&look(&[4], &[], 5)), "one has left");
        assert!(!before.are_all_in(&look(&[4], &[3], 5)), "one is marked");
        assert!(!before.are_all_in(&look(&[3, 4, 5], &[], 6)), "one has joined");
        assert!(
            !before.are_all_in(&look(&[3, 4], &[], 6)),
            "one has joined and lost its slot"
        );
        let marked = look(&[4], &[3], 5);
        assert!(!marked.are_all_in(&look(&[4], &[], 5)));
        assert!(marked.lacks(5) && !marked.lacks(3) && !marked.lacks(4) && !marked.lacks(0));
    }
}
