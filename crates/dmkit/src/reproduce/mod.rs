//! `dmkit reproduce`: a paper's figures on the simulated testbed, beside what the paper says of them.
//!
//! An experiment is a file (`experiments/*.toml`): a testbed, panels of series over a dial, and claims with the
//! paper's numbers. Running one gives samples (raw, in JSON), outcomes of the claims, and charts, in that order: each
//! can be made again from the one before it.

mod cases;
mod chart;
mod constants;
mod experiment;
mod facts;
mod grade;
mod locks;
mod metric;
mod page;
mod record;
mod sensitivity;
mod series;
mod setup;
mod svg;
mod terminal;
mod tree;
mod writes;

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use self::cases::{Case, Effort, Memory};
use self::experiment::Experiment;
use self::record::Record;
use crate::cli::{Output, Reproduce};

/// Lists the experiments, or runs those that are named.
///
/// # Errors
/// An experiment that is none, one that fails, a file that can't be written.
pub(crate) fn perform(asked: &Reproduce, output: &Output) -> io::Result<bool> {
    let all = experiment::all().map_err(io::Error::other)?;
    if asked.list || (asked.names.is_empty() && !asked.page) {
        list(&all)?;
        return Ok(true);
    }
    let memory = Memory::default();
    let chosen = choose(&all, &asked.names)?;
    let mut outcomes = Vec::new();
    for experiment in &chosen {
        let record = run(experiment, asked, &memory)?;
        if output.json {
            writeln!(
                io::stdout(),
                "{}",
                serde_json::to_string(&record).map_err(io::Error::other)?
            )?;
        } else {
            show(experiment, &record)?;
        }
        record.write(&output.out)?;
        if !output.no_plot {
            for (name, svg) in chart::all(experiment, &record) {
                fs::write(output.out.join(format!("{}-{name}.svg", experiment.name)), svg)?;
            }
        }
        outcomes.extend(record.outcomes);
    }
    if !chosen.is_empty() && !output.json {
        writeln!(io::stdout(), "{}", terminal::summary(outcomes.iter()))?;
        writeln!(io::stdout(), "raw data and charts in {}", output.out.display())?;
    }
    if asked.page {
        write_page(&all, &output.out)?;
    }
    Ok(true)
}

fn choose<'a>(all: &'a [Experiment], names: &[String]) -> io::Result<Vec<&'a Experiment>> {
    if names.iter().any(|name| name == "all") {
        return Ok(all.iter().collect());
    }
    let find = |name: &String| {
        all.iter().find(|e| e.name == *name).ok_or_else(|| {
            let known: Vec<&str> = all.iter().map(|e| e.name.as_str()).collect();
            io::Error::other(format!(
                "no experiment {name:?}; there are all, {}",
                known.join(", ")
            ))
        })
    };
    names.iter().map(find).collect()
}

fn list(all: &[Experiment]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for e in all {
        writeln!(out, "{:<16} {} {}: {}", e.name, e.paper, e.figure, e.title)?;
    }
    writeln!(out, "{:<16} all of them", "all")
}

fn run(experiment: &Experiment, asked: &Reproduce, memory: &Memory) -> io::Result<Record> {
    let effort = Effort {
        seeds: asked.seeds.unwrap_or(if asked.quick { 1 } else { 3 }).max(1),
        quick: asked.quick,
        keys: asked.keys,
    };
    let began = Instant::now();
    let cases = Case::all(experiment, effort).map_err(io::Error::other)?;
    let samples = cases::run_all(&experiment.name, &cases, memory)?;
    let sensitivity = if asked.sensitivity {
        sensitivity::study(experiment, effort.quick, memory)?
    } else {
        Vec::new()
    };
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
    Ok(Record {
        name: experiment.name.clone(),
        command,
        seeds: effort.seeds,
        quick: effort.quick,
        seconds: began.elapsed().as_secs_f64(),
        outcomes: grade::grade(experiment, &samples),
        samples,
        sensitivity,
    })
}

fn show(experiment: &Experiment, record: &Record) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{} {}: {}",
        experiment.paper, experiment.figure, experiment.title
    )?;
    writeln!(out, "{}", facts::of(experiment).join("; "))?;
    writeln!(
        out,
        "{}; {} seeds, {:.0} s; a model of the NICs, not a measurement\n",
        record.command, record.seeds, record.seconds
    )?;
    writeln!(out, "{}", terminal::claims(experiment, &record.outcomes))?;
    if !record.sensitivity.is_empty() {
        writeln!(out, "{}", terminal::sensitivity(&record.sensitivity))?;
    }
    Ok(())
}

/// Makes the page of all records in `directory`.
fn write_page(all: &[Experiment], directory: &Path) -> io::Result<()> {
    let mut records = Vec::new();
    for experiment in all {
        if let Some(record) = Record::read(directory, &experiment.name)? {
            records.push((experiment, record));
        }
    }
    if records.is_empty() {
        return Err(io::Error::other(format!(
            "{} holds no record",
            directory.display()
        )));
    }
    let path = directory.join("index.html");
    fs::write(&path, page::page(&records))?;
    writeln!(io::stdout(), "{} written", path.display())
}

#[cfg(test)]
mod tests;
