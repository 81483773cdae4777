//! Locks on disaggregated memory: lock words, global and local lock tables, handover, lock-and-read, lock sets.
//!
//! Hierarchical on-chip locks (Sherman §4.3) with room for recovery: a node's lock word lies on the node's own
//! memory node, in the NIC's memory where there is some; clients of one compute node queue locally first, and hand
//! the remote lock on among themselves.
//!
//! ```text
//!  client ──acquire──▶ local table ──turn──▶ CAS [+ READ] ──▶ lock word on the memory node
//!                      (FIFO queue)          one chain             │
//!  client ◀──hand over, after the write-back completed──           │
//!         ──[WRITE data … + unlock] one chain ────────────────────▶│
//! ```
//!
//! # Invariants
//! * **I1** Between taking a lock and the unlock that a holder posts, no other client's CAS on it succeeds.
//! * **I2** A holder's chains have completed before another client of its compute node is handed the lock.
//! * **I3** Dropping any future or guard, at any await, leads to the lock being free and the local turn passed on.
//! * **I4** Local turns go first come, first served; no newcomer overtakes a queue.
//! * **I5** Acquiring changes neither payload nor release count of the word.
//! * **I6** While somebody shares a lock nobody has it alone, and the other way round; a share is given back once.
//!
//! The rules behind them, and the promises of the RNIC that each leans on, are `docs/protocol/lock.md`.
//!
//! # Example
//! ```
//! use dm_lock::{LockError, Locks};
//! use dm_verbs::{RemotePtr, Verbs};
//!
//! /// Adds one to the counter at the start of a 64-byte node: two round trips.
//! async fn add_one<V: Verbs>(v: &V, locks: &Locks, node: RemotePtr) -> Result<u64, LockError> {
//!     let (guard, bytes) = locks.lock_and_read(v, node, node, 64).await?;
//!     let mut count = [0; 8];
//!     count.copy_from_slice(&bytes[..8]);
//!     let count = u64::from_le_bytes(count) + 1;
//!     guard.write_back(v.chain(node.node()).write_word(node, count)).await?;
//!     Ok(count)
//! }
//! ```
//!
//! # Limits
//! A client that dies holding a lock leaves it held: others end in [`LockError::Held`], which names the place and
//! the owner. Taking over (after `fence`) has its room in the word, and is not here yet. The release count wraps at
//! 256. A client that waits for a lock while it holds a larger one can deadlock: take sets.
#![forbid(unsafe_code)]

mod acquire;
mod cell;
mod error;
mod global;
mod guard;
mod hints;
mod local;
mod locks;
mod options;
mod packed;
mod set;
mod shard;
mod share;
mod word;

pub use error::LockError;
pub use global::{DEFAULT_LOCKS_PER_NODE, GlobalLockTable, LockId};
pub use guard::{DOUBT, Guard};
pub use local::{Acquire, AlreadyHeld, Arrival, Handed, LocalLockTable, Orphan, Turn};
pub use locks::Locks;
pub use options::{
    DEFAULT_BUDGET, DEFAULT_HANDOVER_MAX, Local, LockFlaws, LockOptions, LockPlace, ReleaseBy,
};
pub use set::SetGuard;
pub use share::Share;
pub use word::{CLIENTS_MAX, LockWord, pictures};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
