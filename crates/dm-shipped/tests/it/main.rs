//! Tests of the shipped indexes in the harness.

mod keys;
mod steady;
