//! Runs this machine's part of a point over real queue pairs.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Barrier;

use dm_alloc::{AllocError, Superblock};
use dm_ib::{DeviceChoice, Ib, Secret, Thread};
use dm_verbs::{Counters, Env};
use dm_workload::{OpKind, Plan};
use indicatif::ProgressBar;

use super::{RunError, bad, load, measured};
use crate::cluster::{ClusterFile, ClusterRun};
use crate::driver::Driver;
use crate::report::{Row, common};
use crate::work::{Tally, Worker};
use crate::{AnyEndpoint, BenchIndex, Checked, Fabric, Measured, Origin, Point, Setting};

/// Connects to the memory nodes of the cluster.
fn world(file: &ClusterFile, seed: u64) -> Result<Ib, RunError> {
    let mut builder = Ib::builder(&file.addresses().map_err(bad)?)
        .device(DeviceChoice {
            name: file.device.clone(),
            port: file.port,
            gid: file.gid,
        })
        .assume(&file.capabilities().map_err(bad)?)
        .slower(file.slower)
        .seed(seed);
    if let Some(path) = &file.secret_file {
        let named = |e| bad(format!("{}: {e}", path.display()));
        builder = builder.secret(Secret::from_file(path).map_err(named)?);
    }
    builder.build().map_err(bad)
}

/// Runs one future on a thread with its own connections.
fn alone<F: Future>(thread: &Thread, future: F) -> F::Output {
    thread.run([future]).remove(0)
}

fn connect(thread: &Thread, compute_node: u16) -> Result<AnyEndpoint, RunError> {
    thread.connect(compute_node).map(AnyEndpoint::Ib).map_err(bad)
}

/// Runs this machine's clients, concurrently with the other machines' clients.
pub(super) fn run<I: BenchIndex>(
    driver: &Driver<I>,
    point: &Point,
    cluster: &ClusterRun,
    progress: &ProgressBar,
) -> Result<Measured, RunError> {
    let (machine, setting) = (cluster.machine, &point.setting);
    if cluster.existing && setting.share(OpKind::Insert) > 0.0 {
        return Err(bad(
            "a mix with inserts needs a new index, because each insert must use an absent key",
        ));
    }
    let world = world(&cluster.file, setting.seed)?;
    let thread = world.thread().map_err(bad)?;
    let v = connect(&thread, machine.number)?;
    let options = driver.options(setting)?;
    let creates = machine.number == 0 && !cluster.existing;
    let mut tree = None;
    if creates {
        alone(&thread, refuse_another(&v))?;
        tree = Some(alone(&thread, load::<_, I>(&v, &options, setting))?);
    }
    meet(point, cluster, &v, "loaded")?;
    let tree = match tree {
        Some(tree) => tree,
        None => alone(&thread, I::open(&v, &options))?,
    };
    alone(&thread, tree.warm(&v))?;
    let plan = setting.plan(setting.mix).map_err(bad)?;
    let own: Vec<u32> = (0..setting.clients)
        .filter(|thread| thread % u32::from(machine.of) == u32::from(machine.number))
        .collect();
    // First all clients connect, then all machines wait for each other, and then all clients begin.
    let (ready, begin) = (Barrier::new(own.len() + 1), Barrier::new(own.len() + 1));
    let (began, met, results) = std::thread::scope(|scope| {
        let threads: Vec<_> = own
            .iter()
            .map(|&number| {
                let (world, tree, plan, gates) = (&world, &tree, &plan, [&ready, &begin]);
                scope.spawn(move || clients(setting, plan, world, tree, number, gates, progress))
            })
            .collect();
        ready.wait();
        let met = meet(point, cluster, &v, "begin");
        let began = v.now();
        begin.wait();
        let ends = threads.into_iter().map(|t| t.join());
        let results: Vec<_> = ends
            .map(|end| end.unwrap_or_else(|_| Err(bad("a client thread panicked"))))
            .collect();
        (began, met, results)
    });
    met?;
    let mut tally = Tally::new(0);
    let mut counters = Counters::default();
    for result in results {
        let (t, c) = result?;
        tally.add(&t);
        counters += c;
    }
    let measured = measured::<I>(setting, tally, began.0, counters, std::slice::from_ref(&tree))?;
    Ok(Measured {
        promises: Some(world.promises().to_string()),
        ..measured
    })
}

/// Returns an error if the pool cannot be read, or if it has an index already, which must not be loaded again.
async fn refuse_another(v: &AnyEndpoint) -> Result<(), RunError> {
    match Superblock::inspect(v).await {
        Err(AllocError::NotFormatted { word: 0, .. }) => Ok(()),
        Ok(_) => Err(bad(
            "the memory nodes already hold an index: use it with --pool open, or restart the memory nodes to empty them",
        )),
        Err(e) => Err(bad(e)),
    }
}

/// Waits until every machine has reached this stage. Returns an error if one has not by the end of the cluster's
/// `patience`.
fn meet(point: &Point, cluster: &ClusterRun, v: &AnyEndpoint, stage: &str) -> Result<(), RunError> {
    // The hash of the same row and stage is the same on every machine that runs this program.
    let mut place = DefaultHasher::new();
    let row = Row::planned(point, &Origin::here(None));
    (common(&row), stage).hash(&mut place);
    let of = cluster.machine.of;
    let AnyEndpoint::Ib(v) = v else {
        return Err(bad("only the machines of a cluster meet"));
    };
    match v.meet(place.finish(), of, cluster.patience) {
        Ok(true) => Ok(()),
        Ok(false) => Err(bad(format_args!(
            "after {} s, not all of {of} machines have arrived ({stage}): start each of them with the same flags",
            cluster.patience.as_secs()
        ))),
        Err(e) => Err(bad(e)),
    }
}

/// Runs one client thread: connects its clients, and then runs its coroutines.
fn clients<I: BenchIndex>(
    setting: &Setting,
    plan: &Plan,
    world: &Ib,
    tree: &I,
    number: u32,
    [ready, begin]: [&Barrier; 2],
    progress: &ProgressBar,
) -> Result<(Tally, Counters), RunError> {
    let compute_node = (number % u32::from(setting.compute_nodes)) as u16;
    let connected = world.thread().map_err(bad).and_then(|thread| {
        let endpoints = (0..setting.coroutines).map(|_| connect(&thread, compute_node));
        let endpoints = endpoints.collect::<Result<Vec<_>, _>>()?;
        Ok((endpoints, thread))
    });
    // The other threads wait at these barriers even if this one could not connect.
    ready.wait();
    begin.wait();
    let (endpoints, thread) = connected?;
    let tally = RefCell::new(Tally::new(0));
    thread.run(endpoints.iter().enumerate().map(|(coroutine, v)| {
        let client = number * setting.coroutines + coroutine as u32;
        let mut worker = Worker::new(v, tree.client(v), client, setting, progress);
        let tally = &tally;
        async move { worker.run(plan.client(client), |_| true, tally).await }
    }));
    let counters = endpoints
        .iter()
        .fold(Counters::default(), |sum, v| sum + v.meter().counters());
    Ok((tally.into_inner(), counters))
}

/// Opens the index of a cluster and checks it.
pub(super) fn check(point: &Point, cluster: &ClusterRun, sweeps: bool) -> Result<Checked, RunError> {
    let world = world(&cluster.file, point.setting.seed)?;
    let thread = world.thread().map_err(bad)?;
    let v = connect(&thread, 0)?;
    alone(&thread, point.driver.check(&v, &point.setting, false, sweeps))
}

/// The step that precedes the description of a cluster's index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// Create an empty index, or open the existing one.
    Create,
    /// Open the index. This fails if there is none, or if it has another kind or geometry.
    Open,
    /// Neither create nor open the index; only read the superblock.
    Nothing,
}

impl Point {
    /// Returns a description of a cluster's index from its superblock. Creates or opens the index first if `before`
    /// says so.
    ///
    /// # Errors
    /// Returns [`RunError`] if the fabric is not a cluster, if the index cannot be created or opened, or if its
    /// superblock cannot be read.
    pub fn describe(&self, before: Before) -> Result<String, RunError> {
        let Fabric::Ib(cluster) = &self.setting.fabric else {
            return Err(bad("which cluster: --fabric ib:cluster.toml"));
        };
        let world = world(&cluster.file, self.setting.seed)?;
        let thread = world.thread().map_err(bad)?;
        let v = connect(&thread, 0)?;
        if before != Before::Nothing {
            alone(
                &thread,
                self.driver.touch(&v, &self.setting, before == Before::Create),
            )?;
        }
        let found = alone(&thread, Superblock::inspect(&v)).map_err(bad)?;
        let kind: String = found
            .kind
            .to_le_bytes()
            .iter()
            .map(|byte| char::from(*byte))
            .collect();
        Ok(format!(
            "an index of kind {kind:?} over {} memory nodes, {} locks on each, {}; root word at {}",
            found.memory_nodes(),
            found.locks_per_node,
            match found.members {
                Some(area) => format!("{} members at most", area.slots),
                None => "no reclamation".to_owned(),
            },
            found.root_word
        ))
    }
}
