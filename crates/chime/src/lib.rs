//! CHIME: a B-link tree over hopscotch leaves on disaggregated memory (Luo et al., SOSP 2024).
//!
//! This crate is a façade. [`Chime`] combines B-link inner levels (`dm-blink`) and a cache of inner nodes (`dm-cache`)
//! with hopscotch leaves (`dm-hopscotch` in front of `dm-leaf`), hierarchical locks (`dm-lock`) and two-stage
//! allocation (`dm-alloc`). The operations are those of `dm-index`. The crate has no byte offsets and no retry policy
//! of its own.
//!
//! | operation, inner nodes cached, uncontended | round trips | verbs |
//! |---|---|---|
//! | get, present or absent | 1 | READ neighbourhood (162 to 175 bytes for 8 + 8), two READs in one chain if it wraps |
//! | get of a hotspot | 1 | READ entry (17 bytes for 8 + 8); 2 if the guess was wrong |
//! | update, remove | 2 | \[CAS lock, READ neighbourhood\], \[WRITE value or presence, WRITE unlock\] |
//! | insert | 2 | as for an update; if the neighbourhood is full, 3 or 4: READ more slots, then \[WRITE lines, WRITE unlock\] |
//! | scan of m leaves | ⌈m/32⌉ | m READs |
//!
//! A remove that empties its neighbourhood takes a third round trip, to read the leaf. An insert that splits its leaf
//! takes more than four.
//!
//! ```
//! use chime::{Chime, Options};
//! use dm_index::{Key8, RangeIndex};
//! use dm_loopback::{Loopback, block_on};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two memory nodes of 64 MiB in this process.
//! let pool = Loopback::builder().nodes(2).host_bytes(64 << 20).build()?;
//! let v = pool.connect(0)?;
//! block_on(async {
//!     let tree = Chime::<Key8>::create_or_open(&v, &Options::new(8)).await?;
//!     let client = tree.client(&v);
//!     client.insert(&Key8(7), b"sevenish").await?;
//!     let mut value = Vec::new();
//!     assert!(client.get(&Key8(7), &mut value).await?);
//!     assert_eq!(value, b"sevenish");
//!     Ok(())
//! })
//! # }
//! ```
#![forbid(unsafe_code)]

#[cfg(feature = "bench")]
pub mod bench;
mod options;
#[cfg(feature = "study")]
mod study;
mod tree;
mod variant;

pub use options::{
    DEFAULT_ATTEMPTS, DEFAULT_CACHE_BYTES, DEFAULT_HANDOVER_MAX, DEFAULT_HOTSPOT_BYTES, DEFAULT_MEMBERS,
    DEFAULT_NEIGHBOURHOOD, DEFAULT_SPAN, Options, PUBLISHED_SPAN,
};
#[cfg(feature = "study")]
pub use study::Flaws;
pub use tree::{Chime, ChimeParts};
pub use variant::{ParseVariantError, Variant};

pub use dm_alloc::{AllocStats, ReclaimOptions};
pub use dm_assemble::{Handle, OpenError};
pub use dm_combine::Rdwc;
#[cfg(feature = "study")]
pub use dm_hopscotch::{EntryFlaws, HopFlaws, NearFlaws};
pub use dm_hopscotch::{HopGeometry, HopOptions, Hopscotch, Hotspots, Neighbourhoods, Reach};
pub use dm_index::{Applied, CpuCost, IndexError, Key8, KeyN, RangeIndex, Scan};
pub use dm_indirect::{Item, Items, OutOfLine, Prefix, leading_bytes};
#[cfg(feature = "study")]
pub use dm_leaf::LeafFlaws;

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
