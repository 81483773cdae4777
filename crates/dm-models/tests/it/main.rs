//! Tests of the models of the registry, and of the pages that describe them.

mod pages;
mod reductions;
mod registry;
