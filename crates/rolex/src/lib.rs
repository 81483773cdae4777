//! ROLEX: a learned index on disaggregated memory (Li et al., FAST 2023), and CHIME-Learned (CHIME, SOSP 2024).
//!
//! This crate is a façade. [`Rolex`] combines learned inner levels (`dm-learned`) over leaves of a few entries
//! (`dm-leaf`), with locks (`dm-lock`) and two-stage allocation (`dm-alloc`). [`ChimeLearned`] has hopscotch leaves
//! (`dm-hopscotch`) instead. [`Published`] has the costs of the public code, for comparisons. The operations are those
//! of `dm-index`. The crate has no byte offsets and no retry policy of its own.
//!
//! | operation, table cached and up to date, uncontended | round trips | verbs |
//! |---|---|---|
//! | get | 1 | READ leaf |
//! | update, insert, remove | 2 | \[CAS lock, READ leaf\], \[WRITE entry, WRITE unlock\] |
//! | get or write, leaf split since | + 1 for each step to the right | READ leaf |
//! | scan of n entries in m leaves | ⌈m/32⌉ | m READs |
//! | [`Published`]: get | 1, or 2 | READs of 2 to 4 leaves and their synonym leaves |
//! | [`Published`]: update, remove | 4 | the READs of a get, CAS lock, READ leaf, \[WRITE leaf, WRITE unlock\] |
//! | [`Published`]: insert | 4, or 5 if it splits a leaf | the same, without synonym leaves |
//!
//! No inner node is read, because a compute node's models predict the position of a key in a table of all leaves.
//! Splits and merges do not change the table. [`Handle::collect`] writes another one if many leaves are missing in it,
//! except for [`Published`] (`docs/protocol/rolex.md`).
//!
//! ```
//! use dm_index::{Key8, RangeIndex};
//! use dm_loopback::{Loopback, block_on};
//! use rolex::{Options, Rolex};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two memory nodes of 64 MiB in this process.
//! let pool = Loopback::builder().nodes(2).host_bytes(64 << 20).build()?;
//! let v = pool.connect(0)?;
//! block_on(async {
//!     let index = Rolex::<Key8>::create_or_open(&v, &Options::new(8)).await?;
//!     let client = index.client(&v);
//!     for n in 0..1_000 {
//!         client.insert(&Key8(n * n), &n.to_le_bytes()).await?;
//!     }
//!     // The table lists all leaves from now on.
//!     assert!(index.retrain(&v).await? > 60);
//!     let mut value = Vec::new();
//!     assert!(client.get(&Key8(900), &mut value).await?);
//!     assert_eq!(value, 30_u64.to_le_bytes());
//!     Ok(())
//! })
//! # }
//! ```
#![forbid(unsafe_code)]

#[cfg(feature = "bench")]
pub mod bench;
mod chime_learned;
mod options;
mod published;
#[cfg(feature = "study")]
mod study;
mod tree;

pub use chime_learned::{ChimeLearned, ChimeLearnedParts};
pub use options::{
    CHIME_HOTSPOT_BYTES, CHIME_SPAN, DEFAULT_ATTEMPTS, DEFAULT_CACHE_BYTES, DEFAULT_HANDOVER_MAX,
    DEFAULT_MEMBERS, DEFAULT_NEIGHBOURHOOD, DEFAULT_SPAN, Options,
};
pub use published::{Published, PublishedParts};
#[cfg(feature = "study")]
pub use study::Flaws;
pub use tree::{Rolex, RolexParts};

pub use dm_alloc::{AllocStats, ReclaimOptions};
pub use dm_assemble::{Handle, OpenError};
pub use dm_combine::Rdwc;
pub use dm_index::{Applied, CpuCost, IndexError, Key8, KeyN, RangeIndex, Scan};
pub use dm_indirect::{Item, Items, Prefix, leading_bytes};
pub use dm_layout::SplitBias;

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
