//! The page of a run: its charts, its sentences and its rows.

use std::fmt::Write;

use super::chart::{Axis, Chart, Datum, Form, Series, Source};
use super::svg::Scale;
use super::{Page, escaped, permalink, slug};
use crate::report::Row;
use crate::report::plot::{along_caches, along_time, death, facts, mix_title, slices};
use crate::report::summary::{panels, sentences};
use crate::report::table::{TableColumn, table_columns};
use crate::{IndexEntry, Titles};

/// Returns the page of `rows`.
pub(crate) fn rows_page(title: &str, rows: &[Row], titles: &Titles) -> String {
    let rows: Vec<Row> = rows.iter().map(|row| named(row, titles)).collect();
    let mut page = Page {
        title: title.to_owned(),
        head: head(&rows),
        ..Page::default()
    };
    page.list("", "summary", "Summary");
    page.body = summary(&rows);
    for (panel, points) in panels(&rows) {
        let id = slug(panel);
        let figure = titles.figure(panel);
        let words = figure.map_or(panel.to_owned(), |figure| format!("{figure}: {panel}"));
        page.list("Charts", &id, &words);
        let _ = write!(
            page.body,
            "<h2 id=\"{id}\">{}{}</h2>",
            escaped(panel),
            permalink(&id, "this part")
        );
        if let Some(figure) = figure {
            let _ = write!(
                page.body,
                "<p class=\"facts\">The workload and axes of {}.</p>",
                escaped(figure)
            );
        }
        page.body += "<div class=\"charts\">";
        for chart in charts(panel, &points) {
            page.body += &chart.figure();
        }
        page.body += "</div>";
    }
    page.list("", "rows", "All points");
    page.body += &table(&rows);
    page.html()
}

/// Returns the row with the names that papers use for the index, the variant and the workload.
fn named(row: &Row, titles: &Titles) -> Row {
    let mut row = row.clone();
    row.panel = mix_title(row.panel_title());
    if let Some(title) = titles.of(&row.index, &row.variant) {
        (row.index, row.variant) = (title.to_owned(), String::new());
    } else if row.variant == IndexEntry::DEFAULT {
        row.variant.clear();
    }
    row
}

fn head(rows: &[Row]) -> String {
    let (checked, wrong) = rows.iter().fold((0, 0), |(checked, wrong), row| {
        (checked + row.ops, wrong + row.wrong_values)
    });
    format!(
        "<p class=\"lead\">{}.</p><p class=\"facts\">{checked} operations; every value that was read was checked: \
         {wrong} wrong. Throughput is in million operations per second (Mops). The numbers beside points are client \
         threads.</p>",
        escaped(&facts(rows).replace("sim:", "").replace("zipf:", "Zipf "))
    )
}

fn summary(rows: &[Row]) -> String {
    let mut html = "<h2 id=\"summary\">Summary</h2><ul>".to_owned();
    for sentence in sentences(rows) {
        let id = slug(sentence.split(':').next().unwrap_or_default());
        let id = format!("result-{id}");
        let _ = write!(
            html,
            "<li id=\"{id}\">{}{}</li>",
            escaped(&sentence),
            permalink(&id, "this result")
        );
    }
    html + "</ul>"
}

/// A latency of a row with half of its interval of confidence, in microseconds.
type Latency = fn(&Row) -> (f64, Option<f64>);

/// Returns the charts of a panel.
fn charts(panel: &str, points: &[&Row]) -> Vec<Chart> {
    let mut points = points.to_vec();
    points.sort_by_key(|row| row.place());
    if along_time(&points) {
        return vec![timeline(panel, &points)];
    }
    if along_caches(&points) {
        let megabytes = |row: &Row| row.cache_limit_bytes.max(1) as f64 / 1e6;
        let interval = |row: &Row| row.mops_ci95.map(|half| (row.mops - half, row.mops + half));
        return vec![Chart {
            id: format!("{}-throughput", slug(panel)),
            title: format!("{panel}: throughput"),
            x: Axis::new("cache of a compute node (MB)", Scale::Log),
            y: Axis::new("throughput (Mops)", Scale::Linear),
            series: series(&points, |row| {
                (megabytes(row), row.mops, interval(row), String::new())
            }),
            ..frame()
        }];
    }
    let p50: Latency = |row| (row.p50_us, row.p50_us_ci95);
    let p99: Latency = |row| (row.p99_us, row.p99_us_ci95);
    let latencies = [
        ("median latency", "p50", p50),
        ("99th percentile of latency", "p99", p99),
    ];
    let chart = |(words, name, of): (&str, &str, Latency)| Chart {
        id: format!("{}-{name}", slug(panel)),
        title: format!("{panel}: {words}"),
        x: Axis::new("throughput (Mops)", Scale::Linear),
        y: Axis::new(&format!("{name} latency (µs)"), Scale::Log),
        series: series(&points, |row| {
            let (latency, half) = of(row);
            let range = half.map(|half| ((latency - half).max(latency / 10.0), latency + half));
            (row.mops, latency, range, row.clients.to_string())
        }),
        label: "client threads".to_owned(),
        ..frame()
    };
    latencies.map(chart).into()
}

/// Returns a chart with the settings that all charts of rows share.
fn frame() -> Chart {
    Chart {
        id: String::new(),
        title: String::new(),
        x: Axis::new("", Scale::Linear),
        y: Axis::new("", Scale::Linear),
        form: Form::Lines,
        series: Vec::new(),
        label: String::new(),
        more: ["limited by", "busiest resource", "busy"]
            .map(str::to_owned)
            .into(),
        moment: None,
    }
}

/// A point: both values, the range of the vertical one, and the label.
type At = (f64, f64, Option<(f64, f64)>, String);

fn series(points: &[&Row], at: impl Fn(&Row) -> At) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for row in points {
        let (x, y, range, label) = at(row);
        // A logarithmic axis has no place for 0.
        if !(y.is_finite() && y > 0.0) {
            continue;
        }
        let datum = Datum {
            x,
            y,
            range,
            label,
            more: binding(row),
        };
        let name = row.series();
        match all.iter_mut().find(|known| known.name == name) {
            Some(known) => known.data.push(datum),
            None => all.push(Series {
                name,
                source: Source::Ours,
                data: vec![datum],
            }),
        }
    }
    all
}

/// Returns what limits a row, its busiest resource, and how busy that is.
fn binding(row: &Row) -> Vec<String> {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    vec![
        row.limit.clone().unwrap_or_default(),
        row.bound_by.clone().unwrap_or_default(),
        row.bound_share.map(percent).unwrap_or_default(),
    ]
}

/// Returns the chart of the throughput over time, with the first death of a compute node.
fn timeline(panel: &str, points: &[&Row]) -> Chart {
    let of = |row: &&Row| Series {
        name: row.series(),
        source: Source::Ours,
        data: slices(row)
            .into_iter()
            .map(|(x, y)| Datum {
                x,
                y,
                ..Datum::default()
            })
            .collect(),
    };
    let died = points.iter().find_map(|row| death(row));
    Chart {
        id: format!("{}-over-time", slug(panel)),
        title: format!("{panel}: throughput over time"),
        x: Axis::new("time (ms)", Scale::Linear),
        y: Axis::new("throughput (Mops)", Scale::Linear),
        form: Form::Trace,
        series: points.iter().map(of).collect(),
        more: Vec::new(),
        moment: died.map(|at| (at, "a compute node dies".to_owned())),
        ..frame()
    }
}

fn table(rows: &[Row]) -> String {
    let mut html =
        "<h2 id=\"rows\">All points</h2><div class=\"scroll rows\" tabindex=\"0\" role=\"region\" \
                    aria-label=\"All points\"><table><thead><tr>"
            .to_owned();
    let columns = table_columns(rows);
    for column in &columns {
        let _ = write!(
            html,
            "<th scope=\"col\"{}>{}</th>",
            class(column),
            escaped(column.header)
        );
    }
    html += "</tr></thead><tbody>";
    for row in rows {
        html += "<tr>";
        for column in &columns {
            let _ = write!(html, "<td{}>{}</td>", class(column), escaped(&(column.cell)(row)));
        }
        html += "</tr>\n";
    }
    html + "</tbody></table></div><p class=\"soft\">Trips, verbs and bytes are per operation; the cache is everything that \
            a compute node holds. <code>rows.csv</code> beside this page has every column.</p>"
}

fn class(column: &TableColumn) -> &'static str {
    if column.is_words { "" } else { " class=\"n\"" }
}

#[cfg(test)]
mod tests {
    use super::super::super::samples::samples;
    use super::*;

    #[test]
    fn the_page_holds_every_row_every_sentence_and_every_point() {
        let mut rows = samples();
        rows[0].index = "a<b".to_owned();
        let html = rows_page("t & u", &rows, &Titles::default());
        assert!(html.contains("<h1>t &amp; u</h1>") && !html.contains("a<b"));
        // Each of the 54 rows is a point of two charts, with a row in the table of each.
        assert_eq!(html.matches("data-r=").count(), 2 * rows.len());
        assert_eq!(html.matches("<th scope=\"row\">").count(), 2 * rows.len());
        assert_eq!(html.matches("<tr><td>").count(), rows.len());
        for words in [
            "YCSB LOAD: median latency",
            "mn rx",
            "p99 latency (µs)",
            "href=\"#result-ycsb-a\"",
        ] {
            assert!(html.contains(words), "{words}");
        }
    }

    #[test]
    fn indexes_have_the_names_of_the_papers() {
        let mut titles = Titles::default();
        titles.add("sherman", "published", "Sherman");
        let html = rows_page("t", &samples(), &titles);
        assert!(html.contains(">Sherman</text>") && !html.contains("sherman (published)"));
    }

    #[test]
    fn caches_and_time_have_their_own_charts() {
        let mut rows = samples();
        rows.truncate(6);
        for (cache, row) in (1..).zip(&mut rows) {
            (row.clients, row.cache_limit_bytes) = (160, cache * 1_000_000);
        }
        let html = rows_page("t", &rows, &Titles::default());
        assert!(html.contains("cache of a compute node (MB)") && html.matches("data-r=").count() == 6);
        rows.truncate(1);
        (rows[0].timeline, rows[0].slice_us) = ("1000 500+3".to_owned(), 500.0);
        rows[0].kills = "at 0.4 ms".to_owned();
        let html = rows_page("t", &rows, &Titles::default());
        assert!(html.contains("time (ms)") && html.contains("a compute node dies"));
    }
}
