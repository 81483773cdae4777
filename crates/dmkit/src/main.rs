//! The `dmkit` command: loads, drives, checks, compares and plots range indexes on disaggregated memory.
#![forbid(unsafe_code)]

mod bench_tree;
mod cli;
mod cluster;
mod dispatch;
mod drive;
#[cfg(feature = "eval")]
mod explore;
mod job;
mod point;
mod report;
#[cfg(feature = "eval")]
mod reproduce;
mod run;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use dm_sim::CostModel;

use crate::cli::{Cli, Command};
use crate::point::Point;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = |ok| if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    let result = match cli.command {
        #[cfg(feature = "eval")]
        Some(Command::Explore(asked)) => return end(explore::perform(&asked, &cli.output)),
        None => {
            let model = CostModel::cx5_ib();
            let title = format!("dmkit, {}, 8 CN + 8 MN colocated", model.name);
            job::perform(&title, &job::main_points(model), &cli.output)
        }
        Some(Command::Bench(bench)) => {
            let points = bench.recorded(Point::all(&bench)).map_err(io::Error::other);
            points.and_then(|points| job::perform(&job::bench_title(&bench), &points, &cli.output))
        }
        #[cfg(feature = "eval")]
        Some(Command::Reproduce(asked)) => reproduce::perform(&asked, &cli.output),
        Some(Command::Serve(asked)) => cluster::serve(&asked),
        Some(Command::Index(asked)) => cluster::index(&asked),
        Some(Command::Doctor(asked)) => cluster::doctor(&asked),
        Some(Command::Merge { rows }) => cluster::merge(&rows, &cli.output),
        Some(Command::Plot { rows }) => job::replot(&rows, &cli.output),
        Some(Command::Model { preset }) => cli::preset(&preset)
            .map_err(io::Error::other)
            .and_then(|model| print_model(&model)),
    };
    end(result.map(done))
}

fn end(result: io::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        // The reader of the output has closed the pipe, which is not an error.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(e) => {
            // Standard error may be closed too; then the message is lost.
            let _unheard = writeln!(io::stderr(), "dmkit: {e}");
            ExitCode::FAILURE
        }
    }
}

fn print_model(model: &CostModel) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}: a model, not a card\n", model.name)?;
    for p in model.parameters() {
        let provenance = format!("{:?}", p.provenance).to_lowercase();
        writeln!(
            out,
            "{:<20} {:>10} {:<5} {provenance:<10} {}",
            p.name, p.value, p.unit, p.source
        )?;
    }
    Ok(true)
}
