//! Formats results as text for a terminal.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::experiment::Experiment;
use super::experiment::{Kind, Sense};
use super::grade::{Outcome, Spread, Verdict};
use super::metric::figure;
use super::sensitivity::Turn;

/// Returns the table of an experiment's claims, with reasons for the missed ones.
pub(crate) fn claims(experiment: &Experiment, outcomes: &[Outcome]) -> String {
    let mut table = plain_table(&["claim", "paper", "model", "over seeds", "off", "kind", "verdict"]);
    let mut notes: Vec<&str> = Vec::new();
    for outcome in outcomes {
        let note = outcome.why.as_deref().map(|why| {
            let at = notes.iter().position(|known| *known == why).unwrap_or_else(|| {
                notes.push(why);
                notes.len() - 1
            });
            format!(" [{}]", at + 1)
        });
        let what = if experiment.panels.len() > 1 {
            format!("{}: {}", outcome.panel, outcome.what)
        } else {
            outcome.what.clone()
        };
        table.add_row([
            what,
            paper(outcome),
            outcome
                .model
                .map(|m| with_unit(m.mean, outcome.unit()))
                .unwrap_or_default(),
            outcome.model.map(range).unwrap_or_default(),
            outcome
                .off()
                .filter(|_| outcome.kind == Kind::Graded)
                .map(percent)
                .unwrap_or_default(),
            kind(outcome).to_owned(),
            format!(
                "{}{}{}",
                outcome.verdict.words(),
                foretold(outcome),
                note.unwrap_or_default()
            ),
        ]);
    }
    for column in 1..=4 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = trimmed(&table);
    for (at, note) in (1..).zip(notes) {
        text += &format!("[{at}] {note}\n");
    }
    text
}

fn plain_table(headers: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(headers);
    table
}

fn trimmed(table: &Table) -> String {
    table.lines().map(|line| line.trim().to_owned() + "\n").collect()
}

/// Returns a table of how the graded figures depend on the constants. It begins with the largest changes and omits
/// small ones.
pub(crate) fn sensitivity(turns: &[Turn]) -> String {
    let mut table = plain_table(&["constant", "by", "claim", "from", "to", "change", ""]);
    let mut shown: Vec<&Turn> = turns
        .iter()
        .filter(|t| t.flips() || t.change().abs() >= 0.05)
        .collect();
    shown.sort_by(|a, b| b.change().abs().total_cmp(&a.change().abs()));
    for turn in &shown {
        let flips = format!("{} → {}", turn.plain_verdict.words(), turn.turned_verdict.words());
        table.add_row([
            turn.constant.clone(),
            percent(turn.factor - 1.0),
            format!("{}: {}", turn.panel, turn.what),
            figure(turn.plain),
            figure(turn.turned),
            percent(turn.change()),
            if turn.flips() { flips } else { String::new() },
        ]);
    }
    let flips = turns.iter().filter(|t| t.flips()).count();
    format!(
        "{}{} of {} figures change by 5 % or more with a constant turned by 20 %; {flips} verdicts change\n",
        trimmed(&table),
        shown.len(),
        turns.len()
    )
}

/// Returns the paper's number with its unit.
pub(crate) fn paper(outcome: &Outcome) -> String {
    match (outcome.paper, outcome.kind, outcome.sense) {
        (None, ..) => String::new(),
        (Some(_), Kind::Order, _) => "in order".to_owned(),
        (Some(paper), _, Sense::AtLeast) => format!("≥ {}", with_unit(paper, outcome.unit())),
        (Some(paper), ..) => with_unit(paper, outcome.unit()),
    }
}

pub(crate) fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "" => figure(value),
        "×" => format!("{}×", figure(value)),
        unit => format!("{} {unit}", figure(value)),
    }
}

/// Formats the range of a figure from the smallest to the largest seed.
pub(crate) fn range(spread: Spread) -> String {
    let (low, high) = (figure(spread.low), figure(spread.high));
    if low == high {
        String::new()
    } else {
        format!("{low}–{high}")
    }
}

/// Formats a share as a percentage, with a sign and without decimals.
pub(crate) fn percent(part: f64) -> String {
    format!("{:+.0} %", part * 100.0)
}

pub(crate) fn kind(outcome: &Outcome) -> &'static str {
    match outcome.kind {
        Kind::Graded if outcome.is_fit() => "fit",
        Kind::Graded => "prediction",
        Kind::Order => "order",
        Kind::Plot => "plot only",
        Kind::Extra => "extra row",
    }
}

pub(crate) fn foretold(outcome: &Outcome) -> String {
    match (outcome.foretold, outcome.as_foretold) {
        (Some(foretold), Some(true)) => format!(", within 25 % of the verbs' model ({})", figure(foretold)),
        (Some(foretold), Some(false)) => {
            format!(", NOT within 25 % of the verbs' model ({})", figure(foretold))
        }
        _ => String::new(),
    }
}

/// Returns counts as text: how many predictions hold, how many orders are kept, and so on.
pub(crate) fn summary<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> String {
    let (mut right, mut predictions, mut fits, mut orders, mut kept, mut not_run) = (0, 0, 0, 0, 0, 0);
    for outcome in outcomes {
        match outcome.verdict {
            Verdict::NotRun => not_run += 1,
            Verdict::Within | Verdict::Missed if outcome.is_fit() => fits += 1,
            Verdict::Within | Verdict::Missed => {
                predictions += 1;
                right += usize::from(outcome.verdict == Verdict::Within);
            }
            Verdict::Kept | Verdict::Lost => {
                orders += 1;
                kept += usize::from(outcome.verdict == Verdict::Kept);
            }
            Verdict::Shown => {}
        }
    }
    format!(
        "{right} of {predictions} predictions within 20 % of the paper, {kept} of {orders} orders kept; \
         {fits} fits apart, {not_run} not run"
    )
}

/// The text that explains why a few million keys can represent the paper's number of keys.
pub(crate) const SCALE: &str = "On scale: the paper loads 10^9 keys, a run here 1 to 2 million. What a point operation \
    costs depends on the depth that is not cached (none, in both), on how contended the hottest leaves are (kept: ranks \
    are drawn over the paper's count and folded onto the loaded keys) and on the index cache per key (kept: half a byte).";
