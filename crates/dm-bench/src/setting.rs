//! The setting of a measurement: the world, and every parameter of a point except its index.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use dm_combine::Rdwc;
use dm_index::{CpuCost, Fill};
use dm_sim::CostModel;
use dm_workload::{
    Distribution, KeySpace, Mix, OpKind, OpStream, Plan, ScanLength, Trace, Workload, WorkloadError,
};

use crate::cluster::ClusterRun;
use crate::{Faults, Kill};

/// A number of operations that no run reaches.
const ENDLESS: u64 = u64::MAX / 2;

/// The parameters of one measurement. No index has parameters of its own here, except for [`Knobs`].
#[derive(Debug, Clone)]
pub struct Setting {
    /// The world.
    pub fabric: Fabric,
    /// Number of compute nodes; in a cluster, number of client machines.
    pub compute_nodes: u16,
    /// Number of memory nodes.
    pub memory_nodes: u16,
    /// Whether compute and memory nodes share machines and RNICs (simulator only).
    pub colocated: bool,
    /// Number of client threads over all compute nodes.
    pub clients: u32,
    /// Number of coroutines per client thread. Each has its own connections.
    pub coroutines: u32,
    /// Number of keys that are loaded first.
    pub keys: u64,
    /// Number of operations of all clients.
    pub ops: u64,
    /// The kinds of operations.
    pub mix: Mix,
    /// The distribution of the keys of operations.
    pub distribution: Distribution,
    /// Number of ranks of Zipf's law. If there are more ranks than loaded keys, several ranks stand for one key.
    pub ranks: u64,
    /// Whether no two clients update the same key. See [`Workload::own_updates`].
    pub own_updates: bool,
    /// Number of keys that a scan requests.
    pub scan_length: ScanLength,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value, at least 8. The first 8 bytes are a stamp, by which every read is checked.
    pub value_bytes: usize,
    /// Bytes of a compute node's index cache.
    pub cache_bytes: u64,
    /// Fill level of loaded leaves.
    pub fill: Fill,
    /// Seed of everything random.
    pub seed: u64,
    /// The operations that clients of a compute node share; `None` leaves the choice to the index.
    pub sharing: Option<Sharing>,
    /// Whether keys of 32 bytes look like mail addresses.
    pub addresses: bool,
    /// Recorded operations, which replace the mix and the distribution.
    pub trace: Option<Trace>,
    /// Parameters that only some indexes have.
    pub knobs: Knobs,
    /// The CPU time that the simulator charges for a client's own work. See [`Setting::cpu`].
    pub cpu_cost: CpuCost,
    /// Whether half of a compute node's threads scan, and the others run the rest of the mix. Simulator only.
    pub by_thread: bool,
    /// Whether the clients take operations until all of them together have done them, so that a fast client does more.
    /// [`Measured::steady`](crate::Measured::steady) then counts only operations between a warm-up and the moment when
    /// the operations run out. Simulator only. (There, runs with a warm-up or a duration distribute their operations in
    /// the same way.)
    pub steady: bool,
    /// Minimum duration of a steady run, in nanoseconds of the world's time. Queues at hot locks take time to fill, and
    /// the more clients there are, the longer this takes.
    pub least: u64,
    /// Length of the warm-up, in nanoseconds of the world's time. Operations that end in it are checked, but not
    /// counted.
    pub warm_up_ns: u64,
    /// Length of the measured time after the warm-up, in nanoseconds of the world's time. Operations that end in it are
    /// counted, and then the clients stop. With a duration, `ops` is a limit that the clients must not reach.
    pub duration_ns: Option<u64>,
    /// Compute nodes that die, and the record of the throughput over time. Simulator only.
    pub faults: Faults,
}

impl Setting {
    /// Returns a small default: 8 compute and 8 memory nodes, 176 client threads, a million keys of 8 bytes with
    /// values of 8 bytes, and a million gets of Zipf-distributed keys.
    pub fn new(fabric: Fabric) -> Self {
        let mix: Mix = "c".parse().expect("a preset");
        Self {
            fabric,
            compute_nodes: 8,
            memory_nodes: 8,
            colocated: false,
            clients: 176,
            coroutines: 1,
            keys: 1_000_000,
            ops: 1_000_000,
            mix,
            distribution: mix.usual_distribution(),
            ranks: 1_000_000,
            own_updates: false,
            scan_length: ScanLength::default(),
            key_bytes: 8,
            value_bytes: 8,
            cache_bytes: 500_000_000,
            fill: Fill::Even(0.8),
            seed: 1,
            sharing: None,
            addresses: false,
            trace: None,
            knobs: Knobs::default(),
            cpu_cost: CpuCost::MODEL,
            by_thread: false,
            steady: false,
            least: 0,
            warm_up_ns: 0,
            duration_ns: None,
            faults: Faults::NONE,
        }
    }

    /// The knob of [`Setting::lock_and_read_or`].
    pub const LOCK_AND_READ: &str = "lock-and-read";
    /// The knob of [`Setting::sharing_or`].
    pub const RDWC_LOCKS: &str = "rdwc-locks";

    /// Returns the CPU time to charge for a client's own work. It is zero in worlds in which CPU time is real.
    pub fn cpu(&self) -> CpuCost {
        match self.fabric {
            Fabric::Sim(_) => self.cpu_cost,
            _ => CpuCost::NONE,
        }
    }

    /// Returns the operations that clients of a compute node share. `own` is the index's default. The knob
    /// [`RDWC_LOCKS`](Self::RDWC_LOCKS) changes the number of local locks for sharing.
    pub fn sharing_or(&self, own: Rdwc) -> Rdwc {
        let mut sharing = self.sharing.map_or(own, |sharing| sharing.0);
        if let Some(locks) = self.knobs.get(Self::RDWC_LOCKS) {
            sharing.locks = u32::try_from(locks).unwrap_or(u32::MAX);
        }
        sharing
    }

    /// Returns whether the lock's CAS and the leaf's READ are posted in one chain. `own` is the index's default. The
    /// knob [`LOCK_AND_READ`](Self::LOCK_AND_READ) changes it.
    pub fn lock_and_read_or(&self, own: bool) -> bool {
        self.knobs.get(Self::LOCK_AND_READ).map_or(own, |on| on != 0)
    }

    /// Returns the part of the setting on which the loaded index and its warm caches depend. Everything else has a
    /// fixed value: clients, the kinds of operations, and when they begin and end.
    pub(crate) fn of_load(&self) -> Self {
        Self {
            clients: 0,
            coroutines: 0,
            mix: "c".parse().expect("a preset"),
            scan_length: ScanLength::default(),
            // A run that is not steady learns hot keys from at most as many gets as it has operations.
            ops: if self.steady { 0 } else { self.ops },
            by_thread: false,
            least: 0,
            warm_up_ns: 0,
            duration_ns: None,
            ..self.clone()
        }
    }

    /// Returns the number of clients with their own connections: threads times coroutines.
    pub fn endpoints(&self) -> u32 {
        self.clients.saturating_mul(self.coroutines)
    }

    /// Returns the number of compute nodes that take the place of dead ones.
    pub(crate) fn spares(&self) -> u16 {
        let deaths = self.faults.deaths(self.duration_ns.unwrap_or(0)).count();
        match self.faults.kill {
            Some(Kill::Every(_)) => u16::try_from(deaths).unwrap_or(u16::MAX),
            _ => 0,
        }
    }

    /// Returns the maximum number of clients of a run, including those of compute nodes that take the place of dead
    /// ones.
    fn all_endpoints(&self) -> u32 {
        let each = self.clients.div_ceil(u32::from(self.compute_nodes.max(1)));
        let spare = each
            .saturating_mul(self.coroutines)
            .saturating_mul(self.spares().into());
        self.endpoints().saturating_add(spare)
    }

    /// Returns the share of an operation in the mix.
    pub fn share(&self, kind: OpKind) -> f64 {
        self.mix.share(kind)
    }

    /// Returns the keys of the workload.
    pub fn key_space(&self) -> KeySpace {
        match self.addresses {
            true => KeySpace::addresses(),
            false => KeySpace::scrambled(self.seed),
        }
    }

    /// Returns the number of operations in the warm-up of a steady run, and 0 for any other run.
    pub(crate) fn warm_up(&self) -> u64 {
        if self.steady { self.ops / 4 } else { 0 }
    }

    /// Returns the operations of every client. `mix` is the setting's mix, or a part of it.
    pub(crate) fn plan(&self, mix: Mix) -> Result<Plan, WorkloadError> {
        self.plan_of(mix, self.ops)
    }

    /// Returns the operations of every client if all clients take them from one common number of operations. A client
    /// may then do far more than its share, because locks are unfair and clients do not begin together.
    pub(crate) fn shared_plan(&self, mix: Mix) -> Result<Plan, WorkloadError> {
        self.plan_of(mix, ENDLESS)
    }

    /// Returns whether only a part of the time is measured.
    pub(crate) fn is_timed(&self) -> bool {
        self.warm_up_ns > 0 || self.duration_ns.is_some()
    }

    /// Returns an endless stream of operations, with the keys of the setting's operations. Without a trace, all of them
    /// are gets.
    pub(crate) fn gets(&self) -> Result<OpStream, WorkloadError> {
        let mix: Mix = "c".parse()?;
        Ok(self.shared_plan(mix)?.client(0))
    }

    fn plan_of(&self, mix: Mix, ops: u64) -> Result<Plan, WorkloadError> {
        if let Some(trace) = &self.trace {
            return Plan::of_trace(trace.clone(), self.all_endpoints(), ops);
        }
        Workload::new(mix, self.keys, ops)
            .distribution(self.distribution)
            .ranks(self.ranks.max(self.keys).max(1))
            .scan_length(self.scan_length)
            .own_updates(self.own_updates)
            .clients(self.all_endpoints())
            .seed(self.seed)
            .plan()
    }

    /// Returns the number of operations of a kind that the run makes on average.
    pub(crate) fn operations(&self, kind: OpKind) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count"
        )]
        let operations = (self.ops as f64 * self.share(kind)) as u64;
        operations
    }

    /// Returns a generous estimate of the bytes of entries and nodes over all memory nodes. `per_entry` is the number
    /// of bytes for each key that is loaded or inserted.
    pub(crate) fn entry_bytes(&self, per_entry: u64) -> u64 {
        let entries = self.keys.saturating_add(self.operations(OpKind::Insert));
        entries.saturating_mul(per_entry)
    }
}

/// A world to measure in.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Fabric {
    /// In-process memory with real threads.
    Loopback,
    /// A testbed that is simulated with this model.
    Sim(Box<CostModel>),
    /// Real queue pairs. This needs the feature `ib`.
    Ib(Box<ClusterRun>),
}

impl Fabric {
    /// Returns the name that rows contain.
    pub fn name(&self) -> String {
        match self {
            Self::Loopback => "loopback".to_owned(),
            Self::Ib(cluster) => format!("ib:{}", cluster.path.display()),
            Self::Sim(model) => format!("sim:{}", model.name.trim_start_matches("model ")),
        }
    }

    /// Returns whether time is simulated.
    pub fn is_simulated(&self) -> bool {
        matches!(self, Self::Sim(_))
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

/// Parses a count with an optional suffix k, M or G (powers of ten), in either case. Underscores are ignored.
///
/// # Errors
/// Returns a message with examples if the text is not a count.
pub fn count(s: &str) -> Result<u64, String> {
    let (digits, unit) = match s.as_bytes().last().map(u8::to_ascii_lowercase) {
        Some(b'k') => (&s[..s.len() - 1], 1_000),
        Some(b'm') => (&s[..s.len() - 1], 1_000_000),
        Some(b'g') => (&s[..s.len() - 1], 1_000_000_000),
        _ => (s, 1),
    };
    let wrong = || format!("{s:?} is not a count (such as 200000, 200k, 1M, 1G)");
    digits
        .replace('_', "")
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(unit))
        .ok_or_else(wrong)
}

/// Returns the simulator's model with this name.
///
/// # Errors
/// Returns a message that lists the names if there is no such model.
pub fn preset(name: &str) -> Result<CostModel, String> {
    match name {
        "cx5-ib" => Ok(CostModel::cx5_ib()),
        "cx6-roce" => Ok(CostModel::cx6_roce()),
        _ => Err(format!("no preset {name:?}; there are cx5-ib and cx6-roce")),
    }
}

/// The operations that clients of a compute node share: `off`, `reads`, `writes` or `on`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sharing(pub Rdwc);

impl Sharing {
    /// Returns the name that the command line and rows use.
    pub fn name(self) -> &'static str {
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

/// Parameters that only some indexes have, by name. An index lists its parameters when it is registered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Knobs(BTreeMap<String, u64>);

impl Knobs {
    /// Returns the value of a knob, if it was set.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// Sets a knob.
    pub fn set(&mut self, name: &str, value: u64) {
        self.0.insert(name.to_owned(), value);
    }

    /// Returns the names of the knobs that were set.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// Writes ` name=value` for each knob.
impl fmt::Display for Knobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_units_in_either_case() {
        assert_eq!(count("1_500k"), Ok(1_500_000));
        assert_eq!(count("500K"), Ok(500_000));
        assert_eq!((count("1G"), count("2m")), (Ok(1_000_000_000), Ok(2_000_000)));
        assert!(count("M").is_err() && count("x").is_err() && count("").is_err());
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
