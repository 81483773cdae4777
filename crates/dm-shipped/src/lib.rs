//! The shipped indexes by name, as the harness of `dm-bench` runs them: Sherman, SMART, CHIME and Dolphin with the
//! variants of their papers.
//!
//! Nothing here is more than an index of one's own can have: options for a setting, and the verbs that an operation needs
//! without contention.
//!
//! ```
//! let registry = dm_shipped::shipped();
//! let names: Vec<&str> = registry.entries().iter().map(|entry| entry.name()).collect();
//! assert_eq!(names, ["sherman", "smart", "chime", "dolphin"]);
//! assert!(registry.series("fg+").is_ok());
//! ```
#![forbid(unsafe_code)]

mod chime_entry;
mod dolphin_entry;
mod sherman_entry;
mod smart_entry;

use dm_bench::{OpKind, Rdwc, Registry, Setting};
use dm_verbs::Counters;

/// The knobs that all shipped indexes have.
const LOCK_AND_READ: &str = "lock-and-read";
const RDWC_LOCKS: &str = "rdwc-locks";

/// What the knobs do.
const LOCK_AND_READ_HELP: &str =
    "1: the lock's CAS and the leaf's READ are in one chain; 0: the CAS is awaited first";
const RDWC_LOCKS_HELP: &str = "number of local locks for shared gets, and as many for shared writes";

/// Returns the registry of the shipped indexes: Sherman, SMART, CHIME and Dolphin, each with its variants.
pub fn shipped() -> Registry {
    Registry::new()
        .with(sherman_entry::entry())
        .with(smart_entry::entry())
        .with(chime_entry::entry())
        .with(dolphin_entry::entry())
}

/// Returns what clients share in a setting, for an index that shares `own` by itself.
fn sharing(at: &Setting, own: Rdwc) -> Rdwc {
    let mut sharing = at.sharing_or(own);
    if let Some(locks) = at.knobs.get(RDWC_LOCKS) {
        sharing.locks = u32::try_from(locks).unwrap_or(u32::MAX);
    }
    sharing
}

/// Returns whether locks and leaves are asked for in one chain, for a variant that does `own` by itself.
fn lock_and_read(at: &Setting, own: bool) -> bool {
    at.knobs.get(LOCK_AND_READ).map_or(own, |on| on != 0)
}

/// The operations of an average operation of the mix that touch leaves. Operations that clients share cost nothing.
struct Ops {
    gets: f64,
    inserts: f64,
    /// Updates, upserts and removes, and the writing half of a read-modify-write.
    changes: f64,
    scans: f64,
    scan_keys: f64,
}

impl Ops {
    fn of(at: &Setting, counters: &Counters, ops: u64) -> Self {
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

/// Returns the fixed CPU time of an operation, in nanoseconds.
fn cpu_ns(at: &Setting) -> f64 {
    let cpu = at.cpu();
    (cpu.locate.0 + cpu.locate_mean.0 + cpu.search.0) as f64
}

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
