//! Nodes of a tree on disaggregated memory: clients read them without locks, write them under a lock, and split and
//! merge them while others read.
//!
//! [`Nodes`] is a [`dm_index::NodeStore`] over any [`dm_layout::NodeFormat`]:
//!
//! | alias | entries | guard | a write to one key writes back |
//! |---|---|---|---|
//! | [`TwoLevel`] | unsorted | line versions (and entry versions if an entry is larger than a line) | the entry |
//! | [`PackedLeaves`] | unsorted, keys stored as short distances | line versions | the entry, with the bytes before it in its line |
//! | [`Bookends`] | unsorted | versions at both ends of node and entry, as published for Sherman (§4.4); **unsound** | the entry |
//! | [`Checksummed`] | sorted | checksum over the node, as in FG | the whole node |
//!
//! # Invariants
//! * **I1** A linked node's bytes change only under its lock, except for the CAS that makes an unborn node live. A
//!   WRITE of an entry stays inside one line, or carries an entry version in each line. An entry stays in its line,
//!   although the width of the keys in the line may change.
//! * **I2** A reader accepts an image only if the image is one state of the node, or a mixture of states that gives the
//!   same result for the key as one of these states (`dm-layout`'s acceptance rule).
//! * **I3** A sibling is written and awaited before anything points to it. The split of the left node has the order
//!   announce, clear, finish, in one chain if both nodes are on one memory node, and entries that stay in the left node
//!   never change their slots. A format that is written whole does all of this by one WRITE of the left node. If locks
//!   are shared ([`dm_lock::LockOptions::shared`]), an update that writes only one line shares the node's lock. If
//!   values are words ([`dm_layout::NodeShape::holds_words`]), an update or an exchange under a share is a CAS, and an
//!   insert holds the lock beside sharers. Every other write holds it alone.
//! * **I4** If a client locks a node and finds it in the middle of a split, the client that began the split has
//!   abandoned it. The client with the lock finishes the split.
//! * **I5** Neighbours are merged under the locks of both nodes, and of their parent if the inner structure consists of
//!   nodes. In this case the merge first removes the right node from the parent. It freezes the right node, and copies
//!   its entries into the left node. The left node then covers all keys of both. The merge marks the right node as
//!   dead, with the left node's address, and makes the left node live. After any prefix of these WRITEs, readers find
//!   every key. At the end the dead node is retired to the allocator (`docs/protocol/sherman.md`, S23 to S28;
//!   `reclaim.md`).
//! * **I6** If a client locks a node and finds it frozen, it takes the locks of both nodes of the merge, and finishes
//!   or undoes the merge. So no operation waits for a client that is gone.
#![forbid(unsafe_code)]

mod inspect;
mod join;
mod mend;
mod merge;
mod nodes;
mod open;
mod options;
mod read;
mod share;
mod split;
#[cfg_attr(
    not(feature = "study"),
    expect(unreachable_pub, reason = "public only with the feature `study`")
)]
mod study;
mod write;

pub use nodes::{Bookends, Checksummed, Nodes, PackedLeaves, TwoLevel};
pub use open::{OpenError, check_world};
pub use options::{DEFAULT_ATTEMPTS, DEFAULT_READ_WINDOW, NodeOptions};
#[cfg(feature = "study")]
pub use study::LeafFlaws;

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
