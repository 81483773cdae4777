//! Charts as SVG: bars of series, lines over a dial, and cumulative distributions. Text uses the generic family
//! `sans-serif`. The paper's numbers, if it gives any, are hollow diamonds.

use std::fmt::Write;

use super::cases::Sample;
use super::experiment::{At, Chart, Claim, Experiment, Kind, Panel};
use super::grade::Spread;
use super::metric::{Metric, figure};
use super::record::Record;
use super::svg::{Axis, Svg, anchor, colour};

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 270.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 52.0;

/// Returns every chart of an experiment: a name for its file, and the SVG.
pub(crate) fn all(experiment: &Experiment, record: &Record) -> Vec<(String, String)> {
    let mut charts = Vec::new();
    for panel in &experiment.panels {
        for chart in &panel.charts {
            let metric = if chart.cdf {
                "cdf".to_owned()
            } else {
                format!("{:?}", chart.metric)
            };
            let name: String = format!("{}-{metric}", panel.name)
                .to_lowercase()
                .replace([' ', ','], "-")
                .replace("--", "-");
            charts.push((name, one(experiment, panel, chart, record)));
        }
    }
    charts
}

/// Draws one chart of a panel.
pub(crate) fn one(experiment: &Experiment, panel: &Panel, chart: &Chart, record: &Record) -> String {
    let drawing = Drawing {
        panel,
        chart,
        samples: &record.samples,
        claims: &experiment.claims,
    };
    if chart.cdf {
        drawing.distribution()
    } else if panel.over.is_some() {
        drawing.lines()
    } else {
        drawing.bars()
    }
}

struct Drawing<'a> {
    panel: &'a Panel,
    chart: &'a Chart,
    samples: &'a [Sample],
    claims: &'a [Claim],
}

impl Drawing<'_> {
    fn series(&self) -> impl Iterator<Item = (usize, &String)> {
        self.panel.all_series().enumerate()
    }

    fn spread(&self, series: &str, at: Option<f64>) -> Option<Spread> {
        let figures: Vec<f64> = self
            .samples
            .iter()
            .filter(|s| s.panel == self.panel.name && s.series == series && s.at == at)
            .filter_map(|s| s.figures.metrics.get(&self.chart.metric).copied())
            .collect();
        Spread::of(&figures)
    }

    /// Returns the paper's number for a series, if its text gives one that is not a quotient.
    fn paper(&self, series: &str, at: Option<f64>) -> Option<f64> {
        self.claims
            .iter()
            .filter(|c| c.panel == self.panel.name && c.of == series && c.metric == self.chart.metric)
            .filter(|c| c.kind == Kind::Graded && c.over.is_none() && c.rising.is_empty() && c.skip.is_none())
            .find(|c| match (c.at, at) {
                (None, _) => true,
                (Some(At::Value(claimed)), Some(at)) => claimed == at,
                _ => false,
            })
            .and_then(|c| c.paper)
    }

    fn metric(&self) -> Metric {
        self.chart.metric
    }

    fn title(&self) -> String {
        let unit = self.metric().unit();
        let unit = if unit.is_empty() {
            String::new()
        } else {
            format!(" ({unit})")
        };
        format!("{}{unit}", self.metric().label())
    }

    fn frame(&self) -> Svg {
        let mut svg = Svg::new(WIDTH, HEIGHT, &format!("{}: {}", self.panel.title, self.title()));
        svg.text(LEFT, 18.0, "title", anchor::START, &self.title());
        svg
    }

    fn up(&self, figures: impl Iterator<Item = f64>) -> Axis {
        let figures: Vec<f64> = figures.filter(|f| f.is_finite()).collect();
        Axis::of(&figures, self.chart.log, HEIGHT - BOTTOM, TOP)
    }

    fn bars(&self) -> String {
        let spreads: Vec<_> = self
            .series()
            .map(|(i, s)| (i, s, self.spread(s, None), self.paper(s, None)))
            .collect();
        let axis = self.up(spreads
            .iter()
            .flat_map(|(_, _, s, paper)| s.map(|s| s.high).into_iter().chain(*paper)));
        let mut svg = self.frame();
        svg.grid(&axis, LEFT, WIDTH - RIGHT);
        let slot = (WIDTH - LEFT - RIGHT) / spreads.len() as f64;
        let bar = (slot * 0.62).min(56.0);
        let graded = self.panel.series.len();
        let tilt = spreads
            .iter()
            .any(|(_, name, ..)| name.chars().count() as f64 * 6.0 > slot);
        for (i, name, spread, paper) in spreads {
            let middle = LEFT + slot * (i as f64 + 0.5);
            if let Some(spread) = spread {
                let top = axis.place(spread.mean);
                // Bars of series that the paper does not have are grey.
                let fill = if i < graded { colour(0) } else { "#8a8f98" };
                svg.rect(middle - bar / 2.0, top, bar, HEIGHT - BOTTOM - top, fill);
                let (low, high) = (axis.place(spread.low), axis.place(spread.high));
                if low - high > 1.0 {
                    svg.line((middle, low), (middle, high), "#222", 1.2, "");
                }
                svg.text(
                    middle,
                    high.min(top) - 6.0,
                    "value",
                    anchor::MIDDLE,
                    &figure(spread.mean),
                );
            }
            if let Some(paper) = paper {
                // The diamond is to the right of the middle, because the model's number is in the middle.
                svg.diamond(middle + bar / 2.0, axis.place(paper));
            }
            svg.label(middle, HEIGHT - BOTTOM + 15.0, name, tilt);
        }
        svg.finish()
    }

    fn lines(&self) -> String {
        let Some(over) = &self.panel.over else {
            return self.bars();
        };
        let at = &over.at;
        let place_of = |x: f64| {
            // The steps are even, because the values of a dial often double.
            let i = at.iter().position(|a| *a == x).unwrap_or(0) as f64;
            LEFT + 16.0 + (WIDTH - LEFT - RIGHT - 32.0) * i / (at.len().max(2) - 1) as f64
        };
        let everything = self.series().flat_map(|(_, s)| {
            at.iter().flat_map(move |x| {
                self.spread(s, Some(*x))
                    .map(|s| s.high)
                    .into_iter()
                    .chain(self.paper(s, Some(*x)))
            })
        });
        let axis = self.up(everything);
        let mut svg = self.frame();
        svg.grid(&axis, LEFT, WIDTH - RIGHT);
        for x in at {
            svg.text(
                place_of(*x),
                HEIGHT - BOTTOM + 15.0,
                "tick",
                anchor::MIDDLE,
                &format!("{x}"),
            );
        }
        svg.text(
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - BOTTOM + 31.0,
            "tick",
            anchor::MIDDLE,
            over.dial.label(),
        );
        for (i, name) in self.series() {
            let points: Vec<(f64, Spread)> = at
                .iter()
                .filter_map(|x| Some((place_of(*x), self.spread(name, Some(*x))?)))
                .collect();
            let dash = self.dash(i);
            for pair in points.windows(2) {
                let ends = [pair[0], pair[1]].map(|(x, s)| (x, axis.place(s.mean)));
                svg.line(ends[0], ends[1], colour(i), 2.0, dash);
            }
            for (x, spread) in &points {
                let (low, high) = (axis.place(spread.low), axis.place(spread.high));
                if low - high > 1.0 {
                    svg.line((*x, low), (*x, high), colour(i), 1.2, "");
                }
                svg.dot(*x, axis.place(spread.mean), colour(i));
            }
            for x in at {
                if let Some(paper) = self.paper(name, Some(*x)) {
                    svg.diamond(place_of(*x), axis.place(paper));
                }
            }
        }
        self.legend(&mut svg);
        svg.finish()
    }

    /// Draws the cumulative distribution of the round trips of write operations, for the first seed, on a logarithmic
    /// axis.
    fn distribution(&self) -> String {
        let mut svg = Svg::new(
            WIDTH,
            HEIGHT,
            "cumulative distribution of the round trips of write operations",
        );
        svg.text(
            LEFT,
            18.0,
            "title",
            anchor::START,
            "share of writes with at most so many round trips",
        );
        let up = Axis::linear(1.0, HEIGHT - BOTTOM, TOP);
        svg.grid(&up, LEFT, WIDTH - RIGHT);
        let of = |name: &str| {
            self.samples
                .iter()
                .find(|s| s.panel == self.panel.name && s.series == name)
                .map(|s| s.figures.round_trips.as_slice())
                .unwrap_or_default()
        };
        let most = self
            .series()
            .flat_map(|(_, s)| of(s))
            .map(|(trips, _)| *trips)
            .max()
            .unwrap_or(1)
            .max(10) as f64;
        let along = |trips: u64| LEFT + (WIDTH - LEFT - RIGHT) * (trips.max(1) as f64).ln() / most.ln();
        let mut decade = 1;
        while (decade as f64) <= most {
            svg.text(
                along(decade),
                HEIGHT - BOTTOM + 15.0,
                "tick",
                anchor::MIDDLE,
                &decade.to_string(),
            );
            decade *= 10;
        }
        svg.text(
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - BOTTOM + 31.0,
            "tick",
            anchor::MIDDLE,
            "round trips",
        );
        for (i, name) in self.series() {
            let mut path = format!("M{:.1} {:.1}", LEFT, up.place(0.0));
            for (trips, share) in of(name) {
                // The line has steps, because the share rises only at whole numbers.
                let _ = write!(path, "H{:.1}V{:.1}", along(*trips), up.place(*share));
            }
            let _ = write!(path, "H{:.1}", WIDTH - RIGHT);
            svg.path(&path, colour(i));
        }
        self.legend(&mut svg);
        svg.finish()
    }

    /// Returns the dash pattern of series that the paper does not have.
    fn dash(&self, place: usize) -> &'static str {
        if place < self.panel.series.len() {
            ""
        } else {
            "5 3"
        }
    }

    fn legend(&self, svg: &mut Svg) {
        let mut x = LEFT;
        for (i, name) in self.series() {
            svg.line(
                (x, HEIGHT - 8.0),
                (x + 16.0, HEIGHT - 8.0),
                colour(i),
                2.0,
                self.dash(i),
            );
            svg.text(x + 21.0, HEIGHT - 4.0, "tick", anchor::START, name);
            x += 34.0 + 6.6 * name.chars().count() as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::{Effort, Figures};
    use super::*;

    fn record(experiment: &Experiment) -> Record {
        let mut samples = Vec::new();
        for panel in &experiment.panels {
            for at in panel.places() {
                for (i, series) in panel.all_series().enumerate() {
                    for seed in 1..=2 {
                        let mops = (i + 1) as f64 * seed as f64;
                        samples.push(Sample {
                            panel: panel.name.clone(),
                            series: series.clone(),
                            at,
                            seed,
                            figures: Figures {
                                metrics: panel.charts.iter().map(|chart| (chart.metric, mops)).collect(),
                                round_trips: vec![(2, 0.1), (3, 0.9), (400, 1.0)],
                                ..Figures::default()
                            },
                        });
                    }
                }
            }
        }
        Record {
            name: experiment.name.clone(),
            command: String::new(),
            effort: Effort {
                seeds: 2,
                quick: true,
                keys: None,
            },
            commit: String::new(),
            seconds: 1.0,
            samples,
            outcomes: Vec::new(),
            sensitivity: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// Every chart of every experiment names its series, contains no invalid number, and uses none of the machine's
    /// fonts.
    #[test]
    fn every_panel_is_drawn() {
        let mut drawn = 0;
        for experiment in super::super::experiment::all().unwrap() {
            let record = record(&experiment);
            for panel in &experiment.panels {
                for chart in &panel.charts {
                    let svg = one(&experiment, panel, chart, &record);
                    drawn += 1;
                    for series in panel.all_series() {
                        assert!(
                            svg.contains(&format!(">{series}<")),
                            "{}: {series}",
                            experiment.name
                        );
                    }
                    assert!(
                        !svg.contains("NaN") && !svg.contains("inf"),
                        "{}: {svg}",
                        experiment.name
                    );
                    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>"));
                    assert!(svg.matches("font-family").count() == svg.matches("sans-serif").count());
                }
            }
        }
        assert!(drawn > 30, "{drawn}");
    }

    #[test]
    fn the_papers_own_figures_are_marked() {
        let all = super::super::experiment::all().unwrap();
        let fig2 = all.iter().find(|e| e.name == "sherman-2").unwrap();
        let svg = one(fig2, &fig2.panels[0], &fig2.panels[0].charts[0], &record(fig2));
        assert_eq!(svg.matches("class=\"paper\"").count(), 1);
    }
}
