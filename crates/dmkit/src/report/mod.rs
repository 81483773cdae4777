//! The output of a run: rows for programs, a table for the terminal, and curves.
//!
//! One [`Row`] is one point: one index at one client count under one workload. Everything else is drawn from rows,
//! so that a file of rows can be plotted again later.

mod plot;
mod row;
mod table;

pub(crate) use plot::Curves;
pub(crate) use row::{Row, read_json_lines, write_csv, write_json_lines};
pub(crate) use table::table;

#[cfg(test)]
mod samples;
