//! The state of a compute node that is a member of the pool: the shipped allocator and locks, and the area of the
//! members.

use dm_alloc::{Allocator, MemberArea, ReclaimFlaws, ReclaimOptions, Sweep};
use dm_explore::{Elapsed, Endpoint, Knobs};
use dm_lock::{LockOptions, LockPlace, LockWord, Locks};
use dm_sync::epoch::{Epochs, Seat};
use dm_sync::{Fingerprint, fingerprint_of};
use dm_verbs::{Env, Nanos, NodeId, RemotePtr};

use crate::locks::{lock_word, one_lock};

/// A time that is longer than any lease.
pub(super) const LEASE: Nanos = Nanos(1 << 40);
/// The place of the members' area. Its three slots lie one line apart, behind the line of the area's head.
pub(super) const AREA: RemotePtr = match RemotePtr::new(NodeId(0), 512) {
    Some(at) => at,
    None => RemotePtr::NULL,
};

/// Returns these knobs, with a clock by which the model itself decides when leases end.
pub(super) fn timed(knobs: Knobs) -> Knobs {
    Knobs {
        elapsed: Elapsed::Clock,
        ..knobs
    }
}

/// One compute node. The lock is in a table of one word.
pub(super) struct Member {
    pub(super) alloc: Allocator,
    pub(super) locks: Locks,
}

impl Fingerprint for Member {
    fn fingerprint(&self) -> u64 {
        fingerprint_of(&(self.alloc.fingerprint(), self.locks.fingerprint()))
    }
}

impl Member {
    /// Opens the pool for `v`'s compute node, which is a member from then on. The first member looks at no other
    /// member.
    pub(super) async fn open(v: Endpoint, options: LockOptions, flaws: ReclaimFlaws) -> Self {
        let on = v.compute_node();
        let area = MemberArea { at: AREA, slots: 3 };
        let reclaim = ReclaimOptions {
            period: Nanos(u64::MAX),
            operations: 1,
            looks: if on == 0 { u32::MAX } else { 1 },
            attempts: 2,
            remembers: false,
            flaws,
        };
        let sweep = Sweep {
            tables: vec![lock_word(LockPlace::Chip)].into(),
            words: 1,
            freed: LockWord::freed,
            unshared: LockWord::unshared,
        };
        let alloc = Allocator::new(1, on).reclaiming(area, reclaim).sweeping(sweep);
        let locks = Locks::new(options, one_lock(LockPlace::Chip));
        let locks = locks.in_roster(alloc.roster().clone());
        let member = Self { alloc, locks };
        let seat = member.seat();
        member.alloc.prepare(&v, &seat).await.expect("a free slot");
        member
    }

    pub(super) fn seat(&self) -> Seat {
        Epochs::seat(self.alloc.epochs().expect("the pool has members"))
    }
}
