//! The command line of `dmkit`: its commands and their arguments.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use dm_bench::{CostModel, INTERRUPTED, LATEST, Place, Point, Registry, count, preset};

use crate::bench_args::Bench;
use crate::{cluster, main_job, new};

/// Range indexes on disaggregated memory: load, drive, check and compare them on a simulated RDMA testbed.
///
/// Without a command it runs the main job: every index, and the baseline FG+, with small caches on the model
/// `cx6-roce`, under YCSB C, A, LOAD and E with four client counts each, and C with five sizes of caches. It checks
/// every value read, prints a table and a sentence for each panel, and writes a page with the curves. This takes about
/// half a minute on two cores.
#[derive(Debug, Parser)]
#[command(name = "dmkit", version, about, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    output: Output,
}

impl Cli {
    /// Runs the command line of this process with the indexes of `registry`. This is the whole `main` of a program that
    /// measures an index of your own.
    pub fn run(registry: &Registry) -> ExitCode {
        let matches = Self::command_over(registry).get_matches();
        match Self::from_arg_matches(&matches) {
            Ok(cli) => cli.perform(registry),
            Err(e) => e.exit(),
        }
    }

    /// Returns the command, whose help lists the indexes of `registry`.
    fn command_over(registry: &Registry) -> clap::Command {
        let indexes = indexes(registry);
        let command = Self::command().mut_subcommand("bench", |bench| bench.after_long_help(indexes));
        // These commands have no results, so their help does not list the options for results.
        let hidden = command.get_arguments().filter(|arg| arg.is_global_set());
        let hidden: Vec<Arg> = hidden.map(|arg| arg.clone().hide(true)).collect();
        let without = ["new", "serve", "doctor", "model"];
        without.into_iter().fold(command, |command, name| {
            command.mut_subcommand(name, |sub| sub.args(hidden.clone()))
        })
    }

    fn perform(self, registry: &Registry) -> ExitCode {
        if self.output.resume.is_some() && !matches!(self.command, None | Some(Command::Bench(_))) {
            return end(Err(io::Error::other("--resume is for bench and the main job")));
        }
        let name = match &self.command {
            None => "main",
            Some(Command::Merge { .. }) => "merge",
            Some(Command::Plot { .. }) => "plot",
            Some(_) => "bench",
        };
        let output = self.output.named(name, registry);
        let done = |ok| if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        let result = match self.command {
            #[cfg(feature = "eval")]
            Some(Command::Explore(asked)) => return end(dm_eval::explore::perform(&asked, &output)),
            None => main_job::perform(registry, &output),
            Some(Command::Bench(bench)) => {
                let points = bench.points(registry).map_err(io::Error::other);
                points.and_then(|points| measure(&bench, &points, output))
            }
            Some(Command::New(asked)) => new::perform(&asked, registry),
            #[cfg(feature = "eval")]
            Some(Command::Reproduce(asked)) => dm_eval::reproduce::perform(&asked, &output, registry),
            #[cfg(not(feature = "eval"))]
            Some(Command::Explore(_)) => Err(with_eval("explore")),
            #[cfg(not(feature = "eval"))]
            Some(Command::Reproduce(_)) => Err(with_eval("reproduce")),
            Some(Command::Serve(asked)) => cluster::serve(&asked),
            Some(Command::Index(asked)) => cluster::index(&asked, output.json, registry),
            Some(Command::Doctor(asked)) => cluster::doctor(&asked, registry),
            Some(Command::Merge { rows }) => dm_bench::report::merge(&rows, &output),
            Some(Command::Plot { rows }) => dm_bench::replot(&rows, &output),
            Some(Command::Model { preset: name }) => preset(&name)
                .map_err(io::Error::other)
                .and_then(|model| print_model(&model)),
        };
        end(result.map(done))
    }
}

/// Runs the points of a bench.
fn measure(bench: &Bench, points: &[Point], output: dm_bench::Output) -> io::Result<bool> {
    if let Some(note) = bench.note(points) {
        // Standard error may be closed. The rows contain the same information.
        let _unheard = writeln!(io::stderr(), "dmkit: {note}");
    }
    let output = dm_bench::Output {
        histogram: bench.histogram.clone(),
        ..output
    };
    dm_bench::perform(&bench.title(), points, &output)
}

/// Lists the indexes, their variants and their knobs.
fn indexes(registry: &Registry) -> String {
    let mut text = String::from("Indexes, their variants, and their knobs for --set:\n");
    for entry in registry.entries() {
        text += &format!("\n  {}: {}\n", entry.name(), entry.help());
        for variant in entry.variants() {
            text += &format!("    {:<18} {}\n", variant.name(), variant.help());
        }
        for (knob, help) in entry.knobs() {
            text += &format!("    --set {:<12} {help}\n", format!("{knob}=N"));
        }
    }
    text
}

/// Returns the error of a command that needs the feature `eval`.
#[cfg(not(feature = "eval"))]
fn with_eval(name: &str) -> io::Error {
    io::Error::other(format!(
        "this dmkit was built without the models and the figures of the papers: use `cargo eval {name}` in a checkout"
    ))
}

fn end(result: io::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        // The reader of the output has closed the pipe, which is not an error.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(e) => {
            // Standard error may be closed too. Then the message is lost.
            let _unheard = writeln!(io::stderr(), "dmkit: {e}");
            match e.kind() {
                io::ErrorKind::Interrupted => ExitCode::from(INTERRUPTED),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn print_model(model: &CostModel) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}: a model, not a card\n", model.name)?;
    for p in model.parameters() {
        let provenance = format!("{:?}", p.provenance).to_lowercase();
        writeln!(
            out,
            "{:<20} {:>10} {:<5} {provenance:<10} {}",
            p.name, p.value, p.unit, p.source
        )?;
    }
    Ok(true)
}

/// The command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measures one or more points. Options that take a list (a,b,c) give one row for each combination of their
    /// elements.
    Bench(Box<Bench>),
    /// Writes a crate for an index of your own: its parts, its tests, its models, and a command that measures it
    /// beside the shipped indexes.
    New(new::New),
    /// Runs figures of papers on the simulated testbed and grades the papers' claims. Without a name it lists
    /// the figures.
    ///
    /// Most figures take a few minutes on two cores. The longest, chime-12 and smart-14, take ten to twenty minutes
    /// each, and all figures together take a few hours.
    #[cfg(feature = "eval")]
    Reproduce(dm_eval::reproduce::Reproduce),
    /// Model-checks a protocol: explores every interleaving of a lock, node or tree protocol on an RNIC that uses every
    /// freedom that its contract allows.
    ///
    /// Exit status: 0 if every case gave the result that the registry states: the case holds, exhaustively within its
    /// bounds, or it shows the counterexample that it must show (published flaws, mutants, litmus outcomes that the
    /// contract allows). 1 if a case gave another result. 2 if a search was cut short, or only sampled, and found
    /// nothing. 3 if the model, the case, the trace or the file of --replay cannot be used. As in all commands, options
    /// that are not valid give 2, and output that cannot be written gives 1. With --crash the registry states no
    /// result, and a counterexample gives 1. If the reader closes the pipe, the exit status stays the same.
    #[cfg(feature = "eval")]
    Explore(dm_eval::explore::Explore),
    /// Says how to run the papers' figures.
    #[cfg(not(feature = "eval"))]
    #[command(hide = true, disable_help_flag = true)]
    Reproduce(Elsewhere),
    /// Says how to model-check a protocol.
    #[cfg(not(feature = "eval"))]
    #[command(hide = true, disable_help_flag = true)]
    Explore(Elsewhere),
    /// Runs a memory node: lends memory over RDMA until it is told to stop. Needs the feature `ib`.
    Serve(Serve),
    /// Creates, opens, shows, checks or sweeps the index of a cluster. Refuses an index that does not match. Needs
    /// `ib`; with `--fabric loopback`, `check` and `sweep` look at a new index in this process.
    ///
    /// Exit status: 1 if a check finds faults.
    Index(Box<IndexCommand>),
    /// Reports what this machine's RDMA device promises, and which protocols run on it, use a fallback, or
    /// are refused.
    ///
    /// Exit status: 0 if there is a usable device, 1 if there is none.
    Doctor(Doctor),
    /// Combines the rows of several client machines. Refuses rows of different settings.
    Merge {
        /// Files of JSON lines, as `--json` prints them, or directories of runs: one per machine.
        #[arg(required = true)]
        rows: Vec<PathBuf>,
    },
    /// Draws a table and curves from rows of earlier runs. Refuses to draw rows of different settings as one curve.
    Plot {
        /// Files of JSON lines, as `--json` prints them, or directories of runs.
        #[arg(required = true)]
        rows: Vec<PathBuf>,
    },
    /// Lists the parameters of the simulated NIC, each with its provenance.
    Model {
        /// The preset: cx5-ib or cx6-roce.
        #[arg(default_value = "cx5-ib", value_parser = ["cx5-ib", "cx6-roce"])]
        preset: String,
    },
}

/// The arguments of a command that only a build with the feature `eval` has.
#[cfg(not(feature = "eval"))]
#[derive(Debug, Clone, Args)]
pub(crate) struct Elsewhere {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<String>,
}

/// The destination of results.
#[derive(Debug, Clone, Args)]
pub(crate) struct Output {
    /// Print one JSON object per line on standard output, and nothing else there.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The directory of all runs. Each run has its own directory in it, named after the time and the command, and
    /// `latest` links to the last measurement. When a point ends, its row is added to rows.jsonl there. At the end of
    /// the run, index.html, curves.svg, curves.png and rows.csv are written. `reproduce` writes its files to this
    /// directory itself.
    #[arg(long, global = true, default_value = "dmkit-out")]
    pub(crate) out: PathBuf,
    /// Write no plots, no CSV and no page of a run. The rows are still written.
    #[arg(long, global = true)]
    pub(crate) no_plot: bool,
    /// Continue an earlier run with the same parameters: run only the points that have no row yet. Without a name,
    /// continue the latest run.
    #[arg(long, global = true, value_name = "RUN", num_args = 0..=1, require_equals = true, default_missing_value = LATEST)]
    pub(crate) resume: Option<String>,
}

impl Output {
    /// Returns the destination of a command's results.
    fn named(self, name: &str, registry: &Registry) -> dm_bench::Output {
        dm_bench::Output {
            json: self.json,
            out: self.out,
            name: name.to_owned(),
            no_plot: self.no_plot,
            resume: self.resume,
            histogram: None,
            // The build script sets this, or the environment of a build outside of a checkout.
            commit: option_env!("DMKIT_COMMIT").map(str::to_owned),
            titles: registry.titles().clone(),
            // This is the whole program: its only other thread waits for signals.
            place: Place::Processes,
        }
    }
}

/// The memory that a node lends, and its clients.
#[derive(Debug, Clone, Args)]
pub(crate) struct Serve {
    /// Bytes of host memory (such as 4G; the suffixes are powers of ten).
    #[arg(long, default_value = "1G", value_parser = count)]
    pub(crate) bytes: u64,
    /// Address for clients. An address beyond loopback requires a secret.
    #[arg(long, default_value = "127.0.0.1:7471")]
    pub(crate) listen: SocketAddr,
    /// A file with the secret that clients must know: at least 16 bytes, and mode 0600, 0640 or a stricter one.
    #[arg(long)]
    pub(crate) secret_file: Option<PathBuf>,
    /// A further address by which clients know this node, if they reach it through a proxy.
    #[arg(long)]
    pub(crate) known_as: Vec<SocketAddr>,
    /// Maximum number of bytes that clients of one host take; default: 15/16 of the host memory.
    #[arg(long, value_parser = count)]
    pub(crate) host_bytes: Option<u64>,
    /// Address at which Prometheus can read counters, under /metrics. Anybody may read them; they do not identify
    /// clients.
    #[arg(long)]
    pub(crate) metrics: Option<SocketAddr>,
    /// The RDMA device; default: the first active one.
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Its port; default: the first active one.
    #[arg(long)]
    pub(crate) port: Option<u8>,
    /// The index of its GID; default: RoCE v2 over IPv4, if there is one.
    #[arg(long)]
    pub(crate) gid: Option<u8>,
    /// Maximum number of bytes of the device's own memory to lend; default: all.
    #[arg(long, value_parser = count)]
    pub(crate) chip_bytes: Option<u64>,
    /// Length of a membership lease in milliseconds: 1 to a day.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    pub(crate) lease_ms: u64,
}

/// An action on an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IndexAction {
    /// Create the index, empty, or open it if it exists.
    Create,
    /// Open the index. Fails if there is none, or if it has another kind or geometry.
    Open,
    /// Describe the existing index.
    Show,
    /// Visit all nodes of the index, and report what is wrong: pointers, fence keys, torn and unfinished nodes, locks
    /// of dead clients, lost memory. Changes nothing; other clients may work meanwhile.
    Check,
    /// Expel silent client machines, free their locks, finish what they have left unfinished, and then check.
    Sweep,
}

/// The index and its cluster.
#[derive(Debug, Clone, Args)]
pub(crate) struct IndexCommand {
    /// The action.
    #[arg(value_enum)]
    pub(crate) action: IndexAction,
    #[command(flatten)]
    pub(crate) bench: Bench,
}

/// The device, and the capabilities assumed of it.
#[derive(Debug, Clone, Args)]
pub(crate) struct Doctor {
    /// The device; default: the first usable one.
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Capabilities to assume, although the device does not promise them: lines, cas-read, atomic-write, write-lines,
    /// host-before-chip.
    #[arg(long, value_delimiter = ',', value_parser = dm_bench::cluster::capability)]
    pub(crate) assume: Vec<dm_verbs::Capability>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_holds_together_and_lists_every_variant() {
        let registry = dm_shipped::shipped();
        let mut command = Cli::command_over(&registry);
        command.clone().debug_assert();
        let bench = command.find_subcommand_mut("bench").expect("there is one");
        let help = bench.render_long_help().to_string();
        for name in [
            "as-in-chime",
            "as-in-dolphin",
            "+speculative",
            "-rdwc",
            "Fig. 15 a",
            "--set span=N",
        ] {
            assert!(help.contains(name), "{name}: {help}");
        }
        for name in ["new", "serve", "doctor", "model"] {
            let command = Cli::command_over(&registry);
            let help = command
                .try_get_matches_from(["dmkit", name, "--help"])
                .expect_err("help");
            let help = help.to_string();
            assert!(
                help.contains("--help") && !help.contains("--resume") && !help.contains("--no-plot"),
                "{help}"
            );
        }
    }
}
