//! Superblock and two-stage allocation over memory nodes.
//!
//! A pool begins with a [`Superblock`] in the reserved page of memory node 0. The superblock stores the kind of index
//! in the pool, the index's root word, and the place of each memory node's lock table. If many clients create a pool at
//! once, one of them creates it and the others wait. Blocks come from an [`Allocator`], which fetches chunks from the
//! memory nodes' control plane and cuts them into blocks without communication (Sherman §4.2.4).
//!
//! ```text
//!  mn0  │ superblock 4 KiB │ host lock table? │ chunk │ chunk │ …      chip │ lock table? │
//!  mn1  │ (reserved)       │ host lock table? │ chunk │ …              chip │ lock table? │
//! ```
//!
//! # Invariants
//! * **I1** The superblock's state word changes by CAS alone: EMPTY → CREATING(client) → READY, or from CREATING back
//!   to EMPTY, by the creator. After READY, only the root word of the page changes.
//! * **I2** Blocks in use never overlap, whichever compute nodes allocated them, because chunks are disjoint and one
//!   allocator cuts each chunk.
//! * **I3** Memory is type-stable: only blocks of the same [`Class`] ever start at a block's address.
//! * **I4** A retired block is handed out only when every operation that began before the block was unlinked has
//!   ended, on every compute node (`docs/protocol/reclaim.md`).
//! * **I5** The slot of a dead member becomes free only after two steps: the member is fenced at every memory node,
//!   and then its locks in the pool's tables are freed (`docs/protocol/recovery.md`).
//!
//! # Example
//! ```
//! use dm_alloc::{Allocator, AllocError, Descriptor, LockPlan, Superblock};
//! use dm_verbs::{Control, RemotePtr, Verbs};
//!
//! /// Opens the pool, or creates it, and makes a root if the pool has none.
//! async fn start<V: Verbs + Control>(v: &V, shared: &Allocator) -> Result<RemotePtr, AllocError> {
//!     let sb = Superblock::create_or_open(v, &Descriptor::of(b"demo", [1024])).await?;
//!     let root = shared.alloc(v, 1024, Some(sb.root_word)).await?;
//!     match v.cas(sb.root_word, 0, root.raw()).await? {
//!         0 => Ok(root),
//!         other => {
//!             shared.free_unpublished(root, 1024);
//!             Ok(RemotePtr::from_raw(other))
//!         }
//!     }
//! }
//! ```
//!
//! # Limits
//! Chunks are never returned to their memory node. If a creator dies between CREATING and READY, the pool is unusable:
//! the other clients get [`AllocError::CreationStuck`], which names the creator. If a compute node dies, its free and
//! its retired blocks are lost until a member takes a [`Census`].
#![forbid(unsafe_code)]

mod allocator;
mod announce;
mod block;
mod census;
mod chunks;
mod depot;
mod error;
mod limbo;
mod lists;
mod members;
mod page;
mod pool;
mod reclaim;
mod superblock;
mod sweep;

pub use allocator::{AllocStats, Allocator, DEFAULT_CHUNK_BYTES};
pub use block::{Block, Class};
pub use census::{Census, CensusStep, Life, Restored};
pub use error::AllocError;
pub use limbo::Limbo;
pub use members::MemberArea;
pub use page::{FORMAT_VERSION, MEMORY_NODES_MAX};
pub use pool::Held;
#[cfg(feature = "study")]
pub use reclaim::ReclaimFlaws;
pub use reclaim::{DEFAULT_OPERATIONS, DEFAULT_PERIOD, Members, PoolBytes, ReclaimOptions, rest};
pub use superblock::{CREATE_BUDGET, DEFAULT_LOCKS_PER_NODE, Descriptor, LockHome, LockPlan, Superblock};
pub use sweep::{Freed, Sweep, Unshared};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
