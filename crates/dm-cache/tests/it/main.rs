//! Tests of the caches against models, and against an allocator that counts.
#![cfg(not(dm_loom))]

mod bytes;
mod eviction;
mod model;
mod prefix;
mod prefix_table;
mod published;
mod threads;
