//! B-link inner levels: from a key to its leaf, over any node store.
//!
//! [`Blink`] is a [`dm_index::Inner`]. Its nodes are a [`dm_index::NodeStore`] whose values are [children](dm_index::Child),
//! so inner nodes are read, locked, written and split by the very protocol of the leaves (Lehman & Yao's
//! tree: fences and sibling pointers make every half-finished split navigable). What is left for this crate is the
//! way down, the root, and the order in which a split goes up.
//!
//! ```text
//!   root word (superblock) ──► root ──► … ──► level 1 ──► leaf
//!                               │              │
//!                        pinned in the cache   cached by key range
//! ```
//!
//! # Invariants
//! * **I1** The root word changes by CAS only: 0 → first leaf → roots of growing level, each the leftmost node of
//!   its level when it becomes root. It holds the root's level too, so that nobody reads a leaf as an inner node.
//! * **I2** The first entry of an inner node has the node's low fence as its key: every key inside the fences has a
//!   child.
//! * **I3** A separator goes up only after the split below it has landed. Until then, and if its writer dies, the
//!   right node is reached over the sibling pointer.
//! * **I4** Cached images are hints: nodes prove by fences and level that they are the ones meant.
#![forbid(unsafe_code)]

mod blink;
mod descend;
mod fingerprint;
mod grow;
mod root;
mod shrink;

pub use blink::{Blink, BlinkOptions, Proof};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
