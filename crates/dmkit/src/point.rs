//! One point of a measurement: its parameters and its result.

use std::fs::File;
use std::io::BufReader;
use std::time::Duration;

use chime::{HopGeometry, Reach};
use dm_index::{Fill, Key8, Key32, KeyBytes};
use dm_sim::{Bound, Demand, MixDemand, Testbed, VerbKind};
use dm_verbs::Counters;
use dm_workload::{Distribution, KeySpace, Mix, OpKind, Plan, ScanLength, Trace, Workload, WorkloadError};
use hdrhistogram::Histogram;
use sherman::{CpuCost, LeafKind, MODEL_CPU, NodeSize, Options, Rdwc, Variant};

use crate::cli::{Bench, Fabric, Index, Pool, Sharing};
use crate::cluster::ClusterRun;
use crate::drive::{Steady, WriteCosts};

/// The parameters of a point.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    pub(crate) index: Index,
    /// The variant of sherman.
    pub(crate) variant: Variant,
    pub(crate) mix: Mix,
    pub(crate) distribution: Distribution,
    pub(crate) ranks: u64,
    pub(crate) fabric: Fabric,
    pub(crate) cns: u16,
    pub(crate) mns: u16,
    pub(crate) colocated: bool,
    /// Client threads over all compute nodes.
    pub(crate) clients: u32,
    pub(crate) coroutines: u32,
    pub(crate) keys: u64,
    pub(crate) ops: u64,
    pub(crate) scan_length: ScanLength,
    pub(crate) key_size: usize,
    pub(crate) value_size: usize,
    pub(crate) cache_bytes: u64,
    pub(crate) fill: Fill,
    pub(crate) seed: u64,
    /// The operations that clients of a compute node share.
    pub(crate) rdwc: Rdwc,
    /// Whether keys of 32 bytes look like mail addresses.
    pub(crate) addresses: bool,
    /// Recorded operations, which replace the mix and the distribution.
    pub(crate) trace: Option<Trace>,
    pub(crate) study: Study,
}

/// Parameters that only the reproduction of a paper's figure changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Study {
    /// The variant of chime.
    pub(crate) chime: chime::Variant,
    /// Replaces the variant's value.
    pub(crate) node: Option<NodeSize>,
    /// Client CPU that the simulator charges.
    pub(crate) cpu: CpuCost,
    /// Replaces the variant's value.
    pub(crate) lock_and_read: Option<bool>,
    /// Half of a compute node's threads scan, and the others run the rest of the mix.
    pub(crate) by_thread: bool,
    /// Clients continue until all of them together have done the operations (a fast client does more), and
    /// only the time between a warm-up and the moment when the work runs out is measured. Simulator only.
    pub(crate) steady: bool,
    /// Minimum duration of a steady run, in nanoseconds of the world's time. Queues at hot locks take a while
    /// to fill; the more clients there are, the longer.
    pub(crate) least: u64,
}

impl Default for Study {
    fn default() -> Self {
        Self {
            chime: chime::Variant::Default,
            node: None,
            cpu: MODEL_CPU,
            lock_and_read: None,
            by_thread: false,
            steady: false,
            least: 0,
        }
    }
}

/// The result of a point.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) ops: u64,
    pub(crate) seconds: f64,
    /// Latency of each operation, nanoseconds.
    pub(crate) latency: Histogram<u64>,
    /// Sums over all clients.
    pub(crate) counters: Counters,
    pub(crate) wrong_values: u64,
    /// The largest cache of a compute node.
    pub(crate) cache_bytes: u64,
    pub(crate) local_bytes: u64,
    /// Nodes in use over all memory nodes, and their keys.
    pub(crate) remote_bytes: u64,
    pub(crate) keys: u64,
    pub(crate) bound: Option<Bound>,
    /// The counts of a steady run.
    #[cfg_attr(not(feature = "eval"), expect(dead_code, reason = "only experiments read it"))]
    pub(crate) steady: Steady,
    #[cfg_attr(not(feature = "eval"), expect(dead_code, reason = "only experiments read it"))]
    pub(crate) writes: WriteCosts,
    /// The RNIC's shares of a simulated run.
    pub(crate) nic: NicShares,
    /// The device's promises and the assumptions; for other fabrics, their own description.
    pub(crate) promises: Option<String>,
}

/// The activity of the responder of the busiest memory node's RNIC, as shares of the run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NicShares {
    pub(crate) stalled: f64,
    pub(crate) worked: f64,
}

/// Keys that a benchmark can make from an index.
pub(crate) trait BenchKey: KeyBytes {
    fn nth(space: &KeySpace, index: u64) -> Self;
}

impl BenchKey for Key8 {
    #[inline]
    fn nth(space: &KeySpace, index: u64) -> Self {
        Key8(space.number(index))
    }
}

impl BenchKey for Key32 {
    fn nth(space: &KeySpace, index: u64) -> Self {
        Key32(space.bytes(index))
    }
}

/// Pairs each element of one list with each of the other.
fn pairs<'a, A, B>(a: &'a [A], b: &'a [B]) -> impl Iterator<Item = (&'a A, &'a B)> {
    a.iter().flat_map(move |a| b.iter().map(move |b| (a, b)))
}

impl Bench {
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
}

impl Bench {
    /// Returns `points` with the operations of the trace, if one was named.
    ///
    /// # Errors
    /// Returns a message that names the file and the problem.
    pub(crate) fn recorded(&self, mut points: Vec<Point>) -> Result<Vec<Point>, String> {
        let Some(path) = &self.trace else {
            return Ok(points);
        };
        let wrong = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let file = BufReader::new(File::open(path).map_err(|e| wrong(&e))?);
        let trace = Trace::read(file, self.ops).map_err(|e| wrong(&e))?;
        for point in &mut points {
            (point.mix, point.keys, point.ranks) = (trace.mix(), trace.keys(), trace.keys());
            point.trace = Some(trace.clone());
        }
        Ok(points)
    }
}

impl Point {
    /// Returns every combination of the lists in `bench`.
    pub(crate) fn all(bench: &Bench) -> Vec<Self> {
        let mut points: Vec<Self> = Vec::new();
        for &mix in &bench.workload {
            for (&variant, &Sharing(rdwc)) in pairs(&bench.variant, &bench.sharing()) {
                for &clients in &bench.clients {
                    let (fabric, cns, mns) = bench.place(!points.is_empty());
                    points.push(Self {
                        index: bench.index,
                        variant,
                        mix,
                        distribution: bench.dist.unwrap_or_else(|| mix.usual_distribution()),
                        ranks: bench.zipf_keys.unwrap_or(bench.keys),
                        fabric,
                        cns,
                        mns,
                        colocated: bench.colocated,
                        clients,
                        coroutines: bench.coroutines,
                        keys: bench.keys,
                        ops: bench.ops,
                        scan_length: bench.scan_length(),
                        key_size: bench.key_size,
                        value_size: bench.value_size,
                        #[expect(
                            clippy::cast_possible_truncation,
                            clippy::cast_sign_loss,
                            reason = "a float's cast saturates, and a negative cache is an empty one"
                        )]
                        cache_bytes: (bench.cache_mb * 1e6) as u64,
                        fill: bench.fill,
                        seed: bench.seed,
                        rdwc: Rdwc {
                            locks: bench.rdwc_locks,
                            ..rdwc
                        },
                        addresses: false,
                        trace: None,
                        study: Study::default(),
                    });
                }
            }
        }
        points
    }

    /// Returns the variant, and what clients share besides.
    pub(crate) fn techniques(&self) -> String {
        match Sharing(self.rdwc).name() {
            "off" => self.variant.to_string(),
            shared => format!("{} +rdwc:{shared}", self.variant),
        }
    }

    /// Returns the number of clients with connections of their own: threads times coroutines.
    pub(crate) fn endpoints(&self) -> u32 {
        self.clients * self.coroutines
    }

    /// Returns the number of operations in the warm-up.
    pub(crate) fn warm_up(&self) -> u64 {
        if self.study.steady { self.ops / 4 } else { 0 }
    }

    /// Returns the operations of every client; `mix` is the point's own, or a part of it.
    pub(crate) fn plan(&self, mix: Mix) -> Result<Plan, WorkloadError> {
        // In a steady run a client may do far more than its share, because locks are unfair.
        let ops = if self.study.steady { u64::MAX / 2 } else { self.ops };
        if let Some(trace) = &self.trace {
            return Plan::of_trace(trace.clone(), self.endpoints(), ops);
        }
        Workload::new(mix, self.keys, ops)
            .distribution(self.distribution)
            .ranks(self.ranks.max(self.keys).max(1))
            .scan_length(self.scan_length)
            .clients(self.endpoints())
            .seed(self.seed)
            .plan()
    }

    pub(crate) fn key_space(&self) -> KeySpace {
        match self.addresses {
            true => KeySpace::addresses(),
            false => KeySpace::scrambled(self.seed),
        }
    }

    pub(crate) fn options(&self) -> Options {
        let mut options = self.variant.apply(Options::new(self.value_size));
        options.cache_bytes = self.cache_bytes;
        options.node = self.study.node.unwrap_or(options.node);
        options.far_children = self.mns > dm_index::NEAR_CHILD_NODES_MAX;
        options.rdwc = self.rdwc;
        options.lock_and_read = self.study.lock_and_read.unwrap_or(options.lock_and_read);
        if matches!(self.fabric, Fabric::Sim(_)) {
            options.cpu = self.study.cpu;
        }
        options
    }

    /// Returns a generous estimate of the bytes that the tree needs per memory node: twice the entries at the
    /// fill, twice the room for inserts, and chunks that compute nodes have begun.
    pub(crate) fn bytes_per_memory_node(&self) -> u64 {
        let entry = (self.key_size + self.value_size + 8) as u64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count"
        )]
        let inserts = (self.ops as f64 * self.mix.share(OpKind::Insert)) as u64;
        let per_entry = match self.index {
            Index::Sherman | Index::Chime | Index::Dolphin => entry * 4,
            // A leaf in whole lines, and nodes of all sizes that were outgrown.
            Index::Smart => entry.next_multiple_of(64) * 4,
        };
        let entries = (self.keys + inserts) * per_entry;
        let chunks = u64::from(self.cns + 1) * 4 * self.options().chunk_bytes;
        (entries / u64::from(self.mns.max(1)) + chunks).next_multiple_of(1 << 20)
    }

    pub(crate) fn smart_options(&self) -> smart::Options {
        let mut options = smart::Options::new(self.value_size);
        options.cache_bytes = self.cache_bytes;
        options.rdwc = self.rdwc;
        options.lock_and_read = self.study.lock_and_read.unwrap_or(options.lock_and_read);
        if matches!(self.fabric, Fabric::Sim(_)) {
            options.cpu = self.study.cpu;
        }
        options
    }

    /// Returns the demand of one operation of the mix on a radix tree whose inner nodes are cached, without
    /// contention: a leaf to read, a lock and two WRITEs to update, a leaf and a slot to insert. Operations
    /// that clients share cost nothing. Work that the tree's shape requires (leaves or headers to split,
    /// nodes to renew, nodes that do not fit in the cache) costs what it costs once: `counters` has both,
    /// over `ops` operations. The cost of races (slots that others filled first, renewals done twice) is left
    /// out.
    fn smart_demand(&self, counters: &Counters, ops: u64) -> MixDemand {
        let share = |kind| self.mix.share(kind);
        let counted = |n: u64| n as f64 / ops.max(1) as f64;
        let rmw = share(OpKind::ReadModifyWrite);
        let locked = share(OpKind::Update) + share(OpKind::Upsert) + share(OpKind::Remove) + rmw;
        let locked = (locked - counted(counters.combined)).max(0.0);
        let inserts = share(OpKind::Insert);
        let (splits, misses) = (counted(counters.splits), counted(counters.cache_misses));
        let (renewals, frozen) = (counted(counters.renewals), counted(counters.renewed_words));
        let each = |all: f64, of: f64| if of > 0.0 { all / of } else { 0.0 };
        let scan_keys = match self.scan_length {
            ScanLength::UpTo(most) => (f64::from(most) + 1.0) / 2.0,
            ScanLength::Fixed(n) => f64::from(n),
        };
        let gets = (share(OpKind::Get) + rmw - counted(counters.delegated)).max(0.0);
        let scans = share(OpKind::Scan);
        let leaf = (self.key_size + self.value_size) as f64 + 24.0;
        let block = (leaf + 8.0) / 64.0;
        let leaves = gets + locked + splits + scans * scan_keys;
        let node = each(
            counted(counters.bytes_read) - leaf * leaves,
            counted(counters.reads) - leaves,
        );
        let verbs = vec![
            Demand::new(VerbKind::Read, leaf, gets + locked + scans * scan_keys),
            Demand::new(VerbKind::Cas, 8.0, locked + inserts),
            Demand::new(VerbKind::Write, self.value_size as f64 + 8.0, locked),
            Demand::new(VerbKind::Write, 8.0, locked),
            Demand::new(VerbKind::Write, block.ceil() * 64.0, inserts),
            // A split: the leaf in the way, a new node, and the link depth unless it is large enough.
            Demand::new(VerbKind::Read, leaf, splits),
            Demand::new(VerbKind::Write, 64.0, splits),
            Demand::new(VerbKind::Faa, 8.0, counted(counters.faa)),
            // A miss: a node of the average size of those that were read.
            Demand::new(VerbKind::Read, node.max(64.0), misses),
            // A renewal: the node is read, each of its words frozen, a copy written, and the slot above
            // swapped.
            Demand::new(
                VerbKind::Read,
                each(16.0 * renewals + 8.0 * frozen, renewals),
                renewals,
            ),
            Demand::new(VerbKind::Cas, 8.0, frozen + renewals),
            Demand::new(
                VerbKind::Write,
                each(counted(counters.renewed_bytes), renewals),
                renewals,
            ),
        ];
        let trips = if self.smart_options().lock_and_read {
            2.0
        } else {
            3.0
        };
        let cpu = self.smart_options().cpu;
        let cpu = cpu.locate.0 + cpu.locate_mean.0 + cpu.search.0;
        MixDemand {
            verbs: verbs.into_iter().filter(|d| d.per_op > 0.0).collect(),
            chains: gets + locked * trips + inserts + scans + splits + misses + renewals * 3.0,
            cpu_ns: cpu as f64 * (gets + locked + inserts + scans),
        }
    }

    /// Returns the bound of a radix tree.
    pub(crate) fn smart_bound(&self, counters: &Counters, ops: u64) -> Option<Bound> {
        self.bound_of(&self.smart_demand(counters, ops))
    }

    pub(crate) fn chime_options(&self) -> chime::Options {
        let mut options = chime::Options::new(self.value_size);
        // The paper's cache of 100 MB includes the hotspot buffer of 30 MB.
        options.hotspot_bytes = self.cache_bytes / 10 * 3;
        options = self.study.chime.apply(options);
        options.cache_bytes = self.cache_bytes - options.hotspot_bytes;
        options.rdwc = self.rdwc;
        options.lock_and_read = self.study.lock_and_read.unwrap_or(options.lock_and_read);
        if matches!(self.fabric, Fabric::Sim(_)) {
            options.cpu = self.study.cpu;
        }
        options
    }

    pub(crate) fn dolphin_options(&self) -> dolphin::Options {
        let mut options = dolphin::Options::new(self.value_size);
        options.cache_bytes = self.cache_bytes;
        options.rdwc = self.rdwc;
        options.lock_and_read = self.study.lock_and_read.unwrap_or(options.lock_and_read);
        if matches!(self.fabric, Fabric::Sim(_)) {
            options.cpu = self.study.cpu;
        }
        options
    }

    /// Returns the demand of one operation of the mix on a tree over hopscotch leaves, without contention: a
    /// neighbourhood to read, or an entry at a known place. A neighbourhood that wraps takes two READs or,
    /// behind a lock, the whole leaf. Operations that clients share cost nothing. Work that the tree's shape
    /// requires, hops and splits, costs the whole leaves read and written for it, and the lock of each
    /// split's parent: `counters` has all of it, over `ops` operations.
    fn chime_demand(&self, leaf: &HopGeometry, counters: &Counters, ops: u64) -> MixDemand {
        let counted = |n: u64| n as f64 / ops.max(1) as f64;
        let (delegated, combined) = (counted(counters.delegated), counted(counters.combined));
        let splits = counted(counters.splits);
        let alone = counted(counters.speculations);
        let alone_right = counted(counters.speculations - counters.wrong_speculations);
        let share = |kind| self.mix.share(kind);
        let rmw = share(OpKind::ReadModifyWrite);
        let gets = (share(OpKind::Get) + rmw - delegated).max(0.0);
        let inserts = share(OpKind::Insert);
        let changes = share(OpKind::Update) + share(OpKind::Upsert) + share(OpKind::Remove) + rmw;
        let changes = (changes - combined).max(0.0);
        let writes = inserts + changes;
        let scans = share(OpKind::Scan);
        let scan_keys = match self.scan_length {
            ScanLength::UpTo(most) => (f64::from(most) + 1.0) / 2.0,
            ScanLength::Fixed(n) => f64::from(n),
        };
        let scan_leaves = scan_keys / (leaf.span() as f64 * self.fill.mean()) + 1.0;
        let homes = leaf.span() as f64;
        let reaches: Vec<_> = (0..leaf.span()).map(|home| leaf.reach(home)).collect();
        let wrapped = reaches.iter().filter(|reach| reach.second.is_some()).count() as f64 / homes;
        let near = reaches.iter().map(Reach::bytes).sum::<usize>() as f64 / homes;
        let options = self.chime_options();
        let lock = |d: Demand| if options.on_chip { d.on_chip() } else { d };
        let near_writes = if leaf.is_in_line() {
            writes * (1.0 - wrapped)
        } else {
            0.0
        };
        let whole = scans * scan_leaves + writes - near_writes;
        let gets_near = (gets - alone_right).max(0.0);
        let near_entry = (self.key_size + self.value_size + 1) as f64;
        let known = (gets_near + near_writes) * near + alone * near_entry + whole * leaf.node_bytes() as f64;
        let edits = changes * self.value_size as f64 + inserts * near_entry + (writes + splits) * 8.0;
        // Only inserts hop and split.
        let moved = |bytes: u64, known: f64| match inserts > 0.0 {
            true => ((counted(bytes) - known) / leaf.node_bytes() as f64).max(0.0),
            false => 0.0,
        };
        let moved_reads = moved(counters.bytes_read, known);
        let moved_writes = moved(counters.bytes_written, edits);
        let verbs = vec![
            Demand::new(VerbKind::Read, near_entry, alone),
            Demand::new(VerbKind::Read, near, gets_near * (1.0 - wrapped) + near_writes).unaligned(),
            Demand::new(VerbKind::Read, near / 2.0, gets_near * wrapped * 2.0).unaligned(),
            Demand::new(VerbKind::Read, leaf.node_bytes() as f64, whole + moved_reads),
            Demand::new(VerbKind::Write, leaf.node_bytes() as f64, moved_writes),
            lock(Demand::new(VerbKind::Cas, 8.0, writes + splits)),
            Demand::new(VerbKind::Write, self.value_size as f64, changes),
            Demand::new(
                VerbKind::Write,
                (self.key_size + self.value_size + 1) as f64,
                inserts,
            ),
            lock(Demand::new(VerbKind::Write, 8.0, writes + splits)),
        ];
        let trips = if options.lock_and_read { 2.0 } else { 3.0 };
        let cpu = options.cpu.locate.0 + options.cpu.locate_mean.0 + options.cpu.search.0;
        MixDemand {
            verbs: verbs.into_iter().filter(|d| d.per_op > 0.0).collect(),
            chains: gets + writes * trips + scans * scan_leaves,
            cpu_ns: cpu as f64 * (gets + writes + scans),
        }
    }

    /// Returns the bound of a tree over hopscotch leaves.
    pub(crate) fn chime_bound(&self, leaf: &HopGeometry, counters: &Counters, ops: u64) -> Option<Bound> {
        self.bound_of(&self.chime_demand(leaf, counters, ops))
    }

    /// Returns the demand of one operation of the mix without contention, by the budgets of round trips.
    /// `delegated` gets and `combined` writes, per operation, cost nothing.
    pub(crate) fn demand(
        &self,
        leaf_bytes: usize,
        leaf_capacity: usize,
        [delegated, combined]: [f64; 2],
    ) -> MixDemand {
        let share = |kind| self.mix.share(kind);
        let rmw = share(OpKind::ReadModifyWrite);
        let gets = (share(OpKind::Get) + rmw - delegated).max(0.0);
        let writes = share(OpKind::Update)
            + share(OpKind::Upsert)
            + share(OpKind::Insert)
            + share(OpKind::Remove)
            + rmw;
        let writes = (writes - combined).max(0.0);
        let scans = share(OpKind::Scan);
        let scan_keys = match self.scan_length {
            ScanLength::UpTo(most) => (f64::from(most) + 1.0) / 2.0,
            ScanLength::Fixed(n) => f64::from(n),
        };
        let scan_leaves = scan_keys / (leaf_capacity as f64 * self.fill.mean()) + 1.0;
        let options = self.options();
        let lock = |d: Demand| if options.on_chip { d.on_chip() } else { d };
        let leaf = leaf_bytes as f64;
        // Shared locks are released by atomics, and taken in one chain with the READ whatever the options
        // say.
        let shares = self.index == Index::Dolphin && self.key_size + self.value_size < 63;
        let release = if options.release_by_faa || shares {
            VerbKind::Faa
        } else {
            VerbKind::Write
        };
        // An update writes the value, an insert the entry; in some formats both write a whole node.
        let written = match self.variant.leaf() {
            LeafKind::Checksummed => leaf,
            LeafKind::TwoLevel | LeafKind::Bookend => (self.key_size + self.value_size + 1) as f64,
        };
        let verbs = vec![
            Demand::new(VerbKind::Read, leaf, gets + writes + scans * scan_leaves),
            lock(Demand::new(VerbKind::Cas, 8.0, writes)),
            Demand::new(VerbKind::Write, written, writes),
            lock(Demand::new(release, 8.0, writes)),
        ];
        let trips = if options.lock_and_read { 1.0 } else { 2.0 } + if options.combine { 1.0 } else { 2.0 };
        let updates = (share(OpKind::Update) + rmw - combined).max(0.0);
        let along = if shares { updates * (trips - 2.0) } else { 0.0 };
        let cpu = options.cpu.locate.0 + options.cpu.locate_mean.0 + options.cpu.search.0;
        MixDemand {
            verbs: verbs.into_iter().filter(|d| d.per_op > 0.0).collect(),
            chains: gets + writes * trips - along + scans * scan_leaves,
            cpu_ns: cpu as f64 * (gets + writes + scans),
        }
    }

    /// Returns the bound; `shared` is delegated gets and combined writes per operation.
    pub(crate) fn bound(&self, leaf_bytes: usize, leaf_capacity: usize, shared: [f64; 2]) -> Option<Bound> {
        self.bound_of(&self.demand(leaf_bytes, leaf_capacity, shared))
    }

    fn bound_of(&self, demand: &MixDemand) -> Option<Bound> {
        let Fabric::Sim(model) = &self.fabric else {
            return None;
        };
        let threads = u16::try_from(self.clients.div_ceil(u32::from(self.cns.max(1)))).unwrap_or(u16::MAX);
        let bed = Testbed {
            compute_nodes: self.cns,
            memory_nodes: self.mns,
            colocated: self.colocated,
            threads,
        };
        Some(model.bound(demand, &bed))
    }
}
