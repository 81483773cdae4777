//! Tests of the shipped indexes in the harness.

mod check;
mod deaths;
mod keys;
mod steady;
