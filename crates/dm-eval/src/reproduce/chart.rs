//! The charts of an experiment: bars of series, lines over a dial or against another metric, and cumulative
//! distributions. If the paper's text gives numbers, they are drawn as hollow marks beside ours.

use dm_bench::Registry;
use dm_bench::report::figure;
use dm_bench::report::page::{self, Axis, Datum, Form, Scale, Series, Source, slug};

use super::cases::Sample;
use super::experiment::{At, Chart, Claim, Experiment, Kind, Panel, Place, RunKind};
use super::grade::Spread;
use super::leaves::LeafKind;
use super::locks::LockWay;
use super::metric::Metric;
use super::reads::Access;
use super::record::Record;

/// Returns the charts of a panel.
pub(crate) fn of_panel(
    experiment: &Experiment,
    panel: &Panel,
    record: &Record,
    registry: &Registry,
) -> Vec<page::Chart> {
    let drawing = |chart| Drawing {
        experiment,
        panel,
        chart,
        samples: &record.samples,
        registry,
    };
    panel.charts.iter().map(|chart| drawing(chart).chart()).collect()
}

/// Returns the panel's name for links.
pub(crate) fn panel_id(experiment: &Experiment, panel: &Panel) -> String {
    format!("{}-{}", experiment.name, slug(&panel.name))
}

/// Returns a series' name in the words of the papers.
pub(crate) fn series_title<'a>(experiment: &Experiment, series: &'a str, registry: &'a Registry) -> &'a str {
    match experiment.kind {
        RunKind::Tree => registry.series_title(series),
        RunKind::Locks => series.parse().map_or(series, |way: LockWay| way.title()),
        RunKind::Writes => series,
        RunKind::Reads => series.parse().map_or(series, |access: Access| access.title()),
        RunKind::Leaves => series.parse().map_or(series, |kind: LeafKind| kind.title()),
    }
}

struct Drawing<'a> {
    experiment: &'a Experiment,
    panel: &'a Panel,
    chart: &'a Chart,
    samples: &'a [Sample],
    registry: &'a Registry,
}

/// A number of the paper: the number, and how it follows from the paper's text.
struct Paper {
    number: f64,
    how: String,
}

impl Drawing<'_> {
    fn chart(&self) -> page::Chart {
        let (form, x, y, series, label) = if self.chart.cdf {
            self.distribution()
        } else if let Some(against) = self.chart.against {
            self.curves(against)
        } else if let Some(over) = &self.panel.over {
            let x = Axis::new(over.dial.label(), Scale::Even(over.at.clone()));
            let scale = if self.chart.log { Scale::Log } else { Scale::Linear };
            (
                Form::Lines,
                x,
                axis(self.chart.metric, scale),
                self.lines(&over.at),
                "",
            )
        } else {
            let x = Axis::new("", Scale::Linear);
            (
                Form::Bars,
                x,
                axis(self.chart.metric, Scale::Linear),
                self.bars(),
                "",
            )
        };
        let name = match self.chart.cdf {
            true => "round-trips".to_owned(),
            false => slug(self.chart.metric.label()),
        };
        let subject = match self.chart.cdf {
            true => "round trips of writes",
            false => self.chart.metric.label(),
        };
        page::Chart {
            id: format!("{}-{name}", panel_id(self.experiment, self.panel)),
            title: format!("{}: {subject}", self.panel.title),
            x,
            y,
            form,
            series,
            label: label.to_owned(),
            more: match self.chart.cdf {
                true => Vec::new(),
                false => ["busiest resource", "busy", "from the paper's text"]
                    .map(str::to_owned)
                    .into(),
            },
            moment: None,
        }
    }

    fn series(&self) -> impl Iterator<Item = (&String, &str, Source)> {
        let ours = self.panel.series.len();
        self.panel.all_series().enumerate().map(move |(place, series)| {
            let source = if place < ours { Source::Ours } else { Source::Extra };
            (
                series,
                series_title(self.experiment, series, self.registry),
                source,
            )
        })
    }

    fn at<'a>(&'a self, series: &'a str, at: Option<f64>) -> impl Iterator<Item = &'a Sample> {
        self.samples
            .iter()
            .filter(move |s| s.panel == self.panel.name && s.series == series && s.at == at)
    }

    fn spread(&self, metric: Metric, series: &str, at: Option<f64>) -> Option<Spread> {
        let figures: Vec<f64> = self
            .at(series, at)
            .filter_map(|s| s.figures.metrics.get(&metric).copied())
            .collect();
        Spread::of(&figures)
    }

    /// Returns a point of a series, at horizontal position `x`.
    fn datum(&self, x: f64, metric: Metric, series: &str, at: Option<f64>) -> Option<Datum> {
        let spread = self.spread(metric, series, at)?;
        let busiest = self.at(series, at).find_map(|s| s.figures.busiest.clone());
        let busy = self.spread(Metric::OfBound, series, at);
        Some(Datum {
            x,
            y: spread.mean,
            range: (spread.high > spread.low).then_some((spread.low, spread.high)),
            label: String::new(),
            more: vec![
                busiest.unwrap_or_default(),
                busy.map(|busy| format!("{:.0} %", busy.mean)).unwrap_or_default(),
                String::new(),
            ],
        })
    }

    /// Returns the value of a series at a place of the dial, and the place.
    fn value(&self, metric: Metric, series: &str, at: Option<At>) -> Option<(Option<f64>, f64)> {
        let values = self
            .panel
            .places()
            .filter_map(|place| Some((place, self.spread(metric, series, place)?.mean)));
        match at {
            None => values.last(),
            Some(At::Value(value)) => values.into_iter().find(|(place, _)| *place == Some(value)),
            Some(At::Named(Place::Peak)) => values.max_by(|a, b| a.1.total_cmp(&b.1)),
            Some(At::Named(_)) => None,
        }
    }

    /// Returns the paper's numbers for a metric of a series, each with its place on the dial. If the paper gives only
    /// ratios, each ratio is multiplied by our figure of the other series.
    fn papers(&self, metric: Metric, series: &str) -> Vec<(Option<f64>, Paper)> {
        let about = |c: &&Claim| {
            c.panel == self.panel.name
                && c.of == series
                && c.metric == metric
                && c.kind == Kind::Graded
                && c.skip.is_none()
                && c.rising.is_empty()
                && c.over_panel.is_none()
        };
        let claims = || self.experiment.claims.iter().filter(about);
        let number = |c: &Claim| {
            let (place, _) = self.value(metric, series, c.at)?;
            let paper = c.paper?;
            let source = c.source.as_deref().map(|s| format!(" ({s})")).unwrap_or_default();
            let Some(over) = &c.over else {
                let how = format!("{}{source}", figure(paper));
                return Some((place, Paper { number: paper, how }));
            };
            let (_, other) = self.value(metric, over, c.over_at.or(c.at))?;
            let title = series_title(self.experiment, over, self.registry);
            let how = format!("{} × our {title} of {}{source}", figure(paper), figure(other));
            let number = paper * other;
            (over != series).then_some((place, Paper { number, how }))
        };
        let plain: Vec<_> = claims().filter(|c| c.over.is_none()).filter_map(number).collect();
        match plain.is_empty() {
            true => claims().filter_map(number).collect(),
            false => plain,
        }
    }

    /// Returns a series of the paper's numbers, if there are any.
    fn paper_series(&self, title: &str, data: Vec<Datum>) -> Option<Series> {
        let name = title.split(" as ").next().unwrap_or(title);
        (!data.is_empty()).then(|| Series {
            name: format!("paper: {name}"),
            source: Source::Paper,
            data,
        })
    }

    fn bars(&self) -> Vec<Series> {
        let metric = self.chart.metric;
        let mut all = Vec::new();
        for (series, title, source) in self.series() {
            all.push(Series {
                name: title.to_owned(),
                source,
                data: self.datum(0.0, metric, series, None).into_iter().collect(),
            });
            let papers = self.papers(metric, series).into_iter();
            let data = papers
                .map(|(_, paper)| hollow(0.0, paper.number, paper.how))
                .collect();
            all.extend(self.paper_series(title, data));
        }
        all
    }

    fn lines(&self, at: &[f64]) -> Vec<Series> {
        let metric = self.chart.metric;
        let mut all = Vec::new();
        for (series, title, source) in self.series() {
            let data = at.iter().filter_map(|x| self.datum(*x, metric, series, Some(*x)));
            all.push(Series {
                name: title.to_owned(),
                source,
                data: data.collect(),
            });
            let papers = self.papers(metric, series).into_iter();
            let data = papers.filter_map(|(place, paper)| Some(hollow(place?, paper.number, paper.how)));
            all.extend(self.paper_series(title, data.collect()));
        }
        all
    }

    /// Returns curves of a latency against a throughput. The values of the dial are the labels of the points. If the
    /// paper's text gives a throughput, it gives no latency for it, so the chart has a vertical line there.
    fn curves(&self, against: Metric) -> (Form, Axis, Axis, Vec<Series>, &str) {
        let metric = self.chart.metric;
        let mut all = Vec::new();
        for (series, title, source) in self.series() {
            let point = |place: Option<f64>| {
                let x = self.spread(against, series, place)?.mean;
                let mut datum = self.datum(x, metric, series, place)?;
                datum.label = place.map(|place| place.to_string()).unwrap_or_default();
                Some(datum)
            };
            all.push(Series {
                name: title.to_owned(),
                source,
                data: self.panel.places().filter_map(point).collect(),
            });
            let papers = self.papers(against, series).into_iter();
            let data = papers
                .map(|(_, paper)| hollow(paper.number, f64::NAN, paper.how))
                .collect();
            all.extend(self.paper_series(title, data));
        }
        let scale = if self.chart.log { Scale::Log } else { Scale::Linear };
        let dial = self.panel.over.as_ref().map_or("", |over| over.dial.label());
        (
            Form::Lines,
            axis(against, Scale::Linear),
            axis(metric, scale),
            all,
            dial,
        )
    }

    /// Returns the cumulative distribution of the round trips of write operations, at the first place of the dial and
    /// for the first seed.
    fn distribution(&self) -> (Form, Axis, Axis, Vec<Series>, &'static str) {
        let of = |series: &str| {
            let steps = self.at(series, self.panel.places().next().flatten()).next();
            let steps = steps
                .map(|s| s.figures.round_trips.as_slice())
                .unwrap_or_default();
            let datum = |(trips, share): &(u64, f64)| Datum {
                x: *trips as f64,
                y: *share,
                ..Datum::default()
            };
            steps.iter().map(datum).collect()
        };
        let all = self.series().map(|(series, title, source)| Series {
            name: title.to_owned(),
            source,
            data: of(series),
        });
        (
            Form::Steps,
            Axis::new("round trips", Scale::Log),
            Axis::new("share of writes with at most so many round trips", Scale::Linear),
            all.collect(),
            "",
        )
    }
}

/// Returns a point of the paper.
fn hollow(x: f64, y: f64, how: String) -> Datum {
    Datum {
        x,
        y,
        more: vec![String::new(), String::new(), how],
        ..Datum::default()
    }
}

/// Returns the axis of a metric, with its unit.
fn axis(metric: Metric, scale: Scale) -> Axis {
    match metric.unit() {
        "" => Axis::new(metric.label(), scale),
        unit => Axis::new(&format!("{} ({unit})", metric.label()), scale),
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
                        let drawn = panel.charts.iter();
                        let drawn = drawn.flat_map(|chart| [Some(chart.metric), chart.against]);
                        samples.push(Sample {
                            panel: panel.name.clone(),
                            series: series.clone(),
                            at,
                            seed,
                            figures: Figures {
                                metrics: drawn.flatten().map(|metric| (metric, mops)).collect(),
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
            panels: experiment.panels.iter().map(|panel| panel.name.clone()).collect(),
            samples,
            outcomes: Vec::new(),
            sensitivity: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// Every chart of every experiment names its series, contains no invalid number, and has a name of its own.
    #[test]
    fn every_panel_is_drawn() {
        let registry = dm_shipped::shipped();
        let mut ids = Vec::new();
        for experiment in super::super::experiment::all().unwrap() {
            let record = record(&experiment);
            for panel in &experiment.panels {
                for chart in of_panel(&experiment, panel, &record, &registry) {
                    let svg = chart.file();
                    for series in panel.all_series() {
                        let title = series_title(&experiment, series, &registry);
                        let title = page::escaped(title);
                        assert!(
                            svg.contains(&format!(">{title}<")),
                            "{}: {title}",
                            experiment.name
                        );
                    }
                    assert!(
                        !svg.contains("NaN") && !svg.contains("inf"),
                        "{}: {svg}",
                        experiment.name
                    );
                    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>"));
                    assert!(!ids.contains(&chart.id), "{}", chart.id);
                    ids.push(chart.id);
                }
            }
        }
        assert!(ids.len() > 30, "{}", ids.len());
    }

    #[test]
    fn the_papers_own_figures_and_ratios_are_hollow() {
        let all = super::super::experiment::all().unwrap();
        let hollow = |name: &str| {
            let experiment = all.iter().find(|e| e.name == name).unwrap();
            let registry = dm_shipped::shipped();
            let charts = of_panel(experiment, &experiment.panels[0], &record(experiment), &registry);
            let paper = charts[0].series.iter().filter(|s| s.source == Source::Paper);
            paper.map(|s| (s.name.clone(), s.data[0].y)).collect::<Vec<_>>()
        };
        assert_eq!(
            hollow("sherman-2"),
            [("paper: CAS, released by FAA".to_owned(), 0.494)]
        );
        // FG+ has 1.5 Mops here on average.
        assert_eq!(hollow("sherman-10"), [("paper: Sherman".to_owned(), 24.7 * 1.5)],);
    }
}
