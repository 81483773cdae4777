//! Runs a point in in-process memory, with real threads.

use std::cell::RefCell;
use std::sync::Arc; // std's `Arc`, because no model runs the client threads of a measurement

use dm_loopback::{Loopback, block_on, run_all};
use dm_verbs::{Counters, Env};
use dm_workload::Plan;
use indicatif::ProgressBar;

use super::{RunError, bad, load, measured};
use crate::driver::Driver;
use crate::measured::Measured;
use crate::work::{Tally, Worker};
use crate::{AnyEndpoint, BenchIndex, Setting};

pub(super) fn run<I: BenchIndex>(
    driver: &Driver<I>,
    setting: &Setting,
    progress: &ProgressBar,
) -> Result<Measured, RunError> {
    let plan = setting.plan(setting.mix).map_err(bad)?;
    let world = Loopback::builder()
        .nodes(setting.memory_nodes)
        .host_bytes(driver.memory_bytes(setting))
        .seed(setting.seed)
        .build()
        .map_err(bad)?;
    let options = driver.options(setting)?;
    let mut handles = Vec::new();
    for cn in 0..setting.compute_nodes {
        let v = connect(&world, cn)?;
        let handle: I = match cn {
            0 => block_on(load(&v, &options, setting))?,
            _ => block_on(I::open(&v, &options))?,
        };
        block_on(handle.warm(&v))?;
        handles.push(handle);
    }
    let handles: Arc<[I]> = handles.into();
    let clock = world.connect(0).map_err(bad)?;
    let began = clock.now();
    let results: Vec<Result<(Tally, Counters), RunError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..setting.clients)
            .map(|thread| {
                let (world, handles, plan) = (&world, &handles, &plan);
                scope.spawn(move || clients(setting, plan, world, handles, thread, began.0, progress))
            })
            .collect();
        threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|_| Err(bad("a client thread panicked"))))
            .collect()
    });
    let mut tally = Tally::new(0);
    tally.count_in(began.0, setting);
    let mut counters = Counters::default();
    for result in results {
        let (t, c) = result?;
        tally.add(&t);
        counters += c;
    }
    measured::<I>(setting, tally, began.0, counters, &handles)
}

fn connect(world: &Loopback, cn: u16) -> Result<AnyEndpoint, RunError> {
    world.connect(cn).map(AnyEndpoint::Loopback).map_err(bad)
}

/// Runs one client thread: connects its clients, and then runs its coroutines.
fn clients<I: BenchIndex>(
    setting: &Setting,
    plan: &Plan,
    world: &Loopback,
    handles: &[I],
    thread: u32,
    began: u64,
    progress: &ProgressBar,
) -> Result<(Tally, Counters), RunError> {
    let cn = (thread % u32::from(setting.compute_nodes)) as u16;
    let mut tally = Tally::new(0);
    let stop = tally.count_in(began, setting);
    let tally = RefCell::new(tally);
    let mut endpoints = Vec::new();
    for _ in 0..setting.coroutines {
        endpoints.push(connect(world, cn)?);
    }
    run_all(endpoints.iter().enumerate().map(|(coroutine, v)| {
        let client = thread * setting.coroutines + coroutine as u32;
        let mut worker = Worker::new(v, handles[usize::from(cn)].client(v), client, setting, progress);
        let tally = &tally;
        async move { worker.run(plan.client(client), |now| now < stop, tally).await }
    }));
    let counters = endpoints
        .iter()
        .fold(Counters::default(), |sum, v| sum + v.meter().counters());
    Ok((tally.into_inner(), counters))
}
