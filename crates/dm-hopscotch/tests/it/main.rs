//! Tests of whole hash tables, in one program.

mod bad_input;
mod budgets;
mod cancel;
mod common;
mod conformance;
mod directory;
mod leaves;
mod stress;
