//! Prints models and verdicts.

use std::io::{self, Write};

use dm_explore::{Coverage, Report, Verdict};
use dm_models::{Entry, Expect, Ran, Variant, covered, knobs};
use serde_json::json;

/// Returns the verdict that the registry expects of a variant, over all of its cases.
fn expected(entry: &Entry, variant: Variant) -> String {
    let cases = entry.cases_of(variant);
    let fails = cases.iter().filter(|c| c.expect != Expect::Holds).count();
    match (cases.len() - fails, fails) {
        (_, 0) => "holds".to_owned(),
        (0, _) => "fails".to_owned(),
        (holds, fails) => format!("holds in {holds} cases, fails in {fails}"),
    }
}

/// Prints all models: as JSON one per line, otherwise a few lines for each.
pub(super) fn list(
    out: &mut impl Write,
    entries: impl Iterator<Item = &'static Entry>,
    json: bool,
) -> io::Result<()> {
    for entry in entries {
        let published = entry.published.map(|_| expected(entry, Variant::Published));
        let ours = expected(entry, Variant::Ours);
        if json {
            let mutants: Vec<_> = entry
                .mutants
                .iter()
                .map(|m| json!({"name": m.name, "about": m.about, "expected": expected(entry, Variant::Mutant(m.name))}))
                .collect();
            let line = json!({
                "name": entry.name,
                "source": entry.source,
                "kind": entry.kind.name(),
                "about": entry.about,
                "expected": ours,
                "published": published,
                "mutants": mutants,
                "knobs": knobs(entry),
            });
            writeln!(out, "{line}")?;
            continue;
        }
        writeln!(
            out,
            "{:<15} {:<7} {} [{}]",
            entry.name,
            entry.kind.name(),
            ours,
            entry.source
        )?;
        writeln!(out, "    {}", entry.about)?;
        if let (Some(twin), Some(expected)) = (entry.published, published) {
            writeln!(out, "    --as-published: {}: {expected}", twin.about)?;
        }
        for mutant in entry.mutants {
            writeln!(out, "    --mutant {}: {}", mutant.name, mutant.about)?;
        }
        writeln!(out, "    {}", knobs(entry))?;
    }
    Ok(())
}

/// Returns the verdict in one or two words.
fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Pass(_) => "holds",
        Verdict::Sampled(_) => "nothing found",
        Verdict::Counterexample(_) => "counterexample",
        Verdict::Truncated { .. } => "truncated",
    }
}

/// Returns the command that replays the counterexample, if there is one.
fn replay(ran: &Ran, crash: bool) -> Option<String> {
    let found = ran.verdict.counterexample()?;
    let crash = if crash { " --crash" } else { "" };
    Some(format!("{}{crash}", ran.replay_command(found)))
}

/// Prints one case as one JSON object on a line.
pub(super) fn json(out: &mut impl Write, ran: &Ran, crash: bool) -> io::Result<()> {
    let report = ran.verdict.report();
    let found = ran.verdict.counterexample();
    let line = json!({
        "model": ran.entry,
        "twin": ran.variant.to_string(),
        "case": ran.number,
        "shape": ran.case.shape,
        "knobs": report.knobs.to_string(),
        "verdict": word(&ran.verdict),
        "expected": if crash { None } else { Some(ran.case.expect.to_string()) },
        "states": report.states,
        "steps": report.steps,
        "seconds": report.time.as_secs_f64(),
        "assumptions": report.assumptions,
        "crash": crash,
        "counterexample": found.map(|found| json!({
            "failure": found.reason(),
            "shortest": found.shortest,
            "loops_from": found.lasso.map(|lasso| lasso.begins + 1),
            "choices": found.trace.to_string(),
            "trace": found.recording(),
            "text": found.to_string(),
        })),
        "replay": replay(ran, crash),
    });
    writeln!(out, "{line}")
}

/// Prints one case: its verdict, counts and knobs. Unless a counterexample was `told` before, also prints the case's
/// counterexample as text and as a chart.
pub(super) fn case(out: &mut impl Write, ran: &Ran, crash: bool, told: bool) -> io::Result<()> {
    let report = ran.verdict.report();
    write!(out, "case {:<3} {}", ran.number, word(&ran.verdict))?;
    if !ran.case.shape.is_empty() {
        write!(out, ", {}", ran.case.shape)?;
    }
    writeln!(out, ": {}\n         knobs: {}", counts(report), report.knobs)?;
    // A sample proves nothing, so it cannot contradict the registry.
    if !crash && !matches!(ran.verdict, Verdict::Sampled(_)) {
        let expect = ran.case.expect;
        match ran.judge() {
            Ok(()) if expect == Expect::Holds => {}
            Ok(()) => writeln!(out, "         as expected: the registry says that it {expect}")?,
            Err(_) => writeln!(
                out,
                "         NOT AS EXPECTED: the registry says that it {expect}"
            )?,
        }
    }
    if let (Some(found), Some(replay)) = (ran.verdict.counterexample(), replay(ran, crash))
        && !told
    {
        writeln!(out, "\n{found}\n\n{}\nreplay: {replay}\n", found.chart())?;
    }
    Ok(())
}

fn counts(report: &Report) -> String {
    let time = report.time.as_secs_f64();
    match report.coverage {
        Coverage::Sampled { runs, seed } => format!("{runs} runs sampled from seed {seed}, {time:.3} s"),
        _ => format!("{} states, {} steps, {time:.3} s", report.states, report.steps),
    }
}

/// Prints what was explored, by shape and in total, and the assumptions.
pub(super) fn summary(out: &mut impl Write, entry: &Entry, all: &[Ran]) -> io::Result<()> {
    writeln!(out)?;
    let mut shapes: Vec<&str> = Vec::new();
    for ran in all {
        if !shapes.contains(&ran.case.shape) {
            shapes.push(ran.case.shape);
        }
    }
    if shapes.len() > 1 {
        for shape in shapes {
            let of: Vec<&Ran> = all.iter().filter(|r| r.case.shape == shape).collect();
            writeln!(out, "  {shape}: {}", sum(&of))?;
        }
    }
    writeln!(out, "{}: {}", entry.name, sum(&all.iter().collect::<Vec<_>>()))?;
    for (knob, sides) in covered(all.iter().map(|r| &r.verdict.report().knobs)) {
        let sides: Vec<&str> = sides.iter().map(|s| knob.side_name(*s)).collect();
        writeln!(out, "  {}: {}", knob.name(), sides.join(" | "))?;
    }
    let mut assumptions: Vec<&str> = Vec::new();
    for a in all.iter().flat_map(|r| &r.verdict.report().assumptions) {
        if !assumptions.contains(&a.as_str()) {
            assumptions.push(a);
        }
    }
    for a in assumptions {
        writeln!(out, "  assuming: {a}")?;
    }
    Ok(())
}

/// Returns a text with the sums of cases, states and time, and the number of cases with each verdict.
fn sum(ran: &[&Ran]) -> String {
    let states: u64 = ran.iter().map(|r| r.verdict.report().states).sum();
    let seconds: f64 = ran.iter().map(|r| r.verdict.report().time.as_secs_f64()).sum();
    let mut text = format!("{} cases, {states} states, {seconds:.3} s", ran.len());
    for w in ["holds", "counterexample", "truncated", "nothing found"] {
        let n = ran.iter().filter(|r| word(&r.verdict) == w).count();
        if n > 0 {
            text += &format!(", {w}: {n}");
        }
    }
    text
}
