//! `explore`: a model of the registry, explored, told and drawn.

mod print;

use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use dm_explore::{Coverage, Search, Trace, Verdict};
use dm_models::{Case, Entry, Ran, Size, Variant, all, find};

use crate::cli::{Explore, Output};

/// Exit statuses, as `dmkit explore --help` says them.
const COUNTEREXAMPLE: u8 = 1;
const UNKNOWN: u8 = 2;
const NOT_RUN: u8 = 3;
/// More cases than this are told by their shapes.
const LISTED_MAX: usize = 40;

/// Does what was asked; the exit status tells the verdict.
pub(crate) fn perform(asked: &Explore, output: &Output) -> io::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let Some(name) = asked.name.as_ref().filter(|_| !asked.list) else {
        print::list(&mut out, all(), output.json)?;
        return Ok(ExitCode::SUCCESS);
    };
    match plan(name, asked) {
        Ok(plan) => match &asked.trace {
            Some(trace) => replay(&mut out, &plan, trace, asked),
            None => explore(&mut out, &plan, asked, output.json),
        },
        Err(why) => refuse(&why),
    }
}

fn refuse(why: &str) -> io::Result<ExitCode> {
    writeln!(io::stderr(), "dmkit: {why}")?;
    Ok(ExitCode::from(NOT_RUN))
}

/// What is to be run.
struct Plan {
    entry: &'static Entry,
    variant: Variant,
    cases: Vec<(usize, Case)>,
}

fn plan(name: &str, asked: &Explore) -> Result<Plan, String> {
    let entry = find(name).ok_or_else(|| format!("no model {name:?}; `dmkit explore --list` names them"))?;
    let variant = variant(entry, asked)?;
    let all = entry.cases_of(variant).into_iter().enumerate();
    let cases: Vec<(usize, Case)> = match asked.case {
        Some(number) => all.filter(|(i, _)| *i == number).collect(),
        None => all
            .filter(|(_, c)| asked.nightly || c.size == Size::Check)
            .collect(),
    };
    if cases.is_empty() {
        return Err(format!("{}, {variant}, has no such case", entry.name));
    }
    let with_crash = |(i, mut case): (usize, Case)| {
        if asked.crash {
            case.knobs.crashes = case.knobs.crashes.max(1);
        }
        (i, case)
    };
    Ok(Plan {
        entry,
        variant,
        cases: cases.into_iter().map(with_crash).collect(),
    })
}

fn variant(entry: &Entry, asked: &Explore) -> Result<Variant, String> {
    let Some(mutant) = &asked.mutant else {
        return match (asked.as_published, entry.published) {
            (true, None) => Err(format!("{} was not published otherwise", entry.name)),
            (true, Some(_)) => Ok(Variant::Published),
            (false, _) => Ok(Variant::Ours),
        };
    };
    let known = entry.mutants.iter().find(|m| m.name == mutant);
    known.map(|m| Variant::Mutant(m.name)).ok_or_else(|| {
        let names: Vec<&str> = entry.mutants.iter().map(|m| m.name).collect();
        format!(
            "{} has no mutant {mutant:?}; it has: {}",
            entry.name,
            names.join(", ")
        )
    })
}

fn search(asked: &Explore) -> Search {
    let search = match (asked.seed, asked.bfs) {
        (Some(seed), _) if asked.uniform => Search::random(seed, asked.runs),
        (Some(seed), _) => Search::pct(seed, asked.runs, asked.depth),
        (None, true) => Search::shortest(),
        (None, false) => Search::exhaustive(),
    };
    search.time(Duration::from_secs(asked.time))
}

fn explore(out: &mut impl Write, plan: &Plan, asked: &Explore, json: bool) -> io::Result<ExitCode> {
    let (mut all, mut told) = (Vec::new(), false);
    let brief = plan.cases.len() > LISTED_MAX;
    for (number, case) in &plan.cases {
        // The first counterexample is for reading; those behind it are only counted.
        let search = if told {
            search(asked).unshortened()
        } else {
            search(asked)
        };
        let verdict = plan.entry.model(plan.variant, case).explore(&case.knobs, search);
        let ran = Ran {
            entry: plan.entry.name,
            variant: plan.variant,
            number: *number,
            case: case.clone(),
            verdict,
        };
        if json {
            print::json(out, &ran, asked.crash)?;
        } else if !(brief && (told || ran.verdict.is_pass())) {
            print::case(out, &ran, asked.crash, told)?;
        }
        if let Some(found) = ran.verdict.counterexample().filter(|_| !told) {
            if let Some(file) = &asked.svg {
                fs::write(file, found.svg())?;
            }
            told = true;
        }
        all.push(ran);
    }
    if !json {
        print::summary(out, plan.entry, &all)?;
    }
    Ok(status(&all))
}

/// 1 with a counterexample; else 2 if a search was cut short or only sampled; else 0.
fn status(all: &[Ran]) -> ExitCode {
    let known = |r: &Ran| r.verdict.is_pass() && r.verdict.report().coverage == Coverage::Exhaustive;
    match () {
        () if all
            .iter()
            .any(|r| matches!(r.verdict, Verdict::Counterexample(_))) =>
        {
            ExitCode::from(COUNTEREXAMPLE)
        }
        () if all.iter().all(known) => ExitCode::SUCCESS,
        () => ExitCode::from(UNKNOWN),
    }
}

/// Runs a trace of one case again.
fn replay(out: &mut impl Write, plan: &Plan, trace: &str, asked: &Explore) -> io::Result<ExitCode> {
    let trace: Trace = match trace.parse() {
        Ok(trace) => trace,
        Err(e) => return refuse(&format!("{trace:?}: {e}")),
    };
    let Some((number, case)) = plan.cases.first() else {
        return refuse("no such case");
    };
    match plan.entry.model(plan.variant, case).replay(&case.knobs, &trace) {
        Ok(found) => {
            writeln!(
                out,
                "{} case {number}\n{found}\n\n{}",
                plan.entry.name,
                found.chart()
            )?;
            if let Some(file) = &asked.svg {
                fs::write(file, found.svg())?;
            }
            Ok(ExitCode::from(COUNTEREXAMPLE))
        }
        Err(e) => refuse(&e.to_string()),
    }
}
