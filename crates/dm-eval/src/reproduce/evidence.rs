//! The table of all claims as Markdown, for the repository.

use std::fmt::Write;

use super::experiment::Experiment;
use super::record::Record;
use super::tally::{COLUMNS, Tally, WITHOUT_FITS, without_fits};
use super::terminal::{self, paper, range, with_unit};
use super::{catalogue, facts, reason};

type Run = (Experiment, Record);

/// Returns the whole file. `commit` is that of the program which writes it.
pub(crate) fn document(runs: &[Run], tally: &[(String, Tally)], commit: &str) -> String {
    let mut text = String::from(
        "# Evidence\n\nThe claims of the papers, beside the results of dmkit's indexes on a simulated testbed: a model \
         of the network cards, not a measurement. This file is generated from the results of `dmkit reproduce`, which lie \
         in the folder `evidence`, by `cargo eval reproduce --evidence docs/EVIDENCE.md`; a test of `dm-eval` runs a \
         part of it again and compares.\n\n",
    );
    let _ = writeln!(
        text,
        "Written by commit {commit}. Each section names the commit of its run.\n"
    );
    head(&mut text, "paper", &COLUMNS);
    for (name, tally) in tally {
        let counts: Vec<String> = tally.counts().iter().map(usize::to_string).collect();
        let _ = writeln!(text, "| {name} | {} |", counts.join(" | "));
    }
    text.push('\n');
    for (grade, meaning) in terminal::GRADES {
        let _ = writeln!(text, "* **{grade}**: {meaning}");
    }
    text += "\nA miss has a reason only if the reason covers the whole gap. There are these kinds:\n\n";
    for (kind, meaning) in reason::KINDS {
        let _ = writeln!(text, "* **{kind}**: {meaning}");
    }
    let _ = writeln!(text, "\n{}", terminal::SCALE);
    let papers = without_fits(runs);
    if !papers.is_empty() {
        text += "\nSome constants of the model were fitted to a paper's figures. The experiments whose tables have a column \
                 \"without this paper's fits\" ran once more, with one seed. There, each such constant had the value that \
                 another paper's figures give it. A constant without another source kept its value; each section names \
                 these. A claim that such a run leaves open does not stand. The table leaves out \
                 experiments that did not run at their own setting.\n\n";
        head(&mut text, "paper", &WITHOUT_FITS);
        for (name, counts) in papers {
            let counts = counts.map(|count| count.to_string());
            let _ = writeln!(text, "| {name} | {} |", counts.join(" | "));
        }
    }
    let missing: Vec<String> = super::experiment::all()
        .into_iter()
        .flatten()
        .filter(|experiment| runs.iter().all(|(run, _)| run.name != experiment.name))
        .map(|experiment| format!("`{}`", experiment.name))
        .collect();
    if !missing.is_empty() {
        let _ = writeln!(
            text,
            "\nThese experiments were not run for this file, so their claims are not graded: {}.",
            missing.join(", ")
        );
    }
    for (experiment, record) in runs {
        let _ = write!(
            text,
            "\n## {} {}: {}\n\nRun at commit {}: `{}`.\n\n",
            experiment.paper(),
            experiment.figure,
            experiment.title,
            record.commit,
            record.command
        );
        text += &section(experiment, record);
    }
    text += "\n## Not modelled\n\nFigures and claims that no experiment covers.\n\n";
    head(&mut text, "figure", &["shows", "claims", "why"]);
    for figure in catalogue::all() {
        if let Some(why) = &figure.why {
            let _ = writeln!(
                text,
                "| {} {} | {} | {} | {why} |",
                figure.paper, figure.figure, figure.shows, figure.left
            );
        }
    }
    text
}

/// Returns the part of a section that depends on the experiment and its rows alone.
pub(crate) fn section(experiment: &Experiment, record: &Record) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}.\n", facts::of(experiment, record.effort).join("; "));
    let deviations = record.effort.deviations(experiment.kind);
    if !deviations.is_empty() {
        let _ = writeln!(
            text,
            "**Not graded**: the run is not at the experiment's own setting: {}.\n",
            deviations.join(", ")
        );
    }
    let mut columns = vec!["paper", "model", "over seeds", "off", "grade"];
    if record.leaves_out() {
        let _ = writeln!(text, "{}\n", terminal::replaced(experiment));
        columns.push("without this paper's fits");
    }
    columns.push("why");
    head(&mut text, "claim", &columns);
    for outcome in record.outcomes.iter().filter(|outcome| outcome.is_claim()) {
        let mut cells = vec![
            terminal::named(experiment, outcome),
            paper(outcome),
            outcome
                .model
                .map(|model| with_unit(model.mean, outcome.unit()))
                .unwrap_or_default(),
            outcome.model.map(range).unwrap_or_default(),
            terminal::off(outcome),
            outcome.words(),
        ];
        if record.leaves_out() {
            cells.push(terminal::left_out(record, outcome));
        }
        cells.push(outcome.why().unwrap_or_default().to_owned());
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

fn head(text: &mut String, first: &str, columns: &[&str]) {
    let _ = writeln!(text, "| {first} | {} |", columns.join(" | "));
    let _ = writeln!(text, "|---{}|", "|---".repeat(columns.len()));
}
