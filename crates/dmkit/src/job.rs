//! Jobs: lists of points that run in parallel, with progress, a table, plots and files.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::num::NonZero;
use std::path::Path;
// Data points are independent simulations: one thread each, std's own, nothing here is modelled.
use std::sync::Mutex;

use dm_index::Fill;
use dm_workload::{Distribution, Mix, ScanLength};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sherman::Variant;

use crate::cli::{Bench, Fabric, Index, Output};
use crate::cluster::Latencies;
use crate::point::{Measured, Point, Study};
use crate::report::{Curves, Row, read_json_lines, table, write_csv, write_json_lines};
use crate::run::run;

/// The main job's numbers of client threads, over 8 compute nodes. 176 threads are the 22 per machine of Sherman.
const MAIN_CLIENTS: [u32; 5] = [16, 48, 88, 176, 352];
/// Operations of each point of the main job; the five points of a curve have more than a million.
const MAIN_OPS: u64 = 240_000;
/// Keys that the main job loads, and the number over which its Zipf ranks are drawn: Sherman's 10^9.
const MAIN_KEYS: u64 = 1_000_000;
const MAIN_RANKS: u64 = 1_000_000_000;

/// Returns the points of FG+, Sherman, SMART, CHIME and Dolphin under YCSB C, A and LOAD on the model of
/// Sherman's testbed.
pub(crate) fn main_points(model: dm_sim::CostModel) -> Vec<Point> {
    let fabric = Fabric::Sim(Box::new(model));
    let mut points = Vec::new();
    for mix in ["c", "a", "load"] {
        let mix: Mix = mix.parse().expect("a preset");
        let indexes = [
            (Index::Sherman, Variant::FgPlus),
            (Index::Sherman, Variant::Default),
            (Index::Smart, Variant::Default),
            (Index::Chime, Variant::Default),
            (Index::Dolphin, Variant::Default),
        ];
        for (index, variant) in indexes {
            for clients in MAIN_CLIENTS {
                points.push(Point {
                    index,
                    variant,
                    mix,
                    distribution: Distribution::Zipf {
                        theta: Distribution::USUAL_THETA,
                    },
                    ranks: MAIN_RANKS,
                    fabric: fabric.clone(),
                    cns: 8,
                    mns: 8,
                    colocated: true,
                    clients,
                    coroutines: 1,
                    keys: MAIN_KEYS,
                    ops: MAIN_OPS,
                    scan_length: ScanLength::default(),
                    key_size: 8,
                    value_size: 8,
                    cache_bytes: sherman::DEFAULT_CACHE_BYTES,
                    fill: Fill::Even(0.8),
                    seed: 1,
                    rdwc: index.usual_sharing(),
                    addresses: false,
                    trace: None,
                    study: Study::default(),
                });
            }
        }
    }
    points
}

/// Runs the points, and prints and draws the results; returns `false` if a point failed or read a wrong
/// value.
pub(crate) fn perform(title: &str, points: &[Point], output: &Output) -> io::Result<bool> {
    let simulated = points.iter().all(|p| matches!(p.fabric, Fabric::Sim(_)));
    if !output.json {
        let what = if simulated {
            "on a model of the NICs, not on cards"
        } else {
            "on this machine"
        };
        writeln!(io::stdout(), "{title}: {} points, {what}", points.len())?;
    }
    let results = run_all(points, simulated);
    let mut rows = Vec::new();
    let mut good = true;
    for (point, result) in points.iter().zip(results) {
        match result {
            Ok(measured) => rows.push(row(point, &measured)),
            Err(e) => {
                good = false;
                let (mix, techniques, clients) = (point.mix, point.techniques(), point.clients);
                writeln!(
                    io::stderr(),
                    "{} ({techniques}), {mix}, {clients} clients: {e}",
                    point.index.name()
                )?;
            }
        }
    }
    Ok(show(title, &rows, output)? && good)
}

/// Shows rows that an earlier run printed.
pub(crate) fn replot(file: &Path, output: &Output) -> io::Result<bool> {
    let rows = read_json_lines(io::BufReader::new(fs::File::open(file)?)).map_err(io::Error::other)?;
    show(&format!("dmkit, {}", file.display()), &rows, output)
}

/// Prints and draws rows; returns `false` if a wrong value was read.
pub(crate) fn show(title: &str, rows: &[Row], output: &Output) -> io::Result<bool> {
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

fn run_all(points: &[Point], simulated: bool) -> Vec<Result<Measured, crate::run::RunError>> {
    let bar = ProgressBar::new(points.iter().map(|p| p.ops).sum());
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
            bar.set_message(format!(
                "{}, {} ({}), {} clients",
                point.mix,
                point.index.name(),
                point.techniques(),
                point.clients
            ));
            let result = run(point, &bar);
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

fn row(point: &Point, m: &Measured) -> Row {
    let ops = m.ops.max(1) as f64;
    let per_op = |n: u64| n as f64 / ops;
    let c = &m.counters;
    let micros = |q| m.latency.value_at_quantile(q) as f64 / 1e3;
    let assumptions = match &point.fabric {
        Fabric::Sim(model) => model
            .assumptions()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; "),
        Fabric::Ib(_) => m.promises.clone().unwrap_or_default(),
        Fabric::Loopback => "in-process memory, lines never torn, CAS→READ in order".to_owned(),
    };
    let ranks = if point.ranks > point.keys {
        format!(" of {}", point.ranks)
    } else {
        String::new()
    };
    // `dmkit merge` combines rows of several machines.
    let (machine, latencies) = match &point.fabric {
        Fabric::Ib(cluster) => (cluster.machine.to_string(), Latencies::text(&m.latency)),
        _ => Default::default(),
    };
    Row {
        index: point.index.name().to_owned(),
        variant: point.techniques(),
        workload: point.mix.to_string(),
        distribution: match point.trace {
            Some(_) => "trace".to_owned(),
            None => format!("{}{ranks}", point.distribution),
        },
        fabric: point.fabric.name(),
        simulated: matches!(point.fabric, Fabric::Sim(_)),
        clients: point.clients,
        keys: point.keys,
        ops: m.ops,
        mops: ops / m.seconds / 1e6,
        bound_mops: m.bound.as_ref().map(|b| b.mops),
        bound_by: m.bound.as_ref().map(|b| b.limit.to_string()),
        p50_us: micros(0.5),
        p99_us: micros(0.99),
        round_trips: per_op(c.round_trips),
        verbs: per_op(c.verbs()),
        bytes_read: per_op(c.bytes_read),
        bytes_written: per_op(c.bytes_written),
        lock_retries: per_op(c.lock_retries),
        torn_reads: per_op(c.torn_reads),
        delegated: per_op(c.delegated),
        combined: per_op(c.combined),
        cache_bytes: m.cache_bytes,
        local_bytes: m.local_bytes,
        remote_bytes_per_key: m.remote_bytes as f64 / m.keys.max(1) as f64,
        wrong_values: m.wrong_values,
        seed: point.seed,
        assumptions,
        machine,
        latencies,
    }
}

/// Compares the peaks, and names each run that read a wrong value.
fn summary(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut mixes: Vec<&str> = rows.iter().map(|r| r.workload.as_str()).collect();
    mixes.dedup();
    for mix in mixes {
        let mut peaks: Vec<(String, f64)> = Vec::new();
        for row in rows.iter().filter(|r| r.workload == mix) {
            match peaks.iter_mut().find(|(series, _)| *series == row.series()) {
                Some((_, peak)) => *peak = peak.max(row.mops),
                None => peaks.push((row.series(), row.mops)),
            }
        }
        let peaks: Vec<String> = peaks
            .iter()
            .map(|(series, peak)| format!("{series} {peak:.1}"))
            .collect();
        text += &format!("{mix}: peak over the client counts, Mops: {}\n", peaks.join(", "));
    }
    let wrong: u64 = rows.iter().map(|r| r.wrong_values).sum();
    let checked: u64 = rows.iter().map(|r| r.ops).sum();
    text + &format!("{checked} operations, every value read was checked: {wrong} wrong")
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

/// Returns the title of a bench.
pub(crate) fn bench_title(bench: &Bench) -> String {
    let place = if bench.colocated { "colocated" } else { "separate" };
    match &bench.fabric {
        Fabric::Loopback => format!(
            "dmkit bench, loopback, {} compute and {} memory nodes",
            bench.cns, bench.mns
        ),
        Fabric::Ib(cluster) => format!(
            "dmkit bench, {}, client machine {}, {} memory nodes",
            bench.fabric.name(),
            bench.machine,
            cluster.file.nodes.len()
        ),
        fabric => format!(
            "dmkit bench, {}, {} CN + {} MN {place}",
            fabric.name(),
            bench.cns,
            bench.mns
        ),
    }
}
