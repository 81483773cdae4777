//! A node in a process of its own, whose memory, descriptors and threads can be counted: where descriptors are
//! scarce, and in a hostile crowd.
#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "helpers of tests are tests, and figures are for the reader"
)]

mod process;
mod scarce;
mod storm;
