//! Tests crates outside of this workspace that `dmkit new` has written. All of them must be formatted, and must
//! compile. For one of them, this runs its tests, and measures its index together with a shipped index.

use crate::{Result, steps, workspace};
use serde::Deserialize;
use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};
use xshell::{Shell, cmd};

/// The names of the parts of a crate, as arguments of `dmkit new`.
const INNERS: [&str; 3] = ["own", "blink", "separators"];
const LEAVES: [&str; 2] = ["hopscotch", "two-level"];
/// The name of each crate and of its index.
const NAME: &str = "learned-fences";
/// The shipped index with which the first crate is compared.
const BESIDE: &str = "chime";
/// The names of both on the page.
const ON_PAGE: [&str; 2] = [NAME, "CHIME"];
const WORKLOADS: [&str; 4] = ["c", "a", "load", "e"];
const CLIENTS: [&str; 2] = ["16", "64"];

/// A row of `bench --json`.
#[derive(Debug, Deserialize)]
struct Row {
    index: String,
    workload: String,
    clients: u32,
    ops: u64,
    mops: f64,
    wrong_values: u64,
}

/// Writes a crate for each pair of parts. Compiles all of them, runs the tests of the first one, measures it together
/// with [`BESIDE`], and checks the results.
pub(crate) fn run(root: &Path) -> Result<()> {
    let shell = Shell::new()?;
    shell.change_dir(root);
    // The directory is removed at the end, unless a step failed.
    let dir = std::env::temp_dir().join(format!("dmkit-outside-{}", std::process::id()));
    let crates = write(&shell, root, &dir)?;
    let begun = Instant::now();
    // The build of dmkit's crates is stored elsewhere, so it is shared, and is not removed with the directory.
    shell.set_var(
        "CARGO_TARGET_DIR",
        workspace::target_directory(root)?.join("outside"),
    );
    for at in &crates {
        shell.change_dir(at);
        cmd!(shell, "cargo fmt --check").run()?;
        cmd!(shell, "cargo check --quiet --tests").run()?;
    }
    eprintln!(
        "compiled {} crates in {} s",
        crates.len(),
        begun.elapsed().as_secs()
    );
    let at = &crates[0];
    shell.change_dir(at);
    cmd!(shell, "cargo test").run()?;
    let (indexes, workloads, clients) = (format!("{NAME},{BESIDE}"), WORKLOADS.join(","), CLIENTS.join(","));
    let size = ["--keys", "50k", "--ops", "50k", "--cns", "4", "--mns", "4"];
    let rows = cmd!(
        shell,
        "cargo run --quiet -- bench --index {indexes} --workload {workloads} --clients {clients} {size...} --json --out out"
    )
    .read()?;
    let rows: Vec<Row> = rows
        .lines()
        .map(serde_json::from_str)
        .collect::<std::result::Result<_, _>>()?;
    check(&rows)?;
    let latest = at.join("out/latest");
    for file in ["rows.csv", "curves.svg", "curves.png"] {
        if fs::metadata(latest.join(file))?.len() == 0 {
            return Err(format!("{file} is empty").into());
        }
    }
    check_page(&fs::read_to_string(latest.join("index.html"))?)?;
    for row in &rows {
        eprintln!(
            "{} {} with {} clients: {:.1} Mops",
            row.index, row.workload, row.clients, row.mops
        );
    }
    fs::remove_dir_all(dir)?;
    eprintln!("built, tested and measured in {} s", begun.elapsed().as_secs());
    Ok(())
}

/// Writes a crate for each pair of parts, and returns their directories.
fn write(shell: &Shell, root: &Path, dir: &Path) -> Result<Vec<PathBuf>> {
    let dmkit = steps::programs(shell, root)?.join("dmkit");
    let mut crates = Vec::new();
    for inner in INNERS {
        for leaf in LEAVES {
            let at = dir.join(format!("{inner}-{leaf}"));
            let parts = ["--inner", inner, "--leaf", leaf];
            cmd!(shell, "{dmkit} new {NAME} {parts...} --at {at} --dmkit {root}").run()?;
            // The crates use the dependency versions of this workspace, so that a new version of a dependency cannot
            // change the result.
            fs::copy(root.join("Cargo.lock"), at.join("Cargo.lock"))?;
            crates.push(at);
        }
    }
    Ok(crates)
}

/// Checks that both indexes have as many rows as there are pairs of a workload and a number of clients, that each row
/// has operations, and that no wrong value was read.
fn check(rows: &[Row]) -> Result<()> {
    for index in [NAME, BESIDE] {
        let count = rows.iter().filter(|row| row.index == index).count();
        let expected = WORKLOADS.len() * CLIENTS.len();
        if count != expected {
            return Err(format!("{index} has {count} rows, and not {expected}").into());
        }
    }
    match rows
        .iter()
        .find(|row| row.wrong_values > 0 || row.ops == 0 || row.mops <= 0.0)
    {
        Some(row) => Err(format!("a row is no measurement: {row:?}").into()),
        None => Ok(()),
    }
}

/// Checks that both indexes are in the picture, and that all of their rows are in the table.
fn check_page(page: &str) -> Result<()> {
    for index in ON_PAGE {
        let rows = page.matches(&format!("<td>{index}</td>")).count();
        let expected = WORKLOADS.len() * CLIENTS.len();
        let picture = page.split("<svg").nth(1).unwrap_or_default();
        if rows != expected || !picture.contains(index) {
            return Err(format!(
                "the page has {rows} rows of {index}, and not {expected}, or no curve of it"
            )
            .into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_row_and_a_wrong_value_fail() {
        let rows = |wrong_values| {
            let row = |index: &str, workload: &str, clients: &str| Row {
                index: index.to_owned(),
                workload: workload.to_owned(),
                clients: clients.parse().unwrap(),
                ops: 1,
                mops: 1.0,
                wrong_values,
            };
            let mut rows = Vec::new();
            for index in [NAME, BESIDE] {
                for workload in WORKLOADS {
                    rows.extend(CLIENTS.map(|clients| row(index, workload, clients)));
                }
            }
            rows
        };
        check(&rows(0)).unwrap();
        assert!(
            check(&rows(1))
                .unwrap_err()
                .to_string()
                .contains("no measurement")
        );
        assert!(check(&rows(0)[1..]).unwrap_err().to_string().contains("7 rows"));
        let page = |rows| {
            let [mine, theirs] = ON_PAGE;
            let [my_rows, their_rows] = ON_PAGE.map(|index| format!("<td>{index}</td>").repeat(rows));
            format!("<svg>{mine} {theirs}</svg>{my_rows}{their_rows}")
        };
        check_page(&page(8)).unwrap();
        assert!(check_page(&page(7)).is_err());
        assert!(check_page(&page(8).replace("<svg>", "")).is_err());
    }
}
