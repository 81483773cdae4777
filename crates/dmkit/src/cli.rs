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
/// Without a command: the main job. Loads FG+, Sherman, SMART, CHIME and Dolphin, runs YCSB C, A and LOAD over five client counts each on
/// the model `cx5-ib`, checks every value read, prints a table and draws throughput-latency curves. About a minute on
/// two cores.
#[derive(Debug, Parser)]
#[command(name = "dmkit", version, about, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measures one or more points: every dial open. Lists (a,b,c) make one row each.
    Bench(Box<Bench>),
    /// Runs figures of papers on the simulated testbed and grades their claims; alone, lists them.
    ///
    /// Sherman's take about half an hour in all on two cores, SMART's and CHIME's, which load 10 M keys for each point,
    /// an hour or more for each figure; a tenth of that with `--keys 1000000`.
    Reproduce(Reproduce),
    /// Model-checks: explores every interleaving of a lock, node or tree protocol on an RNIC that does what it may.
    ///
    /// Exit status: 0 every case came out as the registry says: it holds, exhaustively within its bounds, or it shows the
    /// counterexample that it must show (flaws as published, mutants, litmus outcomes that the contract allows); 1 a case
    /// came out otherwise; 2 a search was cut short, or only sampled, and found nothing; 3 it could not be run. With
    /// --crash the registry says nothing, and a counterexample ends with 1. A reader that closes the pipe changes none of
    /// this.
    Explore(Explore),
    /// A memory node: lends memory over RDMA until it is told to stop. Needs the feature `ib`.
    Serve(Serve),
    /// Creates, opens or shows the index of a cluster, through its superblock; refuses what does not fit. Needs `ib`.
    Index(Box<IndexCommand>),
    /// What this machine's RDMA device promises, and which protocols run on it, fall back, or are refused.
    ///
    /// Exit status: 0 there is a device that can be used, 1 there is none.
    Doctor(Doctor),
    /// Puts the rows of several client machines together (`--json` of each in a file).
    Merge {
        /// Files of JSON lines, one of each machine.
        #[arg(required = true)]
        rows: Vec<PathBuf>,
    },
    /// Draws a table and curves of rows that `--json` printed.
    Plot {
        /// A file of JSON lines.
        rows: PathBuf,
    },
    /// Lists the parameters of the simulated NIC, each with its provenance.
    Model {
        /// Which preset: cx5-ib or cx6-roce.
        #[arg(default_value = "cx5-ib", value_parser = ["cx5-ib", "cx6-roce"])]
        preset: String,
    },
}

/// Where results go.
#[derive(Debug, Clone, Args)]
pub(crate) struct Output {
    /// One JSON object a line on standard output, and nothing else there.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Directory for the plots (SVG and PNG) and the CSV.
    #[arg(long, global = true, default_value = "dmkit-out")]
    pub(crate) out: PathBuf,
    /// No plots and no CSV.
    #[arg(long, global = true)]
    pub(crate) no_plot: bool,
}

/// Which model, and how it is gone through.
#[derive(Debug, Clone, Args)]
pub(crate) struct Explore {
    /// Which model; without one, lists them all.
    pub(crate) name: Option<String>,
    /// List the models: name, kind, expected verdict, source, knobs; with --json one object a line.
    #[arg(long)]
    pub(crate) list: bool,
    /// The protocol as it was published, with its flaw.
    #[arg(long, conflicts_with = "mutant")]
    pub(crate) as_published: bool,
    /// A twin that is broken on purpose.
    #[arg(long, value_name = "NAME")]
    pub(crate) mutant: Option<String>,
    /// Only this case (a shape and a setting of the knobs); default: all of check size.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) case: Option<usize>,
    /// The cases of nightly size as well.
    #[arg(long)]
    pub(crate) nightly: bool,
    /// Breadth-first: the first counterexample is the shortest. Else depth-first, and shortened afterwards.
    #[arg(long, conflicts_with = "seed")]
    pub(crate) bfs: bool,
    /// Sample runs instead, by random priorities (PCT) from this seed.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// How many, with --seed.
    #[arg(long, default_value_t = 100_000, requires = "seed")]
    pub(crate) runs: u64,
    /// The depth of bugs that PCT looks for: one more than its changes of priority.
    #[arg(long, default_value_t = 3, requires = "seed")]
    pub(crate) depth: u32,
    /// Choose each step uniformly instead of by priorities, with --seed.
    #[arg(long, requires = "seed")]
    pub(crate) uniform: bool,
    /// Let one client die at any step.
    #[arg(long)]
    pub(crate) crash: bool,
    /// Draw the first counterexample into this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Run this trace of a case again, and tell it.
    #[arg(long, requires = "case")]
    pub(crate) trace: Option<String>,
    /// Run the first counterexample of this file again: lines that `--json` printed. Needs no other argument.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "case", "trace", "mutant", "as_published"])]
    pub(crate) replay: Option<PathBuf>,
    /// Seconds after which the search of one case is cut short.
    #[arg(long, default_value_t = 120)]
    pub(crate) time: u64,
}

/// Which figures, and how thoroughly.
#[derive(Debug, Clone, Args)]
pub(crate) struct Reproduce {
    /// Such as sherman-10; `all` for every one; or a file of your own (in the form of `crates/dmkit/experiments`), whose name
    /// ends with .toml.
    pub(crate) names: Vec<String>,
    /// List the figures that there are.
    #[arg(long)]
    pub(crate) list: bool,
    /// Only this panel of each; may be given more than once. What the output directory holds of the others, run in
    /// the same way, stays and is graded with it.
    #[arg(long = "panel", value_name = "PANEL")]
    pub(crate) panels: Vec<String>,
    /// Runs of each point, with seeds 1, 2, …; default: 3, with --quick 1.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub(crate) seeds: Option<u64>,
    /// A sixth of the operations: for a first look. Verdicts of tails are not to be trusted then.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Load so many keys instead; caches stay in proportion to what the file says, the ranks of Zipf as they are.
    #[arg(long, value_parser = count)]
    pub(crate) keys: Option<u64>,
    /// Also turn each of the 11 fitted constants down and up by 20 %, with one seed: 22 times the runs of one seed,
    /// so about 8 times as long as three seeds without (sherman-10 takes 10 minutes, sherman-16 two).
    #[arg(long)]
    pub(crate) sensitivity: bool,
    /// Make a page, index.html, of everything that the output directory holds.
    #[arg(long)]
    pub(crate) page: bool,
}

/// What a memory node lends, and to whom.
#[derive(Debug, Clone, Args)]
pub(crate) struct Serve {
    /// Bytes of host memory (such as 4G; powers of ten).
    #[arg(long, default_value = "1G", value_parser = count)]
    pub(crate) bytes: u64,
    /// Where clients connect. Beyond loopback there must be a secret.
    #[arg(long, default_value = "127.0.0.1:7471")]
    pub(crate) listen: SocketAddr,
    /// A file of the secret that clients must know: 16 bytes at least.
    #[arg(long)]
    pub(crate) secret_file: Option<PathBuf>,
    /// Where counters are told to Prometheus, at /metrics. To whoever asks: they name no client.
    #[arg(long)]
    pub(crate) metrics: Option<SocketAddr>,
    /// The RDMA device; else the first that is active.
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Its port; else the first that is active.
    #[arg(long)]
    pub(crate) port: Option<u8>,
    /// The index of its GID; else RoCE v2 over IPv4, if there is one.
    #[arg(long)]
    pub(crate) gid: Option<u8>,
    /// At most so much of the device's own memory is lent; default: all.
    #[arg(long, value_parser = count)]
    pub(crate) chip_bytes: Option<u64>,
    /// Milliseconds of a membership lease.
    #[arg(long, default_value_t = 100)]
    pub(crate) lease_ms: u64,
}

/// What is done with an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IndexAction {
    /// Create it, empty; or open it if it is there.
    Create,
    /// Open it; refused if another kind or geometry is there, or nothing.
    Open,
    /// Say what is there.
    Show,
}

/// Which index of which cluster.
#[derive(Debug, Clone, Args)]
pub(crate) struct IndexCommand {
    /// What to do.
    #[arg(value_enum)]
    pub(crate) action: IndexAction,
    #[command(flatten)]
    pub(crate) bench: Bench,
}

/// Which device, and what is assumed of it.
#[derive(Debug, Clone, Args)]
pub(crate) struct Doctor {
    /// The device; else the first that can be used.
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// What you vouch for: lines, cas-read, atomic-write, write-lines, host-before-chip.
    #[arg(long, value_delimiter = ',', value_parser = crate::cluster::capability)]
    pub(crate) assume: Vec<dm_verbs::Capability>,
}

/// Whether an index is loaded first, or is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pool {
    /// Loaded first; refused if one is there.
    New,
    /// It is there, loaded with the same keys.
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
    /// As printed.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sherman => "sherman",
            Self::Smart => "smart",
            Self::Chime => "chime",
            Self::Dolphin => "dolphin",
        }
    }

    /// What its clients share in its paper.
    pub(crate) const fn usual_sharing(self) -> Rdwc {
        match self {
            Self::Sherman | Self::Dolphin => Rdwc::OFF,
            Self::Smart | Self::Chime => Rdwc::ON,
        }
    }
}

/// The dials of a measurement.
#[derive(Debug, Clone, Args)]
pub(crate) struct Bench {
    /// Which index.
    #[arg(long, value_enum, default_value_t = Index::Sherman)]
    pub(crate) index: Index,
    /// Which techniques of sherman: default, paper-rtt, published, fg, fg+, +combine, +on-chip,
    /// +hierarchical, +two-level, as-in-smart.
    #[arg(long, value_delimiter = ',', default_value = "default")]
    pub(crate) variant: Vec<Variant>,
    /// YCSB a to f, load, write-only, write-intensive, read-intensive, range-only, range-write, or shares such as
    /// get:50/upsert:50.
    #[arg(long, value_delimiter = ',', default_value = "c", value_parser = mix)]
    pub(crate) workload: Vec<Mix>,
    /// zipf:THETA, uniform or latest; default: the workload's usual one.
    #[arg(long)]
    pub(crate) dist: Option<Distribution>,
    /// Over how many keys Zipf ranks are drawn before they are folded onto the loaded ones; default: --keys.
    #[arg(long, value_parser = count)]
    pub(crate) zipf_keys: Option<u64>,
    /// sim:PRESET (cx5-ib, cx6-roce), loopback, or ib:FILE, a cluster file.
    #[arg(long, default_value = "sim:cx5-ib")]
    pub(crate) fabric: Fabric,
    /// Which of how many client machines this is (ib only): 0/2 is the first of two. Each has its part of the clients.
    #[arg(long, default_value_t = Machine::ALONE)]
    pub(crate) machine: Machine,
    /// Whether the first machine loads a new index (ib only); further points of one bench use the first one's.
    #[arg(long, value_enum, default_value_t = Pool::New)]
    pub(crate) pool: Pool,
    /// Seconds that the machines wait for each other (ib only).
    #[arg(long, default_value_t = 60)]
    pub(crate) wait: u64,
    /// Compute nodes; of a cluster, its client machines.
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
    /// Keys loaded before, in all.
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
    /// Bytes of a value, at least 8 (a stamp that every read checks).
    #[arg(long, default_value_t = 8)]
    pub(crate) value_size: usize,
    /// Index cache of a compute node, MB.
    #[arg(long, default_value_t = 500.0)]
    pub(crate) cache_mb: f64,
    /// How full leaves are loaded: a share, or `as-inserted` (as inserts in random order leave them).
    #[arg(long, default_value = "0.8", value_parser = str::parse::<Fill>)]
    pub(crate) fill: Fill,
    /// Read delegation and write combining between the clients of a compute node: off, reads, writes or on; default: as in
    /// the index's paper, off for sherman and dolphin, on for smart and chime.
    #[arg(long, value_delimiter = ',')]
    pub(crate) rdwc: Vec<Sharing>,
    /// Local locks of each of the two.
    #[arg(long, default_value_t = sherman::DEFAULT_RDWC_LOCKS)]
    pub(crate) rdwc_locks: u32,
    /// Operations from a file in the form of Twitter's cache traces (decompressed), as many as `--ops` says, dealt out to
    /// the clients in turn; all keys of these are loaded before. Instead of `--workload`, `--dist` and `--keys`.
    #[arg(long, conflicts_with_all = ["workload", "dist", "keys", "zipf_keys"])]
    pub(crate) trace: Option<PathBuf>,
    /// Everything random comes from this.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// What clients of a compute node share.
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

/// A mix; shares are separated by `/` here, because `,` separates mixes.
fn mix(s: &str) -> Result<Mix, String> {
    s.replace('/', ",")
        .parse()
        .map_err(|e: dm_workload::WorkloadError| e.to_string())
}

/// A count with an optional k, M or G (powers of ten).
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
