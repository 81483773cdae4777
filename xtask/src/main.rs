//! The workspace's own checks and benches: `cargo xtask <command>`. Each command's `--help` says how long it takes.
//!
//! The steps of CI are written only here, in Rust. The CI configuration installs what is missing, and otherwise only
//! calls these commands.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command's output is its purpose"
)]

mod bench;
mod debian;
mod layout;
mod mutants;
mod outside;
mod package;
mod page;
mod release;
mod rxe;
mod steps;
mod tidy;
mod workspace;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// The result of every command here. An error is printed and ends the process, so no code matches on it.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Checks and benches of the dmkit workspace.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Checks everything that must hold before a change is kept: formatting, tidy, byte pictures, contents of packages,
    /// all tests and doc tests.
    ///
    /// Takes about 20 minutes on 2 cores for a clean build, mostly for compiling, and about 5 minutes after a small
    /// change. All steps run even when an early one fails; the tests come last, so that their closing lines end the
    /// output.
    Test {
        /// Also runs clippy and the documentation with warnings as errors, the loom and shuttle models, the protocols'
        /// models, whose page must be up to date, crates outside of the workspace, and the attack on the control plane
        /// (`cargo xtask hostile`). Set automatically if the environment has CI=true or CI=1.
        #[arg(long)]
        strict: bool,
    },
    /// Runs `test --strict`, then a compile check of the fuzz targets.
    ///
    /// Takes about 25 minutes on 2 cores for a clean build.
    Ci,
    /// Checks the rules that no compiler checks: crate floors, banned paths, dead files, links and more;
    /// CONTRIBUTING.md lists them.
    ///
    /// Takes under 1 second (plus the build of this program).
    Tidy,
    /// Draws the byte pictures of docs/layout again from the types.
    ///
    /// Takes under 1 second (plus the build of this program).
    Layout {
        /// Change nothing; fail if a picture differs from its type.
        #[arg(long)]
        check: bool,
    },
    /// Model-checks the code that threads of one compute node share: every crate's `tests/loom.rs`, built with `--cfg
    /// dm_loom`.
    ///
    /// Takes about 1 minute for a clean build, then seconds to minutes per model. The build has its own target
    /// directory, `target/loom`, so that it does not replace the normal build.
    Loom {
        /// Only tests whose name contains this.
        filter: Option<String>,
    },
    /// Samples schedules of code that threads of one compute node share and that is too large for loom: every crate's
    /// `tests/shuttle.rs`, built with `--cfg dm_shuttle`.
    ///
    /// Takes about 1 minute for a clean build and 10 to 20 seconds to run. The schedules are the same on every machine
    /// and in every run; `cargo xtask stress --shuttle` draws more of them. The build has its own target directory,
    /// `target/shuttle`.
    Shuttle {
        /// Only tests whose name contains this.
        filter: Option<String>,
        /// Only the schedules of this batch. Use it to repeat a failure, whose message names the batch.
        #[arg(long)]
        batch: Option<u64>,
    },
    /// Runs every model of dm-models and draws docs/models.md again.
    ///
    /// Takes 1 to 2 minutes for a clean build and at most 3 minutes to run; with --nightly it takes hours. Fails if a
    /// verdict differs from the registry, or a search was cut short.
    Models {
        /// Change nothing, and also fail if the page differs from the results.
        #[arg(long)]
        check: bool,
        /// Write the story and the chart of each counterexample into this directory.
        #[arg(long, value_name = "DIR")]
        charts: Option<PathBuf>,
        /// Also run the cases that are too large for every check.
        #[arg(long)]
        nightly: bool,
    },
    /// Writes crates outside of the workspace with `dmkit new`, one for each pair of an inner structure and a leaf
    /// format, and compiles them. For one of them, an index with an array of fence keys over hopscotch leaves, runs its
    /// tests, and measures it together with CHIME, with the new crate's own command.
    ///
    /// Takes at most 3 minutes on 2 idle cores after the workspace's tests are built, mostly for compiling, and about
    /// half a minute if little has changed. Fails if a test fails, a value is wrong, or a row or curve is missing.
    Outside,
    /// Checks that a registry would accept every crate: makes the packages, looks into them, compiles the crates that
    /// are in them, and runs `cargo publish --dry-run` on all in the order of their dependencies.
    ///
    /// Takes about 5 minutes, mostly for compiling; 1 to 2 minutes if little has changed. Needs the network, to look
    /// for versions that the registry already has. Says what a maintainer must fill in before the first release. The
    /// packages are in `target/package`. dm-ib is packaged but not compiled, because it needs RDMA packages.
    Package {
        /// Only make the packages and look into them, as `cargo xtask test` does. Takes 3 seconds, and no network.
        #[arg(long)]
        contents: bool,
    },
    /// Compiles every published crate except dm-ib with the oldest Rust that its manifest promises: 1.85 for dm-sync,
    /// dm-layout, dm-verbs and dm-history, with all features, and 1.90 for the others.
    ///
    /// Takes half a minute for the four crates and 2 minutes for the others. Needs these toolchains of rustup; if one
    /// is missing, says how to install it, checks the crates of the other, and fails.
    Msrv,
    /// Checks the licences, sources and duplicate versions of all dependencies (`deny.toml`), and known
    /// vulnerabilities.
    ///
    /// Takes seconds. Needs `cargo install cargo-deny --locked`. Without a network it skips the vulnerabilities and
    /// says so.
    Deny,
    /// Compares the public interfaces of all published libraries except dm-ib with those of the last release, the
    /// newest tag that begins with `v`. Fails if a change needs a higher version than the manifests have.
    ///
    /// Takes about 10 minutes, or under 1 second if there is no release yet. Needs `cargo install cargo-semver-checks
    /// cargo-public-api --locked` and a nightly toolchain, because the interfaces are read from rustdoc's JSON.
    Api {
        /// Only this package.
        #[arg(long)]
        package: Option<String>,
    },
    /// Makes a book of all pages: `target/book/html/index.html`. Fails if a link leads nowhere.
    ///
    /// Takes seconds. Needs `cargo install mdbook --locked`.
    Book,
    /// Attacks the control plane of a memory node, which runs in its own process: 100,000 changed messages, garbage,
    /// replays, floods, wrong proofs, and misuse of the secret.
    ///
    /// Takes a minute on idle cores and several on busy ones, and half a minute to build. Fails if an honest client is
    /// not served during the attack, if an attacker gets what it must not get, or if the node then keeps memory,
    /// descriptors or threads.
    Hostile,
    /// Changes one place of the protocols at a time and finds out which test or model notices. Covers dm-lock, dm-leaf,
    /// dm-combine, dm-indirect, dm-alloc, dm-hopscotch and dm-art, in the files that `.cargo/mutants.toml` names.
    ///
    /// Takes about 45 minutes on 2 busy cores for the own tests and loom models of all seven crates, and 12 for those
    /// of dm-lock; the models of dm-models and the façades' tests take longer. Needs `cargo install cargo-mutants
    /// --locked`. Fails if a mutant survives every test without a reason in `xtask/mutants/CRATE.toml`, if such a
    /// reason belongs to no mutant or to one that was killed, or if mutants were not run.
    Mutants(mutants::Asked),
    /// Runs the unit tests of dm-sync, dm-layout, dm-verbs, dm-history, dm-lock and dm-cache under Miri: undefined
    /// behaviour, leaks, data races.
    ///
    /// Takes about 15 minutes. Needs a nightly toolchain with the components miri and rust-src. Tests that Miri can't
    /// run, or runs too slowly, are ignored and say why.
    Miri {
        /// Only tests whose name contains this.
        filter: Option<String>,
    },
    /// Runs the stress tests at full size, for each index, the assembled example and the hash table: 20 million
    /// operations on loopback that grow a tree, as many that grow and shrink one (not for the hash table), and 200
    /// seeds of 100,000 operations on simulated testbeds. With Sherman, Dolphin, Marlin and ROLEX, some of them cut off
    /// a memory node.
    ///
    /// Takes about 40 minutes on 2 cores; with --shuttle about an hour.
    Stress {
        /// Only runs whose name contains this.
        filter: Option<String>,
        /// Runs many more schedules of the tests of `cargo xtask shuttle` instead.
        #[arg(long)]
        shuttle: bool,
        /// The number of the first batch of schedules. Give the number at which an earlier run ended, to draw
        /// other schedules.
        #[arg(long, default_value_t = 0, requires = "shuttle")]
        from: u64,
        /// Runs only the tests on cards that promise less than those of the presets, while clients may be suspended.
        /// There are 200 seeds for each index. Takes about 5 minutes.
        #[arg(long, conflicts_with_all = ["filter", "shuttle"])]
        weak: bool,
        /// Runs only the tests that kill compute nodes: for each index 200 simulated runs of 100,000 operations with 20
        /// kills each, and 5 million operations with 200 kills on loopback. Takes about 25 minutes.
        #[arg(long, conflicts_with_all = ["filter", "shuttle", "weak"])]
        kills: bool,
    },
    /// Measures bytes per key after 10 million inserts in random order, on memory nodes and in each part of the index
    /// cache.
    ///
    /// Takes 1 to 2 minutes to build and 1 to 2 minutes to run, and about 700 MB of memory. Fails if a budget is
    /// exceeded: 32 bytes of nodes in use and 0.45 bytes of cache per key of 8 bytes with a value of 8 bytes. Every
    /// allocation and all levels are counted.
    Memory {
        /// The index: sherman or smart. The budgets of smart are 8.4 bytes of prefix cache per dense key, 13.5 bytes
        /// per random key, and 230 bytes of nodes and leaves per key at 2 million keys.
        #[arg(long, default_value = "sherman", value_parser = ["sherman", "smart"])]
        index: String,
        /// Number of keys to insert. The budgets are for the default.
        #[arg(long, default_value_t = 10_000_000)]
        keys: u64,
    },
    /// Runs dm-ib's tests over soft-RoCE in a virtual machine: QEMU, Debian's 6.1 kernel, one emulated processor. With
    /// --two, runs two machines as two hosts, and the dmkit command over them with Sherman, SMART, CHIME and Dolphin.
    ///
    /// Takes about 5 minutes for a clean build, then 2 to 4 minutes to run, with --two less than 3. Needs Debian 12 on
    /// x86-64, and root if packages are missing. Downloads the kernel once, into `target/rxe`. Fails if a test fails.
    Rxe(rxe::Rxe),
    /// Checks the pages of results in a headless Chromium: a bench of all indexes and some figures of the papers, in
    /// three widths and two themes. Nothing may overflow, be pale, be cut off or overlap; links, keys, hints and
    /// downloads must work. Before that, the checks must find the fault in each of several broken pages.
    ///
    /// Takes under 2 minutes after the tests are built. Needs Debian's packages chromium and chromium-driver; with
    /// CI=true it installs them. Leaves pictures of the pages in `target/page`.
    Page(page::Asked),
    /// Measurements that need a release build.
    #[command(subcommand)]
    Bench(bench::Bench),
}

fn main() -> ExitCode {
    match run(Args::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    let root = workspace::root()?;
    match command {
        Command::Test { strict } => steps::test(&root, strict || steps::in_ci()),
        Command::Ci => steps::ci(&root),
        Command::Tidy => tidy::run(&root),
        Command::Layout { check } => layout::run(&root, check),
        Command::Loom { filter } => steps::loom(&root, filter.as_deref()),
        Command::Shuttle { filter, batch } => steps::shuttle(&root, filter.as_deref(), batch),
        Command::Models {
            check,
            nightly,
            charts,
        } => steps::models(&root, check, nightly, charts.as_deref()),
        Command::Outside => outside::run(&root),
        Command::Package { contents: true } => package::contents(&root),
        Command::Package { contents: false } => package::run(&root),
        Command::Msrv => release::msrv(&root),
        Command::Deny => release::deny(&root),
        Command::Api { package } => release::api(&root, package.as_deref()),
        Command::Book => release::book(&root),
        Command::Hostile => steps::hostile(&root),
        Command::Miri { filter } => steps::miri(&root, filter.as_deref()),
        Command::Stress {
            filter,
            shuttle: true,
            from,
            ..
        } => steps::shuttle_stress(&root, filter.as_deref(), from),
        Command::Stress { weak: true, .. } => steps::stress(&root, Some("full_weak_cards")),
        Command::Stress { kills: true, .. } => steps::stress(&root, Some(steps::KILLS)),
        Command::Stress { filter, .. } => steps::stress(&root, filter.as_deref()),
        Command::Memory { index, keys } => steps::memory(&root, &index, keys),
        Command::Mutants(asked) => mutants::run(&root, &asked),
        Command::Rxe(asked) => rxe::run(&root, &asked),
        Command::Page(asked) => page::run(&root, &asked),
        Command::Bench(bench) => bench::run(&root, &bench),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_command_says_how_long_it_takes() {
        fn leaves<'a>(command: &'a clap::Command, found: &mut Vec<&'a clap::Command>) {
            if command.has_subcommands() {
                command.get_subcommands().for_each(|inner| leaves(inner, found));
            } else {
                found.push(command);
            }
        }
        let top = Args::command();
        let mut found = Vec::new();
        leaves(&top, &mut found);
        assert!(found.len() >= 4, "the walk found only {} commands", found.len());
        for command in found {
            let help = command
                .get_long_about()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(
                help.contains("Takes "),
                "`{}` does not say how long it takes",
                command.get_name()
            );
        }
    }
}
