//! Runs points. It runs as many simulations in parallel as there are cores, and passes on each result as soon as it is
//! ready.

use std::any::Any;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
// Points are independent simulations, each on a thread of std, because no model runs them.
use std::sync::{Mutex, mpsc};

use super::progress::Progress;
use super::stop::Stop;
use crate::refusal::available_bytes;
use crate::{Measured, Point, RunError};

/// Runs `points` until all have ended or `stop` is set. `names` has their names. `ended` is called with the number of
/// each point and its result. It is called by one thread at a time.
pub(super) fn run_points(
    points: &[&Point],
    names: Vec<String>,
    stop: &Stop,
    ended: impl FnMut(usize, Result<Measured, RunError>) + Send,
) {
    let progress = Progress::new(points, names);
    let (next, ended) = (Mutex::new(0..points.len()), Mutex::new(ended));
    let take = || next.lock().expect("no thread panics while it holds this").next();
    let work = || {
        while let Some(number) = take().filter(|_| !stop.is_set()) {
            let counter = progress.begin(number);
            // A panic ends this point only: it owns everything that it has changed.
            let result = catch_unwind(AssertUnwindSafe(|| points[number].run_with(counter)));
            let result = result.unwrap_or_else(|panic| Err(RunError::Panicked(message(&*panic))));
            progress.end(number);
            ended.lock().expect("no thread panics while it holds this")(number, result);
        }
    };
    let (running, over) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(|| progress.show(&{ over }));
        let workers: Vec<_> = (0..side_by_side(points)).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().expect("a panic of a point is caught");
        }
        drop(running);
    });
}

/// Returns the number of points that may run at once. A simulation uses one core, and all simulations must fit into
/// memory. A loopback run uses all cores.
fn side_by_side(points: &[&Point]) -> usize {
    if !points.iter().all(|point| point.setting.fabric.is_simulated()) {
        return 1;
    }
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let most = points.iter().map(|point| point.needs().bytes).max().unwrap_or(0);
    let fit = available_bytes().map_or(u64::MAX, |bytes| bytes / most.max(1));
    cores
        .min(points.len())
        .min(usize::try_from(fit).unwrap_or(usize::MAX))
        .max(1)
}

/// Returns the text of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
