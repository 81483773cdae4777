//! The output of a run: rows for programs, a table for the terminal, and curves.
//!
//! One [`Row`] is one point: one index at one client count under one workload. Everything else is drawn from rows,
//! so that a file of rows can be plotted again later.

mod latencies;
mod merge;
mod page;
mod plot;
mod row;
mod summary;
mod table;

pub(crate) use latencies::Latencies;
pub use merge::merge;
pub use page::page;
pub use plot::{Curves, PlotError};
pub use row::{Row, RowError, read_json_lines, write_csv, write_json_lines};
pub use summary::sentences;
pub use table::table;

#[cfg(test)]
mod samples;
