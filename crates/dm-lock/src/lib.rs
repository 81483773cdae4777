//! Locks on disaggregated memory: lock words, global and local lock tables, handover, lock-and-read, lock sets.
//!
//! These are hierarchical on-chip locks (Sherman §4.3). A node's lock word lies on the node's own memory node, usually
//! in on-chip memory. Clients of one compute node queue locally first, and hand the remote lock over to each other. The
//! lock word names the holder's member, so that others can free the locks of a dead member.
//!
//! ```text
//!  client ──acquire──▶ local table ──turn──▶ CAS [+ READ] ──▶ lock word on the memory node
//!                      (FIFO queue)          one chain             │
//!  client ◀──hand over, after the write-back completed──           │
//!         ──[WRITE data … + unlock] one chain ────────────────────▶│
//! ```
//!
//! # Invariants
//! * **I1** While a client holds a lock, no other client's CAS on the lock succeeds. The only exception: recovery
//!   frees the locks of a member that was expelled and fenced.
//! * **I2** A holder's chains have completed before the lock is handed to another client of its compute node.
//! * **I3** If a future or guard is dropped at any await, the local turn is passed on, and the lock becomes free unless
//!   the connection is lost.
//! * **I4** In a local queue ([`Local::Queue`]), turns are first come, first served. No client overtakes a queue.
//! * **I5** An acquisition changes neither the payload nor the release count of the word, except for the payload bit
//!   that says whether the holder lets other clients share the lock.
//! * **I6** No client holds a lock alone while other clients share it, and no client shares a lock that another client
//!   holds alone. A client can also hold a lock beside sharers ([`Guard::beside_sharers`]), and then excludes only
//!   other holders. A share is never released twice.
//!
//! `docs/protocol/lock.md` has the rules behind these invariants, and the promises of the RNIC on which each rule
//! relies.
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
//! If a client dies while it holds a lock, the lock becomes free when the other members of the pool have expelled its
//! compute node (`docs/protocol/recovery.md`). This needs [`Locks::in_roster`]. Without it the lock stays held, and the
//! operations of other clients fail with [`LockError::Held`], which names the place and the owner. The release count
//! wraps at 256. A client that waits for a lock while it holds one with a larger [`LockId`] can deadlock: use
//! [`Locks::lock_set`] for several locks.
#![forbid(unsafe_code)]

mod acquire;
mod cell;
mod error;
mod global;
mod guard;
mod hints;
pub mod local;
mod locks;
mod options;
mod packed;
mod set;
mod shard;
mod share;
#[cfg_attr(
    not(feature = "study"),
    expect(unreachable_pub, reason = "public only with the feature `study`")
)]
mod study;
mod word;

pub use acquire::{Attempt, Attempted, Obstacle};
pub use error::LockError;
pub use global::{DEFAULT_LOCKS_PER_NODE, GlobalLockTable, LockId};
pub use guard::{Guard, Unlocking, Wanted};
pub use local::LocalLockTable;
pub use locks::Locks;
pub use options::{DEFAULT_BUDGET, DEFAULT_HANDOVER_MAX, Local, LockOptions, LockPlace, ReleaseBy};
pub use set::SetGuard;
pub use share::Share;
#[cfg(feature = "study")]
pub use study::LockFlaws;
pub use word::{CLIENTS_MAX, DOUBT, LockWord, pictures};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
