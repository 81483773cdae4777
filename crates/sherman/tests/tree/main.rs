//! All tests of whole trees that need neither a process nor an allocator of their own. They are one program,
//! because a tree's code is compiled anew for each program, world and geometry, and takes almost a minute.

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod budgets;
mod cancel;
mod conformance;
#[cfg(feature = "study")]
mod flaws;
mod items;
mod locks;
mod memory;
mod merge;
mod model;
mod reclaim;
