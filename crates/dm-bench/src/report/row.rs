//! One measured or modelled point, and its two file formats.

use std::fmt;
use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use super::Latencies;
use crate::{Fabric, Measured, Point};

/// One index at one client count under one workload. Counts "per op" are averages over the timed operations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The index.
    pub index: String,
    /// The preset or the techniques switched on.
    pub variant: String,
    /// The mix.
    pub workload: String,
    /// The panel of a figure to which it belongs, if that is not its workload's.
    #[serde(default)]
    pub panel: String,
    /// The distribution of keys, with the number of ranks if that differs from the number of keys.
    pub distribution: String,
    /// The world and its preset.
    pub fabric: String,
    /// Whether time is the model's and not the machine's.
    pub simulated: bool,
    /// Clients of all compute nodes.
    pub clients: u32,
    /// Keys loaded.
    pub keys: u64,
    /// Operations timed.
    pub ops: u64,
    /// Throughput in millions of operations per second.
    pub mops: f64,
    /// The maximum that the RNICs allow for these verbs, in the same unit.
    pub bound_mops: Option<f64>,
    /// The resource that limits this bound.
    pub bound_by: Option<String>,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// 99th percentile of latency in microseconds.
    pub p99_us: f64,
    /// Round trips waited for, per op.
    pub round_trips: f64,
    /// Verbs posted, per op.
    pub verbs: f64,
    /// Payload bytes read, per op.
    pub bytes_read: f64,
    /// Payload bytes written, per op.
    pub bytes_written: f64,
    /// Failed attempts to lock, per op.
    pub lock_retries: f64,
    /// Reads repeated because they were torn, per op.
    pub torn_reads: f64,
    /// Gets that another client's READ answered, per op.
    #[serde(default)]
    pub delegated: f64,
    /// Writes that another client's write superseded, per op.
    #[serde(default)]
    pub combined: f64,
    /// The whole index cache of one compute node, in bytes.
    pub cache_bytes: u64,
    /// Other bytes of one compute node: lock and combining tables.
    pub local_bytes: u64,
    /// Memory-node bytes per key.
    pub remote_bytes_per_key: f64,
    /// Reads that returned a value which is not one whole write of their key. If this is not 0, the row is
    /// invalid.
    pub wrong_values: u64,
    /// The seed of the run.
    pub seed: u64,
    /// The world's promises and assumptions, separated by `; `.
    pub assumptions: String,
    /// The number of the client machine that measured it, and their total; empty if there is one row for all.
    #[serde(default)]
    pub machine: String,
    /// Its latencies, `nanoseconds:count`, to be combined with the other machines'.
    #[serde(default)]
    pub latencies: String,
}

impl Row {
    /// Returns the row of a point and its result.
    pub fn of(point: &Point, m: &Measured) -> Self {
        let at = &point.setting;
        let ops = m.ops.max(1) as f64;
        let per_op = |n: u64| n as f64 / ops;
        let c = &m.counters;
        let micros = |q| m.latency.value_at_quantile(q) as f64 / 1e3;
        let assumptions = match &at.fabric {
            Fabric::Sim(model) => model
                .assumptions()
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; "),
            Fabric::Ib(_) => m.promises.clone().unwrap_or_default(),
            Fabric::Loopback => "in-process memory, lines never torn, CAS→READ in order".to_owned(),
        };
        let ranks = if at.ranks > at.keys {
            format!(" of {}", at.ranks)
        } else {
            String::new()
        };
        // `dmkit merge` combines rows of several machines.
        let (machine, latencies) = match &at.fabric {
            Fabric::Ib(cluster) => (cluster.machine.to_string(), Latencies::text(&m.latency)),
            _ => Default::default(),
        };
        Self {
            index: point.index.clone(),
            variant: point.techniques(),
            workload: at.mix.to_string(),
            panel: point.panel.clone(),
            distribution: match at.trace {
                Some(_) => "trace".to_owned(),
                None => format!("{}{ranks}", at.distribution),
            },
            fabric: at.fabric.name(),
            simulated: at.fabric.is_simulated(),
            clients: at.clients,
            keys: at.keys,
            ops: m.ops,
            mops: ops / m.seconds / 1e6,
            bound_mops: m.bound.as_ref().map(|b| b.mops),
            bound_by: m.bound.as_ref().map(|b| b.limit.to_string()),
            p50_us: micros(0.5),
            p99_us: micros(0.99),
            round_trips: per_op(c.round_trips),
            verbs: per_op(c.verbs()),
            bytes_read: per_op(c.bytes_read),
            bytes_written: per_op(c.bytes_written),
            lock_retries: per_op(c.lock_retries),
            torn_reads: per_op(c.torn_reads),
            delegated: per_op(c.delegated),
            combined: per_op(c.combined),
            cache_bytes: m.cache_bytes,
            local_bytes: m.local_bytes,
            remote_bytes_per_key: m.remote_bytes as f64 / m.keys.max(1) as f64,
            wrong_values: m.wrong_values,
            seed: at.seed,
            assumptions,
            machine,
            latencies,
        }
    }
}

impl Row {
    /// Returns the name of the row's curve in a legend.
    pub fn series(&self) -> String {
        if self.variant.is_empty() {
            self.index.clone()
        } else {
            format!("{} ({})", self.index, self.variant)
        }
    }

    /// Returns the panel to which it belongs: its own, or its workload's.
    pub fn panel_title(&self) -> &str {
        if self.panel.is_empty() {
            &self.workload
        } else {
            &self.panel
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
pub enum RowError {
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
pub fn write_csv(rows: &[Row], to: impl Write) -> Result<(), RowError> {
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
pub fn write_json_lines(rows: &[Row], mut to: impl Write) -> Result<(), RowError> {
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
pub fn read_json_lines(from: impl BufRead) -> Result<Vec<Row>, RowError> {
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
