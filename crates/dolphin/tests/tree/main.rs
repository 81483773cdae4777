//! Whole trees, in one program.

mod assemble;
mod budgets;
mod cancel;
mod common;
mod conformance;
mod hints;
mod stress;
