//! Writes every record of a directory as one HTML page that needs no network and no script.

use std::fmt::Write;

use dm_sim::{CostModel, Provenance};

use super::chart;
use super::experiment::{Experiment, Panel};
use super::grade::{Grade, Outcome};
use super::metric::figure;
use super::record::Record;
use super::sensitivity::Turn;
use super::svg::escaped;
use super::tally::{COLUMNS, Tally};
use super::terminal::{kind, paper, percent, range, with_unit};
use super::{catalogue, facts, terminal};

type Run = (Experiment, Record);

/// Returns the whole page. `tally` has the counts of each paper.
pub(crate) fn page(runs: &[Run], tally: &[(String, Tally)]) -> String {
    let mut html = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">";
    html += "<title>dmkit: figures of the papers, reproduced on a model</title><style>";
    html += include_str!("page.css");
    html += "</style></head><body>";
    header(&mut html, runs, tally);
    html += "<main>";
    reading(&mut html);
    overview(&mut html, "claims", "Claims", runs, |o| {
        o.is_claim() && !o.is_fit()
    });
    overview(&mut html, "fits", "Fitted, not counted as evidence", runs, |o| {
        o.is_claim() && o.is_fit()
    });
    for run in runs {
        section(&mut html, run);
    }
    constants(&mut html);
    left(&mut html);
    html += "<footer>All figures are those of a model of the network cards, with a provenance for each of its \
             constants, and not measurements of a card. Charts show the mean over the seeds, with a whisker from the \
             least to the greatest figure. A hollow diamond is the paper's own figure. Series that the paper does not \
             have are grey or dashed.</footer></main></body></html>\n";
    html
}

fn header(html: &mut String, runs: &[Run], tally: &[(String, Tally)]) {
    *html += "<header><div><h1>Figures of the papers, on a model of their testbeds</h1>";
    *html += "<p class=\"lead\">The claims in the papers' text, beside the results of dmkit's indexes on a simulated RDMA \
              network: throughput, latencies, round trips and bytes. Every value that was read was checked.</p>";
    *html += "<table class=\"tally\"><thead><tr><th>paper</th>";
    for column in COLUMNS {
        let _ = write!(html, "<th class=\"n\">{column}</th>");
    }
    *html += "</tr></thead><tbody>";
    for (paper, tally) in tally {
        let _ = write!(html, "<tr><td>{}</td>", escaped(paper));
        for count in tally.counts() {
            let _ = write!(html, "<td class=\"n\">{count}</td>");
        }
        *html += "</tr>";
    }
    *html += "</tbody></table>";
    if runs.iter().any(|(_, record)| record.effort.quick) {
        let _ = write!(
            html,
            "<p><span class=\"mark bad\">a quick run</span> {}</p>",
            escaped(terminal::QUICK)
        );
    }
    *html += "<nav>";
    for (id, words) in [("claims", "claims"), ("fits", "fitted"), ("left", "not modelled")] {
        let _ = write!(html, "<a href=\"#{id}\">{words}</a>");
    }
    for (experiment, _) in runs {
        let (name, paper, figure) = (
            escaped(&experiment.name),
            escaped(experiment.paper()),
            escaped(&experiment.figure),
        );
        let _ = write!(html, "<a href=\"#{name}\">{paper} {figure}</a>");
    }
    *html += "<a href=\"#constants\">constants</a></nav></div></header>";
}

fn reading(html: &mut String) {
    *html += "<ul>";
    for (grade, meaning) in terminal::GRADES {
        let _ = write!(html, "<li><b>{grade}</b>: {}</li>", escaped(meaning));
    }
    *html += "</ul><p><b>Plot only</b>: the number can only be read off a plot. <b>Extra row</b>: a figure of dmkit and not \
              a claim of the paper. Neither is counted.</p>";
}

/// Writes the figures and claims that no experiment covers.
fn left(html: &mut String) {
    *html += "<h2 id=\"left\">Not modelled</h2><div class=\"scroll\"><table><thead><tr><th>figure</th><th>shows</th>\
              <th class=\"n\">claims</th><th>why</th></tr></thead><tbody>";
    for figure in catalogue::all() {
        let Some(why) = &figure.why else { continue };
        let _ = write!(
            html,
            "<tr><td>{} {}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            escaped(&figure.paper),
            escaped(&figure.figure),
            escaped(&figure.shows),
            figure.left,
            escaped(why)
        );
    }
    *html += "</tbody></table></div>";
}

fn overview(html: &mut String, id: &str, title: &str, runs: &[Run], wanted: fn(&Outcome) -> bool) {
    let _ = write!(
        html,
        "<h2 id=\"{id}\">{title}</h2><div class=\"scroll\"><table><thead><tr>"
    );
    *html += "<th>claim</th><th class=\"n\">paper</th><th class=\"n\">model</th><th class=\"n\">over seeds</th>\
              <th class=\"n\">off</th><th>grade, and why</th><th>without this paper's fits</th></tr></thead><tbody>";
    for (experiment, record) in runs {
        let chosen: Vec<&Outcome> = record.outcomes.iter().filter(|o| wanted(o)).collect();
        if chosen.is_empty() {
            continue;
        }
        let _ = write!(
            html,
            "<tr class=\"group\"><td colspan=\"7\"><a href=\"#{}\">{}</a>: {}<code>{}</code></td></tr>",
            escaped(&experiment.name),
            escaped(&experiment.figure),
            escaped(&experiment.title),
            escaped(&record.command),
        );
        for outcome in chosen {
            row(html, (experiment, record), outcome, false);
        }
    }
    *html += "</tbody></table></div>";
}

/// Writes a row of the table of claims. `whole` adds the columns of an experiment's own table.
fn row(html: &mut String, (experiment, record): (&Experiment, &Record), o: &Outcome, whole: bool) {
    let source = o
        .source
        .as_deref()
        .map(|s| format!(" title=\"{}\"", escaped(s)))
        .unwrap_or_default();
    let _ = write!(
        html,
        "<tr><td>{}</td><td class=\"n\"{source}>{}</td>",
        escaped(&terminal::named(experiment, o)),
        escaped(&paper(o))
    );
    let model = o.model.map(|m| with_unit(m.mean, o.unit())).unwrap_or_default();
    let spread = o.model.map(range).unwrap_or_default();
    let _ = write!(
        html,
        "<td class=\"n\">{model}</td><td class=\"n spread\">{spread}</td><td class=\"n\">{}</td>",
        terminal::off(o)
    );
    if whole {
        let _ = write!(html, "<td>{}</td>", kind(o));
    }
    let class = match o.grade {
        Grade::Reproduced | Grade::Exceeded => "good",
        Grade::Missed => "bad",
        Grade::Direction | Grade::NotGraded => "",
    };
    *html += "<td>";
    if o.is_claim() {
        let _ = write!(html, "<span class=\"mark {class}\">{}</span>", o.words());
    }
    if let Some(why) = o.why() {
        let _ = write!(html, "<span class=\"why\">{}</span>", escaped(why));
    }
    let _ = write!(html, "</td><td>{}</td></tr>", terminal::left_out(record, o));
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
        "<p class=\"facts\"><code>{}</code> {:.0} s on this machine, commit {}; <a href=\"{}.json\">raw data</a>. \
         {}.</p>",
        escaped(&record.command),
        record.seconds,
        escaped(&record.commit),
        escaped(&record.name),
        escaped(&facts::of(experiment, record.effort).join("; ")),
    );
    let deviations = record.effort.deviations(experiment.world);
    if !deviations.is_empty() {
        let _ = write!(
            html,
            "<p><span class=\"mark bad\">not graded</span> The run is not at the experiment's own setting: {}.</p>",
            escaped(&deviations.join(", "))
        );
    }
    if !record.left_out.is_empty() {
        let _ = write!(
            html,
            "<p class=\"facts\">{}</p>",
            escaped(&terminal::replaced(experiment))
        );
    }
    if !experiment.differs.is_empty() {
        *html += "<ul class=\"facts\">";
        for difference in &experiment.differs {
            let _ = write!(html, "<li>{}</li>", escaped(difference));
        }
        *html += "</ul>";
    }
    charts(html, experiment, record);
    *html += "<div class=\"scroll\"><table><thead><tr><th>claim</th><th class=\"n\">paper</th><th class=\"n\">model</th>\
              <th class=\"n\">over seeds</th><th class=\"n\">off</th><th>kind</th><th>grade, and why</th>\
              <th>without this paper's fits</th></tr></thead><tbody>";
    for outcome in &record.outcomes {
        row(html, (experiment, record), outcome, true);
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
        "</tbody></table></div><p class=\"facts\">{flips} of {} turns change a grade (marked). Constants that move no \
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
    use super::super::cases::Effort;
    use super::super::grade::grade;
    use super::super::tally;
    use super::*;

    fn run(experiment: &Experiment) -> Record {
        Record {
            name: experiment.name.clone(),
            command: format!("dmkit reproduce {}", experiment.name),
            effort: Effort {
                seeds: 3,
                quick: false,
                keys: Some(50_000),
            },
            commit: "0a1b".to_owned(),
            seconds: 1.0,
            samples: Vec::new(),
            outcomes: grade(experiment, &[], &[]),
            sensitivity: vec![Turn {
                constant: "wire_ns".to_owned(),
                factor: 1.2,
                panel: "a".to_owned(),
                what: "a < b".to_owned(),
                plain: 1.0,
                turned: 2.0,
                plain_grade: Grade::Reproduced,
                turned_grade: Grade::Missed,
            }],
            left_out: Vec::new(),
        }
    }

    /// The page loads no other file, every experiment has a section and its command, and every claim has a row.
    #[test]
    fn the_page_stands_alone() {
        let all = super::super::experiment::all().unwrap();
        let runs: Vec<Run> = all.iter().map(|e| (e.clone(), run(e))).collect();
        let records: Vec<Record> = runs.iter().map(|(_, record)| record.clone()).collect();
        let counts = tally::papers(&all, &records);
        let html = page(&runs, &counts);
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
        // The table of counts is before everything else, and the facts are those of the run.
        let (name, total) = counts.last().unwrap();
        let first = html.find("<table").unwrap();
        let row = format!("<td>{name}</td><td class=\"n\">{}</td>", total.counts()[0]);
        assert!(html.find(&row).unwrap() < html.find("<h2").unwrap() && first < html.find("<h2").unwrap());
        assert!(html.contains("50 k keys of 8 + 8 bytes") && !html.contains("10 M keys of 8 + 8 bytes"));
        assert!(html.contains("not at the experiment's own setting: 50 k keys"));
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
