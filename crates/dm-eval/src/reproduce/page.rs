//! Writes every record of a directory as one HTML page that needs no network.

use std::fmt::Write;

use dm_bench::Registry;
use dm_bench::report::figure;
use dm_bench::report::page::{Page, escaped, permalink, slug};
use dm_sim::{CostModel, Provenance};

use super::experiment::{Experiment, Panel};
use super::grade::{Grade, Outcome};
use super::record::Record;
use super::sensitivity::Turn;
use super::tally::{COLUMNS, Tally};
use super::terminal::{kind, paper, percent, range, with_unit};
use super::{catalogue, chart, facts, terminal};

type Run = (Experiment, Record);

/// Returns the whole page. `tally` has the counts of each paper.
pub(crate) fn page(runs: &[Run], tally: &[(String, Tally)], registry: &Registry) -> String {
    let mut page = Page {
        title: "Figures of the papers, on a model of their testbeds".to_owned(),
        head: head(runs, tally),
        ..Page::default()
    };
    page.list("", "claims", "Claims and their grades");
    page.list("", "fits", "Fitted, not counted as evidence");
    let html = &mut page.body;
    overview(html, "claims", "Claims", runs, |o| o.is_claim() && !o.is_fit());
    overview(html, "fits", "Fitted, not counted as evidence", runs, |o| {
        o.is_claim() && o.is_fit()
    });
    for run in runs {
        for (id, words) in links(&run.0) {
            page.list(run.0.paper(), &id, &words);
        }
        section(&mut page.body, run, registry);
    }
    page.list("More", "constants", "Fitted constants");
    page.list("More", "left", "Not modelled");
    constants(&mut page.body);
    left(&mut page.body);
    page.body += "<footer>All figures are those of a model of the network cards, with a provenance for each of its constants, \
                  and not measurements of a card. Charts show the mean over the seeds, with a line from the least to the \
                  greatest figure. Hollow marks and bars are the paper's own numbers; a ratio of the paper is multiplied by \
                  our figure of the other series. Series that the paper does not have are dashed.</footer>";
    page.html()
}

/// Returns the links of an experiment in the contents: one for each panel.
fn links(experiment: &Experiment) -> Vec<(String, String)> {
    let figure = format!("{}, {}", experiment.paper(), experiment.figure_name());
    let link = |panel: &Panel| {
        let id = chart::panel_id(experiment, panel);
        (id, format!("{figure}: {}", panel.title))
    };
    match experiment.panels.len() {
        1 => vec![(experiment.name.clone(), format!("{figure}: {}", experiment.title))],
        _ => experiment.panels.iter().map(link).collect(),
    }
}

fn head(runs: &[Run], tally: &[(String, Tally)]) -> String {
    let mut html = "<p class=\"lead\">The claims in the papers' text, beside the results of dmkit's indexes on a simulated \
                    RDMA network: throughput, latencies, round trips and bytes. Every value that was read was checked.</p>\
                    <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Grades of each paper\">\
                    <table class=\"tally\"><thead><tr><th scope=\"col\">paper</th>"
        .to_owned();
    for column in COLUMNS {
        let _ = write!(html, "<th scope=\"col\" class=\"n\">{column}</th>");
    }
    html += "</tr></thead><tbody>";
    for (paper, tally) in tally {
        let _ = write!(html, "<tr><th scope=\"row\">{}</th>", escaped(paper));
        for count in tally.counts() {
            let _ = write!(html, "<td class=\"n\">{count}</td>");
        }
        html += "</tr>";
    }
    html += "</tbody></table></div>";
    if runs.iter().any(|(_, record)| record.effort.quick) {
        let _ = write!(
            html,
            "<p><span class=\"mark bad\">a quick run</span> {}</p>",
            escaped(terminal::QUICK)
        );
    }
    html += "<details><summary>What the grades mean</summary><ul>";
    for (grade, meaning) in terminal::GRADES {
        let _ = write!(html, "<li><b>{grade}</b>: {}</li>", escaped(meaning));
    }
    html + "</ul><p><b>Plot only</b>: the number can only be read off a plot. <b>Extra row</b>: a figure of dmkit and not a \
            claim of the paper. Neither is counted.</p></details>"
}

/// Writes the figures and claims that no experiment covers.
fn left(html: &mut String) {
    *html += "<h2 id=\"left\">Not modelled</h2><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Not modelled\">\
              <table><thead><tr><th scope=\"col\">figure</th><th scope=\"col\">shows</th><th scope=\"col\" class=\"n\">claims\
              </th><th scope=\"col\">why</th></tr></thead><tbody>";
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

/// Returns a claim's name for links.
fn claim_id(experiment: &Experiment, outcome: &Outcome) -> String {
    format!(
        "{}-{}-{}",
        experiment.name,
        slug(&outcome.panel),
        slug(&outcome.what)
    )
}

/// Opens a table of claims. After the claim, it has the columns `numbers`, and then the columns `words`.
fn claims(html: &mut String, label: &str, numbers: &[&str], words: &[&str]) {
    let _ = write!(
        html,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table class=\"claims\"><thead><tr>\
         <th scope=\"col\">claim</th>",
        escaped(label)
    );
    for number in numbers {
        let _ = write!(html, "<th scope=\"col\" class=\"n\">{number}</th>");
    }
    for word in words {
        let _ = write!(html, "<th scope=\"col\">{word}</th>");
    }
    *html += "</tr></thead><tbody>";
}

fn overview(html: &mut String, id: &str, title: &str, runs: &[Run], wanted: fn(&Outcome) -> bool) {
    let _ = write!(html, "<h2 id=\"{id}\">{title}</h2>");
    claims(html, title, &["paper", "model", "off"], &["grade"]);
    for (experiment, record) in runs {
        let chosen: Vec<&Outcome> = record.outcomes.iter().filter(|o| wanted(o)).collect();
        if chosen.is_empty() {
            continue;
        }
        let _ = write!(
            html,
            "<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"5\">{}, {}: {}<code>{}</code></th></tr>",
            escaped(experiment.paper()),
            escaped(&experiment.figure_name()),
            escaped(&experiment.title),
            escaped(&record.command),
        );
        for outcome in chosen {
            let _ = write!(
                html,
                "<tr><td class=\"what\"><a href=\"#{}\">{}</a></td>{}{}<td>{}</td></tr>",
                claim_id(experiment, outcome),
                escaped(&terminal::named(experiment, outcome)),
                number("paper", &paper(outcome)),
                number("model", &model(outcome)) + &number("off", &terminal::off(outcome)),
                mark(outcome)
            );
        }
    }
    *html += "</tbody></table></div>";
}

/// Returns a cell with a number. The header is repeated where the table is shown as a list.
fn number(head: &str, text: &str) -> String {
    format!("<td class=\"n\" data-head=\"{head}\">{}</td>", escaped(text))
}

fn model(outcome: &Outcome) -> String {
    let model = outcome.model.map(|model| with_unit(model.mean, outcome.unit()));
    model.unwrap_or_default()
}

/// Returns the grade of a claim, or the kind of a row that is no claim.
fn mark(outcome: &Outcome) -> String {
    let class = match outcome.grade {
        Grade::Reproduced | Grade::Exceeded => " good",
        Grade::Missed => " bad",
        Grade::Direction | Grade::NotGraded => "",
    };
    match outcome.is_claim() {
        true => format!("<span class=\"mark{class}\">{}</span>", outcome.words()),
        false => kind(outcome).to_owned(),
    }
}

/// Writes a claim's row in the table of its experiment.
fn row(html: &mut String, (experiment, record): &Run, o: &Outcome) {
    let id = claim_id(experiment, o);
    let source = o.source.as_deref().map(|s| format!(" ({s})")).unwrap_or_default();
    let _ = write!(
        html,
        "<tr id=\"{id}\"><td class=\"what\">{}{}</td>{}{}{}{}<td>{}",
        escaped(&terminal::named(experiment, o)),
        permalink(&id, "this claim"),
        number("paper", &(paper(o) + &source)),
        number("model", &model(o)),
        number("over seeds", &o.model.map(range).unwrap_or_default()),
        number("off", &terminal::off(o)),
        mark(o)
    );
    if let Some(why) = o.why() {
        let _ = write!(html, "<span class=\"why\">{}</span>", escaped(why));
    }
    *html += "</td>";
    if record.leaves_out() {
        let _ = write!(html, "<td>{}</td>", terminal::left_out(record, o));
    }
    *html += "</tr>";
}

fn section(html: &mut String, run: &Run, registry: &Registry) {
    let (experiment, record) = run;
    let _ = write!(
        html,
        "<h2 id=\"{}\">{}, {}: {}{}</h2><p>{}</p>",
        escaped(&experiment.name),
        escaped(&experiment.paper),
        escaped(&experiment.figure.replace("Fig.", "Figure")),
        escaped(&experiment.title),
        permalink(&experiment.name, "this figure"),
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
    let deviations = record.effort.deviations(experiment.kind);
    if !deviations.is_empty() {
        let _ = write!(
            html,
            "<p><span class=\"mark bad\">not graded</span> The run is not at the experiment's own setting: {}.</p>",
            escaped(&deviations.join(", "))
        );
    }
    if record.leaves_out() {
        let _ = write!(
            html,
            "<p class=\"facts\">{}</p>",
            escaped(&terminal::replaced(experiment))
        );
    }
    if !experiment.differs.is_empty() {
        *html += "<details class=\"facts\"><summary>Differences from the paper's run</summary><ul>";
        for difference in &experiment.differs {
            let _ = write!(html, "<li>{}</li>", escaped(difference));
        }
        *html += "</ul></details>";
    }
    for panel in &experiment.panels {
        let id = chart::panel_id(experiment, panel);
        if experiment.panels.len() > 1 {
            let _ = write!(
                html,
                "<h3 id=\"{id}\">{}{}</h3>",
                escaped(&panel.title),
                permalink(&id, "this panel")
            );
        }
        *html += "<div class=\"charts\">";
        for chart in chart::of_panel(experiment, panel, record, registry) {
            *html += &chart.figure();
        }
        *html += "</div>";
    }
    let mut words = vec!["grade, and why"];
    if record.leaves_out() {
        words.push("without this paper's fits");
    }
    let title = format!("Claims of {}, {}", experiment.paper(), experiment.figure_name());
    claims(html, &title, &["paper", "model", "over seeds", "off"], &words);
    for outcome in &record.outcomes {
        row(html, run, outcome);
    }
    *html += "</tbody></table></div>";
    if !record.sensitivity.is_empty() {
        sensitivity(html, &record.sensitivity);
    }
}

/// Writes how each figure depends on each constant, with a row per claim and a column per constant.
fn sensitivity(html: &mut String, turns: &[Turn]) {
    let mut claims: Vec<(&str, &str, f64)> = Vec::new();
    let mut constants: Vec<&str> = Vec::new();
    for turn in turns {
        if !claims.iter().any(|c| (c.0, c.1) == (&turn.panel, &turn.what)) {
            claims.push((&turn.panel, &turn.what, turn.plain));
        }
        // If a constant changes no grade, and no figure by at least 5 %, it has no column.
        if !constants.contains(&turn.constant.as_str()) && matters(turns, &turn.constant) {
            constants.push(&turn.constant);
        }
    }
    *html += "<h3>Sensitivity: each fitted constant 20 % smaller and 20 % larger, one seed</h3><div class=\"scroll\" \
              tabindex=\"0\" role=\"region\" \
              aria-label=\"Sensitivity\"><table><thead><tr><th>claim</th><th class=\"n\">model</th>";
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
        "</tbody></table></div><p class=\"facts\">{flips} of {} turns change a grade (marked). A constant has a \
         column only if it changes a grade, or changes a figure by at least 5 %.</p>",
        turns.len()
    );
}

fn matters(turns: &[Turn], constant: &str) -> bool {
    turns
        .iter()
        .any(|t| t.constant == constant && (t.flips() || t.moves()))
}

fn constants(html: &mut String) {
    let model = CostModel::cx5_ib();
    let _ = write!(
        html,
        "<h2 id=\"constants\">Fitted constants</h2><p>Of the {} constants of {}, these were fitted, each to the named \
         figure. The others are stated in a paper or assumed (<code>dmkit model</code> lists \
         them all).</p><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Fitted constants\"><table><thead><tr><th>constant</th><th class=\"n\">value</th><th>fitted \
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
            panels: Vec::new(),
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

    /// A constant has a column if it changes a grade, or if it changes a figure by at least 5 %.
    #[test]
    fn constants_that_matter_have_a_column() {
        let turn = |constant: &str, turned, turned_grade| Turn {
            constant: constant.to_owned(),
            factor: 1.2,
            panel: "a".to_owned(),
            what: "w".to_owned(),
            plain: 1.0,
            turned,
            plain_grade: Grade::Reproduced,
            turned_grade,
        };
        let turns = [
            turn("flips", 1.01, Grade::Missed),
            turn("moves", 1.06, Grade::Reproduced),
            turn("neither", 1.02, Grade::Reproduced),
        ];
        let mut html = String::new();
        sensitivity(&mut html, &turns);
        let has = |constant: &str| html.contains(&format!(">{constant}</th>"));
        assert_eq!(["flips", "moves", "neither"].map(has), [true, true, false]);
        let rule = "A constant has a column only if it changes a grade, or changes a figure by at least 5 %.";
        assert!(html.contains(rule), "{html}");
        let text = terminal::sensitivity(&turns);
        assert!(text.contains("1 of 3 figures change by 5 % or more"), "{text}");
        assert!(
            text.contains("flips") && text.contains("moves") && !text.contains("neither"),
            "{text}"
        );
    }

    /// The page loads no other file, every experiment has a section and its command, and every claim has a row.
    #[test]
    fn the_page_stands_alone() {
        let all = super::super::experiment::all().unwrap();
        let runs: Vec<Run> = all.iter().map(|e| (e.clone(), run(e))).collect();
        let records: Vec<Record> = runs.iter().map(|(_, record)| record.clone()).collect();
        let counts = tally::papers(&all, &records);
        let html = page(&runs, &counts, &dm_shipped::shipped());
        for fetched in ["<link", "<img", "url(", "@import", "src="] {
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
        let row = format!(
            "<th scope=\"row\">{name}</th><td class=\"n\">{}</td>",
            total.counts()[0]
        );
        assert!(html.find(&row).unwrap() < html.find("<h2").unwrap() && first < html.find("<h2").unwrap());
        // The contents name papers and figures, and each claim has a link of its own.
        assert!(html.contains("<a href=\"#chime-12-a\">CHIME, Figure 12: YCSB A</a>"));
        let mut ids: Vec<&str> = html
            .split(" id=\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count, "two parts of one name");
        assert!(html.contains("50 k keys of 8 + 8 bytes") && !html.contains("2 M keys of 8 + 8 bytes"));
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
