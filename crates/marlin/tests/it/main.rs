//! The tests of whole trees, in one program.

mod bad_input;
mod budgets;
mod cancel;
mod common;
mod conformance;
mod items;
mod kills;
mod stress;
