//! Pages of results: one HTML file that needs no network. Without scripts it is complete; a script adds hints at
//! points, which the pointer and the keyboard reach, and downloads.

mod chart;
mod rows;
mod svg;

use std::fmt::Write;

pub use chart::{Axis, Chart, Datum, Form, Series, Source};
pub(crate) use rows::rows_page;
pub use svg::Scale;

/// A page under construction.
#[derive(Debug, Default)]
pub struct Page {
    /// The title, as text.
    pub title: String,
    /// The text below the title, as HTML.
    pub head: String,
    /// The entries of the table of contents: a heading, and the targets and texts of its links.
    pub contents: Vec<(String, Vec<(String, String)>)>,
    /// The parts, as HTML.
    pub body: String,
}

impl Page {
    /// Adds a link to the contents: below the last heading if that is `heading`, and otherwise below a new one.
    pub fn list(&mut self, heading: &str, target: &str, words: &str) {
        let link = (target.to_owned(), words.to_owned());
        match self.contents.last_mut() {
            Some((last, links)) if last == heading => links.push(link),
            _ => self.contents.push((heading.to_owned(), vec![link])),
        }
    }

    /// Returns the whole file.
    pub fn html(&self) -> String {
        let title = escaped(&self.title);
        let mut html = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
             content=\"width=device-width, initial-scale=1\"><title>{title}</title><style id=\"chart-style\">{}</style>\
             <style>{}</style></head><body><a class=\"skip\" href=\"#results\">Skip to the results</a><header><div>\
             <h1>{title}</h1>{}</div></header><div class=\"frame\"><nav aria-label=\"Contents\"><details open>\
             <summary>Contents</summary>",
            include_str!("page/chart.css"),
            include_str!("page/page.css"),
            self.head
        );
        for (heading, links) in &self.contents {
            if !heading.is_empty() {
                let _ = write!(html, "<h2>{}</h2>", escaped(heading));
            }
            html += "<ul>";
            for (target, words) in links {
                let _ = write!(
                    html,
                    "<li><a href=\"#{}\">{}</a></li>",
                    escaped(target),
                    escaped(words)
                );
            }
            html += "</ul>";
        }
        html += "</details></nav><main id=\"results\" tabindex=\"-1\">";
        html += &self.body;
        html += "</main></div><script>";
        html += include_str!("page/page.js");
        html + "</script></body></html>\n"
    }
}

/// Returns a link of a part to itself, which readers copy. `what` is the kind of part, for screen readers.
pub fn permalink(id: &str, what: &str) -> String {
    format!(
        "<a class=\"permalink\" href=\"#{}\" aria-label=\"Link to {what}\">#</a>",
        escaped(id)
    )
}

/// Returns a name for links: the letters and digits of the text in lower case, joined by hyphens.
pub fn slug(text: &str) -> String {
    let words = text.split(|letter: char| !letter.is_alphanumeric());
    let words: Vec<String> = words
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    words.join("-")
}

/// Escapes text for HTML and XML.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_names_are_plain() {
        assert_eq!(escaped("a < b & \"c\""), "a &lt; b &amp; &quot;c&quot;");
        assert_eq!(
            slug("CHIME over Sherman: 4.3×, YCSB C"),
            "chime-over-sherman-4-3-ycsb-c"
        );
    }

    #[test]
    fn the_contents_have_a_heading_for_each_paper() {
        let mut page = Page::default();
        page.list("CHIME", "a", "Figure 12: YCSB A");
        page.list("CHIME", "b", "Figure 12: YCSB B");
        page.list("SMART", "c", "Figure 14");
        let html = page.html();
        assert_eq!(html.matches("<h2>").count(), 2);
        assert!(html.contains("<a href=\"#b\">Figure 12: YCSB B</a>"));
        for fetched in ["<link", "<img", "url(", "@import", "src="] {
            assert!(!html.contains(fetched), "{fetched}");
        }
    }
}
