//! The tests of whole indexes, in one program.

mod bad_input;
mod budgets;
mod cancel;
mod common;
mod conformance;
mod items;
mod kills;
mod retraining;
mod stress;
