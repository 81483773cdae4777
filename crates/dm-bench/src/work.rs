//! The work of one client: it draws operations, runs them, and checks every value.

use std::cell::RefCell;

use dm_index::{Applied, IndexError, RangeIndex, Scan};
use dm_verbs::{Counters, Env, VerbErrorKind};
use dm_workload::{KeySpace, Op, OpKind, OpStream, Values};
use hdrhistogram::Histogram;
use indicatif::ProgressBar;

use crate::measured::{Steady, WriteCosts};
use crate::{BenchKey, Faults, Setting, Slice};

impl WriteCosts {
    fn note(&mut self, cost: Counters) {
        self.count += 1;
        self.handovers += cost.handovers;
        record(&mut self.round_trips, cost.round_trips);
        if cost.splits > 0 {
            self.splits += 1;
            return;
        }
        // The written bytes are an entry and the 8 bytes of an unlock. The unlock is missing if the lock was handed
        // over or released by an atomic.
        let unlock = if cost.writes > 1 { 8 } else { 0 };
        record(&mut self.bytes, cost.bytes_written.saturating_sub(unlock));
    }
}

fn histogram() -> Histogram<u64> {
    // Three significant digits; the histogram grows as far as needed.
    Histogram::new(3).expect("3 digits are in range")
}

fn record(histogram: &mut Histogram<u64>, value: u64) {
    histogram
        .record(value)
        .expect("an auto-resizing histogram takes any value");
}

/// The combined results of several clients.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) latency: Histogram<u64>,
    pub(crate) ops: u64,
    pub(crate) wrong: u64,
    pub(crate) inserted: u64,
    pub(crate) failed: Option<IndexError>,
    /// The end of the last operation, in the world's time.
    pub(crate) ended: u64,
    /// The number of operations at the start that belong to the warm-up. They are checked, but not counted.
    pub(crate) warm_up: u64,
    /// Operations that end before this time belong to the warm-up too, in the world's time.
    pub(crate) warm_until: u64,
    /// Operations that end after this time are not counted.
    pub(crate) count_until: u64,
    /// The operations that were counted, the gets among them, and their cost.
    pub(crate) counted: u64,
    pub(crate) gets: u64,
    pub(crate) cost: Counters,
    /// Whether a client had no operations left before the end of the measured time.
    pub(crate) exhausted: bool,
    /// Whether clients continue after an error.
    pub(crate) tolerates: bool,
    /// Operations that ended in an error.
    pub(crate) failed_ops: u64,
    /// The length of a slice of time; 0 if none is recorded.
    pub(crate) slice: u64,
    pub(crate) slices: Vec<Slice>,
    pub(crate) steady: Steady,
    pub(crate) writes: WriteCosts,
}

impl Tally {
    pub(crate) fn new(warm_up: u64) -> Self {
        Self {
            latency: histogram(),
            ops: 0,
            wrong: 0,
            inserted: 0,
            failed: None,
            ended: 0,
            warm_up,
            warm_until: 0,
            count_until: u64::MAX,
            counted: 0,
            gets: 0,
            cost: Counters::default(),
            exhausted: false,
            tolerates: false,
            failed_ops: 0,
            slice: 0,
            slices: Vec::new(),
            steady: Steady::default(),
            writes: WriteCosts {
                round_trips: histogram(),
                bytes: histogram(),
                count: 0,
                splits: 0,
                handovers: 0,
            },
        }
    }

    /// Sets whether clients continue after an error, and the slices of time, as the faults of the setting require.
    pub(crate) fn record(&mut self, faults: Faults) {
        self.tolerates = faults.kill.is_some();
        self.slice = faults.slice.unwrap_or(0);
        let all = self
            .count_until
            .saturating_sub(self.warm_until)
            .checked_div(self.slice);
        // Slices in which no operation ends are included. The check of a setting limits their number.
        self.slices = vec![Slice::default(); all.and_then(|all| usize::try_from(all).ok()).unwrap_or(0)];
    }

    /// Returns the slice of time in which an operation ended, if it is recorded.
    fn slice_at(&mut self, ended: u64) -> Option<&mut Slice> {
        let since = ended.checked_sub(self.warm_until)?;
        let at = usize::try_from(since.checked_div(self.slice)?).ok()?;
        self.slices.get_mut(at)
    }

    /// Records an operation that ended in an error at `ended`. Returns whether its client continues.
    fn fail(&mut self, why: IndexError, ended: u64) -> bool {
        // A client that was fenced can never continue with these connections.
        let fenced = matches!(why, IndexError::Verb(e) if e.kind == VerbErrorKind::Fenced);
        if !self.tolerates {
            self.failed = self.failed.or(Some(why));
            return false;
        }
        self.failed_ops += 1;
        if let Some(slice) = self.slice_at(ended) {
            slice.failed += 1;
        }
        !fenced
    }

    /// Returns whether the warm-up is over for an operation that ends at `now`. Does not check whether the measurement
    /// has ended by then.
    pub(crate) fn is_warm(&self, now: u64) -> bool {
        self.ops >= self.warm_up && now >= self.warm_until
    }

    /// Returns the end of the time in which operations are counted. If the run has a duration, all clients worked until
    /// its end; otherwise it is the end of the last operation.
    pub(crate) fn end(&self, setting: &Setting) -> u64 {
        setting.duration_ns.map_or(self.ended, |_| self.count_until)
    }

    /// Records an operation that ended at `ended`.
    fn note(&mut self, kind: OpKind, began: u64, ended: u64, cost: Counters) {
        self.ops += 1;
        self.inserted += u64::from(kind == OpKind::Insert);
        self.ended = self.ended.max(ended);
        if self.ops <= self.warm_up || ended < self.warm_until {
            self.steady.from = ended;
            return;
        }
        if ended > self.count_until {
            return;
        }
        if let Some(slice) = self.slice_at(ended) {
            slice.ops += 1;
        }
        self.counted += 1;
        self.gets += u64::from(kind == OpKind::Get);
        self.cost += cost;
        record(&mut self.latency, ended - began);
        if !matches!(kind, OpKind::Get | OpKind::Scan) {
            self.writes.note(cost);
        }
        if self.steady.until == 0 {
            self.steady.ops += 1;
            self.steady.scans += u64::from(kind == OpKind::Scan);
        }
    }

    /// Sets the time in which an operation must end to be counted: from the end of a warm-up that begins at `began`,
    /// for the setting's duration. Returns the end of this time.
    pub(crate) fn count_in(&mut self, began: u64, setting: &Setting) -> u64 {
        self.warm_until = self.warm_until.max(began.saturating_add(setting.warm_up_ns));
        if let Some(duration) = setting.duration_ns {
            self.count_until = self.warm_until.saturating_add(duration);
        }
        self.count_until
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let into = &mut self.writes;
        for (sum, more) in [
            (&mut self.latency, &other.latency),
            (&mut into.round_trips, &other.writes.round_trips),
            (&mut into.bytes, &other.writes.bytes),
        ] {
            sum.add(more).expect("an auto-resizing histogram takes any value");
        }
        into.count += other.writes.count;
        into.splits += other.writes.splits;
        into.handovers += other.writes.handovers;
        self.ops += other.ops;
        self.counted += other.counted;
        self.gets += other.gets;
        self.cost += other.cost;
        self.exhausted |= other.exhausted;
        self.wrong += other.wrong;
        self.inserted += other.inserted;
        self.failed = self.failed.or(other.failed);
        self.ended = self.ended.max(other.ended);
    }
}

/// The state of one client.
pub(crate) struct Worker<'a, E, I> {
    env: &'a E,
    index: I,
    keys: KeySpace,
    values: Values,
    /// Keys below this index are loaded. A mix without removes never removes them.
    loaded: u64,
    removes: bool,
    progress: &'a ProgressBar,
}

/// The buffers of a worker, which are allocated once.
struct Buffers<K> {
    read: Vec<u8>,
    write: Vec<u8>,
    scan: Scan<K>,
    key: Vec<u8>,
}

impl<'a, E: Env, K: BenchKey, I: RangeIndex<Key = K>> Worker<'a, E, I> {
    /// Makes client number `client` of the setting.
    pub(crate) fn new(
        env: &'a E,
        index: I,
        client: u32,
        setting: &Setting,
        progress: &'a ProgressBar,
    ) -> Self {
        Self {
            env,
            index,
            keys: setting.key_space(),
            values: Values::of_client(client),
            loaded: setting.keys,
            removes: setting.share(OpKind::Remove) > 0.0,
            progress,
        }
    }

    /// Works until the stream ends, `more` returns `false` for the world's time, or an operation fails. If clients
    /// tolerate errors, only a fenced client stops after one.
    pub(crate) async fn run(&mut self, stream: OpStream, more: impl Fn(u64) -> bool, tally: &RefCell<Tally>) {
        let mut buffers = Buffers {
            read: Vec::with_capacity(self.index.value_bytes()),
            write: vec![0; self.index.value_bytes()],
            scan: Scan::new(),
            key: vec![0; K::LEN],
        };
        for op in stream {
            if !more(self.env.now().0) {
                let steady = &mut tally.borrow_mut().steady;
                if steady.until == 0 {
                    steady.until = self.env.now().0;
                }
                return;
            }
            let (before, began) = (self.env.meter().counters(), self.env.now());
            let result = self.perform(op, &mut buffers).await;
            let (cost, ended) = (self.env.meter().counters() - before, self.env.now());
            let mut tally = tally.borrow_mut();
            match result {
                Ok(right) => tally.wrong += u64::from(!right),
                Err(e) => {
                    if tally.fail(e, ended.0) {
                        continue;
                    }
                    return;
                }
            }
            tally.note(op.kind, began.0, ended.0, cost);
            self.progress.inc(1);
        }
        tally.borrow_mut().exhausted = true;
    }

    /// Runs an operation and returns whether its answer is right.
    async fn perform(&mut self, op: Op, b: &mut Buffers<K>) -> Result<bool, IndexError> {
        let key = K::nth(&self.keys, op.key);
        key.write_to(&mut b.key);
        // Without removes, a loaded key is always present.
        let must_exist = op.key < self.loaded && !self.removes;
        match op.kind {
            OpKind::Get => self.read(&key, must_exist, b).await,
            OpKind::Update => {
                self.values.fill(&b.key, &mut b.write);
                Ok(self.index.update(&key, &b.write).await? == Applied::Replaced || !must_exist)
            }
            OpKind::Upsert => {
                self.values.fill(&b.key, &mut b.write);
                Ok(self.index.upsert(&key, &b.write).await? == Applied::Replaced || !must_exist)
            }
            OpKind::Insert => {
                // Every insert uses a new key.
                self.values.fill(&b.key, &mut b.write);
                Ok(self.index.insert(&key, &b.write).await? == Applied::Inserted)
            }
            OpKind::Remove => Ok(self.index.remove(&key).await? == Applied::Removed || !must_exist),
            OpKind::Scan => {
                self.index.scan(&key, op.scan_len as usize, &mut b.scan).await?;
                Ok(self.scan_is_right(&key, must_exist, b))
            }
            OpKind::ReadModifyWrite => {
                let right = self.read(&key, must_exist, b).await?;
                self.values.fill(&b.key, &mut b.write);
                Ok((self.index.update(&key, &b.write).await? == Applied::Replaced || !must_exist) && right)
            }
        }
    }

    async fn read(&self, key: &K, must_exist: bool, b: &mut Buffers<K>) -> Result<bool, IndexError> {
        let found = self.index.get(key, &mut b.read).await?;
        Ok(if found {
            Values::check(&b.key, &b.read).is_ok()
        } else {
            !must_exist
        })
    }

    fn scan_is_right(&self, from: &K, must_exist: bool, b: &mut Buffers<K>) -> bool {
        let mut last = None;
        let mut right = !must_exist || b.scan.keys().first() == Some(from);
        for (key, value) in b.scan.iter() {
            key.write_to(&mut b.key);
            right &= key >= *from && last.is_none_or(|l| l < key) && Values::check(&b.key, value).is_ok();
            last = Some(key);
        }
        right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The handovers of writes after the warm-up count, and no others.
    #[test]
    fn handovers_of_counted_writes_are_counted() {
        let mut tally = Tally::new(1);
        for (kind, handovers) in [
            (OpKind::Update, 16),
            (OpKind::Update, 1),
            (OpKind::Get, 8),
            (OpKind::Insert, 2),
            (OpKind::ReadModifyWrite, 0),
        ] {
            let cost = Counters {
                handovers,
                ..Counters::default()
            };
            tally.note(kind, 0, 1, cost);
        }
        assert_eq!((tally.writes.count, tally.writes.handovers), (3, 3));
        assert_eq!((tally.counted, tally.gets, tally.cost.handovers), (4, 1, 11));
        let mut sum = Tally::new(0);
        sum.add(&tally);
        sum.add(&tally);
        assert_eq!((sum.writes.count, sum.writes.handovers), (6, 6));
        assert_eq!((sum.counted, sum.gets, sum.cost.handovers), (8, 2, 22));
    }
}
