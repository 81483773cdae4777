//! Runs one client's operations over in-process memory, to count the client's instructions: `cargo xtask bench client
//! --package dm-chime`.
//!
//! ```text
//! cargo run --release -p dm-chime --example chime_client -- --op get --ops 1000000 [--keys 1000000] [--scan 100]
//! ```
//!
//! The script is [`dm_testkit::OneClient`]. The inner nodes are cached.

dm_testkit::one_client!(chime, Chime);
