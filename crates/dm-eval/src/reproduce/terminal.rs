//! Formats results as text for a terminal.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::constants::others_for;
use super::experiment::{Experiment, Kind, Sense};
use super::grade::{Grade, Outcome, Spread};
use super::record::Record;
use super::sensitivity::Turn;
use super::tally::{COLUMNS, Tally};
use dm_bench::report::figure;

/// Returns the table of an experiment's claims, with a note for each grade that needs one.
pub(crate) fn claims(experiment: &Experiment, record: &Record) -> String {
    let mut headers = vec!["claim", "paper", "model", "over seeds", "off", "kind", "grade"];
    if record.leaves_out() {
        headers.push("without this paper's fits");
    }
    let mut table = plain_table(&headers);
    let mut notes: Vec<&str> = Vec::new();
    for outcome in &record.outcomes {
        let note = outcome.why().map(|why| {
            let at = notes.iter().position(|known| *known == why).unwrap_or_else(|| {
                notes.push(why);
                notes.len() - 1
            });
            format!(" [{}]", at + 1)
        });
        let mut cells = vec![
            named(experiment, outcome),
            paper(outcome),
            outcome
                .model
                .map(|m| with_unit(m.mean, outcome.unit()))
                .unwrap_or_default(),
            outcome.model.map(range).unwrap_or_default(),
            off(outcome),
            kind(outcome).to_owned(),
            match outcome.is_claim() {
                true => outcome.words() + &note.unwrap_or_default(),
                false => String::new(),
            },
        ];
        if record.leaves_out() {
            cells.push(left_out(record, outcome));
        }
        table.add_row(cells);
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
    if record.leaves_out() {
        text += &replaced(experiment);
        text.push('\n');
    }
    text
}

/// Returns the claim's text, with its panel if the experiment has several.
pub(crate) fn named(experiment: &Experiment, outcome: &Outcome) -> String {
    match experiment.panels.len() {
        0 | 1 => outcome.what.clone(),
        _ => format!("{}: {}", outcome.panel, outcome.what),
    }
}

/// Returns the deviation from a number of the paper.
pub(crate) fn off(outcome: &Outcome) -> String {
    let off = outcome.off().filter(|_| outcome.kind == Kind::Graded);
    off.map(percent).unwrap_or_default()
}

/// Returns the grade and the model's number that a claim has without the fits to figures of the same paper.
pub(crate) fn left_out(record: &Record, outcome: &Outcome) -> String {
    let Some(other) = record.left_out(outcome) else {
        return String::new();
    };
    let here = outcome.at_this_setting.unwrap_or(outcome.grade);
    let grade = if other.grade == here && here != Grade::NotGraded {
        format!("stands: {}", other.grade.words())
    } else {
        other.grade.words().to_owned()
    };
    format!("{grade} ({})", with_unit(other.figure, outcome.unit()))
}

/// Returns sentences with the values that replace the fits to figures of the experiment's paper, and with the fitted
/// constants that have no other source.
pub(crate) fn replaced(experiment: &Experiment) -> String {
    let (others, alone) = others_for(experiment.paper());
    let mut parts: Vec<String> = others
        .iter()
        .map(|other| format!("{} = {} ({})", other.constant, other.value, other.source))
        .collect();
    if parts.is_empty() {
        parts.push("no value changes".to_owned());
    }
    let mut text = format!(
        "Without the fits to {}: {}.",
        experiment.paper(),
        parts.join("; ")
    );
    if !alone.is_empty() {
        text += &format!(
            " No other paper has a figure for {}, so these keep their values.",
            alone.join(", ")
        );
    }
    text
}

/// Returns a sentence that tells why `--leave-one-out` has no effect on an experiment.
pub(crate) fn nothing_to_leave_out(experiment: &Experiment) -> String {
    let why = match experiment.kind.has_network() {
        true => format!(
            "no other paper gives a value for a constant that was fitted to {}",
            experiment.paper()
        ),
        false => "it has no network, so no fitted constant matters".to_owned(),
    };
    format!("--leave-one-out has no effect on {}: {why}.", experiment.name)
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

/// Returns a table of how the graded figures depend on the constants. It begins with the largest changes. It omits
/// changes below 5 % that change no grade.
pub(crate) fn sensitivity(turns: &[Turn]) -> String {
    let mut table = plain_table(&["constant", "by", "claim", "from", "to", "change", ""]);
    let mut shown: Vec<&Turn> = turns.iter().filter(|t| t.flips() || t.moves()).collect();
    shown.sort_by(|a, b| b.change().abs().total_cmp(&a.change().abs()));
    for turn in &shown {
        let flips = format!("{} → {}", turn.plain_grade.words(), turn.turned_grade.words());
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
        "{}{} of {} figures change by 5 % or more with a constant turned by 20 %; {flips} grades change\n",
        trimmed(&table),
        turns.iter().filter(|t| t.moves()).count(),
        turns.len()
    )
}

/// Returns the paper's number with its unit.
pub(crate) fn paper(outcome: &Outcome) -> String {
    let text = match (outcome.paper, outcome.kind, outcome.sense) {
        (None, ..) => return String::new(),
        (Some(_), Kind::Order, _) => return "more than 1×".to_owned(),
        (Some(paper), _, Sense::AtLeast) => format!("≥ {}", with_unit(paper, outcome.unit())),
        (Some(paper), _, Sense::AtMost) => format!("≤ {}", with_unit(paper, outcome.unit())),
        (Some(paper), ..) => with_unit(paper, outcome.unit()),
    };
    match outcome.reading_error {
        Some(error) => format!("{text} (read off a plot, ± {:.0} %)", 100.0 * error),
        None => text,
    }
}

pub(crate) fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "" => figure(value),
        "×" => format!("{}×", figure(value)),
        unit => format!("{} {unit}", figure(value)),
    }
}

/// Formats the smallest and the largest figure over the seeds. Returns nothing if they look the same.
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
        Kind::Graded | Kind::Order if outcome.is_fit() => "fitted",
        Kind::Graded => "number",
        Kind::Order => "order",
        Kind::Plot => "plot only",
        Kind::Extra => "extra row",
    }
}

/// Returns the table of counts, with a row for each paper.
pub(crate) fn summary(rows: &[(String, Tally)]) -> String {
    let mut headers = vec!["paper"];
    headers.extend(COLUMNS);
    let mut table = plain_table(&headers);
    for (paper, tally) in rows {
        let counts = tally.counts().into_iter().map(|count| count.to_string());
        table.add_row([paper.clone()].into_iter().chain(counts));
    }
    for column in 1..=COLUMNS.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    trimmed(&table)
}

/// The meaning of the grades.
pub(crate) const GRADES: [(&str, &str); 5] = [
    (
        "Reproduced",
        "the mean over the seeds is within 20 % of a number in the paper's text.",
    ),
    (
        "Exceeded",
        "it is more than 20 % above a ratio that the paper's system should reach, and nothing but its own busiest \
         resource limits the baseline; or memory in use is more than 20 % below the paper's number.",
    ),
    (
        "Direction only",
        "the text gives an order, which holds with every seed; or a ratio is exceeded, but not shown to be fair.",
    ),
    (
        "Missed",
        "anything else. The reason is computed from the rows of the run, and covers the whole gap; otherwise the miss is \
         not understood.",
    ),
    (
        "Not graded",
        "an input of the model was fitted to the number or states it; or the model cannot run it; or the run is not at the \
         experiment's own setting (fewer keys, fewer operations, fewer than 3 seeds).",
    ),
];

/// The distortions of a quick run.
pub(crate) const QUICK: &str = "A quick run makes a sixth of the operations, or takes a quarter of the time if it has no \
    tree, with one seed. Queues at hot locks are shorter than in a long run, so a collapse under skew looks milder. Tail \
    latencies come from a sixth of the samples. LOAD splits fewer leaves. Nothing is graded.";

/// The text that explains why fewer keys than the paper's can represent them.
pub(crate) const SCALE: &str = "The papers load 60 million to a billion keys, and a run loads the number of keys in its \
    facts. The cost of a point operation depends on three things: on the depth that is not cached; on the share of the \
    hottest keys, which stays the paper's because ranks are drawn over the paper's number of keys, and several of \
    them stand for one loaded key; and on the index cache per key, which stays the paper's too.";
