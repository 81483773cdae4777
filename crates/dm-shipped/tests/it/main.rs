//! The shipped indexes in the harness.

mod keys;
mod steady;
