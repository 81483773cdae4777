//! Rows of several client machines, combined into one row per point.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;

use super::{Latencies, Row, read_json_lines};
use crate::Output;
use crate::cluster::Machine;

/// Reads files of JSON lines, and shows one row for each point over all machines.
///
/// # Errors
/// Returns an error for a file that can't be read, and for rows that are not those of all machines of a run.
pub fn merge(files: &[PathBuf], output: &Output) -> io::Result<bool> {
    let mut rows = Vec::new();
    for file in files {
        let named = |e: String| io::Error::other(format!("{}: {e}", file.display()));
        let opened = File::open(file).map_err(|e| named(e.to_string()))?;
        rows.extend(read_json_lines(BufReader::new(opened)).map_err(|e| named(e.to_string()))?);
    }
    let merged = merged(rows).map_err(io::Error::other)?;
    crate::job::show("dmkit, several client machines", &merged, output)
}

/// Returns the fields that must be equal for rows to be parts of one point.
fn point(row: &Row) -> impl PartialEq + use<'_> {
    let (a, b) = (&row.index, &row.variant);
    (
        a,
        b,
        &row.workload,
        &row.distribution,
        row.clients,
        row.keys,
        row.seed,
    )
}

fn merged(mut rows: Vec<Row>) -> Result<Vec<Row>, String> {
    let mut points = Vec::new();
    while let Some(first) = (!rows.is_empty()).then(|| rows.remove(0)) {
        let (parts, others) = rows.into_iter().partition(|row| point(row) == point(&first));
        rows = others;
        points.push(one(first, parts)?);
    }
    Ok(points)
}

/// Returns the number of a row's machine, and the number of machines.
fn machine(row: &Row) -> Result<(u16, u16), String> {
    let parsed: Machine = row.machine.parse().map_err(|_| {
        format!(
            "a row of {} under {} is of no client machine: only `--fabric ib:…` rows are merged",
            row.index, row.workload
        )
    })?;
    Ok((parsed.number, parsed.of))
}

fn one(first: Row, parts: Vec<Row>) -> Result<Row, String> {
    let mut all = vec![first];
    all.extend(parts);
    let of = machine(&all[0])?.1;
    let mut seen = Vec::new();
    for row in &all {
        let (number, its) = machine(row)?;
        if its != of || seen.contains(&number) {
            return Err(format!(
                "{} under {}: machine {} is there twice, or of another run",
                row.index, row.workload, row.machine
            ));
        }
        seen.push(number);
    }
    if seen.len() != usize::from(of) {
        return Err(format!(
            "{} under {}: {} of {of} machines",
            all[0].index,
            all[0].workload,
            seen.len()
        ));
    }
    let ops: u64 = all.iter().map(|row| row.ops).sum();
    // All machines began together, so the last end counts.
    let seconds = all
        .iter()
        .map(|row| row.ops as f64 / row.mops.max(f64::MIN_POSITIVE));
    let seconds = seconds.fold(0.0, f64::max);
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
        mops: ops as f64 / seconds.max(f64::MIN_POSITIVE),
        p50_us: latencies.quantile_us(0.5),
        p99_us: latencies.quantile_us(0.99),
        round_trips: mean(|row| row.round_trips),
        verbs: mean(|row| row.verbs),
        bytes_read: mean(|row| row.bytes_read),
        bytes_written: mean(|row| row.bytes_written),
        lock_retries: mean(|row| row.lock_retries),
        torn_reads: mean(|row| row.torn_reads),
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
            round_trips: ops as f64 / 100.0,
            latencies: latencies.to_owned(),
            wrong_values: 1,
            ..Row::default()
        }
    }

    #[test]
    fn throughput_is_all_operations_until_the_last_end() {
        // 100 operations in 100 µs, 300 in 150 µs.
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
        let twice = merged(vec![row("0/2", 1, 1.0, ""), row("0/2", 1, 1.0, "")]).unwrap_err();
        assert!(twice.contains("twice"), "{twice}");
        assert!(
            merged(vec![row("", 1, 1.0, "")])
                .unwrap_err()
                .contains("no client machine")
        );
    }
}
