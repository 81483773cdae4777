//! The seam: the traits through which index code accesses remote memory and its environment.
//!
//! A *world* (in-process memory, a simulated RNIC, an explorer, libibverbs) implements the small, poll-level
//! traits [`Transport`], [`Env`] and [`Control`]. Index code uses the types that this crate builds on these
//! traits: [`Chain`]s of requests to one memory node behind one doorbell, [`Ticket`]s that separate posting
//! from waiting, bounded [`Retry`] loops, typed errors that say whether a failed verb had an [`Effect`], and
//! a [`Meter`] that counts verbs, bytes, doorbells and round trips the same way in every world.
//!
//! ```text
//!  index code      v.chain(n).cas(lock, 0, me).read(leaf, 1024).post()      async, generic, statically dispatched
//!  ───────────────────────────────────────────────────────────────────────────────────────────────────────────
//!  dm-verbs        Chain → Ticket → Result<(Old, Lease), VerbError>           futures, meter, rules as types
//!  ───────────────────────────────────────────────────────────────────────────────────────────────────────────
//!  a world         open · push · ring · poll_chain · take · close             one queue pair per (client, node)
//! ```
//!
//! # Invariants
//! * **I1** A chain whose doorbell was rung progresses whether or not the client polls again. Its requests take effect
//!   in posting order, except that an unfenced WRITE may overtake earlier READs and atomics ([`Chain::fence`]), and
//!   except where its connection's [`Caps`] promise less: [`Caps::cas_then_read`], [`Caps::host_before_chip`], and
//!   [`Caps::read_lines`] for READs among themselves.
//! * **I2** Payloads are copied at `push`, and a READ's buffer belongs to the transport until its lease is dropped. So
//!   dropping any future or ticket is safe at any await.
//! * **I3** Later requests of a chain run even if an earlier CAS fails. So after a CAS whose success matters only
//!   READs may follow, and the type of [`Chain`] enforces this ([`Gated`]).
//! * **I4** If the chain of a dropped ticket fails, the client's next [`Verbs::operation`] returns the error; of
//!   several such errors, it returns the first.
//! * **I5** If a chain failed with [`Effect::Unknown`], its requests may take effect at any later time, or never.
//!   After a later request of the same client to the same memory node has taken effect, none of them does.
//!
//! # Example
//! Index code, generic over the world:
//! ```
//! use dm_verbs::{RemotePtr, Verbs, VerbError};
//!
//! /// Adds one to a word in two round trips. Returns `false` if another client changed it in between.
//! async fn add_one<V: Verbs>(v: &V, at: RemotePtr) -> Result<bool, VerbError> {
//!     let old = v.word(at).await?;
//!     Ok(v.cas(at, old, old + 1).await? == old)
//! }
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod addr;
mod caps;
mod chain;
mod control;
mod env;
mod error;
mod masked;
mod meter;
mod outputs;
mod retry;
#[cfg(feature = "testing")]
pub mod testing;
mod ticket;
pub mod trace;
mod verbs;
mod wqe;

pub use addr::{ChipPtr, LINE, NodeId, Place, RemotePtr, Space};
pub use caps::{AtomicUnit, AtomicVsWrite, Capability, Caps, CasThenRead, FailedCas, LineOrder, Refused};
pub use chain::{Chain, Gated, Open};
pub use control::{
    CallState, Control, ControlCall, ControlError, ControlReply, ControlRequest, Membership, RESERVED_BYTES,
    Region,
};
pub use env::{Attempts, Charge, ClientId, Env, LocalStep, Nanos, Pause, Step};
pub use error::{Effect, VerbError, VerbErrorKind};
pub use masked::{MaskedCas, MaskedCasError, masked_cas};
pub use meter::{Counters, Event, Housekeeping, Meter};
pub use outputs::{Bytes, Many, Marker, Old, Outcomes, Outputs, Then};
pub use retry::{Exhausted, Retry, Why};
pub use ticket::Ticket;
pub use verbs::{Operation, Transport, Verbs};
pub use wqe::{Op, Outcome, Slot, Wqe};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
