//! The two file formats of rows.

use std::fmt;
use std::io::{self, BufRead, Write};

use super::Row;

/// The reason why rows could not be written or read.
#[derive(Debug)]
#[non_exhaustive]
pub enum RowError {
    /// A figure is infinite or not a number. JSON cannot express this, so neither format accepts it.
    NotFinite {
        /// The row's number, from 0.
        row: usize,
        /// The column of the figure.
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

impl std::error::Error for RowError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Line { why, .. } => Some(why),
            Self::Io(why) => Some(why),
            _ => None,
        }
    }
}

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

/// Writes a header line and one line per row. Writes nothing if there are no rows.
///
/// # Errors
/// Returns [`RowError`] if a number is not finite (nothing is written then), or if `to` fails.
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
/// Returns [`RowError`] if a number is not finite (nothing is written then), or if `to` fails.
pub fn write_json_lines(rows: &[Row], mut to: impl Write) -> Result<(), RowError> {
    checked(rows)?;
    for row in rows {
        serde_json::to_writer(&mut to, row).map_err(io::Error::from)?;
        to.write_all(b"\n")?;
    }
    Ok(to.flush()?)
}

/// Reads the rows that [`write_json_lines`] wrote. Skips empty lines.
///
/// # Errors
/// Returns [`RowError::Line`] for the first line that is not a row, and [`RowError::Io`] if `from` cannot be read.
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
        rows[1].bound_share = None;
        rows[1].limit = None;
        let mut file = Vec::new();
        write_csv(&rows, &mut file).unwrap();
        let text = String::from_utf8(file).unwrap();
        assert!(text.starts_with("index,variant,sharing,knobs,recovery,panel,workload,distribution,"));
        let read: Result<Vec<Row>, _> = csv::Reader::from_reader(text.as_bytes()).deserialize().collect();
        assert!(read.unwrap() == rows, "some figure changed on its way");
    }

    #[test]
    fn figures_that_are_not_finite_are_refused() {
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
