//! Read delegation and write combining (SMART §4.2, RDWC): clients of one compute node that use the same key at the
//! same time share one operation on the index.
//!
//! [`Combined`] wraps one client of any index and is itself a `RangeIndex`. The [`Combiner`] behind it holds the
//! local locks that all clients of the compute node share. Of the operations on one key, one **leads**: it runs on
//! the index. The operations that gather meanwhile form the next **epoch**, and one of them runs for all of them.
//!
//! ```text
//!  client 1   get k ──▶ leads ─────READ─────▶ answers
//!  client 2     get k ──▶ gathers ···········▶ elected, leads ─────READ─────▶ answers
//!  client 3         get k ──▶ gathers ···········································▶ told
//!  client 4                                        get k ──▶ gathers ·············▶ elected …
//!                          epoch 1           │ sealed        epoch 2         │ sealed
//! ```
//!
//! No operation joins one that has already begun on the index: client 4 must not get a value from a READ that was
//! posted before client 4 began its operation. A leader writes its own value, never a value that another client has
//! left for it. The published design does the opposite in both cases, and therefore loses writes (T-R1), writes a value
//! under another key (T-R2), and returns outdated values (T-R3).
//!
//! # Invariants
//! * **I1** A lock is held for one key at a time. An operation that finds the lock held for another key runs as if
//!   there were no lock.
//! * **I2** A leader closes its epoch before its operation begins. All its followers began before that, and return
//!   after the leader's operation has ended. So the moment at which the leader's operation takes effect lies within the
//!   operation of each follower.
//! * **I3** A leader runs its own operation on the index, once. If a leader is dropped or fails, no other client's
//!   operation is left half done.
//! * **I4** Each follower gets a result or runs its own operation, whatever happens to its leader. A follower that is
//!   dropped has no further effect.
//! * **I5** In the steady state nothing is allocated.
//!
//! `docs/protocol/combine.md` has the rules behind these invariants, and the moments at which operations take effect.
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
//! An operation that is neither polled nor dropped blocks all operations that wait behind it, as a held lock would. Two
//! concurrent operations share nothing, because the second one begins too late to join the first; sharing needs three.
//! Writes gather while another write of their key is in progress. They cannot join that write, even while it waits for
//! a remote lock. Joining it would need support from the index.
#![forbid(unsafe_code)]

mod as_published;
mod combined;
mod lanes;
mod options;
mod rules;
mod shard;
#[cfg_attr(
    not(feature = "study"),
    expect(unreachable_pub, reason = "public only with the feature `study`")
)]
mod study;
mod waiters;

pub use combined::{Combined, Combiner};
pub use options::{DEFAULT_LOCKS, Rdwc};
#[cfg(feature = "study")]
pub use study::RdwcFlaws;

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
