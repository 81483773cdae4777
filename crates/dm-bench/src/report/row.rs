//! One measured or modelled point.

use serde::{Deserialize, Serialize};

use super::columns::{Column, Fold, Kind};

/// Defines the type of a row together with the table of its columns, so that there is one description of each.
macro_rules! row {
    ($($(#[doc = $doc:literal])+ $name:ident: $of:ty, $unit:literal, $kind:expr;)*) => {
        /// The result of one index with one number of clients under one workload. Counts "per op" are averages over the
        /// timed operations.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct Row {
            $($(#[doc = $doc])+ pub $name: $of,)*
        }

        impl Row {
            /// The columns, in the order of both formats.
            pub const COLUMNS: &[Column] = &[$(Column {
                name: stringify!($name),
                of: stringify!($of),
                unit: $unit,
                kind: $kind,
                meaning: concat!($($doc),+),
            }),*];
        }
    };
}

use Fold::{First, Interval, Mean, Most, Sum};
use Kind::{Along, Curve, Date, Result as Figure, Seed, Setting};

row! {
    /// The index.
    index: String, "", Curve;
    /// The variant: techniques switched on or off.
    variant: String, "", Curve;
    /// The operations that clients of a compute node share: off, reads, writes or on. Empty if the variant decides.
    sharing: String, "", Curve;
    /// The parameters that only some indexes know, as `name=value`, separated by spaces.
    knobs: String, "", Curve;
    /// `off` if dead members are never expelled.
    recovery: String, "", Curve;
    /// The panel of a figure to which the row belongs; empty if this is the panel of its workload.
    panel: String, "", Curve;
    /// The mix.
    workload: String, "", Setting;
    /// The distribution of keys.
    distribution: String, "", Setting;
    /// The number of ranks of Zipf's law. If there are more ranks than loaded keys, several ranks stand for one key.
    ranks: u64, "keys", Setting;
    /// The number of keys that a scan requests: one number, or `1-N` for a random number up to N.
    scan_length: String, "keys", Setting;
    /// The recorded operations that replace the mix and the distribution.
    trace: String, "", Setting;
    /// The world, and the model's preset or the cluster's file.
    fabric: String, "", Setting;
    /// A hash of every parameter of the model and of the CPU costs; empty if the world is not a model.
    model_hash: String, "", Setting;
    /// Whether times are those of a model and not of a machine.
    simulated: bool, "", Setting;
    /// Compute nodes.
    compute_nodes: u16, "", Setting;
    /// Memory nodes.
    memory_nodes: u16, "", Setting;
    /// Whether compute and memory nodes share machines and NICs.
    colocated: bool, "", Setting;
    /// Client threads of all compute nodes.
    clients: u32, "", Along;
    /// Coroutines of a client thread.
    coroutines: u32, "", Setting;
    /// Keys loaded.
    keys: u64, "keys", Setting;
    /// The size of a key.
    key_bytes: u64, "bytes", Setting;
    /// The size of a value.
    value_bytes: u64, "bytes", Setting;
    /// The requested size of the index cache of a compute node.
    cache_limit_bytes: u64, "bytes", Along;
    /// The fill of loaded leaves: a share, or `as-inserted`.
    fill: String, "", Setting;
    /// The requested number of operations; if the run has a duration, the maximum number of operations.
    ops_limit: u64, "operations", Setting;
    /// The length of the warm-up, in which operations are checked but not counted.
    warm_up_us: f64, "µs", Setting;
    /// The requested duration; 0 if the run ends after a number of operations.
    duration_us: f64, "µs", Setting;
    /// The time for which a member may be silent; 0 if the world chooses it, or if no member is ever expelled.
    lease_us: f64, "µs", Setting;
    /// The times after the warm-up at which compute nodes die: `at TIME` or `every TIME`. Empty if none dies.
    kills: String, "", Setting;
    /// The length of the slices of `timeline`; 0 if there are none.
    slice_us: f64, "µs", Setting;
    /// Settings that the command line cannot make: addresses, own-updates, by-thread, steady, least=NANOSECONDS.
    mode: String, "", Setting;
    /// The seed of the run, or the first one of several seeds.
    seed: u64, "", Seed;
    /// The number of seeds whose rows this one combines.
    seeds: u64, "", Figure(Sum);
    /// Operations timed.
    ops: u64, "operations", Figure(Sum);
    /// The time in which these operations ended, in the world's time.
    seconds: f64, "s", Figure(Mean);
    /// Throughput.
    mops: f64, "million operations per second", Figure(Mean);
    /// The confidence interval of the throughput.
    mops_ci95: Option<f64>, "million operations per second", Figure(Interval);
    /// `mops` divided by `bound_share`: the throughput at which the busiest resource of the testbed would be busy all
    /// the time, if an operation used it for as long as in this run.
    bound_mops: Option<f64>, "million operations per second", Figure(Mean);
    /// The busiest resource.
    bound_by: Option<String>, "", Figure(First);
    /// The share of the counted time for which the busiest resource was busy.
    bound_share: Option<f64>, "", Figure(Mean);
    /// The share of the clients' time in which they waited for locks that were not free.
    lock_waits: f64, "", Figure(Mean);
    /// The limit of the throughput: a resource with a `bound_share` of at least 0.9; otherwise the clients' waits and
    /// repeated work, or the latency if there are few clients.
    limit: Option<String>, "", Figure(First);
    /// Mean latency.
    mean_us: f64, "µs", Figure(Mean);
    /// Median latency.
    p50_us: f64, "µs", Figure(Mean);
    /// The confidence interval of the median latency.
    p50_us_ci95: Option<f64>, "µs", Figure(Interval);
    /// 90th percentile of latency.
    p90_us: f64, "µs", Figure(Mean);
    /// 99th percentile of latency.
    p99_us: f64, "µs", Figure(Mean);
    /// The confidence interval of the 99th percentile of latency.
    p99_us_ci95: Option<f64>, "µs", Figure(Interval);
    /// 99.9th percentile of latency.
    p999_us: f64, "µs", Figure(Mean);
    /// The longest latency.
    max_us: f64, "µs", Figure(Most);
    /// Round trips waited for.
    round_trips: f64, "per op", Figure(Mean);
    /// Verbs posted.
    verbs: f64, "per op", Figure(Mean);
    /// Payload bytes read.
    bytes_read: f64, "bytes per op", Figure(Mean);
    /// Payload bytes written.
    bytes_written: f64, "bytes per op", Figure(Mean);
    /// Failed attempts to lock.
    lock_retries: f64, "per op", Figure(Mean);
    /// Reads repeated because they were torn.
    torn_reads: f64, "per op", Figure(Mean);
    /// Gets that another client's READ answered.
    delegated: f64, "per op", Figure(Mean);
    /// Writes that another client's write superseded.
    combined: f64, "per op", Figure(Mean);
    /// The largest index cache of a compute node, including its record of hot keys.
    cache_bytes: u64, "bytes", Figure(Most);
    /// The largest size of the other tables of a compute node, for locks and for shared operations.
    local_bytes: u64, "bytes", Figure(Most);
    /// Bytes in use on memory nodes.
    remote_bytes_per_key: f64, "bytes per key", Figure(Mean);
    /// The number of operations, including the warm-up, divided by the operations of the trace. If it is above 1,
    /// clients have begun the trace again. Without a trace it is 0.
    trace_passes: f64, "", Figure(Mean);
    /// Operations with a wrong answer, such as a value that is not one whole write of its key, or a loaded key that is
    /// missing. If this is not 0, the row is invalid.
    wrong_values: u64, "reads", Figure(Sum);
    /// Operations that ended in an error. If no compute node dies, the first error ends the run.
    failed_ops: u64, "operations", Figure(Sum);
    /// Compute nodes that died.
    killed: u64, "compute nodes", Figure(Sum);
    /// Members that were silent for a lease and were expelled.
    expelled: u64, "members", Figure(Sum);
    /// Locks of dead members that were freed.
    freed_locks: u64, "locks", Figure(Sum);
    /// The longest time from a death until the dead member was expelled and its locks were free.
    recovery_us: Option<f64>, "µs", Figure(Mean);
    /// The operations that succeeded and those that failed in each slice of the time after the warm-up, as `succeeded`
    /// or `succeeded+failed`, separated by spaces.
    timeline: String, "", Figure(First);
    /// The world's promises and assumptions, separated by `; `.
    assumptions: String, "", Setting;
    /// The client machine of a cluster that measured the row, as `number/machines`; empty in other worlds, and if the
    /// row combines all machines.
    machine: String, "", Setting;
    /// The latencies of this machine as `nanoseconds:count`, for combining them with those of the other machines; empty
    /// if `machine` is empty.
    latencies: String, "", Figure(First);
    /// dmkit's version.
    version: String, "", Setting;
    /// The git commit from which dmkit was built, or `unknown`.
    commit: String, "", Setting;
    /// The name of the machine that ran the point. A simulated result does not depend on the machine.
    host: String, "", Setting;
    /// The time at which the point ended, in UTC.
    date: String, "", Date;
}

impl Row {
    /// Returns the name of the row's curve in a legend.
    pub fn series(&self) -> String {
        let sharing = match self.sharing.as_str() {
            "" => String::new(),
            sharing => format!("+rdwc:{sharing}"),
        };
        let recovery = match self.recovery.as_str() {
            "" => String::new(),
            off => format!("recovery:{off}"),
        };
        let parts = [&self.variant, &sharing, &self.knobs, &recovery];
        let parts: Vec<&str> = parts
            .into_iter()
            .map(String::as_str)
            .filter(|p| !p.is_empty())
            .collect();
        match parts.as_slice() {
            [] => self.index.clone(),
            parts => format!("{} ({})", self.index, parts.join(" ")),
        }
    }

    /// Returns the row's place on its curve. Rows of one curve with the same place are one point with several seeds.
    pub(crate) fn place(&self) -> (u32, u64) {
        (self.clients, self.cache_limit_bytes)
    }

    /// Returns the requested size of the caches, exactly and with its unit.
    pub(crate) fn cache_limit(&self) -> String {
        format!("{} MB", self.cache_limit_bytes as f64 / 1e6)
    }

    /// Returns a name of the point for messages.
    pub fn name(&self) -> String {
        let panel = match self.panel.as_str() {
            "" => String::new(),
            panel => format!("{panel}: "),
        };
        format!(
            "{panel}{}, {}, {} clients, cache {}, seed {}",
            self.series(),
            self.workload,
            self.clients,
            self.cache_limit(),
            self.seed
        )
    }

    /// Returns the title of the row's panel, or of its workload's panel if it has none of its own.
    pub fn panel_title(&self) -> &str {
        if self.panel.is_empty() {
            &self.workload
        } else {
            &self.panel
        }
    }

    /// Returns the name of the first column whose value is infinite or not a number.
    pub(crate) fn not_finite(&self) -> Option<&'static str> {
        // A JSON value has no infinity, but CSV shows it as text.
        let mut line = csv::WriterBuilder::new()
            .has_headers(false)
            .from_writer(Vec::new());
        line.serialize(self).ok()?;
        let line = line.into_inner().ok()?;
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .from_reader(line.as_slice());
        let values = reader.records().next()?.ok()?;
        let mut columns = Self::COLUMNS.iter().zip(&values);
        let (column, _) = columns.find(|(column, value)| {
            column.is_float() && value.parse().is_ok_and(|figure: f64| !figure.is_finite())
        })?;
        Some(column.name)
    }
}
