//! Hopscotch leaves on disaggregated memory (CHIME, SOSP 2024): read by the neighbourhood, written in place.
//!
//! [`Neighbourhoods`] is a [`dm_index::NodeStore`] around another store of [`dm_layout::Hopscotch`] nodes. What concerns
//! one key of a node at rest it does itself, by READs of one neighbourhood; all else goes to the store inside.
//!
//! ```text
//!   get ─► [READ entry, of a hotspot] ──► found: done
//!       └► READ neighbourhood ◄──────────┴► anything else
//!                  └──► found, absent: done
//!                   └─► anything else ──► whole node, by the store inside
//!   write ─► lock, READ neighbourhood ─► WRITE entry, unlock
//!                                     ├► no room ──► READ node, hop ─► WRITE node, WRITE entry, unlock
//!                                     └► anything else, no hop helps ─► unlock; the store inside: splits, waits, …
//! ```
//!
//! [`HashTable`] is such leaves alone, under a directory of hints in place of a tree (CHIME §4.5).
//!
//! # Invariants (`docs/protocol/chime.md`)
//! * **I1** A key lies in its neighbourhood, and changes its slot only with the version of the whole node (H3, H4).
//! * **I2** The bytes of a neighbourhood say which keys they answer for; nothing that was cached is believed (H1).
//! * **I3** Nobody writes to the right half of a split before the left half has lost what moved (H6).
//! * **I4** What one entry's bytes prove does not depend on who remembered them, or when (H8).
//! * **I5** What a table's directory says is where to begin, never what to answer (H10, H11).
//! * **I6** What decides nothing is not tried again here: the whole node is read, by the rules of Sherman's (H2).
//!
//! # Example
//! A leaf's bytes, without any network:
//!
//! ```
//! use dm_hopscotch::{Hopscotch, Near};
//! use dm_layout::{FenceKeys, Key8, NodeFormat, NodeInit, Place};
//!
//! let format = Hopscotch::<Key8>::new(64, 8, 8)?;
//! let mut node = vec![0; format.node_bytes()];
//! format.build(&mut node, &NodeInit::live(0, FenceKeys::ALL), []);
//! let Place::Free(slot) = format.place(&node, &Key8(7))? else { unreachable!("empty") };
//! format.put(&mut node, slot, &Key8(7), (&70_u64.to_le_bytes()).into());
//!
//! // A reader fetches these bytes alone.
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
