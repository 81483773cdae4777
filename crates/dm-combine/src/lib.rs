//! Read delegation and write combining (SMART §4.2, RDWC): clients of a compute node that want the same key at the same
//! time do it once.
//!
//! [`Combined`] wraps one client of any index and is itself a `RangeIndex`; the [`Combiner`] behind it holds the local
//! locks that all clients of the compute node share. Of those who come for one key, one **leads** and does the
//! operation; those who gather meanwhile are the next **epoch**, and one of them does it for all.
//!
//! ```text
//!  client 1   get k ──▶ leads ─────READ─────▶ answers
//!  client 2     get k ──▶ gathers ···········▶ elected, leads ─────READ─────▶ answers
//!  client 3         get k ──▶ gathers ···········································▶ told
//!  client 4                                        get k ──▶ gathers ·············▶ elected …
//!                          epoch 1           │ sealed        epoch 2         │ sealed
//! ```
//!
//! Nobody joins an operation that is under way (client 4 must not have what a READ saw before it came), and a leader
//! writes its own value, never one that somebody left for it: the published design does the opposite of both, and loses
//! writes (T-R1), writes values under another's key (T-R2), and answers what is out of date (T-R3).
//!
//! # Invariants
//! * **I1** A lock is held for one key at a time; for whoever wants another one of the same hash it does not exist.
//! * **I2** A leader closes its epoch before its operation begins. Its followers all came before that, and have not
//!   returned: its operation's moment is within each of theirs.
//! * **I3** What is written is the leader's value, once. A leader that goes away, or fails, leaves nothing of anybody else's
//!   half done.
//! * **I4** Each follower is told, or goes on, whatever becomes of its leader; a follower that goes away leaves nothing
//!   behind.
//! * **I5** In the steady state nothing is allocated.
//!
//! The rules behind them, and the moments at which operations take effect, are `docs/protocol/combine.md`.
//!
//! # Example
//! ```
//! use dm_combine::{Combined, Combiner, Rdwc};
//! use dm_index::{Applied, IndexError, Key8, RangeIndex};
//! use dm_verbs::Env;
//!
//! /// Sets a key from one of the clients of a compute node.
//! async fn set<V: Env, I: RangeIndex<Key = Key8>>(
//!     v: &V,
//!     index: I,
//!     table: &Combiner<Key8>,
//! ) -> Result<Applied, IndexError> {
//!     let client = Combined::new(v, index, Some(table));
//!     client.upsert(&Key8(7), b"sevenish").await
//! }
//! let table = Combiner::<Key8>::new(&Rdwc { locks: 128, ..Rdwc::ON });
//! assert!(table.bytes() < 32 << 10);
//! ```
//!
//! # Limits
//! An operation that is neither polled nor dropped holds up all that gather behind it, as a lock would. A pair of
//! operations shares nothing, for the second came too late: it takes three. Writes gather while another write of their
//! key is under way, and not while their leader waits for a remote lock: that would take the index's help.
#![forbid(unsafe_code)]

mod as_published;
mod combined;
mod lanes;
mod options;
mod rules;
mod shard;
mod waiters;

pub use combined::{Combined, Combiner};
pub use options::{DEFAULT_LOCKS, Rdwc, RdwcFlaws};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
