//! Compares samples with claims. The result of a claim is the model's figure, its range over the seeds, and a verdict.

use serde::{Deserialize, Serialize};

use super::cases::Sample;
use super::experiment::{At, Claim, Experiment, Kind, Panel, Place, Sense};
use super::metric::Metric;

/// A graded figure is reproduced if it is within this share of the paper's.
pub(crate) const TOLERANCE: f64 = 0.20;
/// The tree's result must be within this share of the prediction of the model without a tree.
pub(crate) const FORETOLD_TOLERANCE: f64 = 0.25;
/// An order holds if no step is below 1 by more than this, so that two equal bars count as ordered.
const ORDER_SLACK: f64 = 0.03;

/// The verdict on a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// The claim was graded, and is within 20 % of the paper.
    Within,
    /// The claim was graded, and is further from the paper.
    Missed,
    /// The order or trend holds.
    Kept,
    /// The order or trend does not hold.
    Lost,
    /// There is nothing to grade: the number is from a plot, or the claim is dmkit's.
    Shown,
    /// The claim was not run, for the reason that it gives.
    NotRun,
}

impl Verdict {
    /// Returns the verdict in words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Within => "within 20 %",
            Self::Missed => "missed",
            Self::Kept => "order kept",
            Self::Lost => "order lost",
            Self::Shown => "not graded",
            Self::NotRun => "not run",
        }
    }
}

/// The mean and the range of a figure over several seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) mean: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Spread {
    pub(crate) fn of(figures: &[f64]) -> Option<Self> {
        (!figures.is_empty()).then(|| Self {
            mean: figures.iter().sum::<f64>() / figures.len() as f64,
            low: figures.iter().copied().fold(f64::INFINITY, f64::min),
            high: figures.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

/// A claim with the model's result. It is a row of the table of claims.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) panel: String,
    pub(crate) what: String,
    pub(crate) kind: Kind,
    #[serde(default)]
    pub(crate) sense: Sense,
    pub(crate) metric: Metric,
    /// Whether the claim is a quotient of two figures.
    pub(crate) quotient: bool,
    pub(crate) paper: Option<f64>,
    pub(crate) source: Option<String>,
    pub(crate) foretold: Option<f64>,
    /// The constants that were fitted to this figure; empty for a prediction.
    pub(crate) fitted: Vec<String>,
    pub(crate) model: Option<Spread>,
    pub(crate) verdict: Verdict,
    /// Whether the tree's result is within 25 % of the prediction.
    pub(crate) as_foretold: Option<bool>,
    /// The reason why the claim was missed or not run.
    pub(crate) why: Option<String>,
}

impl Outcome {
    pub(crate) fn is_fit(&self) -> bool {
        !self.fitted.is_empty()
    }

    /// Returns the model's deviation from the paper, as a share of the paper's figure.
    pub(crate) fn off(&self) -> Option<f64> {
        Some(self.model?.mean / self.paper? - 1.0)
    }

    pub(crate) fn unit(&self) -> &'static str {
        if self.quotient { "×" } else { self.metric.unit() }
    }
}

/// Returns the outcome of every claim of `experiment`.
pub(crate) fn grade(experiment: &Experiment, samples: &[Sample]) -> Vec<Outcome> {
    let mut seeds: Vec<u64> = samples.iter().map(|sample| sample.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let outcome = |claim: &Claim| {
        let panel = experiment.panel(&claim.panel);
        let figures: Vec<f64> = panel
            .filter(|_| claim.skip.is_none())
            .map(|panel| {
                let other = claim
                    .over_panel
                    .as_deref()
                    .and_then(|name| experiment.panel(name));
                let reading = |&seed| {
                    let here = Reading { panel, samples, seed };
                    let there = Reading {
                        panel: other.unwrap_or(panel),
                        ..here
                    };
                    here.claim(claim, &there)
                };
                seeds.iter().filter_map(reading).collect()
            })
            .unwrap_or_default();
        judge(claim, Spread::of(&figures))
    };
    experiment.claims.iter().map(outcome).collect()
}

fn judge(claim: &Claim, model: Option<Spread>) -> Outcome {
    let off = model
        .zip(claim.paper)
        .map(|(model, paper)| model.mean / paper - 1.0);
    let verdict = match (claim.kind, off) {
        (Kind::Graded, Some(off)) => {
            let short = off < -TOLERANCE;
            let far = short || (claim.sense == Sense::About && off > TOLERANCE);
            if far { Verdict::Missed } else { Verdict::Within }
        }
        (Kind::Order, Some(off)) => {
            if off < -ORDER_SLACK {
                Verdict::Lost
            } else {
                Verdict::Kept
            }
        }
        _ if model.is_none() => Verdict::NotRun,
        _ => Verdict::Shown,
    };
    let missed = matches!(verdict, Verdict::Missed | Verdict::Lost);
    let why = if missed {
        claim.reason.clone()
    } else {
        claim.skip.clone()
    };
    Outcome {
        panel: claim.panel.clone(),
        what: claim.what.clone(),
        kind: claim.kind,
        sense: claim.sense,
        metric: claim.metric,
        quotient: claim.over.is_some() || !claim.rising.is_empty(),
        paper: claim.paper,
        source: claim.source.clone(),
        foretold: claim.foretold,
        fitted: claim.fitted.clone(),
        model,
        verdict,
        as_foretold: model
            .zip(claim.foretold)
            .map(|(model, foretold)| (model.mean / foretold - 1.0).abs() <= FORETOLD_TOLERANCE),
        why,
    }
}

/// Reads the figures of one seed from a panel.
#[derive(Clone, Copy)]
struct Reading<'a> {
    panel: &'a Panel,
    samples: &'a [Sample],
    seed: u64,
}

impl Reading<'_> {
    /// Returns the value of a claim. `there` is the panel from which a divisor is read.
    fn claim(&self, claim: &Claim, there: &Self) -> Option<f64> {
        let metric = claim.metric;
        if !claim.rising.is_empty() {
            let steps = claim.rising.windows(2).map(|pair| {
                let [from, to] = pair else { return None };
                Some(self.taken(to, metric, claim.at)? / self.taken(from, metric, claim.at)?)
            });
            return steps.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::min);
        }
        let Some(over) = &claim.over else {
            return self.taken(&claim.of, metric, claim.at);
        };
        let quotient = |at| Some(self.at(&claim.of, metric, at)? / self.at(over, metric, at)?);
        match claim.at {
            Some(At::Named(Place::Most)) => self.panel.places().filter_map(quotient).reduce(f64::max),
            Some(At::Named(Place::Rising)) => {
                let along: Vec<f64> = self.panel.places().filter_map(quotient).collect();
                along.windows(2).map(|pair| pair[1] / pair[0]).reduce(f64::min)
            }
            at => Some(self.taken(&claim.of, metric, at)? / there.taken(over, metric, claim.over_at.or(at))?),
        }
    }

    /// Returns the figure of a series at a place of the dial, or its best figure.
    fn taken(&self, series: &str, metric: Metric, at: Option<At>) -> Option<f64> {
        match at {
            Some(At::Value(at)) => self.at(series, metric, Some(at)),
            _ => self
                .panel
                .places()
                .filter_map(|at| self.at(series, metric, at))
                .reduce(f64::max),
        }
    }

    fn at(&self, series: &str, metric: Metric, at: Option<f64>) -> Option<f64> {
        let here = |sample: &&Sample| {
            sample.panel == self.panel.name
                && sample.series == series
                && sample.at == at
                && sample.seed == self.seed
        };
        let sample = self.samples.iter().find(here)?;
        // A division by zero gives no result.
        sample
            .figures
            .metrics
            .get(&metric)
            .copied()
            .filter(|figure| figure.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::Figures;
    use super::super::experiment::{Over, World};
    use super::super::setup::{Dial, Setup};
    use super::*;

    fn sample(series: &str, at: f64, seed: u64, mops: f64) -> Sample {
        Sample {
            panel: "a".to_owned(),
            series: series.to_owned(),
            at: Some(at),
            seed,
            figures: Figures {
                metrics: [(Metric::Mops, mops)].into_iter().collect(),
                round_trips: Vec::new(),
            },
        }
    }

    fn claim(text: &str) -> Claim {
        let base = "panel = \"a\"\nwhat = \"w\"\nmetric = \"mops\"\n";
        toml::from_str(&format!("{base}{text}")).unwrap()
    }

    /// Grades a claim on these samples: with seed 1, slow gives 2 and then 1 Mops, and fast gives 4 and then 6. With seed
    /// 2, all figures are a tenth higher.
    fn outcome(text: &str) -> Outcome {
        let panel = Panel {
            name: "a".to_owned(),
            title: String::new(),
            setup: Setup::default(),
            over: Some(Over {
                dial: Dial::Clients,
                at: vec![8.0, 16.0],
            }),
            series: vec!["slow".to_owned(), "fast".to_owned()],
            extra: Vec::new(),
            charts: Vec::new(),
        };
        let experiment = Experiment {
            name: String::new(),
            paper: String::new(),
            figure: String::new(),
            title: String::new(),
            about: String::new(),
            world: World::Tree,
            differs: Vec::new(),
            setup: Setup::default(),
            panels: vec![panel],
            claims: vec![claim(text)],
        };
        let mut samples = Vec::new();
        for (seed, by) in [(1, 1.0), (2, 1.1)] {
            for (series, at, mops) in [
                ("slow", 8.0, 2.0),
                ("slow", 16.0, 1.0),
                ("fast", 8.0, 4.0),
                ("fast", 16.0, 6.0),
            ] {
                samples.push(sample(series, at, seed, mops * by));
            }
        }
        grade(&experiment, &samples).remove(0)
    }

    fn mean(text: &str) -> f64 {
        (outcome(text).model.unwrap().mean * 1e6).round() / 1e6
    }

    #[test]
    fn figures_are_taken_where_the_claim_says() {
        assert_eq!(mean("of = \"fast\"\nat = 16.0"), 6.3);
        assert_eq!(mean("of = \"slow\"\nat = \"peak\""), 2.1);
        assert_eq!(mean("of = \"fast\"\nover = \"slow\"\nat = 8.0"), 2.0);
        assert_eq!(mean("of = \"fast\"\nover = \"slow\"\nat = \"peak\""), 3.0);
        assert_eq!(mean("of = \"fast\"\nover = \"slow\"\nat = \"most\""), 6.0);
        assert_eq!(mean("of = \"fast\"\nover = \"slow\"\nat = \"rising\""), 3.0);
        assert_eq!(
            mean("of = \"slow\"\nover = \"slow\"\nat = \"peak\"\nover-at = 16.0"),
            2.0
        );
        assert_eq!(mean("rising = [\"slow\", \"fast\"]\nat = 8.0"), 2.0);
    }

    #[test]
    fn verdicts_know_both_sides_of_their_bounds() {
        let verdict = |paper: &str, more: &str| {
            outcome(&format!(
                "of = \"fast\"\nover = \"slow\"\nat = 8.0\npaper = {paper}\nreason = \"r\"\n{more}"
            ))
        };
        for (paper, more, expected) in [
            ("1.7", "", Verdict::Within), // 2 is 18 % above
            ("1.6", "", Verdict::Missed),
            ("2.45", "", Verdict::Within),
            ("2.6", "", Verdict::Missed),
            ("1.0", "sense = \"at-least\"", Verdict::Within),
            ("2.6", "sense = \"at-least\"", Verdict::Missed),
            ("2.04", "kind = \"order\"", Verdict::Kept),
            ("2.1", "kind = \"order\"", Verdict::Lost),
            ("9.0", "kind = \"plot\"", Verdict::Shown),
            ("2.0", "skip = \"no\"", Verdict::NotRun),
        ] {
            let outcome = verdict(paper, more);
            assert_eq!(outcome.verdict, expected, "{paper} {more}");
            let why = match expected {
                Verdict::Missed | Verdict::Lost => Some("r"),
                Verdict::NotRun => Some("no"),
                _ => None,
            };
            assert_eq!(outcome.why.as_deref(), why, "{paper} {more}");
        }
    }

    #[test]
    fn seeds_spread_and_fits_are_apart() {
        let fit = outcome("of = \"fast\"\nat = 8.0\npaper = 4.0\nforetold = 6.0\nfitted = [\"wire_ns\"]");
        let spread = fit.model.unwrap();
        assert!((spread.low, spread.high) == (4.0, 4.4) && (spread.mean - 4.2).abs() < 1e-9);
        assert!(fit.is_fit() && fit.as_foretold == Some(false));
        assert!(!outcome("of = \"fast\"\nat = 8.0").is_fit());
        assert_eq!(outcome("of = \"fast\"\nat = 9.0").verdict, Verdict::NotRun);
    }
}
