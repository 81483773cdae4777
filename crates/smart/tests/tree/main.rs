//! All tests of whole trees that need no allocator of their own. They are one program, because a tree's code
//! is compiled anew for each program, world and geometry.

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
