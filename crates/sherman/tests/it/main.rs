//! The tests of whole trees, in one program, because every program compiles a tree's code for each world and geometry
//! again.

mod alloc_free;
mod bad_input;
mod budgets;
mod cancel;
mod common;
mod conformance;
#[cfg(feature = "study")]
mod flaws;
mod futures;
mod items;
mod kills;
mod late;
mod locks;
mod memory;
mod merge;
mod model;
mod old_cache;
mod processes;
mod reclaim;
mod stress;

/// Counts the allocations of each thread, for `alloc_free` and `memory`.
#[global_allocator]
static ALLOCATOR: dm_testkit::CountingAllocator = dm_testkit::CountingAllocator;
