//! Everything about whole trees that needs no allocator of its own. One program: a tree's code is made anew for each
//! program, world and geometry.

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod budgets;
mod cancel;
mod items;
mod model;
mod one_key;
mod reclaim;
mod warm;
