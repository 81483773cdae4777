//! Runs a point on the simulated testbed.

mod deaths;
mod part;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use dm_index::{IndexError, RangeIndex};
use dm_sim::{CostModel, RunEnd, Sim, TaskId};
use dm_workload::Distribution;
use indicatif::ProgressBar;

use self::deaths::Working;
use self::part::{Mark, MeasuredPart};
use super::{Plans, Ready, RunError, bad, load, measured};
use crate::driver::Driver;
use crate::faults::Deaths;
use crate::measured::Measured;
use crate::work::{Tally, Worker};
use crate::{AnyEndpoint, BenchIndex, BenchKey, Setting};

/// An index that is loaded on a simulated testbed, with warm caches.
struct Loaded<I> {
    sim: Sim,
    handles: Rc<[I]>,
}

/// Loads the index. If no compute node dies, the result depends only on [`Setting::of_load`] and on the size of the
/// memory.
pub(super) fn load_index<I: BenchIndex>(
    driver: &Driver<I>,
    setting: &Setting,
    model: &CostModel,
) -> Result<Box<dyn Ready>, RunError> {
    let sim = Sim::builder(model.clone())
        .compute_nodes(setting.compute_nodes.saturating_add(setting.spares()))
        .memory_nodes(setting.memory_nodes)
        .colocated(setting.colocated)
        .memory_bytes(driver.memory_bytes(setting))
        .seed(setting.seed);
    let sim = match setting.faults.lease() {
        Some(lease) => sim.lease(lease),
        None => sim,
    };
    let sim = sim.build().map_err(bad)?;
    let handles = opened(driver, setting, &sim)?;
    warm(setting, &Plans::of(setting)?, &sim, &handles)?;
    Ok(Box::new(Loaded { sim, handles }))
}

impl<I: BenchIndex> Ready for Loaded<I> {
    fn measure(self: Box<Self>, setting: &Setting, progress: &ProgressBar) -> Result<Measured, RunError> {
        measure(&self.sim, &self.handles, setting, progress)
    }
}

fn measure<I: BenchIndex>(
    sim: &Sim,
    handles: &Rc<[I]>,
    setting: &Setting,
    progress: &ProgressBar,
) -> Result<Measured, RunError> {
    let plans = &Plans::of(setting)?;
    let (before, began) = (sim.meter(), sim.now());
    let mut tally = Tally::new(setting.warm_up());
    tally.warm_until = began.0 + setting.least / 4;
    let stop = tally.count_in(began.0, setting);
    tally.record(setting.faults);
    let common = Common {
        setting,
        plans,
        handles,
        progress,
        tally: Rc::new(RefCell::new(tally)),
        part: Rc::default(),
        ends_at_first_stop: setting.steady || setting.duration_ns.is_some(),
        left: Rc::new(Cell::new(setting.ops)),
        until: began.0 + setting.least,
        stop,
    };
    let mut working = Working::new(setting.compute_nodes);
    for client in 0..setting.endpoints() {
        let thread = client / setting.coroutines;
        let cn = (thread % u32::from(setting.compute_nodes)) as u16;
        let local = u16::try_from(thread / u32::from(setting.compute_nodes)).map_err(bad)?;
        working.add(cn, local, common.start(sim, client, cn, local));
    }
    let deaths = match setting.faults.kill.is_some() {
        true => working.run(sim, &common)?,
        false => {
            finish(sim)?;
            Deaths::default()
        }
    };
    let Common {
        tally, left, part, ..
    } = common;
    let mut tally = Rc::into_inner(tally).expect("the tasks have ended").into_inner();
    tally.exhausted |= left.get() == 0;
    let end = Mark::new(tally.end(setting), tally.ops, sim.busy());
    let (nic, busiest) = part.take().limits(end);
    let counters = sim.meter() - before;
    let mut measured = measured::<I>(setting, tally, began.0, counters, handles)?;
    measured.nic = nic;
    measured.busiest = busiest;
    measured.deaths.killed = deaths.killed;
    measured.deaths.recoveries = deaths.recoveries;
    measured.deaths.expelled = counters.expelled;
    measured.deaths.freed_locks = counters.freed_locks;
    Ok(measured)
}

/// The setting, the index and the results that the clients of a run share.
struct Common<'a, I> {
    setting: &'a Setting,
    plans: &'a Plans,
    handles: &'a Rc<[I]>,
    progress: &'a ProgressBar,
    tally: Rc<RefCell<Tally>>,
    part: Rc<RefCell<MeasuredPart>>,
    /// Whether operations are counted only until the first client stops.
    ends_at_first_stop: bool,
    /// The number of operations that are left.
    left: Rc<Cell<u64>>,
    /// The time until which the clients continue even if no operation is left.
    until: u64,
    /// The time at which the clients stop.
    stop: u64,
}

impl<I: BenchIndex> Common<'_, I> {
    /// Starts client `client` on thread `local` of compute node `cn`.
    fn start(&self, sim: &Sim, client: u32, cn: u16, local: u16) -> TaskId {
        let (handles, tally, left) = (self.handles.clone(), self.tally.clone(), self.left.clone());
        let stream = self.plans.client(client, local);
        let (progress, setting) = (self.progress.clone(), self.setting.clone());
        let (until, stop) = (self.until, self.stop);
        let (part, busy) = (self.part.clone(), sim.busy_reader());
        let ends_at_first_stop = self.ends_at_first_stop;
        sim.spawn(cn, local, async move |v| {
            let v = AnyEndpoint::Sim(v);
            let index = handles[usize::from(cn)].client(&v);
            let mut worker = Worker::new(&v, index, client, &setting, &progress);
            worker
                .run(
                    stream,
                    |now| {
                        let more =
                            now < stop && (left.replace(left.get().saturating_sub(1)) > 0 || now < until);
                        let tally = tally.borrow();
                        let mark = || Mark::new(now, tally.ops, busy());
                        let ends = !more && ends_at_first_stop;
                        part.borrow_mut().see(tally.is_warm(now), ends, mark);
                        more
                    },
                    &tally,
                )
                .await;
        })
    }
}

/// Opens the index on each compute node; the first one creates and loads it.
fn opened<I: BenchIndex>(driver: &Driver<I>, setting: &Setting, sim: &Sim) -> Result<Rc<[I]>, RunError> {
    let opened: Rc<RefCell<Vec<Result<I, RunError>>>> = Rc::default();
    for cn in 0..setting.compute_nodes + setting.spares() {
        let (opened, setting, options) = (opened.clone(), setting.clone(), driver.options(setting)?);
        sim.spawn(cn, 0, async move |v| {
            let v = AnyEndpoint::Sim(v);
            let handle = match cn {
                0 => load(&v, &options, &setting).await,
                _ => I::open(&v, &options).await.map_err(RunError::from),
            };
            opened.borrow_mut().push(handle);
        });
        finish(sim)?;
    }
    let opened = Rc::into_inner(opened).expect("the tasks have ended").into_inner();
    let handles: Vec<I> = opened.into_iter().collect::<Result<_, _>>()?;
    Ok(handles.into())
}

/// Lower bound of the bytes of a cached node, in any cache.
const NODE_BYTES_MIN: u64 = 8;

/// Brings the caches of all compute nodes into their steady state. The first compute node fills its cache with inner
/// nodes. If the cache is then nearly full, it reads the nodes of its hottest keys, and after these the nodes of keys
/// drawn as for operations. (With hot keys alone, the cache would be better than after real operations.) Finally it
/// learns which keys are hot. The other compute nodes copy its state.
fn warm<I: BenchIndex>(
    setting: &Setting,
    plans: &Plans,
    sim: &Sim,
    handles: &Rc<[I]>,
) -> Result<(), RunError> {
    let skewed = setting.trace.is_some() || setting.distribution != Distribution::Uniform;
    let to_learn = if skewed { handles[0].gets_to_learn() } else { 0 };
    // A run that is not marked as steady learns for no longer than it measures.
    let learn = match setting.steady {
        true => to_learn,
        false => to_learn.min(usize::try_from(setting.ops).unwrap_or(usize::MAX)),
    };
    for cn in 0..setting.compute_nodes + setting.spares() {
        let (handles, failed) = (handles.clone(), Rc::new(Cell::new(None)));
        let (told, space, cache_bytes) = (failed.clone(), setting.key_space(), setting.cache_bytes);
        // The cache holds at most this many nodes, so no more keys than this are used.
        let room = usize::try_from(cache_bytes / NODE_BYTES_MIN).unwrap_or(usize::MAX);
        let hottest: Vec<u64> = plans.0[0].hottest().take(room).collect();
        let mut gets = setting.gets().map_err(bad)?;
        sim.spawn(cn, 0, async move |v| {
            let v = AnyEndpoint::Sim(v);
            let (handle, first) = (&handles[usize::from(cn)], &handles[0]);
            let warmed = async {
                if cn > 0 {
                    return handle.warm_like(&v, first).await;
                }
                handle.warm(&v).await?;
                if handle.footprint().cache > cache_bytes / 20 * 19 {
                    let drawn = gets.by_ref().take(room).map(|op| op.key);
                    let keys = hottest.into_iter().rev().chain(drawn);
                    handle
                        .warm_for(&v, keys.map(|index| I::Key::nth(&space, index)))
                        .await?;
                }
                let (client, mut value) = (handle.client(&v), Vec::new());
                for op in gets.take(learn) {
                    client.get(&I::Key::nth(&space, op.key), &mut value).await?;
                }
                Ok::<(), IndexError>(())
            };
            told.set(warmed.await.err());
        });
        finish(sim)?;
        if let Some(e) = failed.take() {
            return Err(e.into());
        }
    }
    Ok(())
}

fn finish(sim: &Sim) -> Result<(), RunError> {
    match sim.run() {
        RunEnd::Finished => Ok(()),
        other => Err(bad(format_args!("the simulation ended in {other:?}"))),
    }
}
