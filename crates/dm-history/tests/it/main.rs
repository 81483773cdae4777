//! Tests of the checker: comparison with brute force, and long histories.

mod brute_force;
mod long;
