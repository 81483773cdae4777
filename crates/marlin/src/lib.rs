//! Marlin: a B-link tree on disaggregated memory whose updates share their leaf (An et al., ICPP 2023).
//!
//! This crate is a façade. [`Marlin`] combines B-link inner levels (`dm-blink`) over leaves of words (`dm-leaf`), which
//! refer to blocks with the values (`dm-indirect`), with locks that clients can share (`dm-lock`), a cache of inner
//! nodes (`dm-cache`) and two-stage allocation (`dm-alloc`). The operations are those of `dm-index`. The crate has no
//! byte offsets and no retry policy of its own.
//!
//! | operation, inner nodes cached, uncontended | round trips | verbs |
//! |---|---|---|
//! | get | 2; 1 if the key is absent | READ leaf, READ block |
//! | update | 3 | WRITE block, \[FAA share, READ leaf\], \[CAS word, FAA leave\] |
//! | insert | 3 | WRITE block, \[CAS lock, READ leaf\], \[WRITE entry, CAS unlock\] |
//! | remove | 2 | \[CAS lock, READ leaf\], \[WRITE presence, CAS unlock\] |
//! | update, insert, remove with [`Options::published`] | 4, 4, 3 | as above, but the requests of the last chain are awaited one after the other |
//! | scan of n entries in m leaves | ⌈m/32⌉ + 1 for each 32 entries | m + n READs |
//!
//! Updates of one leaf do not wait for each other, nor for an insert, and an insert does not wait for updates. Only
//! removes and structural changes hold a leaf alone ([`Options::shared`]; `docs/protocol/marlin.md`).
//!
//! ```
//! use dm_index::{Key8, RangeIndex};
//! use dm_loopback::{Loopback, block_on};
//! use marlin::{Marlin, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two memory nodes of 64 MiB in this process.
//! let pool = Loopback::builder().nodes(2).host_bytes(64 << 20).build()?;
//! let v = pool.connect(0)?;
//! block_on(async {
//!     let tree = Marlin::<Key8>::create_or_open(&v, &Options::new(100)).await?;
//!     let client = tree.client(&v);
//!     client.insert(&Key8(7), &[7; 100]).await?;
//!     let mut value = Vec::new();
//!     assert!(client.get(&Key8(7), &mut value).await?);
//!     assert_eq!(value, [7; 100]);
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
    DEFAULT_ATTEMPTS, DEFAULT_CACHE_BYTES, DEFAULT_HANDOVER_MAX, DEFAULT_MEMBERS, DEFAULT_NODE_BYTES, Options,
};
#[cfg(feature = "study")]
pub use study::Flaws;
pub use tree::{Marlin, MarlinParts};

pub use dm_alloc::{AllocStats, ReclaimOptions};
pub use dm_assemble::{Handle, OpenError};
pub use dm_combine::Rdwc;
pub use dm_index::{Applied, CpuCost, IndexError, Key8, KeyN, RangeIndex, Scan};
pub use dm_indirect::{Item, Items, OutOfLine, Prefix, leading_bytes};
pub use dm_layout::SplitBias;

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
