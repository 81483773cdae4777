//! Tests of the caches: against models and published flaws, against an allocator that counts, under eviction, and with
//! several threads.
#![cfg(not(dm_loom))]

mod bytes;
mod eviction;
mod model;
mod prefix;
mod prefix_table;
mod published;
mod threads;
