//! One measured or modelled point, and its two file formats.

use std::fmt;
use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

/// One index at one client count under one workload. Counts "per op" are averages over the timed operations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The index.
    pub(crate) index: String,
    /// The preset or the techniques switched on.
    pub(crate) variant: String,
    /// The mix.
    pub(crate) workload: String,
    /// The distribution of keys, with the number of ranks if that differs from the number of keys.
    pub(crate) distribution: String,
    /// The world and its preset.
    pub(crate) fabric: String,
    /// Whether time is the model's and not the machine's.
    pub(crate) simulated: bool,
    /// Clients of all compute nodes.
    pub(crate) clients: u32,
    /// Keys loaded.
    pub(crate) keys: u64,
    /// Operations timed.
    pub(crate) ops: u64,
    /// Throughput in millions of operations per second.
    pub(crate) mops: f64,
    /// The maximum that the RNICs allow for these verbs, in the same unit.
    pub(crate) bound_mops: Option<f64>,
    /// The resource that limits this bound.
    pub(crate) bound_by: Option<String>,
    /// Median latency in microseconds.
    pub(crate) p50_us: f64,
    /// 99th percentile of latency in microseconds.
    pub(crate) p99_us: f64,
    /// Round trips waited for, per op.
    pub(crate) round_trips: f64,
    /// Verbs posted, per op.
    pub(crate) verbs: f64,
    /// Payload bytes read, per op.
    pub(crate) bytes_read: f64,
    /// Payload bytes written, per op.
    pub(crate) bytes_written: f64,
    /// Failed attempts to lock, per op.
    pub(crate) lock_retries: f64,
    /// Reads repeated because they were torn, per op.
    pub(crate) torn_reads: f64,
    /// Gets that another client's READ answered, per op.
    #[serde(default)]
    pub(crate) delegated: f64,
    /// Writes that another client's write superseded, per op.
    #[serde(default)]
    pub(crate) combined: f64,
    /// The whole index cache of one compute node, in bytes.
    pub(crate) cache_bytes: u64,
    /// Other bytes of one compute node: lock and combining tables.
    pub(crate) local_bytes: u64,
    /// Memory-node bytes per key.
    pub(crate) remote_bytes_per_key: f64,
    /// Reads that returned a value which is not one whole write of their key. If this is not 0, the row is
    /// invalid.
    pub(crate) wrong_values: u64,
    /// The seed of the run.
    pub(crate) seed: u64,
    /// The world's promises and assumptions, separated by `; `.
    pub(crate) assumptions: String,
    /// The number of the client machine that measured it, and their total; empty if there is one row for all.
    #[serde(default)]
    pub(crate) machine: String,
    /// Its latencies, `nanoseconds:count`, to be combined with the other machines'.
    #[serde(default)]
    pub(crate) latencies: String,
}

impl Row {
    /// Returns the name of the row's curve in a legend.
    pub(crate) fn series(&self) -> String {
        if self.variant.is_empty() {
            self.index.clone()
        } else {
            format!("{} ({})", self.index, self.variant)
        }
    }

    /// Returns the column of the first figure that is not a number.
    fn not_finite(&self) -> Option<&'static str> {
        let figures = [
            ("mops", self.mops),
            ("bound_mops", self.bound_mops.unwrap_or_default()),
            ("p50_us", self.p50_us),
            ("p99_us", self.p99_us),
            ("round_trips", self.round_trips),
            ("verbs", self.verbs),
            ("bytes_read", self.bytes_read),
            ("bytes_written", self.bytes_written),
            ("lock_retries", self.lock_retries),
            ("torn_reads", self.torn_reads),
            ("delegated", self.delegated),
            ("combined", self.combined),
            ("remote_bytes_per_key", self.remote_bytes_per_key),
        ];
        figures
            .into_iter()
            .find(|(_, figure)| !figure.is_finite())
            .map(|(column, _)| column)
    }
}

/// The reason why rows could not be written or read.
#[derive(Debug)]
pub(crate) enum RowError {
    /// A figure is infinite or not a number, which neither format can express.
    NotFinite {
        /// The row's number, from 0.
        row: usize,
        /// Its column.
        column: &'static str,
    },
    /// A line is not a row.
    Line {
        /// The line's number, from 1.
        line: usize,
        /// The parser's error.
        why: serde_json::Error,
    },
    /// The file could not be read or written.
    Io(io::Error),
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFinite { row, column } => write!(f, "row {row}: {column} is not a finite number"),
            Self::Line { line, why } => write!(f, "line {line} is not a row: {why}"),
            Self::Io(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for RowError {}

impl From<io::Error> for RowError {
    fn from(why: io::Error) -> Self {
        Self::Io(why)
    }
}

fn checked(rows: &[Row]) -> Result<(), RowError> {
    rows.iter()
        .enumerate()
        .try_for_each(|(row, figures)| match figures.not_finite() {
            Some(column) => Err(RowError::NotFinite { row, column }),
            None => Ok(()),
        })
}

/// Writes a header line and one line per row.
///
/// # Errors
/// Returns [`RowError`] if a figure is not finite (nothing is written then), or if `to` fails.
pub(crate) fn write_csv(rows: &[Row], to: impl Write) -> Result<(), RowError> {
    checked(rows)?;
    let mut csv = csv::Writer::from_writer(to);
    for row in rows {
        csv.serialize(row).map_err(io::Error::from)?;
    }
    Ok(csv.flush()?)
}

/// Writes one JSON object per line.
///
/// # Errors
/// The same as [`write_csv`].
pub(crate) fn write_json_lines(rows: &[Row], mut to: impl Write) -> Result<(), RowError> {
    checked(rows)?;
    for row in rows {
        serde_json::to_writer(&mut to, row).map_err(io::Error::from)?;
        to.write_all(b"\n")?;
    }
    Ok(to.flush()?)
}

/// Reads what [`write_json_lines`] wrote; empty lines are skipped.
///
/// # Errors
/// Returns [`RowError::Line`] for the first line that is not a row.
pub(crate) fn read_json_lines(from: impl BufRead) -> Result<Vec<Row>, RowError> {
    let mut rows = Vec::new();
    for (line, text) in (1..).zip(from.lines()) {
        let text = text?;
        if !text.trim().is_empty() {
            rows.push(serde_json::from_str(&text).map_err(|why| RowError::Line { line, why })?);
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::super::samples::samples;
    use super::*;

    #[test]
    fn json_lines_come_back_as_they_were() {
        let rows = samples();
        let mut file = Vec::new();
        write_json_lines(&rows, &mut file).unwrap();
        assert_eq!(file.iter().filter(|&&byte| byte == b'\n').count(), rows.len());
        assert!(
            read_json_lines(file.as_slice()).unwrap() == rows,
            "some figure changed on its way"
        );
    }

    #[test]
    fn csv_comes_back_as_it_was_with_commas_and_gaps() {
        let mut rows = samples();
        rows[0].assumptions = "CAS before READ, serialised; \"line\" atomic".to_owned();
        rows[1].bound_mops = None;
        rows[1].bound_by = None;
        let mut file = Vec::new();
        write_csv(&rows, &mut file).unwrap();
        let text = String::from_utf8(file).unwrap();
        assert!(
            text.starts_with("index,variant,workload,distribution,fabric,simulated,clients,keys,ops,mops,")
        );
        let read: Result<Vec<Row>, _> = csv::Reader::from_reader(text.as_bytes()).deserialize().collect();
        assert!(read.unwrap() == rows, "some figure changed on its way");
    }

    #[test]
    fn what_neither_format_can_say_is_refused() {
        let mut rows = samples();
        rows[2].p99_us = f64::NAN;
        let mut file = Vec::new();
        for written in [write_csv(&rows, &mut file), write_json_lines(&rows, &mut file)] {
            assert_eq!(
                written.unwrap_err().to_string(),
                "row 2: p99_us is not a finite number"
            );
        }
        assert!(file.is_empty());
    }

    #[test]
    fn a_broken_line_is_named() {
        let mut file = Vec::new();
        write_json_lines(&samples()[..1], &mut file).unwrap();
        file.extend_from_slice(b"\n{\"index\": 3}\n");
        let wrong = read_json_lines(file.as_slice()).unwrap_err();
        assert!(wrong.to_string().starts_with("line 3 is not a row: "), "{wrong}");
    }
}
