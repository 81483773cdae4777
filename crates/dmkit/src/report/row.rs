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
    /// Which keys, with the count of ranks where it is not the count of keys.
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
    /// The most that the NICs allow for these verbs, in the same unit.
    pub(crate) bound_mops: Option<f64>,
    /// Which resource that bound is of.
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
    /// Writes that another client's write covered, per op.
    #[serde(default)]
    pub(crate) combined: f64,
    /// The index cache of one compute node, all of it, in bytes.
    pub(crate) cache_bytes: u64,
    /// What one compute node holds besides: lock and combining tables, in bytes.
    pub(crate) local_bytes: u64,
    /// Memory-node bytes per key.
    pub(crate) remote_bytes_per_key: f64,
    /// Reads that returned a value which is not one whole write of their key. Anything but 0 voids the row.
    pub(crate) wrong_values: u64,
    /// What the run was drawn from.
    pub(crate) seed: u64,
    /// What the world promised or was told to assume, separated by `; `.
    pub(crate) assumptions: String,
    /// Which of how many client machines measured it; empty where there is one row for all.
    #[serde(default)]
    pub(crate) machine: String,
    /// Its latencies, `nanoseconds:count`, to be put together with the other machines'.
    #[serde(default)]
    pub(crate) latencies: String,
}

impl Row {
    /// How a legend names the row's curve.
    pub(crate) fn series(&self) -> String {
        if self.variant.is_empty() {
            self.index.clone()
        } else {
            format!("{} ({})", self.index, self.variant)
        }
    }

    /// The first figure that is not a number, by column.
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

/// Why rows could not be written or read.
#[derive(Debug)]
pub(crate) enum RowError {
    /// A figure is infinite or not a number; neither format has a word for it.
    NotFinite {
        /// Which row, from 0.
        row: usize,
        /// Its column.
        column: &'static str,
    },
    /// A line is not a row.
    Line {
        /// Which line, from 1.
        line: usize,
        /// What the parser says.
        why: serde_json::Error,
    },
    /// The file itself.
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
/// [`RowError`] if a figure is not finite (nothing is written then), or `to` fails.
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
/// As [`write_csv`].
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
/// [`RowError::Line`] for the first line that is not a row.
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
