//! `explore`: explores a model of the registry, and prints and draws the result.

mod print;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use dm_explore::{Search, Trace, Verdict};
use dm_models::{Case, Entry, Ran, Size, Variant, all, find};
use serde_json::Value;

use clap::Args;
use dm_bench::Output;

/// The model to explore, and the kind of search.
#[derive(Debug, Clone, Args)]
pub struct Explore {
    /// The model; without one, all models are listed.
    pub name: Option<String>,
    /// List the models: name, kind, expected verdict, source, knobs; with --json one object per line.
    #[arg(long)]
    pub list: bool,
    /// Explore the protocol as it was published, with its flaw.
    #[arg(long, conflicts_with = "mutant")]
    pub as_published: bool,
    /// Explore a twin that is broken on purpose.
    #[arg(long, value_name = "NAME")]
    pub mutant: Option<String>,
    /// Only this case (a shape and a setting of the knobs); default: all cases of check size.
    #[arg(long, value_name = "NUMBER")]
    pub case: Option<usize>,
    /// Include the cases of nightly size.
    #[arg(long)]
    pub nightly: bool,
    /// Search breadth-first, so that the first counterexample is the shortest. The default is a depth-first search,
    /// whose counterexamples are shortened afterwards.
    #[arg(long, conflicts_with = "seed")]
    pub bfs: bool,
    /// Sample runs instead, by random priorities (PCT) from this seed.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Number of sampled runs, with --seed.
    #[arg(long, default_value_t = 100_000, requires = "seed")]
    pub runs: u64,
    /// The depth of bugs that PCT searches for: one more than its number of priority changes.
    #[arg(long, default_value_t = 3, requires = "seed")]
    pub depth: u32,
    /// Choose each step uniformly instead of by priorities, with --seed.
    #[arg(long, requires = "seed")]
    pub uniform: bool,
    /// Let one client die at any step.
    #[arg(long)]
    pub crash: bool,
    /// Draw the first counterexample to this file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Run this trace of a case again, and print it.
    #[arg(long, requires = "case")]
    pub trace: Option<String>,
    /// Run the first counterexample of this file again. The file holds lines that `--json` printed. They name the
    /// case, so no model and no case may be given.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "case", "trace", "mutant", "as_published"])]
    pub replay: Option<PathBuf>,
    /// Seconds after which a search is cut short. A case may need two searches; a shorter counterexample is sought for
    /// one more minute at most.
    #[arg(long, default_value_t = 120)]
    pub time: u64,
}

/// Exit statuses, which `dmkit explore --help` documents.
const UNEXPECTED: u8 = 1;
const UNKNOWN: u8 = 2;
const NOT_RUN: u8 = 3;
/// If there are more cases than this, the text output leaves out the cases that hold, and the cases after the first
/// counterexample.
const LISTED_MAX: usize = 40;

/// Standard output that ignores a closed pipe, so that the checks and the exit status do not depend on the reader.
struct Patient<W>(W);

impl<W: Write> Write for Patient<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(bytes.len()),
            other => other,
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match self.0.flush() {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }
}

/// Runs the command. The exit status shows the verdict.
///
/// # Errors
/// Returns an error if standard output or a file can't be written.
pub fn perform(asked: &Explore, output: &Output) -> io::Result<ExitCode> {
    let mut out = Patient(io::stdout().lock());
    if let Some(file) = &asked.replay {
        return match recorded(file, asked) {
            Ok(asked) => replay_named(&mut out, &asked, output.json),
            Err(why) => refuse(&format!("{}: {why}", file.display())),
        };
    }
    let Some(name) = asked.name.as_ref().filter(|_| !asked.list) else {
        print::list(&mut out, all(), output.json)?;
        return Ok(ExitCode::SUCCESS);
    };
    if asked.trace.is_some() {
        return replay_named(&mut out, asked, output.json);
    }
    match plan(name, asked) {
        Ok(plan) => explore(&mut out, &plan, asked, output.json),
        Err(why) => refuse(&why),
    }
}

/// Returns the arguments that run the first counterexample in the lines of `file` again.
fn recorded(file: &Path, asked: &Explore) -> Result<Explore, String> {
    let text = fs::read_to_string(file).map_err(|e| e.to_string())?;
    for (number, line) in text.lines().enumerate() {
        let line: Value = serde_json::from_str(line).map_err(|e| format!("line {}: {e}", number + 1))?;
        let found = &line["counterexample"];
        if found.is_null() {
            continue;
        }
        let word = |value: &Value| value.as_str().map(str::to_owned);
        let (name, twin) = (word(&line["model"]), word(&line["twin"]).unwrap_or_default());
        let (case, trace) = (line["case"].as_u64(), word(&found["choices"]));
        let (Some(name), Some(case), Some(trace)) = (name, case, trace) else {
            return Err(format!(
                "line {}: a counterexample names its model, case and choices",
                number + 1
            ));
        };
        return Ok(Explore {
            name: Some(name),
            mutant: twin.strip_prefix("mutant ").map(str::to_owned),
            as_published: twin == Variant::Published.to_string(),
            case: Some(case as usize),
            trace: Some(trace),
            crash: line["crash"].as_bool().unwrap_or(false),
            ..asked.clone()
        });
    }
    Err("no line of it has a counterexample".to_owned())
}

fn replay_named(out: &mut impl Write, asked: &Explore, json: bool) -> io::Result<ExitCode> {
    let plan = match plan(asked.name.as_deref().unwrap_or_default(), asked) {
        Ok(plan) => plan,
        Err(why) => return refuse(&why),
    };
    replay(out, &plan, asked, json)
}

fn refuse(why: &str) -> io::Result<ExitCode> {
    writeln!(io::stderr(), "dmkit: {why}")?;
    Ok(ExitCode::from(NOT_RUN))
}

/// The cases to run.
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
        // Only the first counterexample is shortened. Without `--json`, later ones are not shown.
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
    Ok(status(&all, asked.crash))
}

/// Returns 1 if a case gave another result than the registry states; with `crash`, returns 1 if a case has a
/// counterexample. Otherwise returns 2 if a search was cut short, or only sampled runs and found nothing; returns 0 if
/// every search reached an answer.
fn status(all: &[Ran], crash: bool) -> ExitCode {
    let found = |r: &Ran| r.verdict.counterexample().is_some();
    let unexpected = |r: &Ran| {
        if crash {
            found(r)
        } else {
            decided(r) && r.judge().is_err()
        }
    };
    match () {
        () if all.iter().any(unexpected) => ExitCode::from(UNEXPECTED),
        () if all.iter().all(decided) => ExitCode::SUCCESS,
        () => ExitCode::from(UNKNOWN),
    }
}

/// Returns whether the search reached an answer.
fn decided(ran: &Ran) -> bool {
    ran.verdict.is_pass() || ran.verdict.counterexample().is_some()
}

/// Runs a trace of one case again.
fn replay(out: &mut impl Write, plan: &Plan, asked: &Explore, json: bool) -> io::Result<ExitCode> {
    let text = asked.trace.as_deref().unwrap_or_default();
    let trace: Trace = match text.parse() {
        Ok(trace) => trace,
        Err(e) => return refuse(&format!("{text:?}: {e}")),
    };
    let Some((number, case)) = plan.cases.first() else {
        return refuse("no such case");
    };
    let found = match plan.entry.model(plan.variant, case).replay(&case.knobs, &trace) {
        Ok(found) => found,
        Err(e) => return refuse(&e.to_string()),
    };
    if let Some(file) = &asked.svg {
        fs::write(file, found.svg())?;
    }
    let ran = Ran {
        entry: plan.entry.name,
        variant: plan.variant,
        number: *number,
        case: case.clone(),
        verdict: Verdict::Counterexample(Box::new(found)),
    };
    if json {
        print::json(out, &ran, asked.crash)?;
    } else {
        print::case(out, &ran, asked.crash, false)?;
    }
    Ok(status(&[ran], asked.crash))
}
