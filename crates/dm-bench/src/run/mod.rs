//! Runs a point in its world.

use std::fmt;
use std::sync::Arc;

use dm_assemble::OpenError;
use dm_index::{Fill, IndexError, KeyBytes, RangeIndex};
use dm_verbs::{Control, Counters, Verbs};
use dm_workload::{Mix, OpKind, OpStream, Plan, Trace, Values};
use indicatif::ProgressBar;

use crate::driver::Driver;
use crate::measured::{Counted, Measured, NicShares};
use crate::work::Tally;
use crate::{BenchIndex, BenchKey, Deaths, Fabric, Faults, Footprint, Point, Refusal, Setting};

mod check;
#[cfg(feature = "ib")]
pub(crate) mod ib;
mod loopback;
mod sim;

/// The reason why a point has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// The index could not be created or opened.
    Open(OpenError),
    /// An operation failed.
    Index(IndexError),
    /// The setting was refused.
    Refused(Refusal),
    /// Another reason, as a message: for example, the world could not be made, or no operation ended in the measured
    /// time.
    Bad(String),
    /// The code of the index or of the harness panicked, with this message.
    Panicked(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(e) => write!(f, "opening the index: {e}"),
            Self::Index(e) => e.fmt(f),
            Self::Refused(e) => e.fmt(f),
            Self::Bad(e) => f.write_str(e),
            Self::Panicked(e) => write!(f, "a panic: {e}"),
        }
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(e) => Some(e),
            Self::Index(e) => Some(e),
            Self::Refused(e) => Some(e),
            _ => None,
        }
    }
}

impl From<Refusal> for RunError {
    fn from(e: Refusal) -> Self {
        Self::Refused(e)
    }
}
impl From<IndexError> for RunError {
    fn from(e: IndexError) -> Self {
        Self::Index(e)
    }
}
impl From<OpenError> for RunError {
    fn from(e: OpenError) -> Self {
        Self::Open(e)
    }
}

pub(crate) fn bad(e: impl fmt::Display) -> RunError {
    RunError::Bad(e.to_string())
}

impl Point {
    /// Runs the point, on this thread if its world is the simulator.
    ///
    /// # Errors
    /// Returns [`RunError`] if the setting is refused, if the world or the index cannot be made, if no operation ends
    /// in the measured time, if the operations run out before the setting's duration is over, or if an operation fails.
    /// In a run in which compute nodes die, [`Measured`] counts failed operations instead. It also counts wrong values,
    /// which are not an error.
    pub fn run(&self) -> Result<Measured, RunError> {
        self.run_with(&ProgressBar::hidden())
    }

    /// Runs the point as [`Point::run`] does. `progress` advances by one per operation.
    pub(crate) fn run_with(&self, progress: &ProgressBar) -> Result<Measured, RunError> {
        self.check()?;
        self.driver.measure(self, progress)
    }

    /// Returns a key that is equal for simulated points which begin with the same loaded index and the same warm
    /// caches. Returns `None` if the point has to load an index of its own.
    pub(crate) fn load_key(&self) -> Option<String> {
        let at = &self.setting;
        let shares = at.fabric.is_simulated() && at.trace.is_none() && at.faults == Faults::NONE;
        shares.then(|| {
            // Two drivers may have the same name, so the key has the driver's address. The points of a registry entry
            // share a driver.
            let (driver, bytes) = (Arc::as_ptr(&self.driver), self.driver.memory_bytes(at));
            format!("{driver:p} {bytes} {:?}", at.of_load())
        })
    }

    /// Loads the point's index, without measuring anything yet.
    pub(crate) fn ready(&self) -> Result<Box<dyn Ready>, RunError> {
        self.check()?;
        self.driver.ready(&self.setting)
    }
}

/// An index that is loaded on a simulated testbed, with warm caches. Every point with the same [`Point::load_key`]
/// begins with it.
pub(crate) trait Ready {
    /// Runs the operations of `setting`.
    fn measure(self: Box<Self>, setting: &Setting, progress: &ProgressBar) -> Result<Measured, RunError>;
}

/// Loads an index on the simulated testbed of `setting`.
pub(crate) fn ready<I: BenchIndex>(
    driver: &Driver<I>,
    setting: &Setting,
) -> Result<Box<dyn Ready>, RunError> {
    match &setting.fabric {
        Fabric::Sim(model) => sim::load_index(driver, setting, model),
        _ => Err(bad("only a simulated point can be loaded before it is measured")),
    }
}

/// Measures an index in the setting's world.
pub(crate) fn measure<I: BenchIndex>(
    driver: &Driver<I>,
    point: &Point,
    progress: &ProgressBar,
) -> Result<Measured, RunError> {
    let setting = &point.setting;
    match &setting.fabric {
        Fabric::Sim(model) => sim::load_index(driver, setting, model)?.measure(setting, progress),
        Fabric::Loopback => loopback::run(driver, setting, progress),
        #[cfg(feature = "ib")]
        Fabric::Ib(cluster) => ib::run(driver, point, cluster, progress),
        #[cfg(not(feature = "ib"))]
        Fabric::Ib(_) => Err(bad(crate::cluster::MISSING)),
    }
}

/// The operations of a compute node's threads: a plan for threads with even numbers, and one for the others. If
/// [`Setting::by_thread`] is set, the first plan has only scans, and the second one the rest of the mix. Otherwise both
/// are the whole mix.
struct Plans([Plan; 2]);

impl Plans {
    fn of(setting: &Setting) -> Result<Self, RunError> {
        let plan = |mix| match setting.steady || setting.is_timed() {
            // No client runs out of operations before the others, so all of them work throughout the measured time.
            true => setting.shared_plan(mix).map_err(bad),
            false => setting.plan(mix).map_err(bad),
        };
        if !setting.by_thread {
            let plan = plan(setting.mix)?;
            return Ok(Self([plan.clone(), plan]));
        }
        let part = |scans: bool| -> Result<Plan, RunError> {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a share of at most 1"
            )]
            let weight = |kind| (setting.share(kind) * 1e6).round() as u32;
            let kinds = OpKind::ALL
                .iter()
                .filter(|kind| (**kind == OpKind::Scan) == scans);
            let weights: Vec<_> = kinds.map(|&kind| (kind, weight(kind))).collect();
            let mix = Mix::new(&weights)
                .ok_or_else(|| bad(format_args!("{} has no scans, or nothing else", setting.mix)))?;
            plan(mix)
        };
        Ok(Self([part(true)?, part(false)?]))
    }

    /// Returns the operations of client `client`, on thread number `thread` of its compute node.
    fn client(&self, client: u32, thread: u16) -> OpStream {
        self.0[usize::from(thread % 2)].client(client)
    }
}

/// Creates the index and fills it.
pub(crate) async fn load<V: Verbs + Control, I: BenchIndex>(
    v: &V,
    options: &I::Options,
    setting: &Setting,
) -> Result<I, RunError> {
    let handle = I::create(v, options).await?;
    if setting.keys == 0 {
        return Ok(handle);
    }
    let space = setting.key_space();
    let mut keys: Vec<I::Key> = (0..setting.keys).map(|i| I::Key::nth(&space, i)).collect();
    keys.sort_unstable();
    let mut next = keys.into_iter();
    let mut bytes = vec![0; <I::Key as KeyBytes>::LEN];
    let fill: Fill = setting.fill;
    handle
        .client(v)
        .bulk_load(fill, |value| {
            let key = next.next()?;
            key.write_to(&mut bytes);
            value.resize(setting.value_bytes, 0);
            Values::fill_loaded(&bytes, value);
            Some(key)
        })
        .await?;
    Ok(handle)
}

/// Builds the result of a run. `handles` has the handles of all compute nodes that this process runs.
fn measured<I: BenchIndex>(
    setting: &Setting,
    tally: Tally,
    began: u64,
    counters: Counters,
    handles: &[I],
) -> Result<Measured, RunError> {
    if let Some(e) = tally.failed {
        return Err(e.into());
    }
    let recorded = setting.trace.as_ref().map(Trace::operations);
    let trace_passes = recorded.map_or(0.0, |recorded| tally.ops as f64 / recorded.max(1) as f64);
    // Without a warm-up and a duration, the result includes the verbs between operations, and on loopback the time of
    // connecting.
    let timed = setting.is_timed();
    let (began, ops, counters) = match timed {
        true => (tally.warm_until, tally.counted, tally.cost),
        false => (began, tally.ops, counters),
    };
    if timed && ops == 0 {
        return Err(bad(
            "no operation ended between the warm-up and the end: ask for more",
        ));
    }
    if setting.duration_ns.is_some() && tally.exhausted {
        return Err(bad(format_args!(
            "the {} operations were made before the time was over: ask for more operations",
            setting.ops
        )));
    }
    let seconds = tally.end(setting).saturating_sub(began) as f64 / 1e9;
    let footprints: Vec<Footprint> = handles.iter().map(I::footprint).collect();
    let most = |part: fn(&Footprint) -> u64| footprints.iter().map(part).max().unwrap_or(0);
    let remote: i64 = footprints.iter().map(|footprint| footprint.remote).sum();
    Ok(Measured {
        ops,
        seconds,
        counters,
        counted: Counted {
            ops: tally.counted,
            gets: tally.gets,
            counters: tally.cost,
        },
        trace_passes,
        wrong_values: tally.wrong,
        cache_bytes: most(|footprint| footprint.cache),
        local_bytes: most(|footprint| footprint.local),
        remote_bytes: remote.max(0).unsigned_abs(),
        keys: setting.keys + tally.inserted,
        busiest: None,
        lock_waits: counters.lock_wait_ns as f64 / 1e9 / (seconds * f64::from(setting.endpoints().max(1))),
        latency: tally.latency,
        steady: tally.steady,
        writes: tally.writes,
        deaths: Deaths {
            failed_ops: tally.failed_ops,
            ..Deaths::default()
        },
        timeline: tally.slices,
        nic: NicShares::default(),
        promises: None,
    })
}
