//! The findings of a concurrent run.

use core::fmt;

use dm_verbs::Counters;

/// Calls by operation.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Calls {
    /// Gets.
    pub gets: u64,
    /// Inserts.
    pub inserts: u64,
    /// Updates.
    pub updates: u64,
    /// Upserts.
    pub upserts: u64,
    /// Removes.
    pub removes: u64,
    /// Scans.
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

/// Maximum number of wrong answers per client whose text is kept.
pub(crate) const TEXTS_MAX: usize = 8;

/// The operations and findings of a run of [`crate::stress`].
#[derive(Clone, Default, Debug)]
#[must_use = "a run is a pass only if `expect_correct` says so"]
pub struct Report {
    /// Calls that were made and answered.
    pub calls: Calls,
    /// Entries that scans returned. Each of them was checked.
    pub scanned: u64,
    /// Operations that failed while a memory node was cut off.
    pub failed: u64,
    /// Number of wrong answers and errors.
    pub wrong: u64,
    /// Descriptions of the first wrong answers and errors.
    pub texts: Vec<String>,
    /// The number of calls that were checked for linearizability, and the number of their keys.
    pub linearized: (u64, u64),
    /// Keys that the final check of the whole index found correct.
    pub verified: u64,
    /// The counts of the clients' meters.
    pub meter: Counters,
    /// The world, the seed and the size, for messages.
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
        self.wrong += other.wrong;
        self.texts.extend(other.texts);
        self.meter += other.meter;
    }

    /// Returns the report if nothing was wrong. It is for tests.
    ///
    /// # Panics
    /// Panics with its text if anything was wrong.
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
        self.texts.iter().try_for_each(|text| write!(f, "\n  {text}"))
    }
}
