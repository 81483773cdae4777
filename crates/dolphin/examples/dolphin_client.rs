//! Runs one client's operations over in-process memory, to count the client's instructions: `cargo xtask
//! bench client --package dm-dolphin`.
//!
//! ```text
//! cargo run --release -p dm-dolphin --example dolphin_client -- --op get --ops 1000000 [--keys 1000000] [--scan 100]
//! ```
//!
//! The script is [`dm_testkit::OneClient`]. The separators are cached.

dm_testkit::one_client!(dolphin, Dolphin);
