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
//! * **I1** A chain is one posted list of work requests, and the last one is signalled. Chains that find no room wait
//!   in the order of their doorbells; the thread posts them when it polls the completion queue.
//! * **I2** A chain's buffers belong to the card until the chain's last completion, so dropping a ticket does not free
//!   them. If this completion never arrives, they are not used again.
//! * **I3** The id of a completion contains the generation of its chain, so that a late completion is not taken for
//!   one of another chain.
//! * **I4** Memory is registered with explicit access flags, never with relaxed ordering: data that is posted first is
//!   placed first.
//! * **I5** A request that the peer would refuse is refused before it is sent, because otherwise the queue pair would
//!   break.
//!
//! # Capabilities
//! The capabilities of this world are the sizes that the device and the nodes report. No card promises an order or
//! whole lines, so 64-byte lines may tear, a READ may overtake a CAS before it, and atomics may race with WRITEs.
//! [`Builder::assume`] adds capabilities for which the user vouches, and [`Ib::promises`] shows them. The verbs have no
//! masked atomics, so this world never has them, and [`dm_verbs::masked_cas`] emulates a masked CAS.
//!
//! # Effects of errors
//! If a peer does not answer, a chain fails with `ConnectionLost` after about half a second ([`Builder::patience`]),
//! and its effect is unknown. Later chains are refused as `Unreachable`, without effect. Other memory nodes are not
//! affected. Requests that were in flight may still take effect until the client is fenced, or until
//! [`Thread::reconnect`] has succeeded, because the memory node shuts the old queue pair before it lets the client
//! continue. [`Thread::reconnect`] succeeds if the link was cut and the node has kept its memory. It fails with
//! [`IbError::Restarted`] if the memory is lost.
//!
//! If the completion queue cannot be polled, no completion of the thread arrives any more. All chains in flight then
//! fail with `ConnectionLost`, and their effect is unknown. Chains that wait and later chains are refused as
//! `Unreachable`, and [`Thread::reconnect`] fails with [`IbError::CompletionQueue`], which says why.
//!
//! # Example
//! The README begins with an example of a memory node and a client.
//!
//! # Unsafe
//! Calls of libibverbs are unsafe, and so are accesses to memory that a card writes. Only the module `ffi` contains
//! unsafe code; its documentation lists the guarantees on which the other modules rely.
//!
//! # Limits
//! * This crate needs little-endian machines. READs and WRITEs have at most 1 MiB.
//! * A control request blocks its whole thread until the answer arrives. A memory node has 2 seconds to answer. Fences
//!   and enlistments are sent to every memory node, one after the other.
//! * Fencing a client shuts the queue pairs of its thread, and so also stops the other clients of the thread.
//! * A node lends on-chip memory if the device has some. On-chip memory and the encoding of masked atomics in [`mlx5`]
//!   were **not run on hardware**. Everything else was run on soft-RoCE (`cargo xtask rxe`).
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
