//! The tests of whole trees, in one program.

mod assemble;
mod assembled;
mod bad_input;
mod budgets;
mod cancel;
#[path = "../../examples/art_hopscotch/checks.rs"]
mod checks;
mod common;
mod conformance;
mod hints;
mod kills;
mod stress;
#[path = "../../examples/art_hopscotch/tree.rs"]
mod tree;
