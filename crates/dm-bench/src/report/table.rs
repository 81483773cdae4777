//! Rows as an aligned table for a terminal.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::row::Row;

/// Columns of words; the others are right-aligned.
const WORDS: [usize; 3] = [0, 1, 5];

/// Returns whether a column holds words.
pub(super) fn is_word(column: usize) -> bool {
    WORDS.contains(&column)
}

pub(super) const HEADERS: [&str; 19] = [
    "panel",
    "index",
    "clients",
    "Mops",
    "bound",
    "by",
    "mean µs",
    "p50 µs",
    "p90 µs",
    "p99 µs",
    "p99.9 µs",
    "max µs",
    "trips",
    "verbs",
    "B read",
    "B written",
    "cache",
    "MN B/key",
    "wrong",
];

/// Returns the rows in their order, with a line between mixes. Trips, verbs and bytes are per operation; the
/// cache column is everything that a compute node holds. It is plain text: the same in a terminal, a pipe and
/// a log.
pub fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(HEADERS);
    let mut last: Option<&str> = None;
    for row in rows {
        if last.is_some_and(|last| last != row.panel_title()) {
            table.add_row([""; HEADERS.len()]);
        }
        last = Some(row.panel_title());
        table.add_row(cells(row));
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if !is_word(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
        .lines()
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

pub(super) fn cells(row: &Row) -> [String; HEADERS.len()] {
    let wrong = if row.wrong_values > 0 { "WRONG " } else { "" };
    [
        row.panel_title().to_owned(),
        row.series(),
        row.clients.to_string(),
        within(row.mops, row.mops_ci95),
        row.bound_mops.map(figure).unwrap_or_default(),
        row.bound_by.clone().unwrap_or_default(),
        figure(row.mean_us),
        within(row.p50_us, row.p50_us_ci95),
        figure(row.p90_us),
        within(row.p99_us, row.p99_us_ci95),
        figure(row.p999_us),
        figure(row.max_us),
        format!("{:.2}", row.round_trips),
        format!("{:.2}", row.verbs),
        figure(row.bytes_read),
        figure(row.bytes_written),
        bytes(row.cache_bytes + row.local_bytes),
        figure(row.remote_bytes_per_key),
        format!("{wrong}{}", row.wrong_values),
    ]
}

/// Formats a mean with half of its 95 % interval, if it has one.
fn within(mean: f64, half: Option<f64>) -> String {
    match half {
        Some(half) => format!("{} ±{}", figure(mean), figure(half)),
        None => figure(mean),
    }
}

/// Formats three significant digits.
fn figure(figure: f64) -> String {
    let decimals = match figure.abs() {
        0.0 => return "0".to_owned(),
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.999_5 => 2,
        _ => 3,
    };
    format!("{figure:.decimals$}")
}

/// Returns the bytes in the unit that leaves one to four digits before the point.
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
    fn columns_line_up_and_mixes_are_apart() {
        let mut rows = samples();
        rows.retain(|row| row.clients == 64 && row.workload != "load");
        let text = table(&rows);
        println!("{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 3 + 1 + 3);
        assert_eq!(lines[4].trim(), "", "a line between c and a");
        // Right-aligned: the ends of "Mops" and of every figure under it are one column.
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
        let all = [0.0, 0.013, 0.999_6, 1.234, 9.996, 12.34, 99.97, 1234.5].map(figure);
        assert_eq!(all, ["0", "0.013", "1.00", "1.23", "10.0", "12.3", "100", "1234"]);
        assert_eq!(
            [999, 1_000, 27_600_000].map(bytes),
            ["999 B", "1.00 KB", "27.6 MB"]
        );
    }
}
