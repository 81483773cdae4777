//! Runs the registry and draws its pages: `cargo xtask models` runs this, optimised.
//!
//! Arguments: the directory of the pages; then `--check` to change nothing and fail where something differs,
//! `--nightly` to run the cases of nightly size as well (they are not on the pages).

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command's output is its purpose"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use dm_explore::Search;
use dm_models::{Entry, Ran, Size, Variant, all, outcome, pages};

/// The longest that one case may take.
const CHECK: Duration = Duration::from_secs(120);
const NIGHTLY: Duration = Duration::from_secs(3600);

struct Job {
    entry: &'static Entry,
    variant: Variant,
    number: usize,
    size: Size,
    shown: bool,
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().unwrap_or_else(|| "docs".to_owned()));
    let flags: Vec<String> = args.collect();
    let has = |flag: &str| flags.iter().any(|f| f == flag);
    let begun = Instant::now();
    let ran = run(jobs(has("--nightly")));
    print_table(&ran);
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
    match draw(&dir, &pages(all(), &by_day), has("--check")) {
        Ok(stale) if stale.is_empty() => ExitCode::SUCCESS,
        Ok(stale) if has("--check") => {
            eprintln!("out of date: {}; run `cargo xtask models`", stale.join(", "));
            ExitCode::FAILURE
        }
        Ok(stale) => {
            println!("drawn anew: {}", stale.join(", "));
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{}: {e}", dir.display());
            ExitCode::FAILURE
        }
    }
}

fn jobs(nightly: bool) -> Vec<Job> {
    let mut jobs = Vec::new();
    for entry in all() {
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

/// On two threads, in any order; the answers come in the order of the jobs.
fn run(jobs: Vec<Job>) -> Vec<Ran> {
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
            // Shortest runs are for readers; finding them takes longest.
            let search = if job.shown { search } else { search.unshortened() };
            let done = job.entry.run(job.variant, job.number, search);
            ran.lock().expect("a model panicked").insert(i, done);
        }
    };
    thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    ran.into_inner()
        .expect("a model panicked")
        .into_values()
        .collect()
}

fn print_table(ran: &[Ran]) {
    for entry in all() {
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

/// Writes the pages and removes those that are none any more; answers which differed. With `check` changes nothing.
fn draw(dir: &Path, wanted: &BTreeMap<String, String>, check: bool) -> io::Result<Vec<String>> {
    let mut stale = Vec::new();
    for (name, page) in wanted {
        let path = dir.join(name);
        if fs::read_to_string(&path).ok().as_ref() == Some(page) {
            continue;
        }
        stale.push(name.clone());
        if !check {
            fs::create_dir_all(path.parent().unwrap_or(dir))?;
            fs::write(path, page)?;
        }
    }
    let present = match fs::read_dir(dir.join("models")) {
        Ok(entries) => entries.collect::<io::Result<Vec<_>>>()?,
        Err(_) => Vec::new(),
    };
    for entry in present {
        let name = format!("models/{}", entry.file_name().to_string_lossy());
        if !wanted.contains_key(&name) {
            stale.push(name);
            if !check {
                fs::remove_file(entry.path())?;
            }
        }
    }
    Ok(stale)
}
