//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use dm_index::Fill;
use dm_sim::CostModel;
use dm_workload::{Distribution, Mix, ScanLength};
use sherman::{Rdwc, Variant};

use crate::cluster::{ClusterRun, Machine};

/// Range indexes on disaggregated memory: load, drive, check and compare them on a simulated RDMA testbed.
///
/// Without a command it runs the main job: it loads FG+, Sherman, SMART, CHIME and Dolphin, runs YCSB C, A
/// and LOAD with five client counts each on the model `cx5-ib`, checks every value read, prints a table and
/// draws throughput-latency curves. This takes about a minute on two cores.
#[derive(Debug, Parser)]
#[command(name = "dmkit", version, about, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measures one or more points; every parameter is an option. Lists (a,b,c) make one row each.
    Bench(Box<Bench>),
    /// Runs figures of papers on the simulated testbed and grades the papers' claims. Without a name it lists
    /// the figures.
    ///
    /// Sherman's figures take about half an hour in all on two cores. Each figure of SMART and CHIME takes an
    /// hour or more, because 10 M keys are loaded for each point; with `--keys 1000000` it takes a tenth of
    /// that.
    #[cfg(feature = "eval")]
    Reproduce(Reproduce),
    /// Model-checks a protocol: explores every interleaving of a lock, node or tree protocol on an RNIC that
    /// uses every freedom it has.
    ///
    /// Exit status: 0 if every case gave the result that the registry states: the case holds, exhaustively
    /// within its bounds, or it shows the counterexample that it must show (published flaws, mutants, litmus
    /// outcomes that the contract allows). 1 if a case gave another result. 2 if a search was cut short, or
    /// only sampled, and found nothing. 3 if it could not be run. With --crash the registry states nothing,
    /// and a counterexample gives 1. A reader that closes the pipe changes none of this.
    #[cfg(feature = "eval")]
    Explore(Explore),
    /// Runs a memory node: lends memory over RDMA until it is told to stop. Needs the feature `ib`.
    Serve(Serve),
    /// Creates, opens or shows the index of a cluster, through its superblock. Refuses an index that does not
    /// match. Needs `ib`.
    Index(Box<IndexCommand>),
    /// Reports what this machine's RDMA device promises, and which protocols run on it, use a fallback, or
    /// are refused.
    ///
    /// Exit status: 0 if there is a usable device, 1 if there is none.
    Doctor(Doctor),
    /// Combines the rows of several client machines (the `--json` output of each machine, in a file).
    Merge {
        /// Files of JSON lines, one per machine.
        #[arg(required = true)]
        rows: Vec<PathBuf>,
    },
    /// Draws a table and curves from rows that `--json` printed.
    Plot {
        /// A file of JSON lines.
        rows: PathBuf,
    },
    /// Lists the parameters of the simulated NIC, each with its provenance.
    Model {
        /// The preset: cx5-ib or cx6-roce.
        #[arg(default_value = "cx5-ib", value_parser = ["cx5-ib", "cx6-roce"])]
        preset: String,
    },
}

/// The destination of results.
#[derive(Debug, Clone, Args)]
pub(crate) struct Output {
    /// Print one JSON object per line on standard output, and nothing else there.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Directory for the plots (SVG and PNG) and the CSV.
    #[arg(long, global = true, default_value = "dmkit-out")]
    pub(crate) out: PathBuf,
    /// Write no plots and no CSV.
    #[arg(long, global = true)]
    pub(crate) no_plot: bool,
}

/// The model to explore, and the kind of search.
#[cfg(feature = "eval")]
#[derive(Debug, Clone, Args)]
pub(crate) struct Explore {
    /// The model; without one, all models are listed.
    pub(crate) name: Option<String>,
    /// List the models: name, kind, expected verdict, source, knobs; with --json one object per line.
    #[arg(long)]
    pub(crate) list: bool,
    /// Explore the protocol as it was published, with its flaw.
    #[arg(long, conflicts_with = "mutant")]
    pub(crate) as_published: bool,
    /// Explore a twin that is broken on purpose.
    #[arg(long, value_name = "NAME")]
    pub(crate) mutant: Option<String>,
    /// Only this case (a shape and a setting of the knobs); default: all cases of check size.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) case: Option<usize>,
    /// Include the cases of nightly size.
    #[arg(long)]
    pub(crate) nightly: bool,
    /// Search breadth-first, so that the first counterexample is the shortest. The default is depth-first,
    /// with shortening afterwards.
    #[arg(long, conflicts_with = "seed")]
    pub(crate) bfs: bool,
    /// Sample runs instead, by random priorities (PCT) from this seed.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Number of sampled runs, with --seed.
    #[arg(long, default_value_t = 100_000, requires = "seed")]
    pub(crate) runs: u64,
    /// The depth of bugs that PCT searches for: one more than its number of priority changes.
    #[arg(long, default_value_t = 3, requires = "seed")]
    pub(crate) depth: u32,
    /// Choose each step uniformly instead of by priorities, with --seed.
    #[arg(long, requires = "seed")]
    pub(crate) uniform: bool,
    /// Let one client die at any step.
    #[arg(long)]
    pub(crate) crash: bool,
    /// Draw the first counterexample to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Run this trace of a case again, and print it.
    #[arg(long, requires = "case")]
    pub(crate) trace: Option<String>,
    /// Run the first counterexample of this file again; the file holds lines that `--json` printed. Needs no
    /// other argument.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "case", "trace", "mutant", "as_published"])]
    pub(crate) replay: Option<PathBuf>,
    /// Seconds after which the search of each case is cut short.
    #[arg(long, default_value_t = 120)]
    pub(crate) time: u64,
}

/// The figures, and the effort.
#[cfg(feature = "eval")]
#[derive(Debug, Clone, Args)]
pub(crate) struct Reproduce {
    /// A figure such as sherman-10, `all` for every figure, or a file of your own whose name ends with .toml
    /// (in the form of `crates/dmkit/experiments`).
    pub(crate) names: Vec<String>,
    /// List the available figures.
    #[arg(long)]
    pub(crate) list: bool,
    /// Run only this panel of each figure; may be given more than once. Results of other panels in the output
    /// directory stay and are graded too, if they were run in the same way.
    #[arg(long = "panel", value_name = "PANEL")]
    pub(crate) panels: Vec<String>,
    /// Runs of each point, with seeds 1, 2, …; default: 3, or 1 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub(crate) seeds: Option<u64>,
    /// Run a sixth of the operations, for a first look. Verdicts about tail latencies are not reliable then.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Load this many keys instead; the cache sizes change in proportion, the Zipf ranks do not.
    #[arg(long, value_parser = count)]
    pub(crate) keys: Option<u64>,
    /// Also vary each of the 11 fitted constants by -20 % and +20 %, with one seed. This makes 22 times the
    /// runs of one seed, about 8 times as long as three seeds without it (sherman-10 takes 10 minutes,
    /// sherman-16 two).
    #[arg(long)]
    pub(crate) sensitivity: bool,
    /// Write a page, index.html, about everything in the output directory.
    #[arg(long)]
    pub(crate) page: bool,
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
    /// A file with the secret that clients must know: at least 16 bytes.
    #[arg(long)]
    pub(crate) secret_file: Option<PathBuf>,
    /// Address for Prometheus, which reads counters at /metrics. Anybody may read them; they name no client.
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
    /// Length of a membership lease in milliseconds.
    #[arg(long, default_value_t = 100)]
    pub(crate) lease_ms: u64,
}

/// An action on an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IndexAction {
    /// Create the index, empty, or open it if it exists.
    Create,
    /// Open the index; refused if there is none, or one of another kind or geometry.
    Open,
    /// Describe the existing index.
    Show,
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
    /// Capabilities that you vouch for: lines, cas-read, atomic-write, write-lines, host-before-chip.
    #[arg(long, value_delimiter = ',', value_parser = crate::cluster::capability)]
    pub(crate) assume: Vec<dm_verbs::Capability>,
}

/// Whether an index is loaded first, or exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pool {
    /// Loaded first; refused if an index exists.
    New,
    /// An index exists, loaded with the same keys.
    Open,
}

/// An index that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Index {
    /// A B-link tree (SIGMOD 2022); FG and FG+ are variants of it.
    Sherman,
    /// An adaptive radix tree (OSDI 2023).
    Smart,
    /// A B-link tree over hopscotch leaves (SOSP 2024).
    Chime,
    /// A radix tree over leaves of many keys (MSST 2024).
    Dolphin,
}

impl Index {
    /// Returns the printed name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sherman => "sherman",
            Self::Smart => "smart",
            Self::Chime => "chime",
            Self::Dolphin => "dolphin",
        }
    }

    /// Returns the sharing of operations in its paper.
    pub(crate) const fn usual_sharing(self) -> Rdwc {
        match self {
            Self::Sherman | Self::Dolphin => Rdwc::OFF,
            Self::Smart | Self::Chime => Rdwc::ON,
        }
    }
}

/// The parameters of a measurement.
#[derive(Debug, Clone, Args)]
pub(crate) struct Bench {
    /// The index to measure.
    #[arg(long, value_enum, default_value_t = Index::Sherman)]
    pub(crate) index: Index,
    /// Techniques of sherman: default, paper-rtt, published, fg, fg+, +combine, +on-chip, +hierarchical,
    /// +two-level, as-in-smart.
    #[arg(long, value_delimiter = ',', default_value = "default")]
    pub(crate) variant: Vec<Variant>,
    /// YCSB a to f, load, write-only, write-intensive, read-intensive, range-only, range-write, or shares such as
    /// get:50/upsert:50.
    #[arg(long, value_delimiter = ',', default_value = "c", value_parser = mix)]
    pub(crate) workload: Vec<Mix>,
    /// zipf:THETA, uniform or latest; default: the workload's usual one.
    #[arg(long)]
    pub(crate) dist: Option<Distribution>,
    /// Number of keys over which Zipf ranks are drawn before they are folded onto the loaded ones; default:
    /// --keys.
    #[arg(long, value_parser = count)]
    pub(crate) zipf_keys: Option<u64>,
    /// sim:PRESET (cx5-ib, cx6-roce), loopback, or ib:FILE, a cluster file.
    #[arg(long, default_value = "sim:cx5-ib")]
    pub(crate) fabric: Fabric,
    /// The number of this client machine and their total (ib only): 0/2 is the first of two. Each machine
    /// runs a part of the clients.
    #[arg(long, default_value_t = Machine::ALONE)]
    pub(crate) machine: Machine,
    /// Whether the first machine loads a new index (ib only); the later points of one bench use the index of
    /// the first point.
    #[arg(long, value_enum, default_value_t = Pool::New)]
    pub(crate) pool: Pool,
    /// Seconds that the machines wait for each other (ib only).
    #[arg(long, default_value_t = 60)]
    pub(crate) wait: u64,
    /// Compute nodes; in a cluster, the number of its client machines.
    #[arg(long, default_value_t = 8)]
    pub(crate) cns: u16,
    /// Memory nodes.
    #[arg(long, default_value_t = 8)]
    pub(crate) mns: u16,
    /// Compute and memory nodes share machines and NICs (sim only).
    #[arg(long)]
    pub(crate) colocated: bool,
    /// Client threads over all compute nodes.
    #[arg(long, value_delimiter = ',', default_value = "176")]
    pub(crate) clients: Vec<u32>,
    /// Coroutines per client thread.
    #[arg(long, default_value_t = 1)]
    pub(crate) coroutines: u32,
    /// Keys loaded first, in all.
    #[arg(long, default_value = "1M", value_parser = count)]
    pub(crate) keys: u64,
    /// Operations, in all.
    #[arg(long, default_value = "1M", value_parser = count)]
    pub(crate) ops: u64,
    /// Scans ask for this many keys; default: 1 to 100.
    #[arg(long)]
    pub(crate) scan_len: Option<u32>,
    /// Bytes of a key: 8 or 32.
    #[arg(long, default_value_t = 8)]
    pub(crate) key_size: usize,
    /// Bytes of a value, at least 8 (for a stamp that every read checks).
    #[arg(long, default_value_t = 8)]
    pub(crate) value_size: usize,
    /// Index cache of a compute node, MB.
    #[arg(long, default_value_t = 500.0)]
    pub(crate) cache_mb: f64,
    /// Fill of loaded leaves: a share, or `as-inserted` (the fill after inserts in random order).
    #[arg(long, default_value = "0.8", value_parser = str::parse::<Fill>)]
    pub(crate) fill: Fill,
    /// Read delegation and write combining between the clients of a compute node: off, reads, writes or on;
    /// default: as in the index's paper (off for sherman and dolphin, on for smart and chime).
    #[arg(long, value_delimiter = ',')]
    pub(crate) rdwc: Vec<Sharing>,
    /// Number of local locks of each of the two.
    #[arg(long, default_value_t = sherman::DEFAULT_RDWC_LOCKS)]
    pub(crate) rdwc_locks: u32,
    /// Take the operations from a file in the form of Twitter's cache traces (decompressed). `--ops` says how
    /// many; they are dealt out to the clients in turn, and all of their keys are loaded first. Replaces
    /// `--workload`, `--dist` and `--keys`.
    #[arg(long, conflicts_with_all = ["workload", "dist", "keys", "zipf_keys"])]
    pub(crate) trace: Option<PathBuf>,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// The operations that clients of a compute node share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sharing(pub(crate) Rdwc);

impl Sharing {
    pub(crate) fn name(self) -> &'static str {
        match (self.0.delegate, self.0.combine) {
            (false, false) => "off",
            (true, false) => "reads",
            (false, true) => "writes",
            (true, true) => "on",
        }
    }
}

impl FromStr for Sharing {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let all = [(false, false), (true, false), (false, true), (true, true)];
        let named = all.into_iter().map(|(delegate, combine)| {
            Self(Rdwc {
                delegate,
                combine,
                ..Rdwc::OFF
            })
        });
        let mut named = named.filter(|sharing| sharing.name() == s);
        named
            .next()
            .ok_or_else(|| format!("no sharing {s:?}; there are off, reads, writes and on"))
    }
}

/// A world to measure in.
#[derive(Debug, Clone)]
pub(crate) enum Fabric {
    Loopback,
    Sim(Box<CostModel>),
    Ib(Box<ClusterRun>),
}

impl Fabric {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Loopback => "loopback".to_owned(),
            Self::Ib(cluster) => format!("ib:{}", cluster.path.display()),
            Self::Sim(model) => format!("sim:{}", model.name.trim_start_matches("model ")),
        }
    }
}

impl FromStr for Fabric {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        match s.split_once(':') {
            None if s == "loopback" => Ok(Self::Loopback),
            Some(("sim", name)) => preset(name).map(|m| Self::Sim(Box::new(m))),
            Some(("ib", path)) => ClusterRun::read(path).map(|run| Self::Ib(Box::new(run))),
            _ => Err(format!(
                "no fabric {s:?}; there are loopback, sim:cx5-ib, sim:cx6-roce and ib:FILE"
            )),
        }
    }
}

pub(crate) fn preset(name: &str) -> Result<CostModel, String> {
    match name {
        "cx5-ib" => Ok(CostModel::cx5_ib()),
        "cx6-roce" => Ok(CostModel::cx6_roce()),
        _ => Err(format!("no preset {name:?}; there are cx5-ib and cx6-roce")),
    }
}

/// Parses a mix. Shares are separated by `/` here, because `,` separates mixes.
fn mix(s: &str) -> Result<Mix, String> {
    s.replace('/', ",")
        .parse()
        .map_err(|e: dm_workload::WorkloadError| e.to_string())
}

/// Parses a count with an optional k, M or G (powers of ten).
fn count(s: &str) -> Result<u64, String> {
    let (digits, unit) = match s.as_bytes().last() {
        Some(b'k') => (&s[..s.len() - 1], 1_000),
        Some(b'M') => (&s[..s.len() - 1], 1_000_000),
        Some(b'G') => (&s[..s.len() - 1], 1_000_000_000),
        _ => (s, 1),
    };
    let wrong = || format!("{s:?} is no count (such as 200000, 200k, 1M, 1G)");
    digits
        .replace('_', "")
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(unit))
        .ok_or_else(wrong)
}

impl Bench {
    pub(crate) fn sharing(&self) -> Vec<Sharing> {
        match self.rdwc.as_slice() {
            [] => vec![Sharing(self.index.usual_sharing())],
            asked => asked.to_vec(),
        }
    }

    pub(crate) fn scan_length(&self) -> ScanLength {
        self.scan_len.map_or(ScanLength::default(), ScanLength::Fixed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn counts_have_units() {
        assert_eq!(count("1_500k"), Ok(1_500_000));
        assert_eq!(count("1G"), Ok(1_000_000_000));
        assert!(count("M").is_err() && count("x").is_err());
    }

    #[test]
    fn unknown_names_are_refused_with_a_list() {
        assert!("both".parse::<Sharing>().unwrap_err().contains("writes"));
        assert_eq!("on".parse::<Sharing>().map(|s| s.0), Ok(Rdwc::ON));
        assert!("sim:cx7".parse::<Fabric>().unwrap_err().contains("cx6-roce"));
        assert!(
            "ib:/no/such/file"
                .parse::<Fabric>()
                .unwrap_err()
                .contains("/no/such/file")
        );
        assert!("ib".parse::<Fabric>().unwrap_err().contains("loopback"));
    }
}
