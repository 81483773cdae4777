//! A run as one HTML page that needs no network and no script.

use std::fmt::Write;

use super::table::{TableColumn, table_columns};
use super::{Row, sentences};

/// Colours and sizes of the page. The page uses dark colours if the reader's system does.
const STYLE: &str = "\
:root { color-scheme: light dark; --ink: #222; --pale: #666; --line: #ddd; --paper: #fff; } \
@media (prefers-color-scheme: dark) { :root { --ink: #eee; --pale: #aaa; --line: #444; --paper: #1b1b1b; } } \
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 76rem; \
margin: 0 auto; padding: 1rem; } \
figure { margin: 1.5rem 0; background: #fff; border: 1px solid var(--line); border-radius: 6px; overflow-x: auto; } \
figure svg { width: 100%; min-width: 34rem; height: auto; display: block; } \
.pale { color: var(--pale); } .wide { overflow-x: auto; } \
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; white-space: nowrap; } \
th, td { padding: 2px 10px; border-bottom: 1px solid var(--line); text-align: right; } \
th { position: sticky; top: 0; background: var(--paper); } .word { text-align: left; }";

/// Returns an HTML page of `rows`. `curves` is the picture of their curves as SVG.
pub fn page(title: &str, rows: &[Row], curves: &str) -> String {
    let mut html = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">";
    let title = escaped(title);
    let _ = write!(
        html,
        "<title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>"
    );
    let model = match rows.iter().all(|row| row.simulated) {
        true => "All times are those of a model of the network cards, not of cards.",
        false => "Times are those of the machine that ran this.",
    };
    let (checked, wrong) = rows.iter().fold((0, 0), |(checked, wrong), row| {
        (checked + row.ops, wrong + row.wrong_values)
    });
    let _ = write!(
        html,
        "<p class=\"pale\">{model} {checked} operations; every value read was checked: {wrong} wrong.</p><ul>"
    );
    for sentence in sentences(rows) {
        let _ = write!(html, "<li>{}</li>", escaped(&sentence));
    }
    // An SVG file may begin with an XML declaration, which must not be inside a page.
    let picture = curves.find("<svg").map_or("", |at| &curves[at..]);
    let _ = write!(
        html,
        "</ul><figure>{picture}</figure><div class=\"wide\"><table><tr>"
    );
    let columns = table_columns(rows);
    for column in &columns {
        let _ = write!(html, "<th{}>{}</th>", class(column), escaped(column.header));
    }
    html += "</tr>";
    for row in rows {
        html += "<tr>";
        for column in &columns {
            let _ = write!(html, "<td{}>{}</td>", class(column), escaped(&(column.cell)(row)));
        }
        html += "</tr>\n";
    }
    html += "</table></div><p class=\"pale\">Trips, verbs and bytes are per operation; the cache is everything that a \
             compute node holds. rows.csv beside this page has every column.</p></body></html>\n";
    html
}

fn class(column: &TableColumn) -> &'static str {
    if column.is_words { " class=\"word\"" } else { "" }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::samples::samples;
    use super::*;

    #[test]
    fn the_page_holds_every_row_every_sentence_and_the_picture() {
        let mut rows = samples();
        rows[0].index = "a<b".to_owned();
        let html = page("t & u", &rows, "<?xml version=\"1.0\"?><svg><path/></svg>");
        assert_eq!(html.matches("<tr>").count(), 1 + rows.len());
        for sentence in sentences(&rows) {
            assert!(html.contains(&escaped(&sentence)), "{sentence}");
        }
        assert!(
            html.contains("<figure><svg>") && html.contains("<h1>t &amp; u</h1>") && !html.contains("a<b")
        );
    }
}
