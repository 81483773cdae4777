//! `dmkit reproduce`: runs the figures of papers on the simulated testbed, and shows them beside the papers' numbers.
//!
//! An experiment is a file (`experiments/*.toml`) with a testbed, the panels of a figure, and the paper's claims with
//! their numbers. A panel compares several series, usually while one parameter varies. The code calls this parameter
//! the *dial*. A run produces samples (raw data, in JSON). From the samples, the results of the claims are computed,
//! and the charts are drawn. Each step can be repeated from the result of the previous one.

mod cases;
mod catalogue;
mod chart;
mod constants;
mod evidence;
mod experiment;
mod facts;
mod grade;
mod leaves;
mod locks;
mod metric;
mod page;
mod reads;
mod reason;
mod record;
mod sensitivity;
mod setup;
mod tables;
mod tally;
mod terminal;
mod tree;
mod window;
mod writes;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use dm_bench::{Origin, Output, Place, Registry};

use self::cases::{Case, Effort, Memory};
use self::experiment::{Experiment, RunKind};
use self::record::Record;

/// The ending of an experiment file's name.
const FILE: &str = ".toml";

/// The figures, and the effort.
#[derive(Debug, Clone, Default, Args)]
pub struct Reproduce {
    /// A figure such as sherman-10, `all` for every figure, or a file of your own whose name ends with .toml
    /// (in the form of `crates/dm-eval/experiments`).
    pub names: Vec<String>,
    /// List every figure and table of the papers, with the name of its experiment or the reason why it has none.
    #[arg(long)]
    pub list: bool,
    /// Run only this panel of each figure; may be given more than once. Results of other panels in the output
    /// directory stay and are graded too, if they were run in the same way.
    #[arg(long = "panel", value_name = "PANEL")]
    pub panels: Vec<String>,
    /// Runs of each point, with seeds 1, 2, …; default: 3, or 1 with --quick. Claims are graded from 3 seeds on.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub seeds: Option<u64>,
    /// Run a sixth of the operations, or a quarter of the time if there is no tree, for a first look; nothing is graded
    /// then. Queues at hot locks are shorter than in a long run, so a collapse under skew looks milder; tail latencies
    /// come from a sixth of the samples; LOAD splits fewer leaves.
    #[arg(long)]
    pub quick: bool,
    /// Load this many keys instead, or READ this many blocks; the cache sizes change in proportion, the Zipf ranks do
    /// not. No claim about a tree or about READs is graded then.
    #[arg(long, value_parser = dm_bench::count)]
    pub keys: Option<u64>,
    /// Also run the graded claims with one seed, and with values from other papers instead of the constants that were
    /// fitted to the same paper's figures, as far as other papers have such values. The option has no effect on an
    /// experiment without a network, or if no other paper has such a value.
    #[arg(long)]
    pub leave_one_out: bool,
    /// Also vary each of the 11 fitted constants by -20 % and +20 %, with one seed. This makes 22 times the runs of one
    /// seed, and takes about 8 times as long as three seeds without it (sherman-10 takes 10 minutes, sherman-16 two).
    #[arg(long)]
    pub sensitivity: bool,
    /// Write a page, index.html, about everything in the output directory.
    #[arg(long)]
    pub page: bool,
    /// Write the table of all claims to this Markdown file, and the results behind it to the folder `evidence` beside
    /// it. Results of experiments that are only in that folder stay.
    #[arg(long, value_name = "FILE")]
    pub evidence: Option<PathBuf>,
}

/// Lists the experiments, or runs those that are named. Returns `true` unless it fails.
///
/// # Errors
/// Returns an error if there is no such experiment, panel or series, if a file is not a valid experiment, if a run
/// fails, if a page is requested but there is no record, or if a file cannot be read or written.
pub fn perform(asked: &Reproduce, output: &Output, registry: &Registry) -> io::Result<bool> {
    let mut all = experiment::all().map_err(io::Error::other)?;
    if asked.list || (asked.names.is_empty() && !asked.page && asked.evidence.is_none()) {
        write!(io::stdout(), "{}", listing(&all))?;
        return Ok(true);
    }
    let origin = Origin::here(output.commit.as_deref());
    let memory = match is_repeatable(&origin.commit) {
        true => Memory::open(&output.out, &origin.commit)?,
        false => Memory::default(),
    };
    let chosen = choose(&all, &asked.names)?;
    for experiment in &chosen {
        let earlier = match asked.panels.is_empty() {
            true => None,
            false => Record::read(&output.out, &experiment.name)?,
        };
        experiment.check_series(registry).map_err(io::Error::other)?;
        let record = run(
            experiment,
            asked,
            earlier,
            &origin.commit,
            registry,
            &memory,
            output.place,
        )?;
        let experiment = &record.part(experiment);
        if output.json {
            writeln!(
                io::stdout(),
                "{}",
                serde_json::to_string(&record).map_err(io::Error::other)?
            )?;
        } else {
            show(experiment, &record)?;
            if asked.leave_one_out && !record.leaves_out() {
                writeln!(io::stdout(), "{}", terminal::nothing_to_leave_out(experiment))?;
            }
        }
        record.write(&output.out)?;
        if !output.no_plot {
            for panel in &experiment.panels {
                for chart in chart::of_panel(experiment, panel, &record, registry) {
                    fs::write(output.out.join(format!("{}.svg", chart.id)), chart.file())?;
                }
            }
        }
    }
    // Experiments of the user's own are on the page too.
    all.extend(
        chosen
            .into_iter()
            .filter(|own| !experiment::is_embedded(&own.name)),
    );
    let runs = runs(&all, &output.out)?;
    let records: Vec<Record> = runs.iter().map(|(_, record)| record.clone()).collect();
    let counts = tally::papers(&all, &records);
    if !output.json {
        writeln!(
            io::stdout(),
            "\nAll records in {}:\n{}",
            output.out.display(),
            terminal::summary(&counts)
        )?;
    }
    if asked.page {
        save(
            &output.out.join("index.html"),
            &page::page(&runs, &counts, registry),
        )?;
    }
    if let Some(path) = &asked.evidence {
        let results = path.with_file_name(RESULTS);
        for (_, record) in &runs {
            record.results().write(&results)?;
        }
        let kept = self::runs(&all, &results)?;
        let records: Vec<Record> = kept.iter().map(|(_, record)| record.clone()).collect();
        let counts = tally::papers(&all, &records);
        save(path, &evidence::document(&kept, &counts, &origin.commit))?;
    }
    Ok(true)
}

/// The folder beside the table of claims that has the results behind it.
const RESULTS: &str = "evidence";

/// Returns whether the commit identifies the program exactly, so that its results can be used again.
fn is_repeatable(commit: &str) -> bool {
    commit.chars().all(|letter| letter.is_ascii_hexdigit())
}

/// Returns the experiments with a record in `directory`, each with only its panels that were run. Returns an error if
/// there is no record.
fn runs(all: &[Experiment], directory: &Path) -> io::Result<Vec<(Experiment, Record)>> {
    let mut runs = Vec::new();
    for experiment in all {
        if let Some(record) = Record::read(directory, &experiment.name)? {
            runs.push((record.part(experiment), record));
        }
    }
    match runs.is_empty() {
        true => Err(io::Error::other(format!(
            "{} holds no record",
            directory.display()
        ))),
        false => Ok(runs),
    }
}

fn save(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text).map_err(|e| io::Error::other(format!("{}: {e}", path.display())))?;
    writeln!(io::stdout(), "{} written", path.display())
}

/// Returns the experiments with these names, or from these files.
fn choose(all: &[Experiment], names: &[String]) -> io::Result<Vec<Experiment>> {
    if names.iter().any(|name| name == "all") {
        return Ok(all.to_vec());
    }
    let find = |name: &String| {
        if name.ends_with(FILE) {
            let text = fs::read_to_string(name).map_err(|e| io::Error::other(format!("{name}: {e}")))?;
            return experiment::parse(name, &text).map_err(io::Error::other);
        }
        all.iter().find(|e| e.name == *name).cloned().ok_or_else(|| {
            let known: Vec<&str> = all.iter().map(|e| e.name.as_str()).collect();
            io::Error::other(format!(
                "no experiment {name:?}; there are all, {}",
                known.join(", ")
            ))
        })
    };
    names.iter().map(find).collect()
}

/// Returns a line for every figure and table of the papers, and one for all experiments together.
fn listing(all: &[Experiment]) -> String {
    let mut text = String::new();
    for figure in catalogue::all() {
        let name = figure.experiment.as_deref().unwrap_or("-");
        text += &format!("{name:<16} {} {}: {}", figure.paper, figure.figure, figure.shows);
        if let Some(why) = &figure.why {
            let left = if figure.experiment.is_some() {
                " Left out:"
            } else {
                ""
            };
            text += &format!(".{left} {why}");
        }
        text.push('\n');
    }
    text + &format!("{:<16} all {} experiments\n", "all", all.len())
}

/// Runs the selected panels. The results of the other panels are taken from `earlier`, if the same program ran them in
/// the same way.
fn run(
    experiment: &Experiment,
    asked: &Reproduce,
    earlier: Option<Record>,
    commit: &str,
    registry: &Registry,
    memory: &Memory,
    place: Place,
) -> io::Result<Record> {
    let effort = Effort {
        seeds: asked.seeds.unwrap_or(if asked.quick { 1 } else { 3 }).max(1),
        quick: asked.quick,
        keys: asked.keys,
    };
    let wanted = |panel: &str| asked.panels.is_empty() || asked.panels.iter().any(|name| name == panel);
    if let Some(unknown) = asked.panels.iter().find(|name| experiment.panel(name).is_none()) {
        let known: Vec<&str> = experiment.panels.iter().map(|p| p.name.as_str()).collect();
        return Err(io::Error::other(format!(
            "{} has no panel {unknown:?}, but {}",
            experiment.name,
            known.join(", ")
        )));
    }
    let way = command(experiment, asked, &effort);
    let earlier = earlier.filter(|record| {
        let rest = record.command.strip_prefix(&way);
        let same_way = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(PANEL));
        // A record names one commit, so it cannot have panels of several.
        same_way && record.commit == commit
    });
    let (mut samples, mut left_out) = (Vec::new(), Vec::new());
    let mut seconds = 0.0;
    if let Some(record) = earlier {
        seconds = record.seconds;
        samples.extend(record.samples.into_iter().filter(|s| !wanted(&s.panel)));
        left_out.extend(record.left_out.into_iter().filter(|o| !wanted(&o.panel)));
    }
    let began = Instant::now();
    let chosen = experiment.only(wanted);
    let cases = Case::all(&chosen, effort).map_err(io::Error::other)?;
    samples.extend(cases::run_all(&experiment.name, &cases, registry, memory, place)?);
    let sensitivity = match asked.sensitivity && experiment.kind.has_network() {
        true => sensitivity::study(&chosen, effort, registry, memory, place)?,
        false => Vec::new(),
    };
    if asked.leave_one_out && experiment.can_leave_out() {
        left_out.extend(sensitivity::leave_out(&chosen, effort, registry, memory, place)?);
    }
    let mut record = Record {
        name: experiment.name.clone(),
        command: way,
        effort,
        commit: commit.to_owned(),
        seconds: seconds + began.elapsed().as_secs_f64(),
        outcomes: Vec::new(),
        panels: experiment
            .panels
            .iter()
            .filter(|panel| samples.iter().any(|sample| sample.panel == panel.name))
            .map(|panel| panel.name.clone())
            .collect(),
        samples,
        sensitivity,
        left_out,
    };
    let part = record.part(experiment);
    if part.panels.len() < experiment.panels.len() {
        for panel in &part.panels {
            record.command += &format!("{PANEL}{:?}", panel.name);
        }
    }
    record.outcomes = grade::grade(&part, &record.samples, &effort.deviations(experiment.kind));
    Ok(record)
}

/// The text before a panel's name in the command of a record that does not have all panels.
const PANEL: &str = " --panel ";

/// Returns the command that runs the whole experiment with these arguments.
fn command(experiment: &Experiment, asked: &Reproduce, effort: &Effort) -> String {
    let mut command = format!("dmkit reproduce {}", experiment.name);
    if effort.quick {
        command += " --quick";
    }
    if let Some(keys) = asked.keys {
        command += &format!(" --keys {keys}");
    }
    if asked.seeds.is_some() {
        command += &format!(" --seeds {}", effort.seeds);
    }
    if asked.leave_one_out && experiment.can_leave_out() {
        command += record::LEAVE_ONE_OUT;
    }
    command
}

fn show(experiment: &Experiment, record: &Record) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{} {}: {}",
        experiment.paper, experiment.figure, experiment.title
    )?;
    writeln!(out, "{}", facts::of(experiment, record.effort).join("; "))?;
    let source = match experiment.kind {
        RunKind::Leaves => "counts of bytes and of entries",
        _ => "a model of the NICs, not a measurement",
    };
    writeln!(out, "{}; {:.0} s; {source}", record.command, record.seconds)?;
    let deviations = record.effort.deviations(experiment.kind);
    if !deviations.is_empty() {
        writeln!(
            out,
            "not graded, because the setting is not the experiment's own: {}",
            deviations.join(", ")
        )?;
    }
    if record.effort.quick {
        writeln!(out, "{}", terminal::QUICK)?;
    }
    writeln!(out, "\n{}", terminal::claims(experiment, record))?;
    if !record.sensitivity.is_empty() {
        writeln!(out, "{}", terminal::sensitivity(&record.sensitivity))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
