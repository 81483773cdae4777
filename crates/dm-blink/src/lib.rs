//! B-link inner levels: they lead from a key to its leaf, over any node store.
//!
//! [`Blink`] is a [`dm_index::Inner`]. Its nodes are a [`dm_index::NodeStore`] whose values are
//! [children](dm_index::Child), so the same protocol reads, locks, writes and splits inner nodes and leaves. The tree
//! is Lehman & Yao's: fence keys and sibling pointers let readers pass every unfinished split. This crate adds the
//! descent, the root, and the order in which a split propagates upwards.
//!
//! ```text
//!   root word (superblock) ──► root ──► … ──► level 1 ──► leaf
//!                               │              │
//!                        pinned in the cache   cached by key range
//! ```
//!
//! # Invariants
//! * **I1** The root word changes by CAS only: from 0 to the first leaf or to the root of a bulk load, to a root of the
//!   next level when the root was split, and to the root's only child after merges. Every root is the leftmost node of
//!   its level. The word also holds the root's level, so that no client reads a leaf as an inner node.
//! * **I2** The key of an inner node's first entry is the node's low fence key, so every key within the fences has a
//!   child.
//! * **I3** A separator is inserted only after the WRITEs of the split below it have completed. Until then, and if the
//!   client of the split dies, readers reach the right node through the sibling pointer.
//! * **I4** Cached nodes are hints. The fence keys and the level of a node show whether it is the expected one.
#![forbid(unsafe_code)]

mod blink;
mod descend;
mod fingerprint;
mod grow;
mod root;
mod shrink;
mod survey;

pub use blink::{Blink, BlinkOptions, Proof};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
