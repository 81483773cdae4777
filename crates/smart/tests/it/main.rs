//! All tests of whole trees, in one program, because a tree's code is compiled anew for each program, world and geometry.

mod alloc_free;
mod bad_input;
mod budgets;
mod cancel;
mod common;
mod conformance;
mod items;
mod kills;
mod late;
mod model;
mod one_key;
mod reclaim;
mod stress;
mod warm;
