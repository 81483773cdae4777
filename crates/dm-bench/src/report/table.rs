//! Rows as an aligned table for a terminal.

use std::collections::HashSet;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::row::Row;

/// A column of the table.
pub(super) struct TableColumn {
    pub(super) header: &'static str,
    /// The first column of a row that a cell shows.
    of: &'static str,
    /// Whether the column contains words. Other columns are right-aligned.
    pub(super) is_words: bool,
    pub(super) cell: fn(&Row) -> String,
}

const fn words(header: &'static str, of: &'static str, cell: fn(&Row) -> String) -> TableColumn {
    TableColumn {
        header,
        of,
        is_words: true,
        cell,
    }
}

const fn figures(header: &'static str, of: &'static str, cell: fn(&Row) -> String) -> TableColumn {
    TableColumn {
        header,
        of,
        is_words: false,
        cell,
    }
}

/// The column of the cache limits. It is shown only if the limits differ.
const CACHE_LIMIT: &str = "cache limit";

const COLUMNS: [TableColumn; 21] = [
    words("panel", "panel", |row| row.panel_title().to_owned()),
    words("index", "index", Row::series),
    figures("clients", "clients", |row| row.clients.to_string()),
    figures(CACHE_LIMIT, "cache_limit_bytes", Row::cache_limit),
    figures("Mops", "mops", |row| within(row.mops, row.mops_ci95)),
    figures("bound", "bound_mops", |row| {
        row.bound_mops.map(figure).unwrap_or_default()
    }),
    figures("busy", "bound_share", |row| {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        row.bound_share.map(percent).unwrap_or_default()
    }),
    words("limit", "limit", |row| row.limit.clone().unwrap_or_default()),
    figures("mean µs", "mean_us", |row| figure(row.mean_us)),
    figures("p50 µs", "p50_us", |row| within(row.p50_us, row.p50_us_ci95)),
    figures("p90 µs", "p90_us", |row| figure(row.p90_us)),
    figures("p99 µs", "p99_us", |row| within(row.p99_us, row.p99_us_ci95)),
    figures("p99.9 µs", "p999_us", |row| figure(row.p999_us)),
    figures("max µs", "max_us", |row| figure(row.max_us)),
    figures("trips", "round_trips", |row| format!("{:.2}", row.round_trips)),
    figures("verbs", "verbs", |row| format!("{:.2}", row.verbs)),
    figures("B read", "bytes_read", |row| figure(row.bytes_read)),
    figures("B written", "bytes_written", |row| figure(row.bytes_written)),
    figures("cache", "cache_bytes", |row| {
        bytes(row.cache_bytes + row.local_bytes)
    }),
    figures("MN B/key", "remote_bytes_per_key", |row| {
        figure(row.remote_bytes_per_key)
    }),
    figures("wrong", "wrong_values", |row| {
        let wrong = if row.wrong_values > 0 { "WRONG " } else { "" };
        format!("{wrong}{}", row.wrong_values)
    }),
];

/// Returns the header of the table's column that shows a column of a row.
pub(super) fn header_of(column: &str) -> Option<&'static str> {
    let shown = COLUMNS.iter().find(|shown| shown.of == column)?;
    Some(shown.header)
}

/// Returns the columns of a table of these rows.
pub(super) fn table_columns(rows: &[Row]) -> Vec<&'static TableColumn> {
    let limits: HashSet<u64> = rows.iter().map(|row| row.cache_limit_bytes).collect();
    COLUMNS
        .iter()
        .filter(|column| column.header != CACHE_LIMIT || limits.len() > 1)
        .collect()
}

/// Returns a table of the rows in their order, with an empty line between panels. Round trips, verbs and bytes read and
/// written are per operation. The cache column contains all memory of a compute node. The table is plain text, so that
/// it is the same in a terminal, a pipe and a log.
pub fn table(rows: &[Row]) -> String {
    let columns = table_columns(rows);
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(columns.iter().map(|column| column.header));
    let mut last: Option<&str> = None;
    for row in rows {
        if last.is_some_and(|last| last != row.panel_title()) {
            table.add_row(vec![""; columns.len()]);
        }
        last = Some(row.panel_title());
        table.add_row(columns.iter().map(|column| (column.cell)(row)));
    }
    for (cells, column) in table.column_iter_mut().zip(columns) {
        cells.set_padding((0, 2));
        if !column.is_words {
            cells.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
        .lines()
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

/// Formats a mean with half of its 95 % interval, if it has one.
fn within(mean: f64, half: Option<f64>) -> String {
    match half {
        Some(half) => format!("{} ±{}", figure(mean), figure(half)),
        None => figure(mean),
    }
}

/// Formats a number with three significant digits, but with at most three decimals, and with every digit before the
/// decimal point.
pub fn figure(figure: f64) -> String {
    let decimals = match figure.abs() {
        0.0 => return "0".to_owned(),
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.999_5 => 2,
        _ => 3,
    };
    let text = format!("{figure:.decimals$}");
    // From 10,000 on, the last three digits are set apart, because latencies reach tens of thousands of microseconds.
    match text.len() {
        5.. if decimals == 0 => format!("{} {}", &text[..text.len() - 3], &text[text.len() - 3..]),
        _ => text,
    }
}

/// Returns the bytes in the smallest unit in which the number is below 1000, or in TB.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KB", "MB", "GB", "TB"];
    let mut size = count as f64;
    let mut unit = 0;
    while size >= 1000.0 && unit + 1 < UNITS.len() {
        size /= 1000.0;
        unit += 1;
    }
    format!("{} {}", figure(size), UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::super::samples::samples;
    use super::*;

    #[test]
    fn every_header_belongs_to_a_column_of_its_own() {
        for shown in &COLUMNS {
            assert!(
                Row::COLUMNS.iter().any(|column| column.name == shown.of),
                "{}",
                shown.of
            );
            assert_eq!(header_of(shown.of), Some(shown.header));
        }
        assert_eq!(header_of("commit"), None);
    }

    #[test]
    fn columns_line_up_and_mixes_are_apart() {
        let mut rows = samples();
        rows.retain(|row| row.clients == 64 && row.workload != "load");
        let text = table(&rows);
        println!("{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 3 + 1 + 3);
        assert_eq!(lines[4].trim(), "", "a line between c and a");
        // The columns are right-aligned, so "Mops" and all figures below it end at the same place.
        let end = lines[0].chars().collect::<String>().find("Mops").unwrap() + 4;
        for line in [1, 2, 3, 5, 6, 7].map(|at| lines[at]) {
            let upto: String = line.chars().take(end).collect();
            assert!(upto.ends_with(|last: char| last.is_ascii_digit()), "{line}");
            assert_eq!(line.chars().nth(end), Some(' '), "{line}");
        }
        assert!(lines[1].starts_with("c      sherman"), "{}", lines[1]);
        assert!(text.contains("sherman (published)") && text.contains("516 KB"));
    }

    #[test]
    fn means_of_several_seeds_show_their_interval() {
        let mut rows = samples();
        rows.truncate(2);
        assert!(!table(&rows).contains('±'));
        rows[1].mops_ci95 = Some(0.123_4);
        let text = table(&rows);
        assert!(
            text.contains(&format!("{} ±0.123", figure(rows[1].mops))),
            "{text}"
        );
    }

    #[test]
    fn limits_of_caches_are_shown_if_they_differ() {
        let mut rows = samples();
        rows.truncate(2);
        assert!(!table(&rows).contains(CACHE_LIMIT));
        (rows[0].cache_limit_bytes, rows[1].cache_limit_bytes) = (125_000, 32_000_000);
        let text = table(&rows);
        for (line, told) in text.lines().zip([CACHE_LIMIT, "0.125 MB", "32 MB"]) {
            assert!(line.contains(told), "{text}");
        }
    }

    #[test]
    fn a_row_with_wrong_values_stands_out() {
        let mut rows = samples();
        rows[1].wrong_values = 12;
        let text = table(&rows);
        let marked: Vec<_> = text
            .lines()
            .enumerate()
            .filter(|(_, line)| line.contains("WRONG"))
            .collect();
        assert!(
            matches!(marked.as_slice(), [(2, line)] if line.ends_with("  WRONG 12")),
            "{marked:?}"
        );
    }

    #[test]
    fn figures_have_three_digits() {
        let all = [0.0, 0.013, 0.999_6, 1.234, 9.996, 12.34, 99.97, 1234.5, 19_890.0].map(figure);
        assert_eq!(
            all,
            [
                "0", "0.013", "1.00", "1.23", "10.0", "12.3", "100", "1234", "19 890"
            ]
        );
        assert_eq!(
            [999, 1_000, 27_600_000].map(bytes),
            ["999 B", "1.00 KB", "27.6 MB"]
        );
    }
}
