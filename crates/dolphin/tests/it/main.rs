//! The tests of whole trees, in one program.

mod assemble;
mod assembled;
mod bad_input;
mod budgets;
mod cancel;
mod common;
mod conformance;
mod hints;
mod kills;
mod stress;
