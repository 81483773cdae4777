//! SMART: an adaptive radix tree on disaggregated memory (Luo et al., OSDI 2023; TOS 2024).
//!
//! This crate is a façade. By default, [`Smart`] combines lock-free radix levels and a prefix cache (`dm-art`,
//! `dm-cache`), leaves that are updated in place under a lock word at their end (`dm-art`, `dm-lock`), read delegation
//! and write combining between the clients of a compute node (`dm-combine`), and two-stage allocation (`dm-alloc`). The
//! crate has no byte offsets and no retry policy of its own. Four options turn techniques off, down to the baseline ART
//! of the paper: [`Options::rear_locks`], [`Options::locked_nodes`], [`Options::in_place`] and [`Options::rdwc`].
//! [`Options::compression`] and [`Options::types`] lead from there to a radix tree without path compression and with
//! one size of nodes.
//!
//! | operation, inner nodes cached, uncontended | round trips | verbs |
//! |---|---|---|
//! | get | 1 | READ leaf (40 bytes for 8 + 8) |
//! | get of an absent key | 1 | READ node; 2 if the slot leads to another key's leaf: READ leaf, READ node |
//! | update | 2 | \[CAS lock, READ leaf\], \[WRITE value, WRITE unlock\] |
//! | remove | 2 | \[CAS lock, READ leaf\], \[WRITE state, WRITE unlock\]; CAS slot is not awaited |
//! | insert into an empty slot | 1 | \[WRITE leaf, CAS slot\]; 2 if leaf and node are on two memory nodes |
//! | insert beside a leaf | 2 | READ leaf, \[WRITE node, WRITE leaf, CAS slot\]; 3 on two memory nodes; FAA depth if [`Options::depth_slack`] is too small |
//! | update without [`Options::in_place`] | 3 | READ leaf, \[WRITE leaf, CAS state\], CAS slot |
//! | insert with [`Options::locked_nodes`] | 2 more | CAS lock before, WRITE unlock behind |
//! | remove with [`Options::locked_nodes`] | 3 more | CAS lock, CAS slot, WRITE unlock |
//! | scan | one for each level and each 64 leaves | READs |
//! | get, update, upsert of a key that another client of the compute node is about to get or write | 0 | none, with [`Options::rdwc`] |
//!
//! ```
//! use dm_index::{Key8, RangeIndex};
//! use dm_loopback::{Loopback, block_on};
//! use smart::{Options, Smart};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two memory nodes of 64 MiB in this process.
//! let pool = Loopback::builder().nodes(2).host_bytes(64 << 20).build()?;
//! let v = pool.connect(0)?;
//! block_on(async {
//!     let tree = Smart::<Key8>::create_or_open(&v, &Options::new(8)).await?;
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

pub use options::{DEFAULT_ATTEMPTS, DEFAULT_CACHE_BYTES, DEFAULT_HANDOVER_MAX, DEFAULT_MEMBERS, Options};
#[cfg(feature = "study")]
pub use study::Flaws;
pub use tree::{Smart, SmartParts};

pub use dm_alloc::{AllocStats, ReclaimOptions};
pub use dm_art::{Compression, PrefixIndex};
pub use dm_assemble::{Handle, OpenError};
#[cfg(feature = "study")]
pub use dm_combine::RdwcFlaws;
pub use dm_combine::{DEFAULT_LOCKS as DEFAULT_RDWC_LOCKS, Rdwc};
pub use dm_index::{Applied, CpuCost, IndexError, Key8, KeyN, RangeIndex, Scan};
pub use dm_indirect::{Item, Items, OutOfLine, Prefix, leading_bytes};
pub use dm_layout::NodeTypes;

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
