//! Runs all models of the registry and writes its page. `cargo xtask models` runs this program.
//!
//! The first argument is the file of the page, or `--only`. The default is `docs/models.md`. The others are options:
//! * `--check` does not write the page, and fails if it differs in more than its times.
//! * `--only PART` runs only the entries whose names contain PART, and prints the expected verdict of each case, and
//!   the actual one if it differs. It ignores the page and `--charts`.
//! * `--seconds N` limits the time of each case.
//! * `--nightly` also runs the cases of nightly size, which are not on the page.
//! * `--charts DIR` writes the stories and charts of the counterexamples to DIR.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command's output is its purpose"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use dm_explore::Search;
use dm_models::{Entry, Ran, Size, Variant, all, outcome, page, stories, timeless};

/// The time limit of one case that runs in every check.
const CHECK: Duration = Duration::from_secs(120);
/// The time limit of one nightly case.
const NIGHTLY: Duration = Duration::from_secs(3600);

struct Job {
    entry: &'static Entry,
    variant: Variant,
    number: usize,
    size: Size,
    shown: bool,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let file = match args.first() {
        Some(other) if other.starts_with('-') && other != "--only" => {
            eprintln!("{other}: the first argument is the file of the page, or --only");
            return ExitCode::FAILURE;
        }
        first => Path::new(first.map_or("docs/models.md", String::as_str)),
    };
    let has = |flag: &str| args.iter().any(|a| a == flag);
    let after = |flag: &str| args.iter().position(|a| a == flag).and_then(|i| args.get(i + 1));
    let (charts, only) = (after("--charts"), after("--only"));
    let begun = Instant::now();
    let seconds = after("--seconds").and_then(|seconds| seconds.parse().ok());
    let ran = run(jobs(has("--nightly"), only.map(String::as_str)), seconds);
    print_table(&ran);
    if only.is_some() {
        return print_cases(&ran);
    }
    println!("{} cases in {:.1} s", ran.len(), begun.elapsed().as_secs_f64());
    let wrong: Vec<String> = ran.iter().filter_map(|r| r.judge().err()).collect();
    if !wrong.is_empty() {
        eprintln!(
            "{}\n{} cases are not as expected",
            wrong.join("\n\n"),
            wrong.len()
        );
        return ExitCode::FAILURE;
    }
    let by_day: Vec<Ran> = ran.into_iter().filter(|r| r.case.size == Size::Check).collect();
    let done = charts.map_or(Ok(()), |dir| write_stories(Path::new(dir), &by_day));
    match done.and_then(|()| draw(file, &page(all(), &by_day), has("--check"))) {
        Ok(true) if has("--check") => {
            eprintln!("{} is out of date; run `cargo xtask models`", file.display());
            ExitCode::FAILURE
        }
        Ok(stale) => {
            if stale {
                println!("{} is drawn anew", file.display());
            }
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{}: {e}", file.display());
            ExitCode::FAILURE
        }
    }
}

fn jobs(nightly: bool, only: Option<&str>) -> Vec<Job> {
    let mut jobs = Vec::new();
    for entry in all().filter(|entry| only.is_none_or(|part| entry.name.contains(part))) {
        let shown = entry.shown();
        for variant in entry.variants() {
            for (number, case) in entry.cases_of(variant).into_iter().enumerate() {
                if case.size == Size::Check || nightly {
                    let shown = shown == Some((variant, number));
                    jobs.push(Job {
                        entry,
                        variant,
                        number,
                        size: case.size,
                        shown,
                    });
                }
            }
        }
    }
    jobs
}

/// Runs the jobs on all cores, one core for each case. Returns the results in the order of the jobs.
fn run(jobs: Vec<Job>, seconds: Option<u64>) -> Vec<Ran> {
    let ran = Mutex::new(BTreeMap::new());
    let jobs = Mutex::new(jobs.into_iter().enumerate());
    let work = || {
        loop {
            let next = jobs.lock().expect("a model panicked").next();
            let Some((i, job)) = next else { return };
            let search = match job.size {
                Size::Check => Search::exhaustive().time(CHECK),
                Size::Nightly => Search::exhaustive().time(NIGHTLY).states(200_000_000),
            };
            // Only the counterexamples on the page must be shortest ones. To find a shortest one takes most of the
            // time.
            let search = if job.shown { search } else { search.unshortened() };
            let search = search.threads(1);
            let search = match seconds {
                Some(seconds) => search.time(Duration::from_secs(seconds)),
                None => search,
            };
            let done = job.entry.run(job.variant, job.number, search);
            ran.lock().expect("a model panicked").insert(i, done);
        }
    };
    let cores = thread::available_parallelism().map_or(1, core::num::NonZero::get);
    thread::scope(|scope| {
        for _ in 1..cores {
            scope.spawn(work);
        }
        work();
    });
    ran.into_inner()
        .expect("a model panicked")
        .into_values()
        .collect()
}

/// Prints each case, with its verdict if it is not as expected.
fn print_cases(ran: &[Ran]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for ran in ran {
        let report = ran.verdict.report();
        let (shape, expected) = (ran.case.shape, ran.case.expect);
        println!(
            "{} {} {shape}: {} states, {expected}",
            ran.entry, ran.variant, report.states
        );
        if let Err(wrong) = ran.judge() {
            println!("{wrong}\n{}", ran.verdict);
            code = ExitCode::FAILURE;
        }
    }
    code
}

fn print_table(ran: &[Ran]) {
    for entry in all().filter(|entry| ran.iter().any(|r| r.entry == entry.name)) {
        for variant in entry.variants() {
            let of: Vec<&Ran> = ran
                .iter()
                .filter(|r| r.entry == entry.name && r.variant == variant)
                .collect();
            let states: u64 = of.iter().map(|r| r.verdict.report().states).sum();
            let time: Duration = of.iter().map(|r| r.verdict.report().time).sum();
            println!(
                "{:<16} {:<28} {:>4} cases {states:>10} states {:>8.2} s  {}",
                entry.name,
                variant.to_string(),
                of.len(),
                time.as_secs_f64(),
                outcome(&of),
            );
        }
    }
}

/// Writes the page if it differs in more than its times, and returns whether it differs. With `check`, writes nothing.
fn draw(file: &Path, wanted: &str, check: bool) -> io::Result<bool> {
    let present = fs::read_to_string(file).unwrap_or_default();
    let stale = timeless(&present) != timeless(wanted);
    if stale && !check {
        fs::write(file, wanted)?;
    }
    Ok(stale)
}

fn write_stories(dir: &Path, ran: &[Ran]) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for (name, text) in stories(all(), ran) {
        fs::write(dir.join(name), text)?;
    }
    Ok(())
}
