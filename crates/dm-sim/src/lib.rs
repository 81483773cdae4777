//! A deterministic simulated testbed: hundreds of clients, RDMA cards and memory nodes on a virtual clock. It
//! implements the traits of `dm-verbs`.
//!
//! A simulation runs on one thread, in virtual time of picoseconds, and its seed determines the whole run. The presets
//! of `CostModel` are **models** of ConnectX cards, calibrated on the micro-benchmarks of the Sherman, SMART and CHIME
//! papers. README.md lists the figures that they reproduce, and those that they do not.
//!
//! ```text
//!  client task ── CPU, doorbell ──▶ requester ──▶ link ──▶ responder ──▶ atomic bucket ──▶ PCIe ──▶ memory
//!   (several        thread shared     16.7 ns               9–150 ns      a busy one stops          changes here,
//!    per thread)    by coroutines     a message             a request     the whole responder       and only here
//! ```
//!
//! A READ or WRITE of several 64-byte lines may tear: it moves in two steps (of words instead of lines, and in any
//! order, if [`CostModel::caps`] says so). Requests of one queue pair are reordered only as far as `caps` allows;
//! requests of different queue pairs have no order. If a node is cut off, later requests are lost, and so are the
//! responses to earlier ones. If a client crashes, the requests whose doorbell it has already rung still proceed.
//!
//! # Invariants
//! * **I1** Memory changes at a request's own event, in the real order of arrival, and never when the request
//!   is posted.
//! * **I2** The same code, model and seed give the same [`Sim::digest`], on any machine and with either
//!   [`QueueKind`].
//! * **I3** A chain whose doorbell was rung completes whether or not it is polled. Dropping a task never leads to a
//!   write into freed memory, because the buffers belong to the simulation.
//! * **I4** Verbs do not allocate memory after the pools have grown to the number of requests in flight.
//!
//! # Example
//! ```
//! use dm_sim::{CostModel, RunEnd, Sim};
//! use dm_verbs::{NodeId, RemotePtr, Verbs, Env, Nanos};
//!
//! let sim = Sim::builder(CostModel::cx5_ib()).compute_nodes(2).seed(7).build()?;
//! for cn in 0..2 {
//!     sim.spawn(cn, 0, |v| async move {
//!         let word = RemotePtr::new(NodeId(0), 4096).expect("in range");
//!         let before = v.now();
//!         v.faa(word, 1).await.expect("the node is up");
//!         assert!(v.now() - before > Nanos(2_000), "a round trip of some 2 µs");
//!     });
//! }
//! assert_eq!(sim.run(), RunEnd::Finished);
//! assert_eq!(sim.memory_nic(NodeId(0)).atomics, 2);
//! # Ok::<(), dm_sim::BuildError>(())
//! ```
//!
//! # Unsafe
//! The only unsafe code is one prefetch instruction, in `prefetch`. Memory is plain bytes: the simulation is
//! single-threaded, and `Sim` and `Endpoint` are not `Send`.
#![deny(unsafe_code)]

mod bound;
mod builder;
mod busy;
mod chain;
mod control;
mod endpoint;
mod engine;
mod lease;
mod memory;
mod model;
mod nic;
#[expect(unsafe_code, reason = "the cache hint has no safe form")]
mod prefetch;
mod queue;
mod request;
mod rng;
mod server;
mod sim;
mod stalls;
mod status;
mod tasks;

pub use bound::{Bound, Demand, MixDemand, Resource, Side, Testbed, VerbKind};
pub use builder::{BuildError, DEFAULT_MEMORY_BYTES, SimBuilder};
pub use busy::{Busy, BusyTimes};
pub use endpoint::Endpoint;
pub use lease::Lease;
pub use model::{CostModel, Parameter, Provenance, Tearing};
pub use nic::NicCounters;
pub use queue::QueueKind;
pub use sim::{RunEnd, Sim, TaskId};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
