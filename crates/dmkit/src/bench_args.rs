//! The parameters of `dmkit bench`, and the points that they name.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use dm_bench::cluster::{ClusterRun, Machine};
use dm_bench::{
    Distribution, Fabric, Fill, IndexEntry, Knobs, Mix, Point, Registry, ScanLength, Setting, Sharing, count,
};
use dm_workload::Trace;

/// Whether an index is loaded first, or exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pool {
    /// Loaded first; refused if an index exists.
    New,
    /// An index exists, loaded with the same keys.
    Open,
}

/// The parameters of a measurement.
#[derive(Debug, Clone, Args)]
pub(crate) struct Bench {
    /// The indexes to measure; the end of this help lists them.
    #[arg(long, value_delimiter = ',', default_value = "sherman")]
    pub(crate) index: Vec<String>,
    /// Their variants: each index must have each of them. The end of this help lists them.
    #[arg(long, value_delimiter = ',', default_value = IndexEntry::DEFAULT, allow_hyphen_values = true)]
    pub(crate) variant: Vec<String>,
    /// Set a parameter that only some indexes know, such as span=32. May be given more than once.
    #[arg(long, value_name = "NAME=N", value_parser = knob)]
    pub(crate) set: Vec<(String, u64)>,
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
    /// Bytes of a key: 8, 16, 24 or 32. FG, the steps of Sherman and its forms in other papers have 8 or 32.
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
    /// default: as the variant has it.
    #[arg(long, value_delimiter = ',')]
    pub(crate) rdwc: Vec<Sharing>,
    /// Take the operations from a file in the form of Twitter's cache traces (decompressed). `--ops` says how
    /// many; they are dealt out to the clients in turn, and all of their keys are loaded first. Replaces
    /// `--workload`, `--dist` and `--keys`.
    #[arg(long, conflicts_with_all = ["workload", "dist", "keys", "zipf_keys"])]
    pub(crate) trace: Option<PathBuf>,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Parses a mix. Shares are separated by `/` here, because `,` separates mixes.
fn mix(s: &str) -> Result<Mix, String> {
    s.replace('/', ",")
        .parse()
        .map_err(|e: dm_workload::WorkloadError| e.to_string())
}

/// Parses `NAME=N`.
fn knob(s: &str) -> Result<(String, u64), String> {
    let (name, value) = s
        .split_once('=')
        .ok_or_else(|| format!("{s:?} is no knob and value (such as span=32)"))?;
    Ok((name.to_owned(), count(value)?))
}

impl Bench {
    /// Returns every combination of the lists.
    ///
    /// # Errors
    /// Returns a message that names the index, variant or file and the problem.
    pub(crate) fn points(&self, registry: &Registry) -> Result<Vec<Point>, String> {
        let mut points: Vec<Point> = Vec::new();
        let trace = self.recorded()?;
        for &mix in &self.workload {
            for index in &self.index {
                for (variant, sharing) in self.variants() {
                    for &clients in &self.clients {
                        let setting = Setting {
                            sharing,
                            clients,
                            ..self.setting(mix, trace.as_ref(), !points.is_empty())
                        };
                        points.push(
                            registry
                                .point(index, variant, setting)
                                .map_err(|e| e.to_string())?,
                        );
                    }
                }
            }
        }
        Ok(points)
    }

    /// Pairs each variant with each kind of sharing.
    fn variants(&self) -> impl Iterator<Item = (&str, Option<Sharing>)> {
        let sharing = match self.rdwc.as_slice() {
            [] => vec![None],
            asked => asked.iter().copied().map(Some).collect(),
        };
        let of = move |variant| sharing.clone().into_iter().map(move |sharing| (variant, sharing));
        self.variant.iter().map(String::as_str).flat_map(of)
    }

    /// Returns the operations of the trace, if one was named.
    fn recorded(&self) -> Result<Option<Trace>, String> {
        let Some(path) = &self.trace else {
            return Ok(None);
        };
        let wrong = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let file = BufReader::new(File::open(path).map_err(|e| wrong(&e))?);
        Trace::read(file, self.ops).map(Some).map_err(|e| wrong(&e))
    }

    fn setting(&self, mix: Mix, trace: Option<&Trace>, later: bool) -> Setting {
        let (fabric, compute_nodes, memory_nodes) = self.place(later);
        let mut knobs = Knobs::default();
        for (name, value) in &self.set {
            knobs.set(name, *value);
        }
        let keys = trace.map_or(self.keys, Trace::keys);
        Setting {
            compute_nodes,
            memory_nodes,
            colocated: self.colocated,
            coroutines: self.coroutines,
            keys,
            ops: self.ops,
            mix: trace.map_or(mix, Trace::mix),
            distribution: self.dist.unwrap_or_else(|| mix.usual_distribution()),
            ranks: if trace.is_some() {
                keys
            } else {
                self.zipf_keys.unwrap_or(keys)
            },
            scan_length: self.scan_len.map_or(ScanLength::default(), ScanLength::Fixed),
            key_bytes: self.key_size,
            value_bytes: self.value_size,
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a float's cast saturates, and a negative cache is an empty one"
            )]
            cache_bytes: (self.cache_mb * 1e6) as u64,
            fill: self.fill,
            seed: self.seed,
            trace: trace.cloned(),
            knobs,
            ..Setting::new(fabric)
        }
    }

    /// Returns the world, and its numbers of compute and memory nodes. `later` marks a point after the first.
    fn place(&self, later: bool) -> (Fabric, u16, u16) {
        let Fabric::Ib(cluster) = &self.fabric else {
            return (self.fabric.clone(), self.cns, self.mns);
        };
        let nodes = u16::try_from(cluster.file.nodes.len()).unwrap_or(u16::MAX);
        let run = ClusterRun {
            machine: self.machine,
            existing: later || self.pool == Pool::Open,
            patience: Duration::from_secs(self.wait),
            ..(**cluster).clone()
        };
        (Fabric::Ib(Box::new(run)), self.machine.of, nodes)
    }

    /// Returns the title of the table and the plots.
    pub(crate) fn title(&self) -> String {
        let place = if self.colocated { "colocated" } else { "separate" };
        match &self.fabric {
            Fabric::Loopback => format!(
                "dmkit bench, loopback, {} compute and {} memory nodes",
                self.cns, self.mns
            ),
            Fabric::Ib(cluster) => format!(
                "dmkit bench, {}, client machine {}, {} memory nodes",
                self.fabric.name(),
                self.machine,
                cluster.file.nodes.len()
            ),
            fabric => format!(
                "dmkit bench, {}, {} CN + {} MN {place}",
                fabric.name(),
                self.cns,
                self.mns
            ),
        }
    }
}
