//! One client at work: draws operations, performs them, checks every value.

use std::cell::RefCell;

use dm_index::{Applied, IndexError, RangeIndex, Scan};
use dm_verbs::Env;
use dm_workload::{KeySpace, Op, OpKind, OpStream, Values};
use hdrhistogram::Histogram;
use indicatif::ProgressBar;

use crate::point::BenchKey;

/// What the clients of one thread have done together.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) latency: Histogram<u64>,
    pub(crate) ops: u64,
    pub(crate) wrong: u64,
    pub(crate) inserted: u64,
    pub(crate) failed: Option<IndexError>,
    /// When the last operation ended, in the world's time.
    pub(crate) ended: u64,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            // Three significant digits; grows as far as it must.
            latency: Histogram::new(3).expect("3 digits are in range"),
            ops: 0,
            wrong: 0,
            inserted: 0,
            failed: None,
            ended: 0,
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.latency
            .add(&other.latency)
            .expect("an auto-resizing histogram takes any value");
        self.ops += other.ops;
        self.wrong += other.wrong;
        self.inserted += other.inserted;
        self.failed = self.failed.or(other.failed);
        self.ended = self.ended.max(other.ended);
    }
}

/// One client's own state.
pub(crate) struct Worker<'a, E, I> {
    pub(crate) env: &'a E,
    pub(crate) index: I,
    pub(crate) keys: KeySpace,
    pub(crate) values: Values,
    /// Keys below this index are loaded, and never removed by the mixes that remove nothing.
    pub(crate) loaded: u64,
    pub(crate) removes: bool,
    pub(crate) progress: &'a ProgressBar,
}

/// Buffers of a worker, allocated once.
struct Buffers<K> {
    read: Vec<u8>,
    write: Vec<u8>,
    scan: Scan<K>,
    key: Vec<u8>,
}

impl<E: Env, K: BenchKey, I: RangeIndex<Key = K>> Worker<'_, E, I> {
    /// Works until the stream ends, `more` says no, or an operation fails.
    pub(crate) async fn run(&mut self, stream: OpStream, more: impl Fn() -> bool, tally: &RefCell<Tally>) {
        let mut buffers = Buffers {
            read: Vec::with_capacity(self.index.value_bytes()),
            write: vec![0; self.index.value_bytes()],
            scan: Scan::new(),
            key: vec![0; K::LEN],
        };
        for op in stream {
            if !more() {
                return;
            }
            let began = self.env.now();
            let result = self.perform(op, &mut buffers).await;
            let ended = self.env.now();
            let mut tally = tally.borrow_mut();
            match result {
                Ok(right) => tally.wrong += u64::from(!right),
                Err(e) => {
                    tally.failed = tally.failed.or(Some(e));
                    return;
                }
            }
            tally
                .latency
                .record((ended - began).0)
                .expect("an auto-resizing histogram takes any value");
            tally.ops += 1;
            tally.inserted += u64::from(op.kind == OpKind::Insert);
            tally.ended = tally.ended.max(ended.0);
            self.progress.inc(1);
        }
    }

    /// Whether what the operation answered is right.
    async fn perform(&mut self, op: Op, b: &mut Buffers<K>) -> Result<bool, IndexError> {
        let key = K::nth(&self.keys, op.key);
        key.write_to(&mut b.key);
        // A loaded key is present for ever where nothing removes.
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
                // Every insert brings a key of its own.
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
