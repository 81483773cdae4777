//! Adaptive radix inner levels on disaggregated memory (SMART, TOS 2024 §4), over any leaves of one entry.
//!
//! [`Art`] is what the clients of a compute node share, an [`ArtClient`] is one of them and a
//! [`dm_index::RangeIndex`]. Inner nodes are lock-free: each slot is a word that only CAS changes. Leaves are a
//! [`dm_index::SingleStore`] and lock themselves.
//!
//! ```text
//!   root (direct, 256 slots)
//!    │ byte 0
//!    ├─────────▶ node: header 1..3, branches at byte 3 ──▶ leaf     a leaf split puts a node above a leaf,
//!    │              └────▶ node: branches at byte 5 ──▶ …           a header split one above a node,
//!    └─────────▶ leaf                                              a renewal takes a node's place by a copy of it
//! ```
//!
//! [`Separators`] make the tree an inner structure over leaves of many keys ([`dm_index::Inner`]): its entries say where each
//! leaf begins.
//!
//! # Invariants
//! * **I1** A node's prefix, branch, type and identity never change; its header only says more of the prefix.
//! * **I2** A slot that had a key byte keeps it. Slots of a node are filled in order, or each at its byte's place.
//! * **I3** A node changes size, shrinks or goes away only frozen: every word of it refuses every CAS from then on.
//! * **I4** A key has one live leaf at most; a leaf that is not live never is again.
//! * **I5** Present is proved by the leaf alone, absent by a link that was read within the operation, or by the leaf's
//!   link depth.
//!
//! The rules are `docs/protocol/smart.md`; the code cites its MUSTs.
//!
//! # Limits
//! A scan reads the nodes on its way, cached or not. At most 256 memory nodes. Where memory is used again, a node is read anew
//! two turns of the cache ([`ArtOptions::turn`]) after it was read.
#![forbid(unsafe_code)]

mod art;
mod block;
mod errors;
mod floor;
mod get;
mod load;
mod locate;
mod options;
mod presence;
mod publish;
mod remove;
mod renew;
mod scan;
mod separators;
mod shrink;
#[cfg_attr(
    not(feature = "study"),
    expect(unreachable_pub, reason = "public with the feature `study` alone")
)]
mod study;
mod walk;
mod warm;
mod write;

pub use art::{Art, ArtClient};
pub use options::{ArtOptions, DEFAULT_ATTEMPTS, DEFAULT_CACHE_BYTES, DEFAULT_DEPTH_SLACK, DEFAULT_TURN};
pub use separators::{DEFAULT_RUN, SeparatorOptions, SeparatorProof, Separators};
#[cfg(feature = "study")]
pub use study::ArtFlaws;

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
