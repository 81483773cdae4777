//! The common part of all indexes: the state of an index that the threads of one compute node share.
//!
//! An index consists of an inner structure and leaves. Everything around them is the same for every index: the pool's
//! superblock, the allocator and its membership, local lock tables, operations that clients share, items of variable
//! length. [`Handle`] is this common part. To make an index, implement [`Parts`]: it chooses the parts, and the
//! parameters that the superblock stores for them.
//!
//! | call | what the handle does | what the parts do |
//! |---|---|---|
//! | [`Handle::create_or_open`] | creates or reads the superblock, makes the allocator | [`Parts::fit`], [`Parts::descriptor`], [`Parts::assemble`] |
//! | [`Handle::client`] | shares operations if the options say so | [`Parts::client`] |
//! | [`Handle::items`] | keeps byte strings in blocks of their own | |
//! | [`Handle::warm`], [`Handle::collect`] | | [`Parts::warm`], [`Parts::collect`]: run the work, metered as housekeeping |
//! | [`Handle::check`], [`Handle::sweep`] | looks at locks, members and memory; walks twice before it reports a fault | [`Parts::survey`] |
//!
//! # Invariants
//! * I1: options for which no node can be built are refused before anything is written to the pool.
//! * I2: a world that lacks a capability that a lock needs is refused before the first operation, and the error names
//!   the capability.
//! * I3: a pool is used only over as many memory nodes as the index's addresses can distinguish.
#![forbid(unsafe_code)]

mod census;
mod check;
mod handle;
mod parts;
mod pool;
mod sweep;

pub use check::{CheckReport, HeldLock};
pub use dm_index::{Finding, Flaw};
pub use dm_leaf::OpenError;
pub use handle::Handle;
pub use parts::{Common, Parts};
pub use pool::Pool;
pub use sweep::SweepReport;

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
