//! The models of the registry, and the pages that name them.

mod pages;
mod reductions;
mod registry;
