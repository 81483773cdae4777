//! The findings of a concurrent run.

use core::fmt;

use dm_verbs::{Counters, Nanos};

/// The number of calls of each operation.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Calls {
    /// Number of gets.
    pub gets: u64,
    /// Number of inserts.
    pub inserts: u64,
    /// Number of updates.
    pub updates: u64,
    /// Number of upserts.
    pub upserts: u64,
    /// Number of removes.
    pub removes: u64,
    /// Number of scans.
    pub scans: u64,
}

impl Calls {
    /// Returns the sum of all calls.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.gets + self.inserts + self.updates + self.upserts + self.removes + self.scans
    }

    pub(crate) fn add(&mut self, o: &Self) {
        self.gets += o.gets;
        self.inserts += o.inserts;
        self.updates += o.updates;
        self.upserts += o.upserts;
        self.removes += o.removes;
        self.scans += o.scans;
    }
}

/// Counts of a run whose compute nodes were killed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Killed {
    /// Compute nodes that ended while their clients had work to do, and were replaced. They were killed, or they were
    /// suspended and then expelled.
    pub nodes: u64,
    /// The number of these compute nodes that were expelled, because they were silent for too long while they were
    /// suspended.
    pub expelled: u64,
    /// Compute nodes that were suspended instead of killed. They may have been expelled, and then they were replaced
    /// too. The last planned suspension counts even if the run has ended before it.
    pub suspended: u64,
    /// Writes that were not answered.
    pub unanswered: u64,
    /// The number of these writes that the successor found applied, on keys that only one client writes.
    pub applied: u64,
    /// Keys that only one client writes, and that the successor wrote because it could not read them in time.
    pub torn: u64,
    /// The time that the longest answered operation took.
    pub longest: Nanos,
    /// Bytes that the memory nodes have handed out at the end.
    pub allocated: u64,
}

impl Killed {
    fn add(&mut self, o: &Self) {
        self.nodes += o.nodes;
        self.expelled += o.expelled;
        self.suspended += o.suspended;
        self.unanswered += o.unanswered;
        self.applied += o.applied;
        self.torn += o.torn;
        self.longest = self.longest.max(o.longest);
        self.allocated += o.allocated;
    }
}

impl fmt::Display for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} compute nodes killed, {} of them expelled alive; {} suspended; {} writes unanswered, {} of them applied, {} torn; the longest \
             operation took {} us; {} KiB allocated",
            self.nodes,
            self.expelled,
            self.suspended,
            self.unanswered,
            self.applied,
            self.torn,
            self.longest.0 / 1_000,
            self.allocated >> 10,
        )
    }
}

/// Maximum number of wrong answers per client whose text is kept.
pub(crate) const TEXTS_MAX: usize = 8;

/// The operations and findings of a run of [`crate::stress`] or [`crate::stress_with_kills`].
#[derive(Clone, Default, Debug)]
#[must_use = "a run is a pass only if `expect_correct` says so"]
pub struct Report {
    /// Calls that the clients made, including those that failed.
    pub calls: Calls,
    /// Entries that scans returned. Each of them was checked.
    pub scanned: u64,
    /// Operations that failed in a run that allows failures ([`Stress::outage_end`](crate::Stress::outage_end)).
    pub failed: u64,
    /// Number of wrong answers and errors.
    pub wrong: u64,
    /// Descriptions of the first wrong answers and errors.
    pub texts: Vec<String>,
    /// The number of calls that were checked for linearizability, and the number of their keys.
    pub linearized: (u64, u64),
    /// Keys that the final check of the whole index found correct.
    pub verified: u64,
    /// Counts of the compute nodes that were killed.
    pub killed: Killed,
    /// The counts of the clients' meters.
    pub meter: Counters,
    /// The number of clients and the seed, for messages.
    pub title: String,
}

impl Report {
    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        self.wrong += 1;
        if self.texts.len() < TEXTS_MAX {
            self.texts.push(text());
        }
    }

    pub(crate) fn absorb(&mut self, other: Self) {
        self.calls.add(&other.calls);
        self.scanned += other.scanned;
        self.failed += other.failed;
        self.killed.add(&other.killed);
        self.wrong += other.wrong;
        self.texts.extend(other.texts);
        self.meter += other.meter;
    }

    /// Returns the report if nothing was wrong. Tests use this instead of judging a report themselves.
    ///
    /// # Panics
    /// Panics with the report's text if anything was wrong.
    #[track_caller]
    pub fn expect_correct(self) -> Self {
        assert!(self.wrong == 0, "{self}");
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (calls, keys) = self.linearized;
        write!(
            f,
            "{}: {} operations, {} scanned entries, {} splits, {} merges, {calls} calls on {keys} hot keys linearized, \
             {} keys verified at the end, {} lock retries, {} handovers, {} torn reads, {} failed in an outage; {} wrong",
            self.title,
            self.calls.total(),
            self.scanned,
            self.meter.splits,
            self.meter.merges,
            self.verified,
            self.meter.lock_retries,
            self.meter.handovers,
            self.meter.torn_reads,
            self.failed,
            self.wrong,
        )?;
        if self.killed != Killed::default() {
            write!(f, "; {}", self.killed)?;
        }
        self.texts.iter().try_for_each(|text| write!(f, "\n  {text}"))
    }
}
