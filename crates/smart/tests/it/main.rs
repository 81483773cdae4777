//! The tests of whole trees, in one program, because every program compiles a tree's code for each world and geometry
//! again.

mod alloc_free;
mod bad_input;
mod budgets;
mod cancel;
mod common;
mod conformance;
mod futures;
mod hash_cache;
mod items;
mod kills;
mod late;
mod model;
mod one_key;
mod reclaim;
mod stress;
mod warm;
