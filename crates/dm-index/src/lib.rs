//! The range index trait, and the interface between the two parts of an index.
//!
//! An index on disaggregated memory has two parts. The **inner structure** ([`Inner`]) finds the leaf of a key. The
//! **nodes** hold the entries. A client locks, reads and splits nodes one by one ([`NodeAccess`] for single keys,
//! [`NodeStore`] for whole nodes). [`Composed`] combines any inner structure with any nodes, and is a [`RangeIndex`].
//!
//! ```text
//!             locate(key) ──────────────► leaf address + proof
//!  Composed                                     │
//!             node.write(leaf, key, …) ◄────────┘
//!                 │
//!                 ├─ Done(result)
//!                 ├─ Split(result, new leaf) ─────────► inner.install(new leaf)
//!                 ├─ Sparse(result) ──────────────────► inner.shrink(key): merges
//!                 └─ Stale(go right | elsewhere) ─────► inner.stale(proof), then retry
//! ```
//!
//! # Invariants
//! * **I1** A node returns a result only for keys between its fence keys, and [`Stale`] for other keys. So a
//!   wrong cached address never causes a wrong result.
//! * **I2** A node's entries change only under its lock, or under a share of its lock. Entries that moved to a sibling
//!   can be reached through the sibling pointer before the parent has an entry for the sibling.
//! * **I3** No key and no value is reserved.
//! * **I4** An operation returns only after every chain that its result depends on has completed.
#![forbid(unsafe_code)]

mod child;
mod composed;
mod error;
mod fill;
mod gather;
mod hops;
mod joint;
mod range_index;
mod run;
mod scan;
mod sparse;
mod store;
mod survey;
mod words;

pub use child::{
    CHILD_BYTES, CHILD_NODES_MAX, Child, NEAR_CHILD_BYTES, NEAR_CHILD_NODES_MAX, NEAR_CHILD_REACH,
    NEAR_CHILD_UNIT,
};
#[cfg(feature = "study")]
pub use composed::Flaws;
pub use composed::{Composed, ComposedOptions, CpuCost, SCAN_BATCH, end_operation};
pub use error::{IndexError, LockFault};
pub use fill::Fill;
pub use gather::gather;
pub use hops::{HOPS_FREE, Hops};
pub use joint::{
    Answer, Created, Inner, Lead, Located, Merge, Neighbours, NodeCopy, OldValue, Split, Stale, Tended, Write,
};
pub use range_index::{Applied, Exchange, RangeIndex};
pub use run::Run;
pub use scan::Scan;
pub use sparse::{Approach, KeyBound, merge_sparse};
pub use store::{BulkLoad, NodeAccess, NodeCopies, NodeStore, Reclaim, Restructure};
pub use survey::{
    Condition, Finding, Flaw, Inspected, LevelCount, Listing, Referred, Survey, is_nowhere, survey_index,
    survey_leaves, survey_level,
};
pub use words::Words;

pub use dm_layout::{FenceKeys, Fullness, KEY_BYTES_MAX, Key8, KeyBytes, KeyN};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
