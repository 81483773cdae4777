//! Measures the explorer's speed on Sherman's models: new states per second on one core and on all cores.
//!
//! A search returns to saved states. Without them, it would begin each path at the start and replay its steps. The
//! bench prints the number of steps that were taken, and the number including those that were avoided in this way.
//! Each search runs several times and the fastest run counts, because other programs can only make a run slower. If
//! other programs run on the machine, compare the figures per second of CPU time. With `--once`, each search runs
//! once, on one core, for counting instructions. Another argument selects the models with this name.

#![expect(clippy::print_stdout, reason = "a bench's output is its purpose")]

use core::time::Duration;
use std::time::Instant;

use dm_explore::{Report, Search, Verdict};
use dm_models::{Case, Entry, Size, Variant, find};

/// The entries and the shapes to run.
const MODELS: [(&str, &str); 5] = [
    ("tree-split", "2x1, 2 operations each"),
    ("tree-split", "3x1"),
    ("scan-merge", "merge, then split"),
    ("T-S4", "3x1"),
    ("line-versions", "split, writer, reader"),
];

/// Number of runs of each search.
const RUNS: u32 = 7;

/// Sums of seconds, states, steps taken, steps avoided, and seconds of CPU time.
type Sums = (f64, u64, u64, u64, f64);

fn main() {
    let once = std::env::args().any(|arg| arg == "--once");
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let cores = std::thread::available_parallelism().map_or(1, core::num::NonZero::get);
    let mut totals = [Sums::default(); 2];
    for (name, shape) in MODELS {
        if only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        let entry = find(name).unwrap_or_else(|| panic!("no model {name}"));
        let mut sums = [Sums::default(); 2];
        for (number, _) in cases(entry, shape) {
            let counts: &[(usize, u16)] = if once { &[(0, 1)] } else { &[(0, 1), (1, 0)] };
            for &(place, threads) in counts {
                let runs = (0..if once { 1 } else { RUNS }).map(|_| measure(entry, number, threads));
                let best = runs.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default();
                add(&mut sums[place], best);
                add(&mut totals[place], best);
            }
        }
        print(&format!("{name}, {shape}"), &sums, cores);
    }
    print("all", &totals, cores);
}

fn add(sum: &mut Sums, one: Sums) {
    *sum = (
        sum.0 + one.0,
        sum.1 + one.1,
        sum.2 + one.2,
        sum.3 + one.3,
        sum.4 + one.4,
    );
}

fn cases<'e>(entry: &'e Entry, shape: &'e str) -> impl Iterator<Item = (usize, Case)> + 'e {
    let all = entry.cases_of(Variant::Ours).into_iter().enumerate();
    all.filter(move |(_, case)| case.shape == shape && case.size == Size::Check)
}

fn print(what: &str, [alone, together]: &[Sums; 2], cores: usize) {
    let millions = |n: u64, seconds: f64| n as f64 / seconds / 1e6;
    let (seconds, states, steps, spared, cpu) = *alone;
    println!("explore {what}: {states} states");
    println!(
        "  1 core:  {seconds:.3} s, {:.3} M new states/s, {:.2} M micro-steps/s taken, {:.2} M with those of replays spared",
        millions(states, seconds),
        millions(steps, seconds),
        millions(steps + spared, seconds),
    );
    println!(
        "  1 core:  {:.3} M new states per second of CPU time",
        millions(states, cpu)
    );
    if together.0 > 0.0 {
        println!(
            "  {cores} cores: {:.3} s, {:.3} M new states/s, {:.2} times as fast, {:.2} times as many steps",
            together.0,
            millions(together.1, together.0),
            alone.0 / together.0,
            together.2 as f64 / steps as f64,
        );
        println!(
            "  {cores} cores: {:.3} M new states per second of CPU time",
            millions(together.1, together.4),
        );
    }
}

fn measure(entry: &Entry, number: usize, threads: u16) -> Sums {
    let search = Search::exhaustive()
        .time(Duration::from_secs(60))
        .threads(threads);
    let (begun, cpu_before) = (Instant::now(), cpu_seconds());
    let ran = entry.run(Variant::Ours, number, search);
    let (seconds, cpu) = (begun.elapsed().as_secs_f64(), cpu_seconds() - cpu_before);
    assert!(matches!(ran.verdict, Verdict::Pass(_)), "{}", ran.verdict);
    let report: &Report = ran.verdict.report();
    (seconds, report.states, report.steps, report.spared, cpu)
}

/// Returns the CPU time of this process in seconds, including threads that have ended. The kernel counts it in ticks
/// of 10 ms, so the time of a short run is inexact. Returns NaN if the system has no `/proc`.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The program's name in parentheses may contain spaces. User and system time are fields 14 and 15 of the line.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let mut ticks = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    match (ticks.next(), ticks.next()) {
        (Some(Ok(user)), Some(Ok(system))) => (user + system) as f64 / 100.0,
        _ => f64::NAN,
    }
}
