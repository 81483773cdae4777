//! Real RDMA verbs: one-sided requests over reliable connected queue pairs of libibverbs, and a memory node.
//!
//! A [`MemoryNode`] lends memory, under the control plane of `dm-control`; an [`Ib`] is a world of such
//! nodes. Each [`Thread`] has a queue pair per memory node and one completion queue, which [`Thread::run`]
//! polls while it runs thousands of coroutines. A coroutine's [`Endpoint`] is its [`Transport`](dm_verbs::Transport),
//! [`Env`](dm_verbs::Env) and [`Control`](dm_verbs::Control).
//!
//! ```text
//!  Endpoint ┐                       ┌─ queue pair ── card ══ card ── queue pair ─┐
//!  Endpoint ┼─ chain ─▶ Thread ─────┤                                            ├─ memory of a MemoryNode
//!  Endpoint ┘    ▲                  └─ TCP: chunks, ids, leases, fences ─────────┘
//!                └── completion of the chain's last request
//! ```
//!
//! # Invariants
//! * **I1** A chain is one posted list of work requests, the last one signalled. Chains that find no room
//!   wait in the order of their doorbells; the thread posts them when it polls the completion queue.
//! * **I2** A chain's buffers belong to the card until its last completion: dropping a ticket frees nothing early.
//! * **I3** The id of a completion contains its chain's generation, so that a late completion is not mistaken
//!   for one of another chain.
//! * **I4** Memory is registered with explicit access flags, never with relaxed ordering: data that is posted
//!   first is placed first.
//! * **I5** A request that the peer would refuse is refused before it is sent, because a queue pair does not
//!   survive that.
//!
//! # What it promises
//! It promises the sizes that the device and the nodes report. It promises nothing about orders: 64-byte
//! lines may tear, a READ may overtake a CAS before it, and atomics may race with WRITEs. [`Builder::assume`]
//! adds capabilities that the user vouches for, and [`Ib::promises`] shows them. Masked atomics have no verb
//! and are never promised: [`dm_verbs::masked_cas`] emulates masked CAS.
//!
//! # Effects of errors
//! If a peer does not answer, a chain fails with `ConnectionLost` after about half a second, and its effect
//! is unknown. Later chains are refused as `Unreachable`, without effect. Other memory nodes are not
//! affected. Requests that were in flight may still land until the client is fenced, or until
//! [`Thread::reconnect`] has succeeded, because the memory node shuts the old queue pair before it lets the
//! client continue. [`Thread::reconnect`] succeeds when the node is back with the same memory after a cut
//! link, and fails with [`IbError::Restarted`] if the memory is lost.
//!
//! # Example
//! The README begins with an example of a memory node and a client.
//!
//! # Unsafe
//! Calls of libibverbs are unsafe, and so are accesses to memory that a card writes. Only the module `ffi`
//! contains unsafe code; it lists what the other modules may rely on.
//!
//! # Limits
//! * It needs little-endian machines. READs and WRITEs have at most 1 MiB.
//! * A control request blocks its whole thread until the answer arrives, for at most 2 seconds.
//! * Fencing a client shuts the queue pairs of its thread, and so those of the thread's other clients.
//! * A node lends on-chip memory if the device has some. On-chip memory and the bytes of masked atomics in
//!   [`mlx5`] were **not run on hardware**. Everything else was run on soft-RoCE (`cargo xtask rxe`).
#![deny(unsafe_code)]

#[cfg(not(target_endian = "little"))]
compile_error!("remote words are little-endian, and cards answer in the machine's order");

mod chains;
mod choice;
mod endpoint;
mod error;
mod executor;
#[expect(unsafe_code, reason = "libibverbs, and memory that cards write")]
mod ffi;
pub mod mlx5;
mod node;
mod rng;
mod thread;
mod wire;
mod world;

pub use choice::DeviceChoice;
pub use dm_control::{Limits as ConnectionLimits, Secret, SecretError};
pub use endpoint::Endpoint;
pub use error::IbError;
pub use ffi::{AtomicScope, DeviceReport, GidReport, Lease, Limits, PortReport, devices};
pub use node::{DEFAULT_LEASE, MemoryNode, NodeBuilder};
pub use thread::Thread;
pub use world::{Builder, DEFAULT_INLINE, DEFAULT_QUEUE_DEPTH, Ib, Promises};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
