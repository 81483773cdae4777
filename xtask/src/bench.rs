//! Measurements that need a release build: the speed of the simulator and of the explorer, and a client's instructions
//! per operation.

mod callgrind;
mod client;
mod inlined;
mod sim;
mod split;

use crate::Result;
use clap::Subcommand;
use std::path::Path;
use xshell::{Shell, cmd};

/// The measurements.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Measures the pace of the simulated testbed on this machine: simulated verbs per CPU second, and instructions a
    /// verb.
    ///
    /// Takes 1 to 2 minutes to build and about 1 minute to run. Prints a table of three mixes with 640 clients. The
    /// rate is the best of 7 runs, because other programs can only slow a run down. The instructions are counted by
    /// callgrind, if valgrind is installed. The rates depend on the machine; the instructions hardly do.
    Sim {
        /// Arguments for the example `sim_bench` of dm-sim, which then prints its rows instead of the table.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Measures the speed of the explorer on Sherman's models: new states per second on one core and on all cores.
    ///
    /// Takes 1 to 4 minutes to build and about 1 minute to run. Needs an idle machine.
    Explore,
    /// Counts the instructions that one client's operation costs its own CPU, by callgrind, and splits them by crate.
    ///
    /// Takes 1 to 2 minutes to build and under 1 minute per operation; --check takes several minutes. Needs valgrind
    /// and binutils. The same build gives the same counts on every run, even on a busy machine. The world's work of
    /// moving bytes, which a network card does on a real testbed, is counted separately.
    Client(client::Options),
}

/// Runs one measurement.
pub(crate) fn run(root: &Path, bench: &Bench) -> Result<()> {
    match bench {
        Bench::Sim { args } => {
            let shell = Shell::new()?;
            shell.change_dir(root);
            if args.is_empty() {
                return sim::run(&shell);
            }
            Ok(cmd!(
                shell,
                "cargo run --release -p dm-sim --example sim_bench -- {args...}"
            )
            .run()?)
        }
        Bench::Explore => {
            let shell = Shell::new()?;
            shell.change_dir(root);
            Ok(cmd!(shell, "cargo run --release -p dm-models --example explore_bench").run()?)
        }
        Bench::Client(options) => client::run(root, options),
    }
}
