//! Everything about whole trees that needs no process and no allocator of its own. One program: a tree's code is made
//! anew for each program, world and geometry, and takes the better part of a minute.

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod budgets;
mod cancel;
mod conformance;
mod flaws;
mod items;
mod locks;
mod memory;
mod merge;
mod model;
mod reclaim;
