//! Sherman: a write-optimised B+ tree on disaggregated memory (Wang et al., SIGMOD 2022).
//!
//! This crate is a façade. [`Sherman`] combines B-link inner levels (`dm-blink`) over nodes (`dm-leaf`) with
//! hierarchical on-chip locks (`dm-lock`), a cache of inner nodes (`dm-cache`) and two-stage allocation (`dm-alloc`).
//! The operations are those of `dm-index`. The crate has no byte offsets and no retry policy of its own.
//!
//! | operation, inner nodes cached, uncontended | round trips | verbs |
//! |---|---|---|
//! | get | 1 | READ leaf |
//! | update, insert, remove | 2 | \[CAS lock, READ leaf\], \[WRITE entry, WRITE unlock\] |
//! | update, insert, remove with [`Variant::PaperRtt`] | 3 | CAS lock, READ leaf, \[WRITE entry, WRITE unlock\] |
//! | update, insert, remove, lock handed over | 2 | READ leaf, WRITE entry |
//! | scan of m leaves that are 70 % full | ⌈m/32⌉ | m READs |
//!
//! With [`Options::rdwc`], gets that wait for the same key on one compute node become one get. Updates and upserts
//! that wait for the same key become one write (`dm-combine`).
//!
//! ```
//! use dm_index::{Key8, RangeIndex};
//! use dm_loopback::{Loopback, block_on};
//! use sherman::{Options, Sherman};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two memory nodes of 64 MiB in this process.
//! let pool = Loopback::builder().nodes(2).host_bytes(64 << 20).build()?;
//! let v = pool.connect(0)?;
//! block_on(async {
//!     let tree = Sherman::<Key8>::create_or_open(&v, &Options::new(8)).await?;
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
mod leaf_format;
mod options;
#[cfg(feature = "study")]
mod study;
mod tree;
mod variant;

pub use leaf_format::LeafFormat;
pub use options::{
    DEFAULT_ATTEMPTS, DEFAULT_CACHE_BYTES, DEFAULT_HANDOVER_MAX, DEFAULT_MEMBERS, DEFAULT_NODE, NodeSize,
    Options,
};
#[cfg(feature = "study")]
pub use study::Flaws;
pub use tree::{Sherman, ShermanParts};
pub use variant::{LeafKind, ParseVariantError, Variant};

#[cfg(feature = "study")]
pub use dm_alloc::ReclaimFlaws;
pub use dm_alloc::{AllocStats, ReclaimOptions};
pub use dm_assemble::{Handle, OpenError};
#[cfg(feature = "study")]
pub use dm_combine::RdwcFlaws;
pub use dm_combine::{DEFAULT_LOCKS as DEFAULT_RDWC_LOCKS, Rdwc};
pub use dm_index::{Applied, CpuCost, IndexError, Key8, KeyN, RangeIndex, Scan};
pub use dm_indirect::{Item, Items, OutOfLine, Prefix, leading_bytes};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;

// The workspace's README shows this crate's tree.
#[doc = include_str!("../../../README.md")]
#[cfg(doctest)]
struct WorkspaceReadmeDoctests;
