//! Tests of a node in its own process, so that its memory, descriptors and threads can be counted. The tests in
//! `scarce` limit the descriptors, and those in `storm` attack the node with many hostile peers.
#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "helpers of tests are tests, and figures are for the reader"
)]

mod process;
mod scarce;
mod storm;
