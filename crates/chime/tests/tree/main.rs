//! Whole trees, in one program.

mod budgets;
mod common;
mod conformance;
