//! Dolphin: adaptive radix inner levels over leaves of many keys on disaggregated memory (MSST 2024).
//!
//! This crate is a façade. [`Dolphin`] combines a radix tree of separators (`dm-art`), a cache of separators
//! (`dm-cache`), hierarchical locks (`dm-lock`) and two-stage allocation (`dm-alloc`). A separator's entry has the low
//! fence key and the address of a leaf. Leaves (`dm-leaf`) are unsorted, have line versions, and usually store each key
//! as its distance above the leaf's low fence key. The operations are those of `dm-index`. The crate has no byte
//! offsets and no retry policy of its own.
//!
//! | operation, separators cached, uncontended | round trips | verbs |
//! |---|---|---|
//! | get, present or absent | 1 | READ leaf |
//! | update | 2 | \[FAA share, READ leaf\], \[WRITE value, FAA leave\] |
//! | insert, remove | 2 | \[CAS lock, READ leaf\], \[WRITE entry, CAS unlock\] |
//! | scan of m leaves | ⌈m/32⌉ | m READs |
//!
//! Updates of one leaf do not wait for each other: they share its lock, and only the other kinds of writes exclude them
//! ([`Options::shared_updates`]; `docs/protocol/dolphin.md`, D9 to D13).
//!
//! ```
//! use dm_index::{Key8, RangeIndex};
//! use dm_loopback::{Loopback, block_on};
//! use dolphin::{Dolphin, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two memory nodes of 64 MiB in this process.
//! let pool = Loopback::builder().nodes(2).host_bytes(64 << 20).build()?;
//! let v = pool.connect(0)?;
//! block_on(async {
//!     let tree = Dolphin::<Key8>::create_or_open(&v, &Options::new(8)).await?;
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

pub use options::{
    DEFAULT_ATTEMPTS, DEFAULT_CACHE_BYTES, DEFAULT_HANDOVER_MAX, DEFAULT_LEAF_BYTES, DEFAULT_MEMBERS, Options,
};
#[cfg(feature = "study")]
pub use study::Flaws;
pub use tree::{Dolphin, DolphinParts};

pub use dm_alloc::{AllocStats, ReclaimOptions};
pub use dm_art::{SeparatorOptions, Separators};
pub use dm_assemble::{Handle, OpenError};
pub use dm_combine::Rdwc;
pub use dm_index::{Applied, CpuCost, IndexError, Key8, KeyN, RangeIndex, Scan};
pub use dm_indirect::{Item, Items, OutOfLine, Prefix, leading_bytes};
pub use dm_layout::{NodeTypes, SplitBias};
#[cfg(feature = "study")]
pub use dm_leaf::LeafFlaws;

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
