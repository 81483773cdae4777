//! Runs a point in its world.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use dm_index::{IndexError, RangeIndex};
use dm_loopback::{Loopback, run_all};
use dm_sim::{CostModel, NicCounters, RunEnd, Sim};
use dm_verbs::{Control, Counters, Env, NodeId, Verbs};
use dm_workload::{Distribution, Mix, OpKind, OpStream, Plan, Values};
use indicatif::ProgressBar;
use sherman::OpenError;

use crate::bench_tree::BenchTree;
use crate::cli::Fabric;
use crate::dispatch::{WithTree, with_tree};
use crate::drive::{Tally, Worker};
use crate::point::{BenchKey, Measured, NicShares, Point};

/// The reason why a point has no result.
#[derive(Debug)]
pub(crate) enum RunError {
    Open(OpenError),
    Index(IndexError),
    Bad(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(e) => write!(f, "opening the index: {e}"),
            Self::Index(e) => e.fmt(f),
            Self::Bad(e) => f.write_str(e),
        }
    }
}

impl std::error::Error for RunError {}

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

/// Runs `point`; `progress` advances by one per operation.
pub(crate) fn run(point: &Point, progress: &ProgressBar) -> Result<Measured, RunError> {
    if point.value_size < 8 {
        return Err(bad(
            "a value has at least 8 bytes: a stamp, by which every read is checked",
        ));
    }
    if point.clients == 0 || point.coroutines == 0 || point.cns == 0 {
        return Err(bad("there must be a compute node, a client and a coroutine"));
    }
    with_tree(point, Measure { point, progress })
}

/// The measurement of a point in its world.
struct Measure<'a> {
    point: &'a Point,
    progress: &'a ProgressBar,
}

impl WithTree for Measure<'_> {
    type Out = Measured;
    fn with<K: BenchKey, T: BenchTree<Key = K>>(self) -> Result<Measured, RunError> {
        let Self { point, progress } = self;
        match &point.fabric {
            Fabric::Sim(model) => in_sim::<K, T>(point, &Plans::of(point)?, model, progress),
            Fabric::Ib(cluster) => crate::cluster::run::<K, T>(point, cluster, progress),
            Fabric::Loopback => in_loopback::<K, T>(point, &point.plan(point.mix).map_err(bad)?, progress),
        }
    }
}

/// The work of a compute node's threads, alternating: one mix, or scans and the rest of the mix.
struct Plans([Plan; 2]);

impl Plans {
    fn of(point: &Point) -> Result<Self, RunError> {
        if !point.study.by_thread {
            let plan = point.plan(point.mix).map_err(bad)?;
            return Ok(Self([plan.clone(), plan]));
        }
        let part = |scans: bool| -> Result<Plan, RunError> {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a share of at most 1"
            )]
            let weight = |kind| (point.mix.share(kind) * 1e6).round() as u32;
            let kinds = OpKind::ALL
                .iter()
                .filter(|kind| (**kind == OpKind::Scan) == scans);
            let weights: Vec<_> = kinds.map(|&kind| (kind, weight(kind))).collect();
            let mix = Mix::new(&weights)
                .ok_or_else(|| bad(format_args!("{} has no scans, or nothing else", point.mix)))?;
            point.plan(mix).map_err(bad)
        };
        Ok(Self([part(true)?, part(false)?]))
    }

    /// Returns the operations of client `client`, on thread number `thread` of its compute node.
    fn client(&self, client: u32, thread: u16) -> OpStream {
        self.0[usize::from(thread % 2)].client(client)
    }
}

/// Creates the tree and fills it.
pub(crate) async fn load<V: Verbs + Control, K: BenchKey, T: BenchTree<Key = K>>(
    v: &V,
    point: &Point,
) -> Result<T, RunError> {
    let tree = T::create(v, point).await?;
    if point.keys == 0 {
        return Ok(tree);
    }
    let space = point.key_space();
    let mut keys: Vec<K> = (0..point.keys).map(|i| K::nth(&space, i)).collect();
    keys.sort_unstable();
    let mut next = keys.into_iter();
    let mut bytes = vec![0; K::LEN];
    tree.client(v)
        .bulk_load(point.fill, |value| {
            let key = next.next()?;
            key.write_to(&mut bytes);
            value.resize(point.value_size, 0);
            Values::fill_loaded(&bytes, value);
            Some(key)
        })
        .await?;
    Ok(tree)
}

async fn open<V: Verbs + Control, K: BenchKey, T: BenchTree<Key = K>>(
    v: &V,
    point: &Point,
) -> Result<T, RunError> {
    let tree = T::open(v, point).await?;
    tree.warm(v).await?;
    Ok(tree)
}

fn in_sim<K: BenchKey, T: BenchTree<Key = K>>(
    point: &Point,
    plans: &Plans,
    model: &CostModel,
    progress: &ProgressBar,
) -> Result<Measured, RunError> {
    let sim = Sim::builder(model.clone())
        .compute_nodes(point.cns)
        .memory_nodes(point.mns)
        .colocated(point.colocated)
        .memory_bytes(point.bytes_per_memory_node())
        .seed(point.seed)
        .build()
        .map_err(bad)?;
    // The tree of each compute node; the loader's first.
    let trees: Rc<RefCell<Vec<Result<T, RunError>>>> = Rc::default();
    for cn in 0..point.cns {
        let (trees, point) = (trees.clone(), point.clone());
        sim.spawn(cn, 0, async move |v| {
            let tree = match cn {
                0 => load::<_, K, T>(&v, &point).await,
                _ => T::open(&v, &point).await,
            };
            trees.borrow_mut().push(tree);
        });
        finish(&sim)?;
    }
    let trees: Vec<T> = Rc::into_inner(trees)
        .expect("the tasks have ended")
        .into_inner()
        .into_iter()
        .collect::<Result<_, _>>()?;
    let trees: Rc<[T]> = trees.into();
    warm::<K, T>(point, plans, &sim, &trees)?;
    rehearse::<K, T>(point, &sim, &trees)?;

    let (before, began) = (sim.meter(), sim.now());
    let nics_before = nics(&sim, point.mns);
    let tally = Rc::new(RefCell::new(Tally::new(point.warm_up())));
    tally.borrow_mut().warm_until = began.0 + point.study.least / 4;
    let until = began.0 + point.study.least;
    let left = Rc::new(Cell::new(point.ops));
    for client in 0..point.endpoints() {
        let thread = client / point.coroutines;
        let cn = (thread % u32::from(point.cns)) as u16;
        let local = u16::try_from(thread / u32::from(point.cns)).map_err(bad)?;
        let (trees, tally, left) = (trees.clone(), tally.clone(), left.clone());
        let (stream, progress, keys) = (plans.client(client, local), progress.clone(), point.key_space());
        let (loaded, removes) = (point.keys, point.mix.share(OpKind::Remove) > 0.0);
        sim.spawn(cn, local, async move |v| {
            let index = trees[usize::from(cn)].client(&v);
            let values = Values::of_client(client);
            let mut worker = Worker {
                env: &v,
                index,
                keys,
                values,
                loaded,
                removes,
                progress: &progress,
            };
            worker
                .run(
                    stream,
                    || left.replace(left.get().saturating_sub(1)) > 0 || v.now().0 < until,
                    &tally,
                )
                .await;
        });
    }
    finish(&sim)?;
    let tally = Rc::into_inner(tally).expect("the tasks have ended").into_inner();
    let seconds = (tally.ended.saturating_sub(began.0)) as f64 / 1e9;
    let took = (sim.now() - began).0.max(1) as f64;
    let busiest = nics(&sim, point.mns)
        .into_iter()
        .zip(nics_before)
        .map(|(after, before)| NicShares {
            stalled: (after.stall_ns - before.stall_ns) as f64 / took,
            worked: (after.responder_busy_ns - before.responder_busy_ns) as f64 / took,
        })
        .max_by(|a, b| (a.stalled + a.worked).total_cmp(&(b.stalled + b.worked)));
    let mut measured = measured(point, tally, seconds, sim.meter() - before, &trees)?;
    measured.nic = busiest.unwrap_or_default();
    Ok(measured)
}

/// Fills the caches of all compute nodes. The first one reads all inner nodes and, if not all fit, those of
/// its hottest keys once more; the others copy its cache.
fn warm<K: BenchKey, T: BenchTree<Key = K>>(
    point: &Point,
    plans: &Plans,
    sim: &Sim,
    trees: &Rc<[T]>,
) -> Result<(), RunError> {
    for cn in 0..point.cns {
        let (trees, failed) = (trees.clone(), Rc::new(Cell::new(None)));
        let (tell, space, cache_bytes) = (failed.clone(), point.key_space(), point.cache_bytes);
        let hottest = plans.0[0].hottest();
        sim.spawn(cn, 0, async move |v| {
            let (tree, first) = (&trees[usize::from(cn)], &trees[0]);
            let warmed = match cn {
                0 => tree.warm(&v).await.map(drop),
                _ => tree.warm_like(&v, first).await,
            };
            let short = cn == 0 && tree.cache_bytes() > cache_bytes / 20 * 19;
            let settled = match warmed {
                Ok(()) if short => {
                    let keys = hottest.rev().map(|index| K::nth(&space, index));
                    tree.settle(&v, keys).await
                }
                warmed => warmed,
            };
            if let Err(e) = settled {
                tell.set(Some(e));
            }
        });
        finish(sim)?;
        if let Some(e) = failed.take() {
            return Err(e.into());
        }
    }
    Ok(())
}

/// Gets before a steady run, per entry for which the hotspot buffers have room.
const REHEARSED: usize = 4;

/// Brings the hotspot buffers into the state that they have after a long time with these keys, because no run
/// is long enough to fill ten of them. One compute node runs the gets that the point would run, and the
/// others copy its guesses.
fn rehearse<K: BenchKey, T: BenchTree<Key = K>>(
    point: &Point,
    sim: &Sim,
    trees: &Rc<[T]>,
) -> Result<(), RunError> {
    let skewed = point.trace.is_some() || point.distribution != Distribution::Uniform;
    let Some(first) = trees[0].hotspots().filter(|_| point.study.steady && skewed) else {
        return Ok(());
    };
    let (gets, space) = (first.capacity() * REHEARSED, point.key_space());
    let only_gets = Mix::new(&[(OpKind::Get, 1)]).ok_or_else(|| bad("gets are a mix"))?;
    let stream = point.plan(only_gets).map_err(bad)?.client(0).take(gets);
    let (rehearsing, failed) = (trees.clone(), Rc::new(Cell::new(None)));
    let tell = failed.clone();
    sim.spawn(0, 0, async move |v| {
        let (client, mut value) = (rehearsing[0].client(&v), Vec::new());
        for op in stream {
            if let Err(e) = client.get(&K::nth(&space, op.key), &mut value).await {
                tell.set(Some(e));
                return;
            }
        }
    });
    finish(sim)?;
    if let Some(e) = failed.take() {
        return Err(e.into());
    }
    for other in trees[1..].iter().filter_map(T::hotspots) {
        other.adopt(first);
    }
    Ok(())
}

fn nics(sim: &Sim, nodes: u16) -> Vec<NicCounters> {
    (0..nodes).map(|node| sim.memory_nic(NodeId(node))).collect()
}

fn finish(sim: &Sim) -> Result<(), RunError> {
    match sim.run() {
        RunEnd::Finished => Ok(()),
        other => Err(bad(format_args!("the simulation ended in {other:?}"))),
    }
}

fn in_loopback<K: BenchKey, T: BenchTree<Key = K>>(
    point: &Point,
    plan: &Plan,
    progress: &ProgressBar,
) -> Result<Measured, RunError> {
    let world = Loopback::builder()
        .nodes(point.mns)
        .host_bytes(point.bytes_per_memory_node())
        .seed(point.seed)
        .build()
        .map_err(bad)?;
    let mut trees = Vec::new();
    for cn in 0..point.cns {
        let v = world.connect(cn).map_err(bad)?;
        let tree = match cn {
            0 => dm_loopback::block_on(load::<_, K, T>(&v, point))?,
            _ => dm_loopback::block_on(open::<_, K, T>(&v, point))?,
        };
        dm_loopback::block_on(tree.warm(&v))?;
        trees.push(tree);
    }
    let trees: Arc<[T]> = trees.into();
    let clock = world.connect(0).map_err(bad)?;
    let began = clock.now();
    let results: Vec<Result<(Tally, Counters), RunError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..point.clients)
            .map(|thread| {
                let (world, trees) = (&world, &trees);
                scope.spawn(move || loopback_thread(point, plan, world, trees, thread, progress))
            })
            .collect();
        threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|_| Err(bad("a client thread panicked"))))
            .collect()
    });
    let mut tally = Tally::new(0);
    let mut counters = Counters::default();
    for result in results {
        let (t, c) = result?;
        tally.add(&t);
        counters += c;
    }
    let seconds = tally.ended.saturating_sub(began.0) as f64 / 1e9;
    measured(point, tally, seconds, counters, &trees)
}

fn loopback_thread<K: BenchKey, T: BenchTree<Key = K>>(
    point: &Point,
    plan: &Plan,
    world: &Loopback,
    trees: &[T],
    thread: u32,
    progress: &ProgressBar,
) -> Result<(Tally, Counters), RunError> {
    let cn = (thread % u32::from(point.cns)) as u16;
    let tally = RefCell::new(Tally::new(0));
    let mut endpoints = Vec::new();
    for _ in 0..point.coroutines {
        endpoints.push(world.connect(cn).map_err(bad)?);
    }
    run_all(endpoints.iter().enumerate().map(|(coroutine, v)| {
        let client = thread * point.coroutines + coroutine as u32;
        let mut worker = Worker {
            env: v,
            index: trees[usize::from(cn)].client(v),
            keys: point.key_space(),
            values: Values::of_client(client),
            loaded: point.keys,
            removes: point.mix.share(OpKind::Remove) > 0.0,
            progress,
        };
        let tally = &tally;
        async move { worker.run(plan.client(client), || true, tally).await }
    }));
    let counters = endpoints
        .iter()
        .fold(Counters::default(), |sum, v| sum + v.meter().counters());
    Ok((tally.into_inner(), counters))
}

pub(crate) fn measured<K: BenchKey, T: BenchTree<Key = K>>(
    point: &Point,
    tally: Tally,
    seconds: f64,
    counters: Counters,
    trees: &[T],
) -> Result<Measured, RunError> {
    if let Some(e) = tally.failed {
        return Err(e.into());
    }
    Ok(Measured {
        ops: tally.ops,
        seconds,
        counters,
        wrong_values: tally.wrong,
        cache_bytes: trees.iter().map(T::cache_bytes).max().unwrap_or(0),
        local_bytes: trees.iter().map(T::local_bytes).max().unwrap_or(0),
        remote_bytes: trees.iter().map(T::allocated_bytes).sum::<i64>().max(0) as u64,
        keys: point.keys + tally.inserted,
        bound: trees[0].bound(point, &counters, tally.ops),
        latency: tally.latency,
        steady: tally.steady,
        writes: tally.writes,
        nic: NicShares::default(),
        promises: None,
    })
}
