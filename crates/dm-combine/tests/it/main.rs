//! Tests of shared operations: their results, a comparison with a model, and their allocations.

mod alloc_free;
mod common;
mod model;
mod outcomes;
