//! Runs Sherman, SMART and CHIME over real queue pairs: the script of the test kit, and stress runs.

#![expect(clippy::print_stdout, reason = "a run says what it assumes and what it did")]

mod chime;
#[path = "../common/mod.rs"]
mod common;
mod sherman;
mod smart;
mod world;
