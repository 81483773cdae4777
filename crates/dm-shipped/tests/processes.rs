//! Points of the shipped indexes that begin with copies of one loaded index. This program has one test, because copies
//! of a process with other tests would also have the files that those have open.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Mutex;

use dm_bench::report::Row;
use dm_bench::{Events, Measured, Origin, Place, Point, RunError, Runs, Setting, run_all};
use indicatif::ProgressBar;

struct Rows {
    points: Vec<Point>,
    ended: Mutex<Vec<Option<Row>>>,
}

impl Runs for Rows {
    type Result = Row;

    fn count(&self) -> usize {
        self.points.len()
    }
    fn point(&self, number: usize) -> Option<&Point> {
        self.points.get(number)
    }
    fn result(&self, number: usize, measured: Option<Measured>) -> Result<Row, RunError> {
        let planned = Row::planned(&self.points[number], &Origin::here(None));
        let mut row = planned.finished(&measured.unwrap()).unwrap();
        row.date.clear();
        Ok(row)
    }
}

impl Events<Row> for Rows {
    fn stops(&self) -> bool {
        false
    }
    fn begins(&self, _number: usize) -> ProgressBar {
        ProgressBar::hidden()
    }
    fn ended(&self, number: usize, result: Result<Row, RunError>) {
        self.ended.lock().unwrap()[number] = Some(result.unwrap());
    }
}

/// Every index has the same rows with an index of its own and with a copy, under skew, with a small cache, and whatever
/// ran before.
#[test]
fn every_index_has_the_same_row_with_a_copy() {
    let registry = dm_shipped::shipped();
    let mut points = Vec::new();
    for entry in registry.entries() {
        for (mix, clients) in [("c", 4), ("a", 8), ("c", 8), ("e", 4)] {
            let mix: dm_bench::Mix = mix.parse().unwrap();
            let setting = Setting {
                mix,
                compute_nodes: 2,
                memory_nodes: 1,
                clients,
                coroutines: 2,
                keys: 20_000,
                ops: 2_000,
                cache_bytes: 20_000,
                ..Setting::new("sim:cx6-roce".parse().unwrap())
            };
            points.push(registry.point(entry.name(), "default", setting).unwrap());
        }
    }
    let rows = |place| {
        let rows = Rows {
            points: points.clone(),
            ended: Mutex::new(vec![None; points.len()]),
        };
        run_all(&rows, place, &rows, drop);
        rows.ended.into_inner().unwrap()
    };
    let (copies, own) = (rows(Place::Processes), rows(Place::Threads));
    for (copy, own) in copies.into_iter().zip(own) {
        assert_eq!(copy.unwrap(), own.unwrap());
    }
}
