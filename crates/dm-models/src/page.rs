//! The page of all models, and the pages about their counterexamples.

use core::fmt::Write;
use core::time::Duration;
use std::collections::BTreeMap;

use crate::entry::{Case, Entry, Expect, Kind, Size, Variant};
use crate::matrix::{Knob, covered};
use crate::run::{Ran, run_command};

/// The number of a table's columns. The next constant is the index (from 0) of the column of seconds.
const COLUMNS: usize = 9;
const SECONDS: usize = 6;

/// The first line of every page.
const NOTE: &str = "<!-- Drawn by `cargo xtask models` from the registry, dm-models; change that. -->\n\n";

impl Entry {
    /// Returns the case whose counterexample is on the page: the first case of check size that must fail. The
    /// published twin is searched first, then dmkit's protocol, then the mutants.
    pub fn shown(&self) -> Option<(Variant, usize)> {
        let published = self.published.map(|_| Variant::Published);
        let mutants = self.mutants.iter().map(|m| Variant::Mutant(m.name));
        let variants = published.into_iter().chain([Variant::Ours]).chain(mutants);
        let fails = |c: &Case| c.expect != Expect::Holds && c.size == Size::Check;
        variants
            .filter_map(|v| self.cases_of(v).iter().position(fails).map(|number| (v, number)))
            .next()
    }
}

/// Returns the page `models.md`, which has a row for each entry. `ran` must contain the cases of check size.
pub fn page<'e>(entries: impl IntoIterator<Item = &'e Entry>, ran: &[Ran]) -> String {
    let mut tables: BTreeMap<Kind, String> = BTreeMap::new();
    for entry in entries {
        let of = |v: Variant| {
            ran.iter()
                .filter(move |r| r.entry == entry.name && r.variant == v)
        };
        let reports = || of(Variant::Ours).map(|r| r.verdict.report());
        let states: u64 = reports().map(|r| r.states).sum();
        let time: Duration = reports().map(|r| r.time).sum();
        let row = tables.entry(entry.kind).or_default();
        let _ = writeln!(
            row,
            "| **{}** {} | {} | {} | {} | {} | {} | {:.2} | {} | {} |",
            entry.name,
            cell(entry.about),
            cell(entry.source),
            outcome(&of(Variant::Published).collect::<Vec<_>>()),
            ours(entry.kind, &of(Variant::Ours).collect::<Vec<_>>()),
            mutants(entry, ran),
            states,
            time.as_secs_f64(),
            cell(&knobs(entry)),
            entry.shown().map_or_else(
                || "—".to_owned(),
                |(variant, number)| format!("`{}`", run_command(entry.name, variant, number))
            ),
        );
    }
    models(&tables)
}

/// Returns the page without its times. Two runs of the same source tree then give equal pages.
pub fn timeless(page: &str) -> String {
    let rows = page.lines().map(|line| {
        let mut cells: Vec<&str> = line.split(" | ").collect();
        if cells.len() == COLUMNS {
            cells.remove(SECONDS);
        }
        cells.join(" | ")
    });
    rows.collect::<Vec<_>>().join("\n")
}

fn models(tables: &BTreeMap<Kind, String>) -> String {
    let mut page = format!("{NOTE}# Models\n\n");
    page += "\
Every protocol of dmkit has a model, which runs the shipped code (`crates/dm-models`). Only published protocols that dmkit
does not ship are written by hand there, and they say so. `dm-explore` explores each model exhaustively: every
interleaving of every line or word of every verb, with every listed combination of the RNIC's freedoms. \"Holds\" means
*exhaustive within these bounds and knobs*, never \"proved\". Each run prints its assumptions, which are explained in the
documentation of `dm-explore`. The shape `2x1` has two compute nodes with one client each; `2+1` has two clients of one
compute node and one of another. Knobs that are not listed have their weakest setting (`dm_explore::Knobs::weak`).

* `dmkit explore NAME` runs one model, and with `--as-published` or `--mutant NAME` a twin of it. `dmkit explore --list`
  lists all models.
* `cargo xtask models` runs all cases of check size and writes this page. With `--check` it fails if a verdict is not the
  expected one, if a search was cut short, or if the page is out of date. With `--charts DIR` it also writes the story
  and the chart of each counterexample. The states and the seconds are those of our protocol, over all cases; the seconds
  are of one core.

A litmus test claims that an outcome never occurs. It fails with the settings of the knobs that allow the outcome, and its
counterexample shows how the outcome arises. A mutant is broken on purpose and must fail.\n";
    for (kind, rows) in tables {
        let title = match kind {
            Kind::Litmus => "Litmus tests",
            Kind::Lock => "Locks",
            Kind::Combine => "Read delegation and write combining",
            Kind::Node => "Nodes",
            Kind::Tree => "Indexes",
            Kind::Crash => "Clients that die",
        };
        let _ = write!(
            page,
            "\n## {title}\n\n| model | source | as published | ours | mutants | states | seconds | \
             shapes and knobs | counterexample |\n|---|---|---|---|---|---|---|---|---|\n{rows}"
        );
    }
    page
}

/// Summarises the results of one variant's cases.
pub fn outcome(ran: &[&Ran]) -> String {
    let failing: Vec<_> = ran.iter().filter_map(|r| r.verdict.counterexample()).collect();
    let mut how: Vec<&str> = failing
        .iter()
        .filter_map(|f| crate::How::of(&f.failure).map(crate::How::name))
        .collect();
    how.sort_unstable();
    how.dedup();
    let holds = ran.iter().filter(|r| r.verdict.is_pass()).count();
    match (ran.len(), holds, failing.len()) {
        (0, ..) => "—".to_owned(),
        (all, passes, found) if passes + found < all => {
            format!("**truncated** in {} of {all}", all - passes - found)
        }
        (all, passes, 0) if passes == all => "holds".to_owned(),
        (all, 0, _) if all > 0 => format!("fails: {}", how.join(", ")),
        (all, _, found) => format!("fails in {found} of {all} cases: {}", how.join(", ")),
    }
}

/// Summarises the cases of dmkit's protocol. A failing case of a litmus test is no error: it shows that a setting of
/// the knobs allows the outcome.
fn ours(kind: Kind, ran: &[&Ran]) -> String {
    let shown = ran
        .iter()
        .filter(|r| r.verdict.counterexample().is_some())
        .count();
    let holds = ran.iter().filter(|r| r.verdict.is_pass()).count();
    match kind {
        Kind::Litmus if shown > 0 && shown + holds == ran.len() => {
            format!("never seen in {holds} cases; shown in {shown}, where it is allowed")
        }
        _ => outcome(ran),
    }
}

fn mutants(entry: &Entry, ran: &[Ran]) -> String {
    let told = entry.mutants.iter().map(|m| {
        let of = |r: &&Ran| r.entry == entry.name && r.variant == Variant::Mutant(m.name);
        let of: Vec<&Ran> = ran.iter().filter(of).collect();
        format!("`{}` ({}): {}", m.name, m.about, outcome(&of))
    });
    match told.collect::<Vec<_>>() {
        none if none.is_empty() => "—".to_owned(),
        some => cell(&some.join("; ")),
    }
}

/// Lists the bounds of dmkit's cases: the shapes, the knobs with several settings, the knobs that have one setting and
/// not that of [`dm_explore::Knobs::weak`], the maximum numbers of faults, and the number of cases. Of the cases that
/// run at night, only the shapes are listed.
pub fn knobs(entry: &Entry) -> String {
    let (now, night): (Vec<Case>, Vec<Case>) =
        (entry.cases)().into_iter().partition(|c| c.size == Size::Check);
    let mut parts = Vec::new();
    let mut say = |what: &str, of: Vec<&'static str>| {
        if !of.is_empty() {
            parts.push(format!("{what}`{}`", of.join("`, `")));
        }
    };
    say("shapes ", shapes(&now));
    say("by night ", shapes(&night));
    let knobs = || now.iter().map(|c| &c.knobs);
    let covered = covered(knobs());
    let turned = covered.iter().filter(|(_, sides)| sides.len() > 1);
    let turned: Vec<&str> = turned.map(|(knob, _)| knob.name()).collect();
    if !turned.is_empty() {
        parts.push(format!("knobs {}", turned.join(" × ")));
    }
    parts.extend(covered.iter().filter_map(|(knob, sides)| standing(*knob, sides)));
    let most = |of: fn(&dm_explore::Knobs) -> u8| knobs().map(of).max().unwrap_or(0);
    for (n, what) in [
        (most(|k| k.crashes), "crash"),
        (most(|k| k.cancels), "cancellation"),
        (most(|k| k.failures), "failed queue pair"),
    ] {
        if n > 0 {
            parts.push(format!("up to {n} {what}{}", if n > 1 { "s" } else { "" }));
        }
    }
    parts.push(match now.len() {
        1 => "1 case".to_owned(),
        n => format!("{n} cases"),
    });
    parts.join("; ")
}

fn standing(knob: Knob, sides: &[u8]) -> Option<String> {
    match sides {
        [side] if *side > 0 => Some(format!("{} {}", knob.name(), knob.side_name(*side))),
        _ => None,
    }
}

fn shapes(cases: &[Case]) -> Vec<&'static str> {
    let mut shapes = Vec::new();
    for case in cases {
        if !case.shape.is_empty() && !shapes.contains(&case.shape) {
            shapes.push(case.shape);
        }
    }
    shapes
}

/// Returns the files that describe each entry's counterexample, by file name: a page in Markdown, and a chart in SVG.
/// `ran` must contain the shortest counterexample of each case that [`Entry::shown`] returns.
pub fn stories<'e>(entries: impl IntoIterator<Item = &'e Entry>, ran: &[Ran]) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for entry in entries {
        let shown = entry.shown().and_then(|(variant, number)| {
            ran.iter()
                .find(|r| r.entry == entry.name && r.variant == variant && r.number == number)
        });
        if let Some(shown) = shown
            && let Some(found) = shown.verdict.counterexample()
        {
            files.insert(format!("{}.md", entry.name), story(entry, shown));
            files.insert(format!("{}.svg", entry.name), found.svg());
        }
    }
    files
}

/// Returns a page about one counterexample; empty if the run found none.
fn story(entry: &Entry, ran: &Ran) -> String {
    let Some(found) = ran.verdict.counterexample() else {
        return String::new();
    };
    let mut page = format!("{NOTE}# {}: {}\n\n{}\n\n", entry.name, ran.variant, entry.about);
    if let Some(twin) = entry.twin(ran.variant) {
        let _ = writeln!(page, "This twin: {}.\n", twin.about);
    }
    let _ = writeln!(
        page,
        "Source: {}.\n\n![sequence chart]({}.svg)\n",
        entry.source, entry.name
    );
    let _ = writeln!(
        page,
        "```text\n{}\n```\n\n```text\n{found}\n```\n",
        found.chart().trim_end()
    );
    let _ = writeln!(
        page,
        "Run it again:\n\n```text\n{}\n```",
        ran.replay_command(found)
    );
    page
}

/// Escapes a text for the cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
