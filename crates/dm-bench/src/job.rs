//! Jobs: lists of points that run in parallel, with progress, a table, plots and files.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
// Data points are independent simulations: one thread each, std's own, nothing here is modelled.
use std::sync::Mutex;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::report::{Curves, Row, read_json_lines, sentences, table, write_csv, write_json_lines};
use crate::{Measured, Point, RunError};

/// The destination of results.
#[derive(Debug, Clone)]
pub struct Output {
    /// Print one JSON object per line on standard output, and nothing else there.
    pub json: bool,
    /// Directory for the plots (SVG and PNG) and the CSV.
    pub out: PathBuf,
    /// Write no plots and no CSV.
    pub no_plot: bool,
}

/// Runs the points, and prints and draws the results; returns `false` if a point failed or read a wrong
/// value.
pub fn perform(title: &str, points: &[Point], output: &Output) -> io::Result<bool> {
    let simulated = points.iter().all(|p| p.setting.fabric.is_simulated());
    if !output.json {
        let what = if simulated {
            "on a model of the NICs, not on cards"
        } else {
            "on this machine"
        };
        writeln!(io::stdout(), "{title}: {} points, {what}", points.len())?;
    }
    let results = run_all(points);
    let mut rows = Vec::new();
    let mut good = true;
    for (point, result) in points.iter().zip(results) {
        match result {
            Ok(measured) => rows.push(Row::of(point, &measured)),
            Err(e) => {
                good = false;
                writeln!(io::stderr(), "{}: {e}", name(point))?;
            }
        }
    }
    Ok(show(title, &rows, output)? && good)
}

/// Shows rows that an earlier run printed.
pub fn replot(file: &Path, output: &Output) -> io::Result<bool> {
    let rows = read_json_lines(io::BufReader::new(fs::File::open(file)?)).map_err(io::Error::other)?;
    show(&format!("dmkit, {}", file.display()), &rows, output)
}

/// Prints and draws rows; returns `false` if a wrong value was read.
pub fn show(title: &str, rows: &[Row], output: &Output) -> io::Result<bool> {
    if output.json {
        write_json_lines(rows, io::stdout().lock()).map_err(io::Error::other)?;
    } else if !rows.is_empty() {
        writeln!(io::stdout(), "{}", table(rows))?;
        writeln!(io::stdout(), "{}", summary(rows))?;
    }
    if !output.no_plot && !rows.is_empty() {
        let files = write_files(title, rows, output)?;
        if !output.json {
            writeln!(io::stdout(), "{files}")?;
        }
    }
    Ok(rows.iter().all(|row| row.wrong_values == 0))
}

/// Runs points, as many simulations in parallel as there are cores, and returns their results in order. A loopback run uses
/// all cores by itself.
pub fn run_all(points: &[Point]) -> Vec<Result<Measured, RunError>> {
    let simulated = points.iter().all(|p| p.setting.fabric.is_simulated());
    let bar = ProgressBar::new(points.iter().map(|p| p.setting.ops).sum());
    if !io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{bar:30} {percent:>3}% {elapsed_precise} {msg}");
    bar.set_style(style.expect("a valid template"));
    let next = Mutex::new((0, points.iter().map(|_| None).collect::<Vec<_>>()));
    let work = || {
        loop {
            let i = {
                let mut next = next.lock().expect("no thread panics while it holds this");
                next.0 += 1;
                next.0 - 1
            };
            let Some(point) = points.get(i) else { return };
            bar.set_message(name(point));
            let result = point.run_with(&bar);
            next.lock().expect("no thread panics while it holds this").1[i] = Some(result);
        }
    };
    // A simulation uses one core; a loopback run uses all cores.
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let side_by_side = if simulated { cores.min(points.len()) } else { 1 };
    std::thread::scope(|scope| {
        for _ in 0..side_by_side {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    let results = next.into_inner().expect("no thread panics while it holds this").1;
    results
        .into_iter()
        .map(|r| r.expect("every point was run"))
        .collect()
}

/// Returns what a person calls a point.
fn name(point: &Point) -> String {
    let at = &point.setting;
    format!(
        "{} ({}), {}, {} clients",
        point.index,
        point.techniques(),
        at.mix,
        at.clients
    )
}

/// Says what each panel shows, and how many values were checked.
fn summary(rows: &[Row]) -> String {
    let wrong: u64 = rows.iter().map(|r| r.wrong_values).sum();
    let checked: u64 = rows.iter().map(|r| r.ops).sum();
    let told = sentences(rows).join("\n");
    format!("{told}\n{checked} operations, every value read was checked: {wrong} wrong")
}

fn write_files(title: &str, rows: &[Row], output: &Output) -> io::Result<String> {
    fs::create_dir_all(&output.out)?;
    let path = |name: &str| output.out.join(name);
    write_csv(rows, fs::File::create(path("rows.csv"))?).map_err(io::Error::other)?;
    let curves = Curves::new(title, rows).map_err(io::Error::other)?;
    curves.write_svg(&path("curves.svg")).map_err(io::Error::other)?;
    curves.write_png(&path("curves.png")).map_err(io::Error::other)?;
    Ok(format!(
        "{0}/curves.svg, {0}/curves.png and {0}/rows.csv written",
        output.out.display()
    ))
}
