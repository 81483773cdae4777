//! The checker against brute force, and on long histories.

mod brute_force;
mod long;
