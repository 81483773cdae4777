//! Tests of the shipped indexes in the harness.

mod deaths;
mod keys;
mod steady;
