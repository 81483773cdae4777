//! Runs many clients on one index and checks every answer.

use std::collections::BTreeSet;

use dm_history::{History, KvMap, KvOp, KvRet, Limits, Verdict, check};
use dm_index::RangeIndex;
use dm_sync::Arc;
use dm_sync::atomic::AtomicU32;
use dm_verbs::{Control, Counters, Nanos, Verbs};

use crate::any_index::AnyIndex;
use crate::stress_client::{Client, load, verify};
use crate::{Failure, IndexUnderTest, Job, Report, Seat, TestWorld};

/// Weights of the operations of a stress run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names of the operations")]
pub struct Mix {
    pub get: u32,
    pub insert: u32,
    pub update: u32,
    pub upsert: u32,
    pub remove: u32,
    pub scan: u32,
}

impl Mix {
    /// A mix of all operations, with more writes than reads, and more inserts than removes.
    pub const DEFAULT: Self = Self {
        get: 30,
        insert: 25,
        update: 15,
        upsert: 15,
        remove: 13,
        scan: 2,
    };
    /// A mix in which about a third of the operations are scans.
    pub const SCANS: Self = Self {
        get: 7,
        insert: 20,
        update: 10,
        upsert: 15,
        remove: 15,
        scan: 33,
    };

    pub(crate) fn total(&self) -> u64 {
        [
            self.get,
            self.insert,
            self.update,
            self.upsert,
            self.remove,
            self.scan,
        ]
        .map(u64::from)
        .iter()
        .sum()
    }
}

/// Size and shape of a stress run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stress {
    /// Operations of all clients together.
    pub operations: u64,
    /// Number of keys. Client `c` owns the keys whose number modulo the number of clients is `c`, except for the hot
    /// keys.
    pub keys: u64,
    /// Number of hot keys. All clients write them, four of these keys at a time.
    pub hot_keys: u64,
    /// Percentage of the operations that use a hot key, among all operations except scans.
    pub hot_percent: u64,
    /// The weights of the operations.
    pub mix: Mix,
    /// Maximum number of entries that a scan requests.
    pub scan_max: u64,
    /// Whether a bulk load inserts the even keys (except hot ones) at the start.
    pub preload: bool,
    /// Number of times that the index shrinks after it has grown. In every second part of a run most writes are
    /// removes. 0 means the same mix for the whole run.
    pub waves: u64,
    /// The time, by the world's clock, at which a memory node that the caller cuts off is back. The final check begins
    /// after this time. The clients' operations may fail at any time, and failures are counted. After a failed write no
    /// client chooses that key for an operation again. If the write may have had an effect, the checks then accept an
    /// absent key, and every value that the key's owner or the bulk load has written. 0 means that no operation may
    /// fail.
    pub outage_end: Nanos,
    /// The seed of the clients' scripts.
    pub seed: u64,
}

/// Hot keys in use at a time. All clients advance at about the same pace, so they collide on these.
pub(crate) const HOT_AT_ONCE: u64 = 4;

impl Stress {
    /// Makes a run of `operations`, with a tenth as many keys, but at least 1,000.
    #[must_use]
    pub const fn new(operations: u64, seed: u64) -> Self {
        let keys = if operations < 10_000 {
            1_000
        } else {
            operations / 10
        };
        Self {
            operations,
            keys,
            // In a long run, this gives about 500 recorded calls on each hot key.
            hot_keys: operations / 10_000 + HOT_AT_ONCE,
            hot_percent: 5,
            mix: Mix::DEFAULT,
            scan_max: 100,
            preload: false,
            waves: 0,
            outage_end: Nanos(0),
            seed,
        }
    }

    pub(crate) fn is_hot(&self, key: u64) -> bool {
        let stride = self.hot_stride();
        key.is_multiple_of(stride) && key / stride < self.hot_keys
    }

    /// Returns whether the key is loaded at the start.
    pub(crate) fn is_loaded(&self, key: u64) -> bool {
        self.preload && key.is_multiple_of(2) && !self.is_hot(key)
    }

    pub(crate) fn hot_stride(&self) -> u64 {
        (self.keys / self.hot_keys.max(1)).max(1)
    }
}

/// The number that stands for the bulk load among the writes of a key.
pub(crate) const LOADED: u32 = u32::MAX;
/// Stands for the last write of a key if a write of the key has failed with an unknown effect.
pub(crate) const DOUBTFUL: u32 = u32::MAX - 1;

/// Keys on which a write failed.
pub(crate) type Shunned = dm_sync::Mutex<BTreeSet<u64>>;

pub(crate) type HotHistory = History<KvOp<u64, u64>, KvRet<u64>>;

/// The results of a client's run.
pub(crate) struct Done {
    /// The number of this client among all clients.
    pub(crate) me: usize,
    pub(crate) report: Report,
    /// For each of the client's own keys, in order, the number of its last write; 0 if it is absent, [`LOADED`] for the
    /// bulk load, and [`DOUBTFUL`] after a write of unknown effect.
    pub(crate) own: Vec<u32>,
    pub(crate) hot: HotHistory,
}

/// The job that opens the index for a compute node, whose clients then share the handle.
struct Open<I> {
    index: Arc<I>,
}

impl<I: IndexUnderTest> Job for Open<I> {
    type Out = Result<I::Handle, Failure>;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Self::Out {
        self.index.open(v).await
    }
}

/// The job of one client that loads the index.
struct Load<I: IndexUnderTest> {
    stress: Stress,
    handle: dm_sync::Mutex<Option<I::Handle>>,
}

impl<I: IndexUnderTest> Job for Load<I> {
    type Out = Result<I::Handle, String>;
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> Self::Out {
        let handle = self.handle.with(Option::take).ok_or("one client loads")?;
        load(&AnyIndex::of::<I>(&handle, v), &self.stress)
            .await
            .map_err(|e| e.to_string())?;
        Ok(handle)
    }
}

struct Run<I: IndexUnderTest> {
    stress: Stress,
    handles: Vec<I::Handle>,
    /// For each client, the handle that it uses.
    handle_of: Vec<usize>,
    /// For each client, the number of writes that it has begun.
    begun: Vec<AtomicU32>,
    shunned: Shunned,
}

impl<I: IndexUnderTest> Job for Run<I> {
    type Out = Done;
    async fn run<V: Verbs + Control>(&self, number: usize, v: &V) -> Done {
        let handle = &self.handles[self.handle_of[number]];
        let index = AnyIndex::of::<I>(handle, v);
        let before = v.meter().counters();
        let shared = (&self.begun[..], &self.shunned);
        let mut client = Client::new(&self.stress, shared, number, v, index.value_bytes());
        client.run(&index).await;
        let mut done = client.done();
        done.report.meter = v.meter().counters() - before;
        done
    }
}

/// A client that joins at the end, with nothing cached, and checks the whole index.
struct Look<I> {
    index: Arc<I>,
    stress: Stress,
    own: Vec<Vec<u32>>,
}

impl<I: IndexUnderTest> Job for Look<I> {
    type Out = (u64, Report);
    async fn run<V: Verbs + Control>(&self, _: usize, v: &V) -> (u64, Report) {
        let mut report = Report::default();
        while v.now() < self.stress.outage_end {
            v.charge(self.stress.outage_end - v.now()).await;
        }
        match self.index.open(v).await {
            Ok(handle) => {
                let verified = verify(
                    &AnyIndex::of::<I>(&handle, v),
                    &self.stress,
                    &self.own,
                    &mut report,
                )
                .await;
                (verified, report)
            }
            Err(e) => {
                report.note(|| format!("opening the index again: {e}"));
                (0, report)
            }
        }
    }
}

/// Runs clients on `seats` over a new index in `world`, and returns the findings. Each compute node has its own handle,
/// and all of them open the pool concurrently.
///
/// # Panics
/// Panics if there are no seats, or more than 4094.
pub fn stress<I: IndexUnderTest>(
    index: I,
    world: &impl TestWorld,
    seats: &[Seat],
    stress: &Stress,
) -> Report {
    let index = Arc::new(index);
    let mut report = Report {
        title: format!("{} clients, seed {:#x}", seats.len(), stress.seed),
        ..Report::default()
    };
    assert!(
        (1..4095).contains(&seats.len()),
        "1 to 4094 clients, not {}",
        seats.len()
    );
    let mut nodes: Vec<u16> = seats.iter().map(|seat| seat.compute_node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let openers: Vec<Seat> = nodes
        .iter()
        .map(|&compute_node| Seat {
            compute_node,
            thread: 0,
        })
        .collect();
    let opened = world.run(
        &openers,
        &Arc::new(Open {
            index: Arc::clone(&index),
        }),
    );
    let mut handles = match opened.into_iter().collect::<Result<Vec<_>, _>>() {
        Ok(handles) => handles,
        Err(e) => {
            report.note(|| format!("opening the index: {e}"));
            return report;
        }
    };
    if stress.preload {
        let handle = dm_sync::Mutex::new(Some(handles.remove(0)));
        match world.run_one(Load::<I> {
            stress: *stress,
            handle,
        }) {
            Ok(handle) => handles.insert(0, handle),
            Err(e) => {
                report.note(|| format!("loading: {e}"));
                return report;
            }
        }
    }
    let place = |seat: &Seat| nodes.iter().position(|&node| node == seat.compute_node);
    let run = Arc::new(Run::<I> {
        stress: *stress,
        handles,
        handle_of: seats.iter().filter_map(place).collect(),
        begun: seats.iter().map(|_| AtomicU32::new(0)).collect(),
        shunned: Shunned::default(),
    });
    let mut hot = HotHistory::new();
    let mut own = Vec::with_capacity(seats.len());
    for done in world.run(seats, &run) {
        report.absorb(done.report);
        hot.append(done.hot);
        own.push(done.own);
    }
    match check(&KvMap::empty(), &hot, Limits::default()) {
        Verdict::Linearizable(passed) => report.linearized = (passed.operations as u64, passed.keys as u64),
        other => report.note(|| format!("hot keys: {other}")),
    }
    let (verified, last) = world.run_one(Look {
        index,
        stress: *stress,
        own,
    });
    report.verified = verified;
    // The verbs of the final check are not part of the run.
    report.absorb(Report {
        meter: Counters::default(),
        ..last
    });
    report
}
