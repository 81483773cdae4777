//! Shared operations: their outcomes, against a model, and without allocations.

mod alloc_free;
mod common;
mod model;
mod outcomes;
