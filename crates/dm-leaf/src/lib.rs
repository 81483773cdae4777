//! Nodes of a tree on disaggregated memory: read without locks, written under one, split and merged without
//! losing a reader.
//!
//! [`Nodes`] is a [`dm_index::NodeStore`] over any [`dm_layout::NodeFormat`]:
//!
//! | alias | entries | guard | a write to one key writes back |
//! |---|---|---|---|
//! | [`TwoLevel`] | unsorted | line versions (and entry versions where an entry is larger than a line) | the entry |
//! | [`PackedLeaves`] | unsorted, keys without what they share with their neighbours | line versions | the entry, with what stands before it in its line |
//! | [`Bookends`] | unsorted | as published by Sherman (§4.4): versions at both ends of node and entry. **Unsound**, for study | the entry |
//! | [`Checksummed`] | sorted | checksum over the node, as in FG | the whole node |
//!
//! [`Singles`] is a [`dm_index::SingleStore`]: leaves of one entry each (SMART), updated in place under a lock word at
//! their rear. Who writes one of its fields writes no other; who removed one has removed it for good.
//!
//! # Invariants
//! * **I1** A node's bytes change only under its lock; a WRITE of an entry stays inside one line (or carries entry
//!   versions in each). An entry stays in its line, though that may take another shape.
//! * **I2** A reader accepts an image only if it is one state of the node, or a mixture whose answer for the key at
//!   hand is that of one state (`dm-layout`'s acceptance rule).
//! * **I3** A sibling is written and awaited before anything points to it; the left node's split is one chain in
//!   the order announce, clear, finish; entries that stay never move.
//!   Where locks are shared ([`dm_lock::LockOptions::shared`]), an update that writes one line only shares the node's lock;
//!   all else has it alone.
//! * **I4** Whoever finds a node mid-split under its own lock finishes the split: the one that began it gave up.
//! * **I5** Neighbours are merged under the locks of both and of their parent, in one chain whose every prefix shows
//!   readers each key: frozen, copied, widened, dead and forwarding, gone from the parent. What is dead is retired to the
//!   allocator only after that (`docs/protocol/sherman.md`, S23 to S28; `reclaim.md`).
#![forbid(unsafe_code)]

mod join;
mod merge;
mod nodes;
mod open;
mod options;
mod read;
mod share;
mod single;
mod split;
mod write;

pub use nodes::{Bookends, Checksummed, Nodes, PackedLeaves, TwoLevel};
pub use open::{OpenError, check_world};
pub use options::{DEFAULT_ATTEMPTS, DEFAULT_READ_WINDOW, LeafFlaws, NodeOptions};
pub use single::{SingleFlaws, SingleOptions, Singles};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
