//! Adaptive radix inner levels on disaggregated memory (SMART, TOS 2024 §4), over any leaves of one entry.
//!
//! The clients of a compute node share an [`Art`]. An [`ArtClient`] is one of them, and is a [`dm_index::RangeIndex`].
//! Inner nodes are lock-free, because a slot is one word and clients change it by CAS only. With
//! [`Art::with_node_locks`], a client also holds the node's lock during the CAS (ROWEX). Leaves are a [`SingleStore`].
//! An update writes a leaf in place under its lock, or replaces it by another leaf ([`SingleOptions::in_place`]).
//!
//! ```text
//!   root (direct, 256 slots)
//!    │ byte 0
//!    ├─────────▶ node: header 1..3, branches at byte 3 ──▶ leaf     a leaf split puts a node above a leaf,
//!    │              └────▶ node: branches at byte 5 ──▶ …           a header split one above a node,
//!    └─────────▶ leaf                                              a renewal replaces a node, often by a copy
//! ```
//!
//! [`Separators`] use the tree as an inner structure over leaves of many keys ([`dm_index::Inner`]): each entry has a
//! leaf's low fence key and its address.
//!
//! # Invariants
//! * **I1** A node's prefix, branch, type and identity never change. Its header may be extended to contain more bytes
//!   of the prefix.
//! * **I2** Once a slot has a key byte, the key byte never changes. The slots of a node are filled in order. In a node
//!   of 256 slots, each key byte has a slot of its own instead.
//! * **I3** A node is replaced, merged or removed only after all its slots are frozen. Every later CAS on one of them
//!   fails.
//! * **I4** A key has at most one live leaf. A leaf that was removed or replaced never becomes live again.
//! * **I5** Only a leaf proves that a key is present. A link that was read within the operation, or the link depth of
//!   another key's leaf, can prove that a key is absent.
//!
//! The rules are in `docs/protocol/smart.md`; the code cites its MUSTs.
//!
//! # Limits
//! A scan reads the nodes on its path even if they are cached. There can be at most 256 memory nodes. If memory is
//! reused, a cached node is read again after at most two turns of the cache ([`ArtOptions::turn`]).
#![forbid(unsafe_code)]

mod art;
mod block;
mod errors;
mod floor;
mod get;
mod load;
mod locate;
mod node_lock;
mod options;
mod presence;
mod publish;
mod remove;
mod renew;
mod replace;
mod scan;
mod separators;
mod shrink;
mod single_store;
mod singles;
mod skipped;
#[cfg_attr(
    not(feature = "study"),
    expect(unreachable_pub, reason = "public only with the feature `study`")
)]
mod study;
mod survey;
mod walk;
mod warm;
mod write;

pub use art::{Art, ArtClient};
pub use dm_cache::PrefixIndex;
pub use options::{
    ArtOptions, Compression, DEFAULT_ATTEMPTS, DEFAULT_CACHE_BYTES, DEFAULT_DEPTH_SLACK, DEFAULT_TURN,
};
pub use separators::{DEFAULT_RUN, SeparatorOptions, SeparatorProof, Separators};
pub use single_store::{Single, SingleStore};
pub use singles::{SingleOptions, Singles};
#[cfg(feature = "study")]
pub use study::{ArtFlaws, SingleFlaws};
pub use survey::SingleSeen;

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
