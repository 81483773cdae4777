//! The output of a run: rows for programs, a table for the terminal, and curves.
//!
//! One [`Row`] is one point: one index with one number of clients and one size of caches under one workload. All other
//! output except the log of latencies is made from rows, so a file of rows can be plotted again later.

mod columns;
mod formats;
mod histogram;
mod latencies;
mod limit;
mod merge;
mod mixed;
pub mod page;
mod plot;
mod point;
mod row;
mod seeds;
mod summary;
mod table;

pub use columns::{Column, Difference, Fold, Kind, columns_page};
pub use formats::{RowError, read_json_lines, write_csv, write_json_lines};
pub(crate) use histogram::HistogramLog;
pub(crate) use latencies::Latencies;
#[cfg(feature = "ib")]
pub(crate) use merge::common;
pub use merge::merge;
pub use mixed::{MixedRows, check_curves};
pub(crate) use page::rows_page;
pub use plot::{Curves, PlotError};
pub use row::Row;
pub use seeds::over_seeds;
pub use summary::sentences;
pub use table::{figure, table};

#[cfg(test)]
pub(crate) mod samples;
