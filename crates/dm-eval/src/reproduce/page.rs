//! Writes every record of a directory as one HTML page that needs no network and no script.

use std::fmt::Write;

use dm_sim::{CostModel, Provenance};

use super::chart;
use super::experiment::{Experiment, Kind, Panel};
use super::grade::{Outcome, Verdict};
use super::metric::figure;
use super::record::Record;
use super::sensitivity::Turn;
use super::svg::escaped;
use super::terminal::{kind, paper, percent, range, with_unit};
use super::{facts, terminal};

type Run = (Experiment, Record);

/// Returns the whole page.
pub(crate) fn page(runs: &[Run]) -> String {
    let mut html = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">";
    html += "<title>dmkit: figures of the papers, reproduced on a model</title><style>";
    html += include_str!("page.css");
    html += "</style></head><body>";
    header(&mut html, runs);
    html += "<main>";
    reading(&mut html);
    overview(
        &mut html,
        "predictions",
        "Claims: predictions and orders",
        runs,
        |o| o.kind == Kind::Order || (o.kind == Kind::Graded && !o.is_fit()),
    );
    overview(&mut html, "fits", "Fits, apart", runs, |o| {
        o.kind == Kind::Graded && o.is_fit()
    });
    for run in runs {
        section(&mut html, run);
    }
    constants(&mut html);
    html += "<footer>All figures are those of a model of the network cards, with a provenance for each of its \
             constants, and not measurements of a card. Charts show the mean over the seeds, with a whisker from the \
             least to the greatest figure. A hollow diamond is the paper's own figure. Series that the paper does not \
             have are grey or dashed.</footer></main></body></html>\n";
    html
}

fn outcomes(runs: &[Run]) -> impl Iterator<Item = &Outcome> {
    runs.iter().flat_map(|(_, record)| &record.outcomes)
}

fn header(html: &mut String, runs: &[Run]) {
    let count = |wanted: &dyn Fn(&Outcome) -> bool| outcomes(runs).filter(|o| wanted(o)).count();
    let prediction = |o: &Outcome| o.kind == Kind::Graded && !o.is_fit();
    let run = |o: &Outcome| o.verdict != Verdict::NotRun;
    let of = |part: usize, all: usize| format!("{part} of {all}");
    let tiles = [
        (
            of(
                count(&|o| prediction(o) && o.verdict == Verdict::Within),
                count(&|o| prediction(o) && run(o)),
            ),
            "predictions within 20 % of the paper",
        ),
        (
            of(
                count(&|o| o.verdict == Verdict::Kept),
                count(&|o| o.kind == Kind::Order && run(o)),
            ),
            "orders and trends kept",
        ),
        (
            of(
                count(&|o| o.as_foretold == Some(true)),
                count(&|o| o.as_foretold.is_some()),
            ),
            "within 25 % of the verbs' model",
        ),
        (
            count(&|o| o.kind == Kind::Graded && o.is_fit()).to_string(),
            "fits, which are not counted",
        ),
        (count(&|o| !run(o)).to_string(), "claims not run, with the reason"),
    ];
    *html += "<header><div><h1>Figures of the papers, on a model of their testbeds</h1>";
    *html += "<p class=\"lead\">The numbers in the papers' text, beside the results of dmkit's indexes on a simulated RDMA \
              network: throughput, latencies, round trips and bytes. Every value that was read was checked. If the model \
              misses a number by more than 20 %, the row gives the reason.</p>";
    if runs.iter().any(|(_, record)| record.quick) {
        *html += "<p><span class=\"mark bad\">a quick run</span> a sixth of the operations: tail latencies and \
                  verdicts near their bounds are not reliable.</p>";
    }
    *html += "<div class=\"tiles\">";
    for (number, words) in tiles {
        let _ = write!(
            html,
            "<div class=\"tile\"><b>{number}</b><span>{words}</span></div>"
        );
    }
    *html += "</div><nav>";
    for (id, words) in [("predictions", "predictions"), ("fits", "fits")] {
        let _ = write!(html, "<a href=\"#{id}\">{words}</a>");
    }
    for (experiment, _) in runs {
        let (name, figure) = (escaped(&experiment.name), escaped(&experiment.figure));
        let _ = write!(html, "<a href=\"#{name}\">{figure}</a>");
    }
    *html += "<a href=\"#constants\">constants</a></nav></div></header>";
}

fn reading(html: &mut String) {
    *html += "<p><b>Prediction</b>: a number of the paper's text that no constant of the model was fitted to. \
              <b>Fit</b>: a number that was used to set a constant. It is shown, but never counted. <b>Order</b>: the text \
              gives only a trend. <b>Plot only</b>: the number can only be read off a plot, and is not graded. \
              <b>Extra row</b>: a claim of dmkit and not of the paper. <b>The verbs' model</b>: the result of a \
              simulation with the same constants that posted the paper's verbs without a tree. The result of the tree \
              should be within 25 % of it.</p>";
}

fn overview(html: &mut String, id: &str, title: &str, runs: &[Run], wanted: fn(&Outcome) -> bool) {
    let _ = write!(
        html,
        "<h2 id=\"{id}\">{title}</h2><div class=\"scroll\"><table><thead><tr>"
    );
    *html += "<th>claim</th><th class=\"n\">paper</th><th class=\"n\">model</th><th class=\"n\">over seeds</th>\
              <th class=\"n\">off</th><th>verdict, and why where it is missed</th></tr></thead><tbody>";
    for (experiment, record) in runs {
        let chosen: Vec<&Outcome> = record.outcomes.iter().filter(|o| wanted(o)).collect();
        if chosen.is_empty() {
            continue;
        }
        let _ = write!(
            html,
            "<tr class=\"group\"><td colspan=\"6\"><a href=\"#{}\">{}</a>: {}<code>{}</code></td></tr>",
            escaped(&experiment.name),
            escaped(&experiment.figure),
            escaped(&experiment.title),
            escaped(&record.command),
        );
        for outcome in chosen {
            row(html, experiment, outcome, false);
        }
    }
    *html += "</tbody></table></div>";
}

/// Writes a row of the table of claims. `whole` adds the columns of an experiment's own table.
fn row(html: &mut String, experiment: &Experiment, o: &Outcome, whole: bool) {
    let what = if experiment.panels.len() > 1 {
        format!("{}: {}", o.panel, o.what)
    } else {
        o.what.clone()
    };
    let source = o
        .source
        .as_deref()
        .map(|s| format!(" title=\"{}\"", escaped(s)))
        .unwrap_or_default();
    let _ = write!(
        html,
        "<tr><td>{}</td><td class=\"n\"{source}>{}</td>",
        escaped(&what),
        paper(o)
    );
    let model = o.model.map(|m| with_unit(m.mean, o.unit())).unwrap_or_default();
    let spread = o.model.map(range).unwrap_or_default();
    let _ = write!(
        html,
        "<td class=\"n\">{model}</td><td class=\"n spread\">{spread}</td>"
    );
    let off = o
        .off()
        .filter(|_| o.kind == Kind::Graded)
        .map(percent)
        .unwrap_or_default();
    let _ = write!(html, "<td class=\"n\">{off}</td>");
    if whole {
        let foretold = o.foretold.map(|f| with_unit(f, o.unit())).unwrap_or_default();
        let mark = match o.as_foretold {
            Some(true) => " <span class=\"mark good\">✓</span>",
            Some(false) => " <span class=\"mark bad\">✗</span>",
            None => "",
        };
        let _ = write!(html, "<td class=\"n\">{foretold}{mark}</td><td>{}</td>", kind(o));
    }
    let class = match o.verdict {
        Verdict::Within | Verdict::Kept => "good",
        Verdict::Missed | Verdict::Lost => "bad",
        Verdict::Shown | Verdict::NotRun => "",
    };
    let _ = write!(
        html,
        "<td><span class=\"mark {class}\">{}</span>",
        o.verdict.words()
    );
    if let Some(why) = &o.why {
        let _ = write!(html, "<span class=\"why\">{}</span>", escaped(why));
    }
    *html += "</td></tr>";
}

fn section(html: &mut String, (experiment, record): &Run) {
    let _ = write!(
        html,
        "<h2 id=\"{}\">{} {}: {}</h2><p>{}</p>",
        escaped(&experiment.name),
        escaped(&experiment.paper),
        escaped(&experiment.figure),
        escaped(&experiment.title),
        escaped(experiment.about.trim()),
    );
    let _ = write!(
        html,
        "<p class=\"facts\"><code>{}</code> {} seed{}, {:.0} s on this machine; <a href=\"{}.json\">raw data</a>. \
         {}.</p>",
        escaped(&record.command),
        record.seeds,
        if record.seeds == 1 { "" } else { "s" },
        record.seconds,
        escaped(&record.name),
        escaped(&facts::of(experiment).join("; ")),
    );
    if !experiment.differs.is_empty() {
        *html += "<ul class=\"facts\">";
        for difference in &experiment.differs {
            let _ = write!(html, "<li>{}</li>", escaped(difference));
        }
        *html += "</ul>";
    }
    charts(html, experiment, record);
    *html += "<div class=\"scroll\"><table><thead><tr><th>claim</th><th class=\"n\">paper</th><th class=\"n\">model</th>\
              <th class=\"n\">over seeds</th><th class=\"n\">off</th><th class=\"n\">verbs' model</th><th>kind</th>\
              <th>verdict</th></tr></thead><tbody>";
    for outcome in &record.outcomes {
        row(html, experiment, outcome, true);
    }
    *html += "</tbody></table></div>";
    if !record.sensitivity.is_empty() {
        sensitivity(html, &record.sensitivity);
    }
}

/// Writes a line of charts for each panel. If panels have few charts, writes a line for each kind of chart.
fn charts(html: &mut String, experiment: &Experiment, record: &Record) {
    let named = |panel: &Panel| match experiment.panels.len() {
        1 => escaped(&panel.title),
        _ if panel.name == panel.title => escaped(&panel.title),
        _ => escaped(&format!("{}: {}", panel.name, panel.title)),
    };
    let most = experiment
        .panels
        .iter()
        .map(|panel| panel.charts.len())
        .max()
        .unwrap_or(0);
    if most >= 3 {
        for panel in &experiment.panels {
            let _ = write!(html, "<h3>{}</h3><div class=\"charts\">", named(panel));
            for drawing in &panel.charts {
                let _ = write!(
                    html,
                    "<figure>{}</figure>",
                    chart::one(experiment, panel, drawing, record)
                );
            }
            *html += "</div>";
        }
        return;
    }
    *html += "<div class=\"charts\">";
    for place in 0..most {
        for panel in &experiment.panels {
            let Some(drawing) = panel.charts.get(place) else {
                continue;
            };
            let svg = chart::one(experiment, panel, drawing, record);
            let _ = write!(
                html,
                "<figure><figcaption>{}</figcaption>{svg}</figure>",
                named(panel)
            );
        }
    }
    *html += "</div>";
}

/// Writes how each figure depends on each constant, with a row per claim and a column per constant.
fn sensitivity(html: &mut String, turns: &[Turn]) {
    let mut claims: Vec<(&str, &str, f64)> = Vec::new();
    let mut constants: Vec<&str> = Vec::new();
    for turn in turns {
        if !claims.iter().any(|c| (c.0, c.1) == (&turn.panel, &turn.what)) {
            claims.push((&turn.panel, &turn.what, turn.plain));
        }
        // If a constant changes no figure by at least 5 %, it has no column.
        if !constants.contains(&turn.constant.as_str()) && matters(turns, &turn.constant) {
            constants.push(&turn.constant);
        }
    }
    *html += "<h3>Sensitivity: each fitted constant 20 % smaller and 20 % larger, one seed</h3><div class=\"scroll\">\
              <table><thead><tr><th>claim</th><th class=\"n\">model</th>";
    for constant in &constants {
        let _ = write!(
            html,
            "<th class=\"n\">{}</th>",
            escaped(&constant.replace('_', " "))
        );
    }
    *html += "</tr></thead><tbody>";
    for (panel, what, plain) in claims {
        let _ = write!(
            html,
            "<tr><td>{}: {}</td><td class=\"n\">{}</td>",
            escaped(panel),
            escaped(what),
            figure(plain)
        );
        for constant in &constants {
            let here = turns
                .iter()
                .filter(|t| t.constant == **constant && t.panel == panel && t.what == what);
            let cells: Vec<String> = here
                .map(|turn| {
                    let class = if turn.flips() { "mark bad" } else { "" };
                    format!("<span class=\"{class}\">{}</span>", percent(turn.change()))
                })
                .collect();
            let _ = write!(html, "<td class=\"n\">{}</td>", cells.join(" / "));
        }
        *html += "</tr>";
    }
    let flips = turns.iter().filter(|t| t.flips()).count();
    let _ = write!(
        html,
        "</tbody></table></div><p class=\"facts\">{flips} of {} turns change a verdict (marked). Constants that move no \
         figure by 5 % have no column.</p>",
        turns.len()
    );
}

fn matters(turns: &[Turn], constant: &str) -> bool {
    turns
        .iter()
        .any(|t| t.constant == constant && (t.flips() || t.change().abs() >= 0.05))
}

fn constants(html: &mut String) {
    let model = CostModel::cx5_ib();
    let _ = write!(
        html,
        "<h2 id=\"constants\">Fitted constants</h2><p>Of the {} constants of {}, these were fitted, each to the named \
         figure. The others are stated in a paper or assumed (<code>dmkit model</code> lists \
         them all).</p><div class=\"scroll\"><table><thead><tr><th>constant</th><th class=\"n\">value</th><th>fitted \
         to</th></tr></thead><tbody>",
        model.parameters().len(),
        model.name
    );
    for p in model
        .parameters()
        .iter()
        .filter(|p| p.provenance == Provenance::Fit)
    {
        let _ = write!(
            html,
            "<tr><td>{}</td><td class=\"n\">{} {}</td><td>{}</td></tr>",
            escaped(p.name),
            p.value,
            escaped(p.unit),
            escaped(p.source)
        );
    }
    let cpu = dm_bench::CpuCost::MODEL;
    let _ = write!(
        html,
        "<tr><td>client_cpu</td><td class=\"n\">{} + {} + {} ns</td><td>Sherman Table 1: median latency of uniform reads; \
         finding a leaf in the cache, its exponential part, searching the leaf</td></tr></tbody></table></div>",
        cpu.locate.0, cpu.locate_mean.0, cpu.search.0
    );
    let _ = write!(html, "<p>{}</p>", escaped(terminal::SCALE));
}

#[cfg(test)]
mod tests {
    use super::super::grade::grade;
    use super::*;

    fn run(experiment: &Experiment) -> Record {
        Record {
            name: experiment.name.clone(),
            command: format!("dmkit reproduce {}", experiment.name),
            seeds: 3,
            quick: false,
            seconds: 1.0,
            samples: Vec::new(),
            outcomes: grade(experiment, &[]),
            sensitivity: vec![Turn {
                constant: "wire_ns".to_owned(),
                factor: 1.2,
                panel: "a".to_owned(),
                what: "a < b".to_owned(),
                plain: 1.0,
                turned: 2.0,
                plain_verdict: Verdict::Within,
                turned_verdict: Verdict::Missed,
            }],
        }
    }

    /// The page loads no other file, every experiment has a section and its command, and every claim has a row.
    #[test]
    fn the_page_stands_alone() {
        let all = super::super::experiment::all().unwrap();
        let runs: Vec<Run> = all.iter().map(|e| (e.clone(), run(e))).collect();
        let html = page(&runs);
        for fetched in ["<script", "<link", "<img", "url(", "@import", "src="] {
            assert!(!html.contains(fetched), "{fetched}");
        }
        for (experiment, record) in &runs {
            assert!(html.contains(&format!("id=\"{}\"", experiment.name)));
            assert!(html.contains(&record.command));
            for outcome in &record.outcomes {
                assert!(html.contains(&escaped(&outcome.what)), "{}", outcome.what);
            }
        }
        assert!(html.contains("a &lt; b") && html.contains("+100 %"));
        for tag in [
            "table",
            "tr",
            "td",
            "div",
            "span",
            "figure",
            "figcaption",
            "p",
            "ul",
            "h2",
        ] {
            let opened =
                html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, html.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }
}
