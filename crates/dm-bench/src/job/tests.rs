//! Tests of jobs with a toy index: the files that they write, the points that they run again, and their messages.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::toy::{self, Flaw};
use crate::{Fabric, Registry, Setting};

fn output(name: &str) -> Output {
    let out = std::env::temp_dir().join(format!("dmkit-job-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&out);
    Output {
        out,
        name: "test".to_owned(),
        ..Output::default()
    }
}

fn points() -> Vec<Point> {
    [1, 2, 4, 8].map(|clients| toy::point(clients, 400)).into()
}

/// Returns the rows of the latest run, without their dates.
fn latest(output: &Output) -> Vec<Row> {
    let mut rows = read_rows(&output.out.join(LATEST)).unwrap();
    rows.iter_mut().for_each(|row| row.date.clear());
    rows.sort_by_key(|row| row.clients);
    rows
}

fn directories(output: &Output) -> Vec<PathBuf> {
    let all = fs::read_dir(&output.out)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    all.filter(|path| !path.is_symlink()).collect()
}

#[test]
fn a_run_leaves_rows_a_table_and_curves_in_a_directory_of_its_own() {
    let output = output("whole");
    assert!(perform_until("t", &points(), &output, &Stop::default()).unwrap());
    let rows = latest(&output);
    assert_eq!(
        rows.iter().map(|row| row.clients).collect::<Vec<_>>(),
        [1, 2, 4, 8]
    );
    for row in &rows {
        assert_eq!((row.ops, row.wrong_values, row.seeds), (400, 0, 1));
        assert!(
            row.round_trips >= 1.0 && row.p50_us > 0.5 && row.max_us >= row.p999_us,
            "{row:?}"
        );
        assert!(row.p90_us >= row.p50_us && row.p999_us >= row.p99_us && row.mean_us > 0.0);
    }
    for file in ["rows.csv", "curves.svg", "curves.png"] {
        assert!(output.out.join(LATEST).join(file).is_file(), "{file}");
    }
    // A second run has another directory and equal rows, because a simulated point has the same result in every run.
    assert!(perform_until("t", &points(), &output, &Stop::default()).unwrap());
    assert_eq!(directories(&output).len(), 2);
    assert!(latest(&output) == rows);
    fs::remove_dir_all(&output.out).unwrap();
}

#[test]
fn a_row_says_what_was_measured() {
    let output = Output {
        commit: Some("0a1b2c".to_owned()),
        no_plot: true,
        ..output("identity")
    };
    let setting = Setting {
        coroutines: 2,
        value_bytes: 16,
        cache_bytes: 12_345,
        ..toy::setting(3, 300)
    };
    let mut knobs = setting.knobs.clone();
    knobs.set("span", 32);
    let point = Registry::new()
        .with(toy::entry())
        .point("toy", "default", Setting { knobs, ..setting })
        .unwrap();
    assert!(perform_until("t", std::slice::from_ref(&point), &output, &Stop::default()).unwrap());
    let row = latest(&output).remove(0);
    assert_eq!(
        (row.series().as_str(), row.knobs.as_str()),
        ("toy (default span=32)", "span=32")
    );
    assert_eq!(
        (row.compute_nodes, row.memory_nodes, row.colocated),
        (1, 1, false)
    );
    assert_eq!(
        (row.clients, row.coroutines, row.keys, row.ranks),
        (3, 2, 200, 200)
    );
    assert_eq!(
        (row.key_bytes, row.value_bytes, row.cache_limit_bytes),
        (8, 16, 12_345)
    );
    assert_eq!((row.fill.as_str(), row.scan_length.as_str()), ("0.8", "1-100"));
    assert_eq!((row.fabric.as_str(), row.model_hash.len()), ("sim:cx5-ib", 16));
    assert_eq!((row.ops_limit, row.seed, row.commit.as_str()), (300, 1, "0a1b2c"));
    assert_eq!(row.version, env!("CARGO_PKG_VERSION"));
    assert!(!row.host.is_empty());
    // A change of one number of the model changes the hash.
    let Fabric::Sim(mut model) = point.setting.fabric.clone() else {
        panic!("a simulation");
    };
    model.jitter_ns += 1.0;
    let mut other = point;
    other.setting.fabric = Fabric::Sim(model);
    let other = Row::planned(&other, &Origin::here(None));
    assert_ne!(other.model_hash, row.model_hash);
    fs::remove_dir_all(&output.out).unwrap();
}

#[test]
fn a_panic_and_an_error_of_one_point_leave_the_others() {
    let output = output("panic");
    let points = [
        toy::point(1, 100),
        toy::flawed(Flaw::Panic),
        toy::flawed(Flaw::NoMemory),
        toy::point(2, 100),
    ];
    let good = perform_until("t", &points, &output, &Stop::default()).unwrap();
    assert!(!good, "two points failed");
    let rows = latest(&output);
    assert_eq!(rows.iter().map(|row| row.clients).collect::<Vec<_>>(), [1, 2]);
    let error = points[1].run_named();
    assert!(error.contains("a panic: a toy that panics"), "{error}");
    fs::remove_dir_all(&output.out).unwrap();
}

impl Point {
    /// Returns the message with which a run reports this point's error.
    fn run_named(&self) -> String {
        let mut told = String::new();
        let points = Only::new(std::slice::from_ref(self));
        points.run(&Stop::default(), |_, result| {
            told = result.unwrap_err().to_string();
        });
        told
    }
}

/// Points whose results are rows, without files.
struct Only<'a> {
    points: &'a [Point],
    planned: Vec<Row>,
}

impl<'a> Only<'a> {
    fn new(points: &'a [Point]) -> Self {
        let planned = points
            .iter()
            .map(|point| Row::planned(point, &Origin::here(None)))
            .collect();
        Self { points, planned }
    }

    fn run(&self, stop: &Stop, ended: impl FnMut(usize, Result<Row, RunError>) + Send) {
        struct Told<'s, F>(Mutex<F>, &'s Stop);
        impl<F: FnMut(usize, Result<Row, RunError>) + Send> Events<Row> for Told<'_, F> {
            fn stops(&self) -> bool {
                self.1.is_set()
            }
            fn begins(&self, _number: usize) -> ProgressBar {
                ProgressBar::hidden()
            }
            fn ended(&self, number: usize, result: Result<Row, RunError>) {
                (self.0.lock().unwrap())(number, result);
            }
        }
        run_all(self, Place::Threads, &Told(Mutex::new(ended), stop), drop);
    }
}

impl Runs for Only<'_> {
    type Result = Row;

    fn count(&self) -> usize {
        self.points.len()
    }
    fn point(&self, number: usize) -> Option<&Point> {
        Some(&self.points[number])
    }
    fn result(&self, number: usize, measured: Option<Measured>) -> Result<Row, RunError> {
        let row = self.planned[number].clone().finished(&measured.unwrap());
        row.map_err(|column| RunError::Bad(column.to_owned()))
    }
}

#[test]
fn a_wrong_value_is_counted_and_fails_the_run() {
    let output = output("wrong");
    let good = perform_until("t", &[toy::flawed(Flaw::WrongValue)], &output, &Stop::default()).unwrap();
    assert!(!good && latest(&output)[0].wrong_values == 100);
    fs::remove_dir_all(&output.out).unwrap();
}

#[test]
fn a_stopped_run_keeps_its_rows_and_resume_runs_only_the_rest() {
    let output = output("stopped");
    let whole = {
        perform_until("t", &points(), &output, &Stop::default()).unwrap();
        latest(&output)
    };
    // The run is stopped when its first point ends, and then begins no further point.
    let stop = Stop::default();
    let (mut run, mut rows) = (RunDirectory::create(&output.out, "half").unwrap(), Vec::new());
    let all = points();
    Only::new(&all).run(&stop, |_, result| {
        let row = result.unwrap();
        run.append(&row).unwrap();
        rows.push(row);
        stop.set();
    });
    drop(run);
    assert!((1..4).contains(&rows.len()), "{} points ran", rows.len());

    let resumed = Output {
        resume: Some(LATEST.to_owned()),
        ..output.clone()
    };
    // Ctrl-C arrives before the remaining points have run.
    let interrupted = perform_until("t", &all, &resumed, &stop).unwrap_err();
    assert_eq!(interrupted.kind(), io::ErrorKind::Interrupted);
    let told = interrupted.to_string();
    assert!(
        told.starts_with(&format!("interrupted after {} of 4 points", rows.len())),
        "{told}"
    );
    assert!(output.out.join(LATEST).join("curves.svg").is_file());

    assert!(perform_until("t", &all, &resumed, &Stop::default()).unwrap());
    let lines = fs::read_to_string(output.out.join(LATEST).join(ROWS)).unwrap();
    assert_eq!(lines.lines().count(), 4, "no point ran twice");
    assert!(latest(&output) == whole);

    // Points with other parameters cannot be added to this run.
    let mut other = all;
    other.iter_mut().for_each(|point| point.setting.value_bytes = 64);
    let refused = perform_until("t", &other, &resumed, &Stop::default()).unwrap_err();
    assert!(
        refused.to_string().contains("--resume needs the parameters"),
        "{refused}"
    );
    fs::remove_dir_all(&output.out).unwrap();
}

#[test]
fn nothing_runs_if_a_point_is_refused_or_the_place_cannot_be_written() {
    let output = output("refused");
    let refused = perform_until(
        "t",
        &[toy::point(1, 10), toy::point(2, 0)],
        &output,
        &Stop::default(),
    );
    assert_eq!(
        refused.unwrap_err().to_string(),
        "toy (default), c, 2 clients, cache 500 MB, seed 1: there must be at least one operation (--ops)"
    );
    let twice = perform_until(
        "t",
        &[toy::point(1, 10), toy::point(1, 10)],
        &output,
        &Stop::default(),
    );
    assert!(twice.unwrap_err().to_string().contains("are the same point"));
    assert!(!output.out.exists());
    fs::write(&output.out, "a file").unwrap();
    let refused = perform_until("t", &[toy::flawed(Flaw::Panic)], &output, &Stop::default());
    assert!(refused.unwrap_err().to_string().contains("dmkit-job-"));
    fs::remove_file(&output.out).unwrap();
}

#[test]
fn seeds_are_rows_of_their_own_on_disk_and_one_row_in_the_csv() {
    let output = output("seeds");
    let point = |seed| {
        Point::of(
            "toy",
            toy::driver(None),
            Setting {
                seed,
                ..toy::setting(4, 300)
            },
        )
    };
    assert!(perform_until("t", &[1, 2, 3].map(point), &output, &Stop::default()).unwrap());
    let rows = latest(&output);
    assert_eq!(rows.len(), 3);
    let csv = fs::read_to_string(output.out.join(LATEST).join("rows.csv")).unwrap();
    let shown: Vec<Row> = csv::Reader::from_reader(csv.as_bytes())
        .deserialize()
        .map(Result::unwrap)
        .collect();
    assert_eq!((shown.len(), shown[0].seeds, shown[0].ops), (1, 3, 900));
    let mean = rows.iter().map(|row| row.mops).sum::<f64>() / 3.0;
    assert!((shown[0].mops - mean).abs() < 1e-9 && shown[0].mops_ci95.is_some_and(|half| half > 0.0));
    // Drawing the same rows again works without plots.
    let again = Output {
        no_plot: true,
        ..output.clone()
    };
    assert!(replot(&[output.out.join(LATEST)], &again).unwrap());
    fs::remove_dir_all(&output.out).unwrap();
}

#[test]
fn the_latencies_of_every_point_are_in_the_log_also_of_a_run_that_is_continued() {
    let output = output("histogram");
    fs::create_dir_all(&output.out).unwrap();
    let file = output.out.join("all.hlog");
    let logged = Output {
        histogram: Some(file.clone()),
        ..output.clone()
    };
    perform_until("t", &points()[..2], &logged, &Stop::default()).unwrap();
    let tags = |text: &str| {
        text.lines()
            .filter(|line| line.starts_with("Tag=toy_(default)/c/"))
            .count()
    };
    assert_eq!(tags(&fs::read_to_string(&file).unwrap()), 2);
    let refused = perform_until("t", &points()[..2], &logged, &Stop::default()).unwrap_err();
    assert!(
        refused.to_string().contains("all.hlog"),
        "an existing log is not overwritten: {refused}"
    );
    let latest = directories(&output);
    let run = latest
        .iter()
        .find(|path| path.join("curves.svg").exists())
        .unwrap();
    let resumed = Output {
        resume: Some(run.file_name().unwrap().to_str().unwrap().to_owned()),
        ..logged
    };
    perform_until("t", &points(), &resumed, &Stop::default()).unwrap();
    assert_eq!(tags(&fs::read_to_string(&file).unwrap()), 4);
    fs::remove_dir_all(&output.out).unwrap();
}

#[test]
fn a_row_says_how_often_the_trace_was_made() {
    let output = output("trace");
    let text = b"0,aa,2,39,7,get,0\n0,bb,2,39,7,get,0\n0,aa,2,39,7,get,0\n";
    let trace = dm_workload::Trace::read(text.as_slice(), 9).unwrap();
    let setting = Setting {
        trace: Some(trace),
        keys: 2,
        ranks: 2,
        ..toy::setting(1, 9)
    };
    let point = Point::of("toy", toy::driver(None), setting);
    assert!(perform_until("t", &[point], &output, &Stop::default()).unwrap());
    let row = latest(&output).remove(0);
    assert_eq!(
        (row.trace.as_str(), row.trace_passes),
        ("3 operations of 2 keys", 3.0)
    );
    assert!(words(std::slice::from_ref(&row), "").contains("they ran it up to 3.0 times"));
    let once = Row {
        trace_passes: 1.0,
        ..row
    };
    assert!(!words(&[once], "").contains("again"));
    fs::remove_dir_all(&output.out).unwrap();
}

#[test]
fn a_warm_up_is_not_counted_and_a_duration_ends_the_run() {
    let run = |warm_up_ns, duration_ns, ops| {
        let setting = Setting {
            warm_up_ns,
            duration_ns,
            ..toy::setting(4, ops)
        };
        Point::of("toy", toy::driver(None), setting).run()
    };
    let whole = run(0, None, 4_000).unwrap();
    // The warm-up is so short that the operations and verbs are those of the whole run.
    let all = run(1, None, 4_000).unwrap();
    assert_eq!((all.ops, all.latency.len()), (4_000, 4_000));
    assert_eq!(all.counters, whole.counters);

    let span = (whole.seconds * 1e9) as u64;
    let half = run(span / 2, None, 4_000).unwrap();
    assert!((1_800..2_200).contains(&half.ops), "{} operations", half.ops);
    assert_eq!(
        (half.ops, half.counters.round_trips),
        (half.latency.len(), half.ops)
    );
    assert!((half.seconds / whole.seconds - 0.5).abs() < 0.01);

    let timed = run(span / 4, Some(span / 2), 1_000_000).unwrap();
    assert!((1_800..2_200).contains(&timed.ops), "{} operations", timed.ops);
    assert!((timed.seconds * 1e9 - (span / 2) as f64).abs() < 1.0 && timed.latency.len() == timed.ops);

    let short = run(0, Some(span * 2), 4_000).unwrap_err().to_string();
    assert!(short.contains("before the time was over"), "{short}");
    let nothing = run(span * 2, None, 4_000).unwrap_err().to_string();
    assert!(nothing.contains("no operation ended"), "{nothing}");
}

#[test]
fn clients_that_join_late_do_not_change_what_is_measured_after_a_warm_up() {
    let run = |flaw| {
        let setting = Setting {
            warm_up_ns: 2_000_000,
            ..toy::setting(8, 16_000)
        };
        let measured = Point::of("toy", toy::driver(flaw), setting).run().unwrap();
        measured.ops as f64 / measured.seconds
    };
    let share = run(Some(Flaw::LateClients)) / run(None);
    assert!((0.99..1.01).contains(&share), "{share}");
}

#[test]
fn a_duration_is_wall_time_on_loopback() {
    let setting = Setting {
        fabric: Fabric::Loopback,
        clients: 2,
        warm_up_ns: 2_000_000,
        duration_ns: Some(20_000_000),
        ..toy::setting(2, 1_000_000_000)
    };
    let measured = Point::of("toy", toy::driver(None), setting).run().unwrap();
    assert!(measured.ops > 0 && measured.latency.len() == measured.ops);
    assert!((measured.seconds - 0.02).abs() < 1e-9, "{} s", measured.seconds);
}
