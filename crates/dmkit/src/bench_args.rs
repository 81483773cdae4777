//! The arguments of `dmkit bench`, and the points that they describe.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use dm_bench::cluster::{ClusterRun, Machine};
use dm_bench::{
    Distribution, Fabric, Faults, Fill, IndexEntry, Kill, Knobs, Mix, Point, Registry, ScanLength, Setting,
    Sharing, VariantEntry, count,
};
use dm_workload::Trace;

/// The name that stands for every index, or for every variant.
const ALL: &str = "all";

/// Whether a run loads a new index or uses an existing one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pool {
    /// The run loads a new index. It fails if an index exists.
    New,
    /// An index exists, and was loaded with the same keys.
    Open,
}

/// Whether dead members are expelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Recovery {
    /// Dead members are expelled one lease after their death.
    On,
    /// Dead members are never expelled, and their locks stay held.
    Off,
}

/// The parameters of a measurement.
#[derive(Debug, Clone, Args)]
pub(crate) struct Bench {
    /// The indexes to measure, or `all`; the end of this help lists them.
    #[arg(
        long,
        help_heading = "Indexes",
        value_delimiter = ',',
        default_value = "sherman"
    )]
    pub(crate) index: Vec<String>,
    /// The variants of these indexes: each index must have each variant. The end of this help lists them. `all` stands
    /// for every variant that has keys of --key-size.
    #[arg(long, help_heading = "Indexes", value_delimiter = ',', default_value = IndexEntry::DEFAULT, allow_hyphen_values = true)]
    pub(crate) variant: Vec<String>,
    /// Set a parameter that only some indexes have, such as span=32. May be given more than once.
    #[arg(long, help_heading = "Indexes", value_name = "NAME=N", value_parser = knob)]
    pub(crate) set: Vec<(String, u64)>,
    /// YCSB a to f, load, write-only, write-intensive, read-intensive, range-only, range-write, twitter-8, twitter-9,
    /// or shares such as get:50/upsert:50.
    #[arg(long, help_heading = "Workload", value_delimiter = ',', default_value = "c", value_parser = mix)]
    pub(crate) workload: Vec<Mix>,
    /// zipf:THETA, uniform or latest; default: the workload's usual one.
    #[arg(long, help_heading = "Workload")]
    pub(crate) dist: Option<Distribution>,
    /// Number of ranks of Zipf's law; if there are more ranks than keys, several ranks stand for one key. Default:
    /// --keys
    #[arg(long, help_heading = "Workload", value_parser = count)]
    pub(crate) zipf_keys: Option<u64>,
    /// sim:PRESET (cx5-ib, cx6-roce), loopback, or ib:FILE, a cluster file.
    #[arg(long, help_heading = "Testbed", default_value = "sim:cx5-ib")]
    pub(crate) fabric: Fabric,
    /// The number of this client machine, and the number of client machines: 0/2 is the first of two (ib only). Each
    /// machine runs a part of the clients.
    #[arg(long, help_heading = "Cluster of machines", default_value_t = Machine::ALONE)]
    pub(crate) machine: Machine,
    /// Whether the first machine loads a new index (ib only); later points of one run use the index of the first point.
    #[arg(long, help_heading = "Cluster of machines", value_enum, default_value_t = Pool::New)]
    pub(crate) pool: Pool,
    /// Seconds that the machines wait for each other (ib only).
    #[arg(long, help_heading = "Cluster of machines", default_value_t = 60)]
    pub(crate) wait: u64,
    /// Compute nodes; in a cluster, --machine gives their number.
    #[arg(long, help_heading = "Testbed", default_value_t = 8)]
    pub(crate) cns: u16,
    /// Memory nodes; in a cluster, the cluster file lists them.
    #[arg(long, help_heading = "Testbed", default_value_t = 8)]
    pub(crate) mns: u16,
    /// Compute and memory nodes share machines and NICs (sim only).
    #[arg(long, help_heading = "Testbed")]
    pub(crate) colocated: bool,
    /// Client threads over all compute nodes.
    #[arg(long, help_heading = "Testbed", value_delimiter = ',', default_value = "176")]
    pub(crate) clients: Vec<u32>,
    /// Coroutines per client thread.
    #[arg(long, help_heading = "Testbed", default_value_t = 1)]
    pub(crate) coroutines: u32,
    /// Number of keys that are loaded first.
    #[arg(long, help_heading = "Workload", default_value = "1M", value_parser = count)]
    pub(crate) keys: u64,
    /// Number of operations of all clients; default: 1M. With --duration this is only a limit, and the default is so
    /// high that no run reaches it.
    #[arg(long, help_heading = "Length", value_parser = count)]
    pub(crate) ops: Option<u64>,
    /// Length of the warm-up, such as 500us: operations that end in it are checked but not counted. Each client joins
    /// the pool in its first operation, which takes about 5us per client and distorts a short run without a warm-up.
    /// This is the model's time, or on loopback the machine's time.
    #[arg(long, help_heading = "Length", value_name = "TIME", default_value = "0ns", value_parser = time)]
    pub(crate) warmup: u64,
    /// End each point this time after the warm-up, such as 5ms, instead of after --ops operations.
    #[arg(long, help_heading = "Length", value_name = "TIME", value_parser = time)]
    pub(crate) duration: Option<u64>,
    /// Kill the first compute node this time after the warm-up, such as 300ms (sim only; needs --duration). The locks
    /// that its clients hold stay held until the others have expelled it. Operations may fail then; the clients
    /// continue nevertheless.
    #[arg(long, help_heading = "Faults", value_name = "TIME", value_parser = time)]
    pub(crate) kill_at: Option<u64>,
    /// At the end of each period of this length, kill the compute node that has worked longest, and replace it (sim
    /// only; needs --duration).
    #[arg(long, help_heading = "Faults", value_name = "TIME", value_parser = time, conflicts_with = "kill_at")]
    pub(crate) kill_every: Option<u64>,
    /// The time for which a member of the pool may be silent before the others expel it, such as 10ms; default: the
    /// model's lease (sim only).
    #[arg(long, help_heading = "Faults", value_name = "TIME", value_parser = time)]
    pub(crate) lease: Option<u64>,
    /// Whether dead members are expelled: on, off, or both as two curves (sim only).
    #[arg(
        long,
        help_heading = "Faults",
        value_enum,
        value_delimiter = ',',
        default_value = "on"
    )]
    pub(crate) recovery: Vec<Recovery>,
    /// Record the throughput in slices of this length, such as 1ms, and draw it over time (sim only; needs --duration).
    #[arg(long, help_heading = "More results", value_name = "TIME", value_parser = time)]
    pub(crate) timeline: Option<u64>,
    /// Number of keys that a scan requests; default: 1 to 100.
    #[arg(long, help_heading = "Workload")]
    pub(crate) scan_len: Option<u32>,
    /// Bytes of a key: 8, 16, 24 or 32. FG, the steps of Sherman, and its variants in other papers support only 8 and
    /// 32.
    #[arg(long, help_heading = "Workload", default_value_t = 8)]
    pub(crate) key_size: usize,
    /// Bytes of a value, at least 8 (for a stamp that every read checks).
    #[arg(long, help_heading = "Workload", default_value_t = 8)]
    pub(crate) value_size: usize,
    /// Index cache of a compute node, MB. Several sizes give a curve over the cache sizes, for one number of clients.
    #[arg(long, help_heading = "Testbed", value_name = "MB", value_delimiter = ',', default_value = "500", value_parser = megabytes)]
    pub(crate) cache_mb: Vec<u64>,
    /// Fill of loaded leaves: a share, or `as-inserted` (the fill after inserts in random order).
    #[arg(long, help_heading = "Workload", default_value = "0.8", value_parser = str::parse::<Fill>)]
    pub(crate) fill: Fill,
    /// Read delegation and write combining between the clients of a compute node: off, reads, writes or on; default:
    /// the variant decides.
    #[arg(long, help_heading = "Indexes", value_delimiter = ',')]
    pub(crate) rdwc: Vec<Sharing>,
    /// Take the operations from a file in the form of Twitter's cache traces (decompressed). `--ops` sets their number.
    /// The clients get them in turn, and all of their keys are loaded first. Replaces `--workload`, `--dist`, `--keys`
    /// and `--zipf-keys`.
    #[arg(long, help_heading = "Workload", conflicts_with_all = ["workload", "dist", "keys", "zipf_keys"])]
    pub(crate) trace: Option<PathBuf>,
    /// Seed of everything random.
    #[arg(long, help_heading = "Length", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Run each point with this many seeds, from --seed on, and show the mean and its 95 % interval.
    #[arg(long, help_heading = "Length", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) seeds: u64,
    /// Write the latencies of every point to a file, in HdrHistogram's interval log format, which its plotters read.
    /// The values are nanoseconds, and a tag names the point.
    #[arg(long, help_heading = "More results", value_name = "FILE")]
    pub(crate) histogram: Option<PathBuf>,
}

/// Default number of operations.
const OPS: u64 = 1_000_000;
/// A number of operations per second that no testbed reaches. With a duration, the default number of operations is
/// computed from it.
const OPS_PER_SECOND_MAX: u64 = 200_000_000;

/// Parses a mix. Shares are separated by `/` here, because `,` separates two mixes.
fn mix(s: &str) -> Result<Mix, String> {
    s.replace('/', ",")
        .parse()
        .map_err(|e: dm_workload::WorkloadError| e.to_string())
}

/// Parses a time with its unit. Returns nanoseconds.
fn time(s: &str) -> Result<u64, String> {
    let wrong = || format!("{s:?} is not a time (such as 500us, 5ms, 2s)");
    let digits = s.trim_end_matches(|c: char| c.is_alphabetic());
    let unit = match &s[digits.len()..] {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(wrong()),
    };
    let number = digits.parse::<u64>().ok();
    number.and_then(|n| n.checked_mul(unit)).ok_or_else(wrong)
}

/// Parses a number of megabytes. Returns bytes.
fn megabytes(s: &str) -> Result<u64, String> {
    let size = s.parse().ok().filter(|size: &f64| (0.0..1e12).contains(size));
    let size = size.ok_or_else(|| format!("{s:?} is not a size in MB (such as 0.5 or 500)"))?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be no more than 10^18 and not negative"
    )]
    Ok((size * 1e6).round() as u64)
}

/// Parses `NAME=N`.
fn knob(s: &str) -> Result<(String, u64), String> {
    let (name, value) = s
        .split_once('=')
        .ok_or_else(|| format!("{s:?} is not of the form NAME=N (such as span=32)"))?;
    Ok((name.to_owned(), count(value)?))
}

impl Bench {
    /// Returns a point for every combination of the lists.
    ///
    /// # Errors
    /// Returns a message if an index, a variant, a knob or a file cannot be used, or if a cluster should have several
    /// seeds.
    pub(crate) fn points(&self, registry: &Registry) -> Result<Vec<Point>, String> {
        if self.seeds > 1 && matches!(self.fabric, Fabric::Ib(_)) {
            return Err(
                "--seeds is not for clusters: all points use one index, which has the keys of one seed"
                    .to_owned(),
            );
        }
        let mut points: Vec<Point> = Vec::new();
        let trace = self.recorded()?;
        let (columns, kinds) = (self.columns(registry)?, self.kinds());
        for &mix in &self.workload {
            for &(index, variant) in &columns {
                for &(sharing, recovery) in &kinds {
                    for (clients, cache_bytes, seed) in self.places() {
                        let faults = Faults {
                            kill: self.kill_at.map(Kill::At).or(self.kill_every.map(Kill::Every)),
                            lease: self.lease,
                            recovery,
                            slice: self.timeline,
                        };
                        let setting = Setting {
                            faults,
                            sharing,
                            clients,
                            cache_bytes,
                            seed,
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

    /// Returns every combination of a number of clients, a size of caches and a seed.
    fn places(&self) -> impl Iterator<Item = (u32, u64, u64)> {
        let seeds = self.seed..=self.seed.saturating_add(self.seeds - 1);
        let caches = move |&clients| self.cache_mb.iter().map(move |&cache| (clients, cache));
        let points = self.clients.iter().flat_map(caches);
        points.flat_map(move |(clients, cache)| seeds.clone().map(move |seed| (clients, cache, seed)))
    }

    /// Returns the number of operations of a point; with a duration, returns their limit.
    fn operations(&self) -> u64 {
        let enough = |duration| {
            let nanos = u128::from(self.warmup.saturating_add(duration));
            let operations = nanos * u128::from(OPS_PER_SECOND_MAX) / 1_000_000_000;
            u64::try_from(operations).unwrap_or(u64::MAX).max(OPS)
        };
        self.ops.unwrap_or_else(|| self.duration.map_or(OPS, enough))
    }

    /// Returns a note if the trace has fewer operations than the points make.
    pub(crate) fn note(&self, points: &[Point]) -> Option<String> {
        let recorded = points.first()?.setting.trace.as_ref()?.operations();
        let (path, asked) = (self.trace.as_deref()?.display(), self.operations());
        (recorded < asked).then(|| {
            format!(
                "{path}: {recorded} recorded operations, but up to {asked} are run: at the end of the trace, the clients \
                 begin it again"
            )
        })
    }

    /// Returns each requested index with each requested variant.
    fn columns<'a>(&'a self, registry: &'a Registry) -> Result<Vec<(&'a str, &'a str)>, String> {
        let mut columns = Vec::new();
        let every = registry.entries().iter().map(IndexEntry::name);
        let named = |name: &'a String| match name == ALL {
            true => every.clone().collect(),
            false => vec![name.as_str()],
        };
        for index in self.index.iter().flat_map(named) {
            let entry = registry.find(index).map_err(|e| e.to_string())?;
            let usable = |variant: &&VariantEntry| variant.key_bytes().contains(&self.key_size);
            for variant in &self.variant {
                match variant == ALL {
                    true => {
                        let usable = entry.variants().iter().filter(usable);
                        columns.extend(usable.map(|variant| (index, variant.name())));
                    }
                    false => columns.push((index, variant)),
                }
            }
        }
        Ok(columns)
    }

    /// Returns every combination of a kind of sharing and a kind of recovery.
    fn kinds(&self) -> Vec<(Option<Sharing>, bool)> {
        let sharing = match self.rdwc.as_slice() {
            [] => vec![None],
            asked => asked.iter().copied().map(Some).collect(),
        };
        let recoveries = self.recovery.iter().map(|recovery| *recovery == Recovery::On);
        sharing
            .into_iter()
            .flat_map(|sharing| recoveries.clone().map(move |on| (sharing, on)))
            .collect()
    }

    /// Returns the operations of the trace, if one was named.
    fn recorded(&self) -> Result<Option<Trace>, String> {
        let Some(path) = &self.trace else {
            return Ok(None);
        };
        let wrong = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let file = BufReader::new(File::open(path).map_err(|e| wrong(&e))?);
        Trace::read(file, self.operations())
            .map(Some)
            .map_err(|e| wrong(&e))
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
            ops: self.operations(),
            warm_up_ns: self.warmup,
            duration_ns: self.duration,
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
            fill: self.fill,
            trace: trace.cloned(),
            knobs,
            ..Setting::new(fabric)
        }
    }

    /// Returns the world, and its numbers of compute and memory nodes. `later` is set for every point except the first.
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        bench: Bench,
    }

    fn bench(words: &str) -> Bench {
        Cli::try_parse_from(["bench"].into_iter().chain(words.split_whitespace()))
            .map_err(|e| e.to_string())
            .unwrap()
            .bench
    }

    fn points(words: &str) -> Result<Vec<Point>, String> {
        bench(words).points(&dm_shipped::shipped())
    }

    #[test]
    fn lists_name_every_combination() {
        let named: Vec<_> = points("--index chime,sherman --variant default,+speculative --clients 1,2")
            .unwrap_err()
            .lines()
            .map(str::to_owned)
            .collect();
        assert!(
            named[0].starts_with("sherman has no variant \"+speculative\""),
            "{named:?}"
        );
        let named: Vec<String> =
            points("--index chime,smart --clients 1,2 --workload a,c --seeds 2 --seed 5")
                .unwrap()
                .iter()
                .map(|point| {
                    let at = &point.setting;
                    format!("{} {} {} {}", at.mix, point.index, at.clients, at.seed)
                })
                .collect();
        assert_eq!(named.len(), 16);
        assert_eq!(
            named[..4],
            ["a chime 1 5", "a chime 1 6", "a chime 2 5", "a chime 2 6"]
        );
        assert_eq!(named[15], "c smart 2 6");
        assert_eq!(points(&format!("--seed {}", u64::MAX)).unwrap().len(), 1);
        let variants = points("--variant fg,fg+,default").unwrap();
        assert_eq!(variants.len(), 3);
        let caches: Vec<u64> = points("--cache-mb 0.125,2")
            .unwrap()
            .iter()
            .map(|point| point.setting.cache_bytes)
            .collect();
        assert_eq!(caches, [125_000, 2_000_000]);
        for wrong in ["-1", "nan", "x", "1e13"] {
            assert!(megabytes(wrong).unwrap_err().contains("such as"), "{wrong}");
        }
    }

    #[test]
    fn all_stands_for_every_index_and_for_every_variant_with_such_keys() {
        let registry = dm_shipped::shipped();
        let names = |words: &str| -> Vec<(String, String)> {
            let points = points(words).unwrap();
            points
                .iter()
                .map(|p| (p.index.clone(), p.variant.clone()))
                .collect()
        };
        let every: Vec<_> = registry.entries().iter().map(IndexEntry::name).collect();
        let found: Vec<_> = names("--index all").into_iter().map(|(index, _)| index).collect();
        assert_eq!(found, every);
        let all = names("--index all --variant all");
        let short = names("--index all --variant all --key-size 24");
        assert!(all.len() > short.len() && short.len() > every.len());
        assert!(all.contains(&("sherman".to_owned(), "fg".to_owned())));
        assert!(!short.contains(&("sherman".to_owned(), "fg".to_owned())));
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_nearest() {
        for (words, expected) in [
            (
                "--index shermann",
                "no index \"shermann\"; did you mean \"sherman\"? there are ",
            ),
            (
                "--index sherman,chmie",
                "no index \"chmie\"; did you mean \"chime\"? there are ",
            ),
            (
                "--variant fg++",
                "sherman has no variant \"fg++\"; did you mean \"fg+\"? there are ",
            ),
            (
                "--index chime --variant default,+speculatve",
                "chime has no variant \"+speculatve\"; did you mean \"+speculative\"? there are ",
            ),
            (
                "--set spam=3",
                "sherman has no knob \"spam\"; did you mean \"span\"? there are ",
            ),
            ("--index zzzzzzzz", "no index \"zzzzzzzz\"; there are "),
        ] {
            let told = points(words).unwrap_err();
            assert!(told.starts_with(expected), "{words}: {told}");
        }
    }

    #[test]
    fn counts_and_times_have_units() {
        let asked = bench("--keys 500K --ops 2m --warmup 500us --duration 5ms");
        assert_eq!((asked.keys, asked.ops), (500_000, Some(2_000_000)));
        assert_eq!((asked.warmup, asked.duration), (500_000, Some(5_000_000)));
        assert_eq!(
            [time("3ns"), time("4µs"), time("2s")],
            [Ok(3), Ok(4_000), Ok(2_000_000_000)]
        );
        for wrong in ["5", "ms", "1.5ms", "5m", "-1s", "99999999999999s"] {
            assert!(time(wrong).unwrap_err().contains("such as"), "{wrong}");
        }
    }

    #[test]
    fn a_duration_has_operations_enough() {
        assert_eq!(bench("").operations(), 1_000_000);
        assert_eq!(bench("--duration 1us").operations(), 1_000_000);
        assert_eq!(bench("--duration 40ms --warmup 10ms").operations(), 10_000_000);
        assert_eq!(bench("--duration 40ms --ops 7").operations(), 7);
    }

    #[test]
    fn a_cluster_has_one_seed() {
        let path = std::env::temp_dir().join(format!("dmkit-cluster-{}.toml", std::process::id()));
        std::fs::write(&path, "nodes = [\"127.0.0.1:1\"]").unwrap();
        let words = format!("--fabric ib:{}", path.display());
        assert_eq!(points(&words).unwrap().len(), 1);
        let told = points(&format!("{words} --seeds 2")).unwrap_err();
        assert!(told.starts_with("--seeds is not for clusters"), "{told}");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_trace_that_is_too_short_is_said_to_be() {
        let path = std::env::temp_dir().join(format!("dmkit-trace-{}", std::process::id()));
        std::fs::write(&path, "0,aa,2,39,7,get,0\n0,bb,2,39,7,set,7200\n").unwrap();
        let asked = |ops: u64| bench(&format!("--trace {} --ops {ops}", path.display()));
        let note = |ops| {
            let asked = asked(ops);
            asked.note(&asked.points(&dm_shipped::shipped()).unwrap())
        };
        assert_eq!(note(2), None);
        let told = note(9).unwrap();
        assert!(
            told.contains("2 recorded operations, but up to 9 are run: at the end of the trace, the clients begin it again"),
            "{told}"
        );
        std::fs::remove_file(&path).unwrap();
    }
}
