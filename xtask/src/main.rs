//! The workspace's own checks and benches.
fn main() {}
