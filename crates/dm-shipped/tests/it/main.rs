//! The shipped indexes in the harness.

mod check;
mod keys;
mod steady;
