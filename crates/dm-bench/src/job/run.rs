//! Runs points. As many simulations run in parallel as there are cores, as long as the memory holds all of their
//! indexes. Each result is passed on as soon as it is ready.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
// The threads and locks are those of std and not of `dm-sync`, because no model runs this code.
use std::sync::Mutex;

use indicatif::ProgressBar;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::worker::Worker;
use crate::refusal::available_bytes;
use crate::run::bad;
use crate::{Measured, Point, RunError};

/// Independent runs. Most measure a point, but a run may do anything.
pub trait Runs: Sync {
    /// The result of a run.
    type Result: Serialize + DeserializeOwned + Send;

    /// Returns the number of runs.
    fn count(&self) -> usize;

    /// Returns the point that run `number` measures, if there is one.
    fn point(&self, number: usize) -> Option<&Point>;

    /// Makes the result of run `number` from the measurement of its point. If the run has no point, does the run first.
    ///
    /// # Errors
    /// Returns [`RunError`] if the run has no result.
    fn result(&self, number: usize, measured: Option<Measured>) -> Result<Self::Result, RunError>;
}

/// Where runs take place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Place {
    /// On threads of this process. Each point loads its own index.
    #[default]
    Threads,
    /// Simulated points run in copies of this process. Points that differ only in their clients and in the mix of their
    /// operations begin with copies of one loaded index, so this is faster; the results are the same. This process must
    /// have no other thread that holds a lock. So use this variant in a command line, and not in a program that does
    /// other things meanwhile.
    Processes,
}

/// Receives the events of [`run_all`], and can stop it.
pub trait Events<T>: Sync {
    /// Returns whether no further run may begin.
    fn stops(&self) -> bool;
    /// Called when run `number` begins. If the run is on a thread of this process, it counts its operations in the
    /// returned bar.
    fn begins(&self, number: usize) -> ProgressBar;
    /// Called when run `number` has ended. Runs on different threads may end at the same time.
    fn ended(&self, number: usize, result: Result<T, RunError>);
}

/// Runs all of `runs`, or stops when [`Events::stops`] returns `true`. `meanwhile` runs on a thread of its own. The
/// sender of the channel whose receiver it gets is dropped when the last run has ended.
pub fn run_all<R: Runs>(
    runs: &R,
    place: Place,
    events: &impl Events<R::Result>,
    meanwhile: impl FnOnce(std::sync::mpsc::Receiver<()>) + Send,
) {
    let points: Vec<&Point> = (0..runs.count())
        .filter_map(|number| runs.point(number))
        .collect();
    let place = match points.iter().all(|point| point.setting.fabric.is_simulated()) {
        true => place,
        false => Place::Threads,
    };
    let hands = side_by_side(&points, place).min(runs.count());
    let groups = groups(runs, place, hands);
    let mut workers = Vec::new();
    if place == Place::Processes {
        // The workers are forked before this function starts threads. If the system refuses another process, the
        // existing workers do all runs.
        for _ in 0..hands {
            match Worker::start(runs, &mut workers) {
                Ok(worker) => workers.push(worker),
                Err(_) => break,
            }
        }
    }
    // If no worker could be started, the runs take place on threads of this process.
    let hands = if workers.is_empty() { hands } else { workers.len() };
    let crew = Mutex::new(Crew {
        groups: groups.into(),
        hands,
    });
    let crew = || crew.lock().expect("no thread panics while it holds this");
    let work = &|mut worker: Option<Worker>| {
        // A closure, so that the lock is released before the group runs.
        let take = || crew().take();
        while let Some(group) = take() {
            for (i, &number) in group.iter().enumerate() {
                if events.stops() {
                    return;
                }
                let counter = events.begins(number);
                let Some(at_work) = &mut worker else {
                    events.ended(number, here(runs, number, &counter));
                    continue;
                };
                let answer = at_work.run(number, i + 1 == group.len());
                let lost = answer.is_err();
                let result =
                    answer.unwrap_or_else(|e| Err(bad(format_args!("the process of this run is lost: {e}"))));
                events.ended(number, result);
                if lost {
                    // The other workers do the rest of the group. If there are none, this thread does it without a
                    // worker.
                    worker = None;
                    if crew().leaves(&group[i + 1..]) {
                        return;
                    }
                }
            }
        }
    };
    let (running, over) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(|| meanwhile(over));
        let threads: Vec<_> = match workers.is_empty() {
            true => (0..hands).map(|_| scope.spawn(move || work(None))).collect(),
            false => {
                let own = workers.drain(..).map(Some);
                own.map(|worker| scope.spawn(move || work(worker))).collect()
            }
        };
        for thread in threads {
            thread.join().expect("a panic of a run is caught");
        }
        drop(running);
    });
}

/// The groups of runs that no thread has taken yet, and the number of threads (`hands`) that may still take one. With
/// processes, each of these threads has a worker.
struct Crew {
    groups: VecDeque<Vec<usize>>,
    hands: usize,
}

impl Crew {
    /// Takes a group. If there is none left, returns `None`, and the calling thread no longer counts.
    fn take(&mut self) -> Option<Vec<usize>> {
        let group = self.groups.pop_front();
        self.hands -= usize::from(group.is_none());
        group
    }

    /// Removes the calling thread from the number of threads, and gives the rest of its group to the other threads.
    /// Returns `false` and changes nothing if there are no other threads.
    fn leaves(&mut self, rest: &[usize]) -> bool {
        if self.hands <= 1 {
            return false;
        }
        self.hands -= 1;
        if !rest.is_empty() {
            self.groups.push_front(rest.to_vec());
        }
        true
    }
}

/// Returns the runs in groups. On threads, each run is a group. In processes, the runs of a group begin with the same
/// loaded index. The largest groups come first, so that no core has to run a large group when the others have no more
/// work. If there are fewer groups than `hands` (threads that run groups), the largest groups are divided, even though
/// two groups then load the same index.
fn groups<R: Runs>(runs: &R, place: Place, hands: usize) -> Vec<Vec<usize>> {
    let all = 0..runs.count();
    if place == Place::Threads {
        return all.map(|number| vec![number]).collect();
    }
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for number in all {
        let key = runs.point(number).and_then(Point::load_key);
        let group = key.map(|key| *known.entry(key).or_insert(groups.len()));
        match group.and_then(|group| groups.get_mut(group)) {
            Some(group) => group.push(number),
            None => groups.push(vec![number]),
        }
    }
    loop {
        groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
        match groups.first_mut() {
            Some(largest) if largest.len() > 1 && hands > 0 => {
                let half = largest.len() / 2;
                if groups.len() >= hands {
                    return groups;
                }
                let rest = groups[0].split_off(half);
                groups.push(rest);
            }
            _ => return groups,
        }
    }
}

/// Does run `number` in this process, and loads its index anew.
pub(super) fn here<R: Runs>(runs: &R, number: usize, counter: &ProgressBar) -> Result<R::Result, RunError> {
    caught(|| {
        let measured = runs.point(number).map(|point| point.run_with(counter));
        runs.result(number, measured.transpose()?)
    })
}

/// Calls `run`, and turns a panic into an error. Other runs can go on, because a panic in
/// `run` leaves no state half changed that another run uses.
pub(super) fn caught<T>(run: impl FnOnce() -> Result<T, RunError>) -> Result<T, RunError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(RunError::Panicked(message(&*panic))))
}

/// Returns the number of runs that may take place at once. A simulation uses one core, and all simulations must fit
/// into memory. A loopback run uses all cores.
fn side_by_side(points: &[&Point], place: Place) -> usize {
    if !points.iter().all(|point| point.setting.fabric.is_simulated()) {
        return 1;
    }
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    // A worker and its copy each need memory for an index, because the copy changes its pages.
    let each = if place == Place::Processes { 2 } else { 1 };
    let most = points.iter().map(|point| point.needs().bytes).max().unwrap_or(0);
    let most = most.saturating_mul(each);
    let fit = available_bytes().map_or(u64::MAX, |bytes| bytes / most.max(1));
    cores.min(usize::try_from(fit).unwrap_or(usize::MAX)).max(1)
}

/// Returns the text of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_hand_stays_until_nothing_is_left() {
        let mut crew = Crew {
            groups: [vec![0, 1, 2], vec![3]].into(),
            hands: 2,
        };
        assert_eq!((crew.take(), crew.take()), (Some(vec![0, 1, 2]), Some(vec![3])));
        // The worker of the first group is lost, and the other one takes the rest. When it is lost too, nobody is left.
        assert!(crew.leaves(&[1, 2]));
        assert_eq!(crew.take(), Some(vec![1, 2]));
        assert!(!crew.leaves(&[2]));
        assert_eq!((crew.take(), crew.hands), (None, 0));
    }
}
