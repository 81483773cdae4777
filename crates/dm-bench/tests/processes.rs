//! Points that run in processes. This program has only one test, because a copy of the process would also inherit the
//! files that other tests have open.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../src/toy.rs"]
#[expect(dead_code, reason = "the unit tests use the rest")]
mod toy;

use std::sync::Mutex;

use dm_bench::report::Row;
use dm_bench::{
    BenchIndex, Driver, Events, Fabric, IndexEntry, Measured, Origin, Place, Point, RunError, Runs, Setting,
    run_all,
};
use indicatif::ProgressBar;

use self::toy::Flaw;

/// Points whose results are rows.
struct Rows(Vec<Point>);

impl Runs for Rows {
    type Result = Row;

    fn count(&self) -> usize {
        self.0.len()
    }
    fn point(&self, number: usize) -> Option<&Point> {
        self.0.get(number)
    }
    fn result(&self, number: usize, measured: Option<Measured>) -> Result<Row, RunError> {
        let planned = Row::planned(&self.0[number], &Origin::here(None));
        let row = planned.finished(&measured.unwrap());
        row.map(|row| Row {
            date: String::new(),
            ..row
        })
        .map_err(|column| RunError::Bad(column.to_owned()))
    }
}

/// The results so far.
struct Ended(Mutex<Vec<Result<Row, String>>>);

impl Events<Row> for Ended {
    fn stops(&self) -> bool {
        false
    }
    fn begins(&self, _number: usize) -> ProgressBar {
        ProgressBar::hidden()
    }
    fn ended(&self, number: usize, result: Result<Row, RunError>) {
        self.0.lock().unwrap()[number] = result.map_err(|e| e.to_string());
    }
}

impl Rows {
    /// Returns the results, in order.
    fn run(&self, place: Place) -> Vec<Result<Row, String>> {
        let ended = Ended(Mutex::new(vec![Err("it did not end".to_owned()); self.0.len()]));
        run_all(self, place, &ended, drop);
        ended.0.into_inner().unwrap()
    }
}

#[test]
fn a_point_has_the_same_row_in_a_process_and_its_death_is_its_own() {
    // Points that differ only in clients and mix begin with copies of one index. The steady point loads its own.
    let mut points: Vec<Point> = [1, 2, 4, 8, 1, 2].map(|clients| toy::point(clients, 400)).into();
    points[1].setting.mix = "b".parse().unwrap();
    points[3].setting.steady = true;
    // These two have another cache, so they have another index.
    points[4].setting.cache_bytes /= 2;
    points[5].setting.cache_bytes /= 2;
    let points = Rows(points);
    let rows = points.run(Place::Processes);
    assert!(rows.iter().all(Result::is_ok), "{rows:?}");
    assert!(rows == points.run(Place::Threads));

    // Two points of this index abort their process. The first one runs in a copy of the worker, and the second one in
    // the worker itself. The other worker, or this process, does the other points.
    let abort = toy::flawed(Flaw::Abort);
    let flawed = [
        toy::flawed(Flaw::Panic),
        abort.clone(),
        toy::flawed(Flaw::NoMemory),
        abort,
        toy::point(2, 100),
    ];
    let rows = Rows(flawed.into()).run(Place::Processes);
    let error = |number: usize| rows[number].as_ref().unwrap_err().as_str();
    assert!(error(0).contains("a panic: a toy that panics"), "{}", error(0));
    assert!(error(1).contains("SIGABRT"), "{}", error(1));
    assert!(error(2).contains("out of memory"), "{}", error(2));
    assert!(
        error(3).contains("lost") && error(3).contains("SIGABRT"),
        "{}",
        error(3)
    );
    assert!(rows[4].is_ok(), "{rows:?}");
}
