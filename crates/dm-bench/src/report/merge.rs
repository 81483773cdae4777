//! Rows of several client machines, combined into one row per point.

use std::io;
use std::path::PathBuf;

use super::columns::Column;
use super::{Latencies, Row};
use crate::Output;
use crate::cluster::Machine;

/// Reads files of JSON lines, and shows one row for each point over all machines. Returns `false` if a wrong value was
/// read.
///
/// # Errors
/// Returns an error if a file cannot be read or written, or if the rows are not those of all machines of a run.
pub fn merge(files: &[PathBuf], output: &Output) -> io::Result<bool> {
    let mut rows = Vec::new();
    for file in files {
        rows.extend(crate::job::read_rows(file)?);
    }
    let merged = merged(rows).map_err(io::Error::other)?;
    crate::job::redraw("dmkit, several client machines", &merged, output)
}

/// Returns whether rows that differ in this column cannot be parts of one point. The parts may differ in what belongs
/// to a machine, for example in its path of the cluster file and in its device's promises.
fn splits(column: &Column) -> bool {
    let own = ["machine", "host", "fabric", "assumptions"].contains(&column.name);
    column.identifies() && !own
}

/// Returns a text that the rows of one point on all machines share, and that differs from every other point's text.
#[cfg(feature = "ib")]
pub(crate) fn common(row: &Row) -> String {
    let values = row.values();
    let columns = Row::COLUMNS.iter().filter(|column| splits(column));
    columns
        .map(|column| format!("{}={} ", column.name, values[column.name]))
        .collect()
}

fn merged(mut rows: Vec<Row>) -> Result<Vec<Row>, String> {
    let all = rows.clone();
    let mut points = Vec::new();
    while let Some(first) = (!rows.is_empty()).then(|| rows.remove(0)) {
        let (parts, others) = rows
            .into_iter()
            .partition(|row| row.difference(&first, splits).is_none());
        rows = others;
        points.push(one(first, parts, &all)?);
    }
    Ok(points)
}

/// Finds the row of another machine that is most similar to `row`, and describes the first difference.
fn nearest(row: &Row, all: &[Row]) -> String {
    let others = all.iter().filter(|other| other.machine != row.machine);
    let difference = row.nearest_difference(others, splits);
    difference.map_or_else(String::new, |difference| {
        format!(": its row and that of another machine differ, {difference}")
    })
}

/// Returns the number of a row's machine, and the number of machines.
fn machine(row: &Row) -> Result<(u16, u16), String> {
    let parsed: Machine = row.machine.parse().map_err(|_| {
        format!(
            "{} was not measured by a client machine: only `--fabric ib:…` rows are merged",
            row.name()
        )
    })?;
    Ok((parsed.number, parsed.of))
}

fn one(first: Row, parts: Vec<Row>, everything: &[Row]) -> Result<Row, String> {
    let mut all = vec![first];
    all.extend(parts);
    let of = machine(&all[0])?.1;
    let mut seen = Vec::new();
    for row in &all {
        let (number, its) = machine(row)?;
        if its != of || seen.contains(&number) {
            return Err(format!(
                "{}: machine {} occurs twice, or belongs to another run",
                row.name(),
                row.machine
            ));
        }
        seen.push(number);
    }
    if seen.len() != usize::from(of) {
        return Err(format!(
            "{}: {} of {of} machines{}",
            all[0].name(),
            seen.len(),
            nearest(&all[0], everything)
        ));
    }
    let ops: u64 = all.iter().map(|row| row.ops).sum();
    // All machines began together, so the run ends when the last machine ends.
    let seconds = all.iter().map(|row| row.seconds).fold(0.0, f64::max);
    let mut latencies = Latencies::none();
    for row in &all {
        latencies.add(&row.latencies)?;
    }
    let mean = |figure: fn(&Row) -> f64| {
        all.iter().map(|row| figure(row) * row.ops as f64).sum::<f64>() / ops.max(1) as f64
    };
    let most = |figure: fn(&Row) -> u64| all.iter().map(figure).max().unwrap_or(0);
    Ok(Row {
        ops,
        mops: ops as f64 / seconds.max(f64::MIN_POSITIVE) / 1e6,
        seconds,
        mean_us: latencies.mean_us(),
        p50_us: latencies.quantile_us(0.5),
        p90_us: latencies.quantile_us(0.9),
        p99_us: latencies.quantile_us(0.99),
        p999_us: latencies.quantile_us(0.999),
        max_us: latencies.quantile_us(1.0),
        round_trips: mean(|row| row.round_trips),
        verbs: mean(|row| row.verbs),
        bytes_read: mean(|row| row.bytes_read),
        bytes_written: mean(|row| row.bytes_written),
        lock_retries: mean(|row| row.lock_retries),
        torn_reads: mean(|row| row.torn_reads),
        lock_waits: mean(|row| row.lock_waits),
        delegated: mean(|row| row.delegated),
        combined: mean(|row| row.combined),
        cache_bytes: most(|row| row.cache_bytes),
        local_bytes: most(|row| row.local_bytes),
        // Each machine counts only its own allocations.
        remote_bytes_per_key: all.iter().map(|row| row.remote_bytes_per_key).sum(),
        wrong_values: all.iter().map(|row| row.wrong_values).sum(),
        machine: String::new(),
        latencies: String::new(),
        ..all.swap_remove(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(machine: &str, ops: u64, mops: f64, latencies: &str) -> Row {
        Row {
            index: "sherman".to_owned(),
            workload: "c".to_owned(),
            clients: 8,
            keys: 1000,
            machine: machine.to_owned(),
            ops,
            mops,
            seconds: ops as f64 / mops / 1e6,
            round_trips: ops as f64 / 100.0,
            latencies: latencies.to_owned(),
            wrong_values: 1,
            ..Row::default()
        }
    }

    #[test]
    fn throughput_is_all_operations_until_the_last_end() {
        // One machine makes 100 operations in 100 µs, the other makes 300 in 150 µs.
        let rows = vec![
            row("0/2", 100, 1.0, "1000:99 9000:1"),
            row("1/2", 300, 2.0, "2000:300"),
        ];
        let [one] = merged(rows).unwrap().try_into().expect("one point");
        assert_eq!((one.ops, one.wrong_values), (400, 2));
        assert!((one.mops - 400.0 / 150.0).abs() < 1e-9, "{}", one.mops);
        assert!((one.round_trips - 2.5).abs() < 1e-9);
        assert!((one.p50_us - 2.0).abs() < 0.01, "{}", one.p50_us);
    }

    #[test]
    fn missing_and_doubled_machines_are_named() {
        let missing = merged(vec![row("0/2", 1, 1.0, "")]).unwrap_err();
        assert!(missing.contains("1 of 2 machines"), "{missing}");
        let mut other = row("1/2", 1, 1.0, "");
        other.value_bytes = 64;
        let told = merged(vec![row("0/2", 1, 1.0, ""), other]).unwrap_err();
        assert!(
            told.contains("1 of 2 machines")
                && told.contains("`value_bytes` is 0 in the first and 64 in the second"),
            "{told}"
        );
        let twice = merged(vec![row("0/2", 1, 1.0, ""), row("0/2", 1, 1.0, "")]).unwrap_err();
        assert!(twice.contains("twice"), "{twice}");
        assert!(
            merged(vec![row("", 1, 1.0, "")])
                .unwrap_err()
                .contains("was not measured by a client machine")
        );
    }
}
