//! Learned inner levels: they lead from a key to its leaf by linear models, over any node store.
//!
//! [`Learned`] is a [`dm_index::Inner`]. Memory nodes hold a *table*: the low fence key and the address of each leaf,
//! in order. A compute node reads the table once, and trains [`Models`] that predict the position of a key in it. There
//! are no inner nodes, so an operation whose leaf is predicted reads only leaves.
//!
//! ```text
//!   key ──► models ──► position ± error ──► low fence key, address ──► leaf ──► right neighbour, …
//!           └───── a compute node's copy of the table ─────┘            └── after splits
//! ```
//!
//! A table never changes. Splits and merges change only the leaves, and each compute node remembers the new leaves that
//! it finds. In a housekeeping visit, a compute node reads all leaves, writes another table, and makes the root word
//! lead to it. As published for ROLEX, the models predict a *run* of leaves instead of one ([`Predicts::Run`]).
//! [`Runs`] reads all leaves of a run, with one doorbell for each memory node.
//!
//! The rules are in `docs/protocol/rolex.md`.
//!
//! # Invariants
//! * **I1** The root word changes by CAS only: from 0 to the first leaf or to a table, from the first leaf to a table,
//!   and from one table to the next.
//! * **I2** A table is complete in memory before the root word leads to it, and is read only by operations that began
//!   before it was replaced.
//! * **I3** Entries and predictions are hints. The fence keys of a leaf show whether it is the key's leaf.
#![forbid(unsafe_code)]

mod known;
mod learned;
mod models;
mod publish;
mod runs;
#[cfg_attr(
    not(feature = "study"),
    expect(unreachable_pub, reason = "public with the feature `study` alone")
)]
mod study;
mod table;
mod walk;

pub use known::LeafHint;
pub use learned::{DEFAULT_ERROR, Learned, LearnedOptions, Predicts};
pub use models::Models;
pub use runs::Runs;
#[cfg(feature = "study")]
pub use study::Flaws;

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
