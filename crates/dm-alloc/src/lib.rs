//! Superblock and two-stage allocation over memory nodes.
//!
//! A pool begins with a [`Superblock`] in the reserved page of memory node 0: which index lives here, its root word,
//! where each node's lock table lies. Many clients may create it at once; one does. Blocks come from an
//! [`Allocator`], which fetches chunks from the memory nodes' control plane and cuts them without communication
//! (Sherman §4.2.4).
//!
//! ```text
//!  mn0  │ superblock 4 KiB │ host lock table? │ chunk │ chunk │ …      chip │ lock table? │
//!  mn1  │ (reserved)       │ host lock table? │ chunk │ …              chip │ lock table? │
//! ```
//!
//! # Invariants
//! * **I1** The superblock's state word goes EMPTY → CREATING(client) → READY by CAS alone, or back to EMPTY from
//!   CREATING by its creator. Behind READY nothing of the page changes but the root word.
//! * **I2** No two blocks in use overlap, of whichever compute nodes: chunks are disjoint, and a chunk belongs to
//!   one allocator.
//! * **I3** Memory is type-stable: the address of a block is the address of blocks of its [`Class`] for ever.
//! * **I4** A retired block is handed out only after every operation that began before it was unlinked has ended, on
//!   whichever compute node (`docs/protocol/reclaim.md`).
//!
//! # Example
//! ```
//! use dm_alloc::{Allocator, AllocError, Descriptor, LockPlan, Superblock};
//! use dm_verbs::{Control, RemotePtr, Verbs};
//!
//! /// Opens the pool, creating it if need be, and makes a root if it has none.
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
//! Chunks never go back to their memory node. A creator that dies between CREATING and READY leaves the pool stuck:
//! the others end in [`AllocError::CreationStuck`], which names it. A compute node that dies takes what it had free or
//! retired along.
#![forbid(unsafe_code)]

mod allocator;
mod block;
mod depot;
mod error;
mod limbo;
mod members;
mod page;
mod pool;
mod reclaim;
mod superblock;

pub use allocator::{AllocStats, Allocator, DEFAULT_CHUNK_BYTES};
pub use block::{Block, Class};
pub use error::AllocError;
pub use limbo::Limbo;
pub use members::MemberArea;
pub use page::{FORMAT_VERSION, MEMORY_NODES_MAX};
pub use reclaim::{DEFAULT_OPERATIONS, DEFAULT_PERIOD, ReclaimFlaws, ReclaimOptions};
pub use superblock::{CREATE_BUDGET, DEFAULT_LOCKS_PER_NODE, Descriptor, LockHome, LockPlan, Superblock};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
