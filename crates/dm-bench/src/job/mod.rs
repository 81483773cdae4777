//! Jobs: lists of points that run in parallel. A job shows its progress, and writes a table, plots and files. Each row
//! is written to disk when its point ends, so no row is lost if another point fails.

#[expect(unsafe_code, reason = "a copy of a process is outside of what Rust checks")]
mod child;
mod directory;
mod progress;
mod run;
mod stop;
mod worker;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
// The rows belong to threads of std, because no model runs them.
use std::sync::Mutex;

use indicatif::ProgressBar;

pub use self::directory::LATEST;
use self::directory::{ROWS, RunDirectory, assign, new_directory};
use self::progress::Progress;
pub use self::run::{Events, Place, Runs, run_all};
use self::stop::Stop;
pub use self::stop::{INTERRUPTED, Interrupted};
use crate::report::{
    Curves, HistogramLog, Row, check_curves, over_seeds, read_json_lines, rows_page, sentences, table,
    write_csv, write_json_lines,
};
use crate::{Measured, Origin, Point, RunError, Titles};

/// The destination of results.
#[derive(Debug, Clone, Default)]
pub struct Output {
    /// Whether standard output gets one JSON object per line, and nothing else.
    pub json: bool,
    /// The directory of all runs: each run has a directory of its own in it.
    pub out: PathBuf,
    /// The name of the run's directory, after the time.
    pub name: String,
    /// Whether the plots, the page and the CSV are left out. The rows of a run are still written.
    pub no_plot: bool,
    /// The directory in `out` of a run to continue. Only points without a row there are run. `None` begins a new run.
    pub resume: Option<String>,
    /// A file for the latencies of every point, in HdrHistogram's interval log format.
    pub histogram: Option<PathBuf>,
    /// The git commit from which the program was built, if it is known.
    pub commit: Option<String>,
    /// The names of the indexes on the page.
    pub titles: Titles,
    /// Where simulated points run.
    pub place: Place,
}

/// Adds the path of a file to an error.
fn named(path: &Path, e: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {e}", path.display()))
}

/// Runs the points, and prints and draws the results. Returns `false` if a point failed or read a wrong value.
///
/// # Errors
/// Returns an error before any point runs if a point is refused, if points do not belong together, if the run in
/// [`Output::resume`] cannot be continued, or if a file cannot be written. Returns an error after the run if a row, a
/// file of results or standard output could not be written. Returns [`Interrupted`] if SIGINT (Ctrl-C), SIGTERM or
/// SIGHUP left points without a row.
pub fn perform(title: &str, points: &[Point], output: &Output) -> io::Result<bool> {
    perform_until(title, points, output, &Stop::on_signals())
}

/// Checks the points as [`perform`] does before anything runs.
///
/// # Errors
/// Returns an error if a point is refused, or if points of one curve have different settings or are the same point. It
/// names the points.
pub fn check(points: &[Point]) -> io::Result<()> {
    plan(points, &Origin::here(None)).map(drop)
}

/// Returns the rows of the points, without results.
fn plan(points: &[Point], origin: &Origin) -> io::Result<Vec<Row>> {
    let planned: Vec<Row> = points.iter().map(|point| Row::planned(point, origin)).collect();
    for (point, row) in points.iter().zip(&planned) {
        point
            .check()
            .map_err(|e| io::Error::other(format!("{}: {e}", row.name())))?;
    }
    check_curves(&planned).map_err(io::Error::other)?;
    Ok(planned)
}

fn perform_until(title: &str, points: &[Point], output: &Output, stop: &Stop) -> io::Result<bool> {
    let planned = plan(points, &Origin::here(output.commit.as_deref()))?;
    let (run, rows) = begin(output, points, &planned)?;
    let records = Records {
        run,
        log: output
            .histogram
            .as_deref()
            .map(|path| log(path, output))
            .transpose()?,
        rows,
        good: true,
        failed: None,
    };
    if !output.json {
        // If the output cannot be written, the rows are on disk nevertheless.
        let _unread = announce(title, points, &records);
    }

    let left: Vec<usize> = (0..points.len()).filter(|&i| records.rows[i].is_none()).collect();
    let names = left.iter().map(|&i| planned[i].name()).collect();
    let running: Vec<&Point> = left.iter().map(|&i| &points[i]).collect();
    let shown = Shown {
        progress: Progress::new(&running, names),
        left: &left,
        planned: &planned,
        logs: records.log.is_some(),
        points,
        records: Mutex::new(records),
        stop,
    };
    // A single point runs on a thread, whose operations the progress bar can count. A copy of the process would save no
    // time, because no other point begins with the same index.
    let place = if left.len() == 1 {
        Place::Threads
    } else {
        output.place
    };
    run_all(&shown, place, &shown, |over| shown.progress.show(&over));
    let records = shown
        .records
        .into_inner()
        .expect("no thread panics while it holds this");

    let rows: Vec<Row> = records.rows.into_iter().flatten().collect();
    let shown = show(title, &rows, output, records.run.path());
    if let Some(e) = records.failed {
        return Err(e);
    }
    let right = shown?;
    let done = rows.len();
    if stop.is_set() && done < points.len() {
        return Err(Interrupted {
            done,
            of: points.len(),
        }
        .into());
    }
    Ok(right && records.good)
}

/// Creates the directory of the run. If a run is continued, opens its directory and returns its rows.
fn begin(output: &Output, points: &[Point], planned: &[Row]) -> io::Result<(RunDirectory, Vec<Option<Row>>)> {
    let Some(which) = &output.resume else {
        let run = RunDirectory::create(&output.out, &output.name)?;
        return Ok((run, vec![None; points.len()]));
    };
    if points
        .iter()
        .any(|point| matches!(point.setting.fabric, crate::Fabric::Ib(_)))
    {
        return Err(io::Error::other(
            "--resume is not for clusters: the machines of a cluster must run the same points together",
        ));
    }
    let (run, earlier) = RunDirectory::resume(&output.out, which)?;
    let rows = assign(earlier, planned).map_err(|e| named(&run.path().join(ROWS), &e))?;
    Ok((run, rows))
}

/// Opens the file of latencies. A continued run appends to it.
fn log(path: &Path, output: &Output) -> io::Result<HistogramLog> {
    let mut options = OpenOptions::new();
    match &output.resume {
        Some(_) => options.append(true).create(true),
        None => options.append(true).create_new(true),
    };
    let file = options.open(path).map_err(|e| named(path, &e))?;
    HistogramLog::new(file).map_err(|e| named(path, &e))
}

fn announce(title: &str, points: &[Point], records: &Records) -> io::Result<()> {
    let what = match points.iter().all(|p| p.setting.fabric.is_simulated()) {
        true => "on a model of the NICs, not on cards",
        false => "on this machine",
    };
    let earlier = match records.rows.iter().flatten().count() {
        0 => String::new(),
        some => format!(", {some} of them from an earlier run"),
    };
    writeln!(io::stdout(), "{title}: {} points{earlier}, {what}", points.len())?;
    writeln!(
        io::stdout(),
        "rows in {}",
        records.run.path().join(ROWS).display()
    )
}

/// The runs of the points that have no row yet, with their progress and their results.
struct Shown<'a> {
    points: &'a [Point],
    planned: &'a [Row],
    /// The numbers of the points without a row.
    left: &'a [usize],
    /// Whether a log of latencies is written.
    logs: bool,
    progress: Progress,
    records: Mutex<Records>,
    stop: &'a Stop,
}

/// A row, and its line in the log of latencies.
type Finished = (Row, Option<Vec<u8>>);

impl Runs for Shown<'_> {
    type Result = Finished;

    fn count(&self) -> usize {
        self.left.len()
    }

    fn point(&self, number: usize) -> Option<&Point> {
        Some(&self.points[self.left[number]])
    }

    fn result(&self, number: usize, measured: Option<Measured>) -> Result<Finished, RunError> {
        let measured = measured.expect("every run measures a point");
        let row = self.planned[self.left[number]].clone().finished(&measured);
        let row = row.map_err(|column| RunError::Bad(format!("{column} is not a finite number")))?;
        let logged = self.logs.then(|| HistogramLog::interval(&row, &measured.latency));
        Ok((row, logged.transpose().map_err(|e| RunError::Bad(e.to_string()))?))
    }
}

impl Events<Finished> for Shown<'_> {
    fn stops(&self) -> bool {
        self.stop.is_set()
    }

    fn begins(&self, number: usize) -> ProgressBar {
        self.progress.begin(number).clone()
    }

    fn ended(&self, number: usize, result: Result<Finished, RunError>) {
        self.progress.end(number);
        let i = self.left[number];
        let mut records = self.records.lock().expect("no thread panics while it holds this");
        if records.ended(i, &self.planned[i], result).is_err() {
            self.stop.set();
        }
    }
}

/// The results so far, which are also on disk.
struct Records {
    run: RunDirectory,
    log: Option<HistogramLog>,
    rows: Vec<Option<Row>>,
    /// Whether no point has failed.
    good: bool,
    /// The first error of a write to disk.
    failed: Option<io::Error>,
}

impl Records {
    /// Records the result of point `i`, or reports its error.
    ///
    /// # Errors
    /// Returns an error if the row or its latencies cannot be written. The caller should then run no more points.
    fn ended(&mut self, i: usize, planned: &Row, result: Result<Finished, RunError>) -> Result<(), ()> {
        let (row, interval) = match result {
            Ok(finished) => finished,
            Err(e) => {
                self.good = false;
                // Standard error may be closed. The exit status shows the error too.
                let _unheard = writeln!(io::stderr(), "dmkit: {}: {e}", planned.name());
                return Ok(());
            }
        };
        // The row is written last. So if a row exists, its latencies are in the log.
        let logged = match (&mut self.log, interval) {
            (Some(log), Some(interval)) => log.add(&interval),
            _ => Ok(()),
        };
        let written = logged.and_then(|()| self.run.append(&row));
        self.rows[i] = Some(row);
        written.map_err(|e| {
            self.failed.get_or_insert(e);
        })
    }
}

/// Reads a file of JSON lines. If `file` is the directory of a run, reads the rows of that run.
///
/// # Errors
/// Returns an error that names the file, and the line if it is not a row.
pub(crate) fn read_rows(file: &Path) -> io::Result<Vec<Row>> {
    let inner = file.join(ROWS);
    let file = if file.is_dir() { &inner } else { file };
    let opened = File::open(file).map_err(|e| named(file, &e))?;
    read_json_lines(io::BufReader::new(opened)).map_err(|e| named(file, &e))
}

/// Draws and prints rows that earlier runs wrote. Returns `false` if a wrong value was read.
///
/// # Errors
/// Returns an error if a file cannot be read or written, or if the rows do not belong together.
pub fn replot(files: &[PathBuf], output: &Output) -> io::Result<bool> {
    let mut rows = Vec::new();
    for file in files {
        rows.extend(read_rows(file)?);
    }
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    redraw(&format!("dmkit, {}", names.join(", ")), &rows, output)
}

/// Shows rows that do not belong to a run of this process.
pub(crate) fn redraw(title: &str, rows: &[Row], output: &Output) -> io::Result<bool> {
    check_curves(rows).map_err(io::Error::other)?;
    let path = match output.no_plot {
        true => PathBuf::new(),
        false => new_directory(&output.out, &output.name)?,
    };
    show(title, rows, output, &path)
}

/// Draws rows in a directory, and prints them. If one of these fails, still does the other. Returns `false` if a wrong
/// value was read.
fn show(title: &str, rows: &[Row], output: &Output, directory: &Path) -> io::Result<bool> {
    let rows = &over_seeds(rows).map_err(io::Error::other)?;
    let files = match output.no_plot || rows.is_empty() {
        true => Ok(String::new()),
        false => write_files(title, rows, &output.titles, directory),
    };
    let text = match output.json {
        true => json(rows),
        false => Ok(words(rows, files.as_deref().unwrap_or_default()).into_bytes()),
    };
    let mut out = io::stdout().lock();
    let printed = text.and_then(|text| out.write_all(&text).and_then(|()| out.flush()));
    files?;
    match printed {
        // The reader has closed the pipe. This is not an error of the run.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
        Err(e) => return Err(named(Path::new("standard output"), &e)),
        Ok(()) => {}
    }
    Ok(rows.iter().all(|row| row.wrong_values == 0))
}

fn json(rows: &[Row]) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    write_json_lines(rows, &mut text).map_err(io::Error::other)?;
    Ok(text)
}

/// Returns the table, the sentences about panels and deaths, a note if a trace was repeated, the numbers of operations
/// and of wrong values, and the place of the files.
fn words(rows: &[Row], files: &str) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let wrong: u64 = rows.iter().map(|r| r.wrong_values).sum();
    let checked: u64 = rows.iter().map(|r| r.ops).sum();
    let checked = format!("{checked} operations, every value read was checked: {wrong} wrong");
    let mut lines = vec![table(rows)];
    lines.extend(sentences(rows));
    lines.extend(again(rows));
    lines.push(checked);
    lines.extend((!files.is_empty()).then(|| files.to_owned()));
    lines.join("\n") + "\n"
}

/// Returns a note if clients have run a trace more than once.
fn again(rows: &[Row]) -> Option<String> {
    let most = rows.iter().map(|row| row.trace_passes).fold(0.0, f64::max);
    let times = format!("clients began the trace again at its end: they ran it up to {most:.1} times");
    (most > 1.0).then_some(times)
}

fn write_files(title: &str, rows: &[Row], titles: &Titles, directory: &Path) -> io::Result<String> {
    let path = |name: &str| directory.join(name);
    // A continued run replaces only its own pictures.
    let csv = path("rows.csv");
    let file = File::create(&csv).map_err(|e| named(&csv, &e))?;
    write_csv(rows, file).map_err(|e| named(&csv, &e))?;
    let curves = Curves::new(title, rows).map_err(io::Error::other)?;
    curves.write_svg(&path("curves.svg")).map_err(io::Error::other)?;
    curves.write_png(&path("curves.png")).map_err(io::Error::other)?;
    let index = path("index.html");
    fs::write(&index, rows_page(title, rows, titles)).map_err(|e| named(&index, &e))?;
    Ok(format!(
        "{0}/curves.svg, curves.png and rows.csv hold the curves and the rows\npage: {1}",
        directory.display(),
        link(&index)
    ))
}

/// Returns the `file://` address of a file, which terminals can open. Returns the path if its absolute form is unknown.
fn link(file: &Path) -> String {
    match fs::canonicalize(file) {
        Ok(whole) => format!(
            "file://{}",
            whole
                .display()
                .to_string()
                .replace('%', "%25")
                .replace(' ', "%20")
        ),
        Err(_) => file.display().to_string(),
    }
}

#[cfg(test)]
mod tests;
