//! Tests of hopscotch leaves and of hash tables.

mod bad_input;
mod budgets;
mod cancel;
mod common;
mod conformance;
mod directory;
mod leaves;
mod stress;
