//! The number of leaf accesses of an average operation of a mix.

use dm_verbs::Counters;
use dm_workload::OpKind;

use crate::Setting;

/// The leaf accesses of an average operation of the mix, by kind. An index computes its [`MixDemand`](crate::MixDemand)
/// from them. An operation that another client's operation answers does not count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LeafOps {
    /// Gets, and the reading half of a read-modify-write.
    pub gets: f64,
    /// Inserts.
    pub inserts: f64,
    /// Updates, upserts and removes, and the writing half of a read-modify-write.
    pub changes: f64,
    /// Scans.
    pub scans: f64,
    /// The mean number of keys that a scan asks for.
    pub scan_keys: f64,
}

impl LeafOps {
    /// Computes the leaf accesses from a setting and the counters of `ops` operations.
    pub fn of(at: &Setting, counters: &Counters, ops: u64) -> Self {
        let rmw = at.share(OpKind::ReadModifyWrite);
        let changes = at.share(OpKind::Update) + at.share(OpKind::Upsert) + at.share(OpKind::Remove) + rmw;
        let each = |n: u64| n as f64 / ops.max(1) as f64;
        Self {
            gets: (at.share(OpKind::Get) + rmw - each(counters.delegated)).max(0.0),
            inserts: at.share(OpKind::Insert),
            changes: (changes - each(counters.combined)).max(0.0),
            scans: at.share(OpKind::Scan),
            scan_keys: at.scan_keys(),
        }
    }
}
