//! `bench sim`: measures the simulator's speed with three mixes.

use super::client;
use crate::Result;
use std::path::Path;
use xshell::{Shell, cmd};

/// The measured mixes, by the names that the example `sim_bench` accepts.
const MIXES: [&str; 3] = ["READ64", "READ1K", "Sherman"];
/// Runs of each mix. The mixes run in turn, so that a busy period of the machine does not affect only one
/// mix.
const RUNS: usize = 7;
/// Verbs of the shorter and the longer run under callgrind.
const COUNTED: (u64, u64) = (200_000, 600_000);

/// Prints the table.
pub(super) fn run(shell: &Shell) -> Result<()> {
    let program = client::build(shell, "dm-sim", "sim_bench")?;
    let mut best = [0.0_f64; MIXES.len()];
    for _ in 0..RUNS {
        for (best, mix) in best.iter_mut().zip(MIXES) {
            *best = best.max(rate(shell, &program, mix)?);
        }
    }
    let counts = client::has_valgrind(shell);
    println!("| mix, 640 clients | M verbs per CPU second, best of {RUNS} runs | instructions a verb |");
    println!("|---|---|---|");
    for (best, mix) in best.into_iter().zip(MIXES) {
        let instructions = if counts {
            let arguments = ["--clients".to_owned(), "640".to_owned()];
            let (verbs, count) = client::count(shell, &program, mix, COUNTED, &arguments)?;
            format!("{:.0}", count as f64 / verbs as f64)
        } else {
            "not counted: valgrind is not installed".to_owned()
        };
        println!("| {mix} | {best:.2} | {instructions} |");
    }
    Ok(())
}

/// Runs a mix once. Returns its million verbs per CPU second.
fn rate(shell: &Shell, program: &Path, mix: &str) -> Result<f64> {
    let output = cmd!(shell, "{program} --op {mix} --clients 640").quiet().read()?;
    let number =
        |what| client::counted(&output, what).ok_or_else(|| format!("no line `{what}<n>` in:\n{output}"));
    Ok(number("ops ")? as f64 / number("microseconds ")? as f64)
}
