//! The `dmkit` command.
fn main() {}
