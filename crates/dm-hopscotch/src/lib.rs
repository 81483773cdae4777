//! Hopscotch leaves on disaggregated memory (CHIME, SOSP 2024): clients read one neighbourhood of a leaf and write in
//! place.
//!
//! [`Neighbourhoods`] is a [`dm_index::NodeAccess`] around the [`dm_leaf::Nodes`] of [`dm_layout::Hopscotch`] nodes.
//! It handles operations on one key by READs of one neighbourhood, if no structural change of the node is in progress.
//! (If entries span lines, a write reads the whole node.) The inner store of whole nodes does everything else.
//!
//! ```text
//!   get ─► [READ entry, of a hotspot] ──► found: done
//!       └► READ neighbourhood ◄──────────┴► anything else
//!                  └──► found, absent: done
//!                   └─► anything else ──► whole node, by the store inside
//!   write ─► lock, READ neighbourhood ─► WRITE entry, unlock
//!                                     ├► no room ──► READ the slots after it, hop ─► WRITE lines, unlock
//!                                     │                       └► no hop helps ──► READ the rest, hop or split
//!                                     └► anything else ─► unlock; the store inside: waits, finishes, …
//! ```
//!
//! [`HashTable`] consists of such leaves under a directory of hints instead of a tree (CHIME §4.5).
//!
//! # Invariants (`docs/protocol/chime.md`)
//! * **I1** A key is in its neighbourhood, and changes its line only together with the hop counts of the boundaries
//!   that it crosses (H3, H4).
//! * **I2** The bytes of a neighbourhood show which keys the node covers. No cached information is trusted (H1).
//! * **I3** No client writes to the right half of a split before the moved entries are removed from the left half
//!   (H6).
//! * **I4** The bytes of a single entry prove the result of a get, whatever the source or the age of the entry's
//!   address (H8).
//! * **I5** A table's directory only determines where an operation begins, never its result (H10, H11).
//! * **I6** If a neighbourhood is not conclusive, this crate does not read it again: it reads the whole node, by
//!   Sherman's rules (H2).
//!
//! # Example
//! A leaf's bytes, without a network:
//!
//! ```
//! use dm_hopscotch::{Hopscotch, Near};
//! use dm_layout::{FenceKeys, Key8, NodeEdit, NodeInit, NodeRead, NodeShape, Place};
//!
//! let format = Hopscotch::<Key8>::new(64, 8, 8)?;
//! let mut node = vec![0; format.node_bytes()];
//! format.build(&mut node, &NodeInit::live(0, FenceKeys::ALL), []);
//! let Place::Free(slot) = format.place(&node, &Key8(7))? else { unreachable!("empty") };
//! format.put(&mut node, slot, &Key8(7), (&70_u64.to_le_bytes()).into());
//!
//! // A reader fetches only these bytes.
//! let reach = format.geometry().reach(format.home(&Key8(7)));
//! assert!(reach.bytes() <= 200 && reach.second.is_none());
//! let parts = (&node[reach.first.clone()], &[][..]);
//! match format.near(&reach, parts, &Key8(7), false) {
//!     Near::Found { value, .. } => assert_eq!(value.as_u64(), 70),
//!     other => panic!("{other:?}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod edit;
mod options;
mod read;
mod room;
mod store;
#[cfg_attr(
    not(feature = "study"),
    expect(unreachable_pub, reason = "public with the feature `study` alone")
)]
mod study;
mod table;
mod write;

#[cfg(feature = "study")]
pub use dm_cache::HotspotFlaws;
pub use dm_cache::Hotspots;
#[cfg(feature = "study")]
pub use dm_layout::{EntryFlaws, NearFlaws};
pub use dm_layout::{HopGeometry, HopPlan, Hopscotch, Near, Reach};
pub use options::{DEFAULT_READ_WINDOW, HopOptions};
pub use store::Neighbourhoods;
#[cfg(feature = "study")]
pub use study::{HopFlaws, TableFlaws};
pub use table::{
    DEFAULT_DEPTH_MAX, DEFAULT_NEIGHBOURHOOD, DEFAULT_SPAN, Directory, HashTable, Hint, TableClient,
    TableOptions, gather, scatter,
};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
