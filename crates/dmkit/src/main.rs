//! The `dmkit` command: measures, checks, compares and plots range indexes on disaggregated memory.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    dmkit::Cli::run(&dmkit::shipped())
}
