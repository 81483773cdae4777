//! Compares samples with claims. The result of a claim is the model's figure, its range over the seeds, and a grade.

use dm_index::Fill;
use serde::{Deserialize, Serialize};

use super::cases::Sample;
use super::experiment::{At, Claim, Experiment, Kind, Panel, Place, RunKind, Sense};
use super::metric::Metric;
use super::reason::{
    Compared, Loaded, Point, Reason, cache_too_large, counted_not_timed, fairness, late_as_the_mean,
    not_understood, too_large, too_late, too_slow, without_key,
};
use super::setup::Resolved;

/// A number is reproduced if the model's figure is within this share of it.
pub(crate) const TOLERANCE: f64 = 0.20;
/// The network counts as congested at a place of the dial if the median latency there is more than this multiple of the
/// latency at the first place.
const CONGESTED: f64 = 1.5;

/// The grade of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Grade {
    /// The figure is within 20 % of the paper's number.
    Reproduced,
    /// The figure is more than 20 % better than a number that the paper's system should reach, and the comparison is
    /// fair.
    Exceeded,
    /// Only the direction holds: the paper gives no number, or the larger number is not shown to be fair.
    Direction,
    /// The figure misses the paper's number by more than 20 %, or the direction does not hold.
    Missed,
    /// There is no grade. The outcome's note says why, unless the row is no claim or has no figure.
    NotGraded,
}

impl Grade {
    /// Returns the grade in words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Exceeded => "exceeded",
            Self::Direction => "direction only",
            Self::Missed => "missed",
            Self::NotGraded => "not graded",
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
    pub(crate) sense: Sense,
    pub(crate) metric: Metric,
    /// Whether the claim is a quotient of two figures.
    pub(crate) quotient: bool,
    pub(crate) paper: Option<f64>,
    /// The possible error of `paper`, as a share of it, if it was read off a plot.
    pub(crate) reading_error: Option<f64>,
    pub(crate) source: Option<String>,
    /// The inputs that were fitted to this figure; empty for a prediction.
    pub(crate) fitted: Vec<String>,
    /// Whether the claim cannot be run on the model.
    pub(crate) not_modelled: bool,
    pub(crate) model: Option<Spread>,
    pub(crate) grade: Grade,
    /// The grade of a run whose setting differs from the experiment's own. It is only shown: such a claim counts as not
    /// graded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_this_setting: Option<Grade>,
    /// Whether some seeds alone would have another grade.
    pub(crate) seeds_disagree: bool,
    /// The reason of a miss, from the run's rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<Reason>,
    /// The reason of any other grade that needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

impl Outcome {
    pub(crate) fn is_fit(&self) -> bool {
        !self.fitted.is_empty()
    }

    /// Returns whether the row counts as a claim of the paper. Rows of the kinds `Plot` and `Extra` do not count; they
    /// are only shown beside the claims.
    pub(crate) fn is_claim(&self) -> bool {
        matches!(self.kind, Kind::Graded | Kind::Order)
    }

    /// Returns the model's deviation from the paper, as a share of the paper's figure.
    pub(crate) fn off(&self) -> Option<f64> {
        Some(self.model?.mean / self.paper? - 1.0)
    }

    /// Returns the grade that the claim has or, in a run at another setting, would have.
    fn graded(&self) -> Grade {
        self.at_this_setting.unwrap_or(self.grade)
    }

    fn compared(&self) -> Option<Compared> {
        Some(Compared {
            model: self.model?.mean,
            paper: self.paper?,
        })
    }

    pub(crate) fn unit(&self) -> &'static str {
        if self.quotient { "×" } else { self.metric.unit() }
    }

    /// Returns the grade in words, with the amount by which a number is exceeded or a direction holds.
    pub(crate) fn words(&self) -> String {
        let mut words = self.grade.words().to_owned();
        if matches!(self.grade, Grade::Exceeded | Grade::Direction)
            && let Some(off) = self.off()
        {
            let side = if off < 0.0 { "below" } else { "above" };
            words += &format!(", {:.0} % {side}", 100.0 * off.abs());
        }
        if let Some(here) = self.at_this_setting {
            words += &format!(" (at this setting: {})", here.words());
        }
        if self.seeds_disagree {
            words += ", the seeds disagree";
        }
        words
    }

    /// Returns the text that explains the grade, if there is one.
    pub(crate) fn why(&self) -> Option<&str> {
        let reason = self.reason.as_ref().map(|reason| reason.text.as_str());
        reason.or(self.note.as_deref())
    }
}

/// Returns the outcome of every claim of `experiment`. `deviations` are the differences between the run and the
/// experiment's own setting: if there are any, no claim is graded.
pub(crate) fn grade(experiment: &Experiment, samples: &[Sample], deviations: &[String]) -> Vec<Outcome> {
    let mut seeds: Vec<u64> = samples.iter().map(|sample| sample.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let outcome = |claim: &Claim| {
        let panel = experiment.panel(&claim.panel).filter(|_| claim.skip.is_none());
        let Some(panel) = panel else {
            return judge(claim, None, &Points::default(), deviations);
        };
        let other = claim
            .over_panel
            .as_deref()
            .and_then(|name| experiment.panel(name));
        let reading = |seed| {
            let here = Reading {
                experiment,
                panel,
                samples,
                seed,
            };
            let there = Reading {
                panel: other.unwrap_or(panel),
                ..here
            };
            (here, there)
        };
        let value = |seed: &u64| {
            let (here, there) = reading(Some(*seed));
            here.claim(claim, &there)
        };
        let figures: Vec<f64> = seeds.iter().filter_map(value).collect();
        let (here, there) = reading(None);
        judge(
            claim,
            Spread::of(&figures),
            &here.points(claim, &there),
            deviations,
        )
    };
    let mut outcomes: Vec<Outcome> = experiment.claims.iter().map(outcome).collect();
    if experiment.kind == RunKind::Tree {
        relate_to_throughput(&experiment.claims, &mut outcomes);
    }
    outcomes
}

/// Explains missed latencies by claims about the throughput at the same points ([`late_as_the_mean`]). Such a claim must
/// be reproduced, or missed with a reason. A fitted one is no evidence. The clients of a tree make one operation at a
/// time, which other runs need not do.
fn relate_to_throughput(claims: &[Claim], outcomes: &mut [Outcome]) {
    for (number, claim) in claims.iter().enumerate() {
        let outcome = &outcomes[number];
        let open = outcome.reason.as_ref().is_some_and(|reason| !reason.understood);
        if !open || claim.kind != Kind::Graded || !claim.metric.is_latency() {
            continue;
        }
        let reason = claims.iter().zip(&*outcomes).find_map(|(other, throughput)| {
            let same_dividend = same_points(claim, other)?;
            let usable = other.metric == Metric::Mops
                && other.kind == Kind::Graded
                && match throughput.graded() {
                    Grade::Reproduced => true,
                    Grade::Missed => throughput.reason.as_ref().is_some_and(|reason| reason.understood),
                    _ => false,
                };
            let own = throughput.compared().filter(|_| usable)?;
            let rates = if same_dividend { own } else { own.inverse() };
            let described = (other.what.as_str(), throughput.graded().words(), own);
            late_as_the_mean(outcome.compared()?, rates, described)
        });
        if reason.is_some() {
            outcomes[number].reason = reason;
        }
    }
}

/// The place of a figure: its panel, its series, and the value of the dial.
type Spot<'a> = (&'a str, &'a str, Option<At>);

/// Returns the points of a claim, if it names them: that of its figure, and that of the divisor.
fn spots(claim: &Claim) -> Option<(Spot<'_>, Option<Spot<'_>>)> {
    let over_at = claim.over_at.or(claim.at);
    let named = [claim.at, over_at]
        .into_iter()
        .flatten()
        .any(|at| matches!(at, At::Named(_)));
    (!named && claim.rising.is_empty()).then(|| {
        let panel = claim.over_panel.as_deref().unwrap_or(&claim.panel);
        let over = claim.over.as_deref().map(|over| (panel, over, over_at));
        ((claim.panel.as_str(), claim.of.as_str(), claim.at), over)
    })
}

/// Returns whether two claims about the same points have the same dividend. Returns `None` if the points are others.
fn same_points(one: &Claim, other: &Claim) -> Option<bool> {
    let (of, over) = spots(one)?;
    let others = spots(other)?;
    if (of, over) == others {
        return Some(true);
    }
    (over.is_some_and(|over| (over, Some(of)) == others)).then_some(false)
}

/// The points from which a claim's figure was taken.
#[derive(Debug, Clone, Default)]
struct Points {
    of: Option<Point>,
    over: Option<Point>,
}

impl Points {
    /// Returns the point of the baseline, with which the claim compares its system. In a quotient of latencies the
    /// baseline is the dividend, otherwise the divisor, so that a better system always has a larger quotient.
    fn baseline(&self, metric: Metric) -> Option<&Point> {
        let both = self.of.as_ref().zip(self.over.as_ref());
        both.map(|(of, over)| if metric.is_latency() { of } else { over })
    }
}

/// The side of the paper's number on which a figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Below,
    Within,
    Above,
}

/// Returns the side of `paper` on which `figure` is.
fn side(figure: f64, paper: f64) -> Side {
    let off = figure / paper - 1.0;
    if off < -TOLERANCE {
        Side::Below
    } else if off > TOLERANCE {
        Side::Above
    } else {
        Side::Within
    }
}

/// A grade and its explanation.
struct Judged {
    grade: Grade,
    reason: Option<Reason>,
    note: Option<String>,
}

impl Judged {
    fn plain(grade: Grade) -> Self {
        Self {
            grade,
            reason: None,
            note: None,
        }
    }

    fn noted(grade: Grade, note: impl Into<String>) -> Self {
        Self {
            note: Some(note.into()),
            ..Self::plain(grade)
        }
    }

    fn missed(reason: Reason) -> Self {
        Self {
            reason: Some(reason),
            ..Self::plain(Grade::Missed)
        }
    }
}

fn judge(claim: &Claim, model: Option<Spread>, points: &Points, deviations: &[String]) -> Outcome {
    let quotient = claim.over.is_some() || !claim.rising.is_empty();
    let mut judged = judge_figure(claim, model, points, quotient);
    let graded = judged.grade != Grade::NotGraded;
    let mut at_this_setting = None;
    if graded && !deviations.is_empty() {
        at_this_setting = Some(judged.grade);
        judged.grade = Grade::NotGraded;
        judged.note.get_or_insert_with(|| {
            format!(
                "The run is not at the experiment's own setting: {}.",
                deviations.join(", ")
            )
        });
    }
    let seeds_disagree = model
        .zip(claim.paper)
        .is_some_and(|(model, paper)| match claim.kind {
            Kind::Graded => side(model.low, paper) != side(model.high, paper),
            Kind::Order => (model.low > 1.0) != (model.high > 1.0),
            _ => false,
        });
    Outcome {
        panel: claim.panel.clone(),
        what: claim.what.clone(),
        kind: claim.kind,
        sense: claim.sense,
        metric: claim.metric,
        quotient,
        paper: claim.paper,
        reading_error: claim.reading_error,
        source: claim.source.clone(),
        fitted: claim.fitted.clone(),
        not_modelled: claim.skip.is_some(),
        model,
        grade: judged.grade,
        at_this_setting,
        seeds_disagree: seeds_disagree && graded,
        reason: judged.reason,
        note: judged.note,
    }
}

fn judge_figure(claim: &Claim, model: Option<Spread>, points: &Points, quotient: bool) -> Judged {
    if let Some(skip) = &claim.skip {
        return Judged::noted(Grade::NotGraded, skip);
    }
    let (Some(model), Some(paper)) = (model, claim.paper) else {
        return Judged::plain(Grade::NotGraded);
    };
    if !matches!(claim.kind, Kind::Graded | Kind::Order) {
        return Judged::plain(Grade::NotGraded);
    }
    if !claim.fitted.is_empty() {
        let note = format!("Fitted: this number determines {}.", claim.fitted.join(" and "));
        return Judged::noted(Grade::NotGraded, note);
    }
    // If the quotient is exactly 1 with every seed, the two points count as the same point, because figures of
    // different points hardly ever agree to the last bit.
    if quotient && (model.low, model.high) == (1.0, 1.0) {
        return Judged::noted(
            Grade::NotGraded,
            "The two points are identical, so the comparison cannot fail.",
        );
    }
    if claim.kind == Kind::Order {
        return match model.low > 1.0 {
            true => Judged::plain(Grade::Direction),
            false => Judged::missed(miss(claim.metric, model.low, 1.0, points)),
        };
    }
    let error = claim.reading_error.unwrap_or(0.0);
    let sides = [paper * (1.0 - error), paper, paper * (1.0 + error)].map(|paper| side(model.mean, paper));
    if sides.iter().any(|side| *side != sides[0]) {
        let note = format!(
            "The paper's number was read off a plot and may err by {:.0} %, which decides the grade.",
            100.0 * error
        );
        return Judged::noted(Grade::NotGraded, note);
    }
    match (sides[0], claim.sense) {
        (Side::Within, _) => Judged::plain(Grade::Reproduced),
        (Side::Above, Sense::AtLeast) => match fairness(points.baseline(claim.metric)) {
            Ok(fair) => Judged::noted(Grade::Exceeded, fair),
            Err(unfair) => Judged::noted(Grade::Direction, unfair),
        },
        (Side::Below, Sense::AtMost) => Judged::noted(Grade::Exceeded, COUNTED),
        _ => Judged::missed(miss(claim.metric, model.mean, paper, points)),
    }
}

/// The note of memory in use that is less than the paper's.
const COUNTED: &str =
    "Fair: bytes are counted and not timed, so no resource of the model has a part in them.";

/// Searches the rows for the reason of a miss.
fn miss(metric: Metric, model: f64, paper: f64, points: &Points) -> Reason {
    let (of, over) = (points.of.as_ref(), points.over.as_ref());
    let factor = (paper / model).max(model / paper);
    // A claim is about the figure of `of`, or about the quotient of `of` and `over`. If it is below the paper's, the
    // figure of `of` is too low or that of `over` is too high; if it is above, the reverse.
    let (low, high) = if model <= paper { (of, over) } else { (over, of) };
    let found = match metric {
        _ if metric.is_throughput() => low.map(|slow| too_slow(factor, slow, high)),
        _ if metric.is_latency() => high.map(|slow| too_late(metric, factor, slow, low)),
        _ if over.is_some() => None,
        Metric::CacheBytesPerKey => of.map(|of| cache_too_large(model, paper, of)),
        Metric::NodeBytesPerKey => of.map(|of| too_large(model, paper, of)),
        Metric::WriteBytes => of.map(|of| without_key(model, paper, 1.0, of)),
        Metric::WriteAmplification => of.map(|of| without_key(model, paper, of.item, of)),
        _ => None,
    };
    let mut reason = found.unwrap_or_else(|| not_understood(&[of, over]));
    if let Some((of, over)) = of.zip(over).filter(|_| !reason.understood) {
        let work = match metric.is_latency() {
            true => counted_not_timed(model, of, over),
            false if metric.is_throughput() => counted_not_timed(1.0 / model, of, over),
            false => None,
        };
        reason.text += &work.unwrap_or_default();
    }
    reason
}

/// Returns how a point's keys were loaded, if all leaves were filled evenly.
fn loaded(setup: &Resolved) -> Option<Loaded> {
    match setup.fill {
        Fill::Even(fill) if setup.keys > 0 => Some(Loaded {
            fill,
            clients: f64::from(setup.clients * setup.coroutines.max(1)),
            keys_per_leaf: setup.entries.map(|entries| entries as f64 * fill),
        }),
        _ => None,
    }
}

/// Reads the figures of one seed from a panel, or the means over all seeds.
#[derive(Clone, Copy)]
struct Reading<'a> {
    experiment: &'a Experiment,
    panel: &'a Panel,
    samples: &'a [Sample],
    seed: Option<u64>,
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

    /// Returns the figure of a series at a place of the dial, or its largest figure.
    fn taken(&self, series: &str, metric: Metric, at: Option<At>) -> Option<f64> {
        match at {
            Some(At::Value(at)) => self.at(series, metric, Some(at)),
            Some(At::Named(Place::Inflection)) => self.at(series, metric, self.inflection(series)?),
            _ => self
                .panel
                .places()
                .filter_map(|at| self.at(series, metric, at))
                .reduce(f64::max),
        }
    }

    /// Returns the last place of a series up to which its median latency is not raised by congestion. Returns `None` if
    /// congestion raises it at no place.
    fn inflection(&self, series: &str) -> Option<Option<f64>> {
        let median = |at: &Option<f64>| self.at(series, Metric::P50, *at);
        let first = median(&self.panel.places().next()?)?;
        let calm = |at: &Option<f64>| median(at).is_some_and(|median| median <= CONGESTED * first);
        let congested = self.panel.places().any(|at| !calm(&at));
        self.panel.places().take_while(calm).last().filter(|_| congested)
    }

    /// Returns the points from which [`Self::claim`] takes a claim's value. For [`Place::Rising`], whose value comes
    /// from more than two points, returns the points with the largest figures.
    fn points(&self, claim: &Claim, there: &Self) -> Points {
        let metric = claim.metric;
        if !claim.rising.is_empty() {
            let step = |pair: &[String]| {
                Some(self.taken(&pair[1], metric, claim.at)? / self.taken(&pair[0], metric, claim.at)?)
            };
            let steps = claim
                .rising
                .windows(2)
                .filter_map(|pair| Some((pair, step(pair)?)));
            let smallest = steps.min_by(|a, b| a.1.total_cmp(&b.1));
            return smallest.map_or_else(Points::default, |(pair, _)| Points {
                of: self.point(&pair[1], metric, claim.at),
                over: self.point(&pair[0], metric, claim.at),
            });
        }
        let Some(over) = &claim.over else {
            return Points {
                of: self.point(&claim.of, metric, claim.at),
                over: None,
            };
        };
        let (mut at, mut over_at) = (claim.at, claim.over_at.or(claim.at));
        if let Some(At::Named(Place::Most)) = claim.at {
            let quotient =
                |at: Option<f64>| Some(self.at(&claim.of, metric, at)? / self.at(over, metric, at)?);
            let places = self.panel.places().filter_map(|at| Some((at?, quotient(at)?)));
            at = places
                .max_by(|a, b| a.1.total_cmp(&b.1))
                .map(|(at, _)| At::Value(at));
            over_at = at;
        }
        Points {
            of: self.point(&claim.of, metric, at),
            over: there.point(over, metric, over_at),
        }
    }

    /// Returns the point at a place of the dial, or the point with the series' largest figure.
    fn point(&self, series: &str, metric: Metric, at: Option<At>) -> Option<Point> {
        let best = || {
            let all = self
                .panel
                .places()
                .filter_map(|at| Some((at, self.at(series, metric, at)?)));
            all.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at)
        };
        let at = match at {
            Some(At::Value(at)) => Some(at),
            Some(At::Named(Place::Inflection)) => self.inflection(series)?,
            _ => best()?,
        };
        let here: Vec<&Sample> = self.here(series, at).collect();
        let first = here.first()?;
        let setup = self.experiment.resolve_for(self.panel, at, series).ok();
        let bytes = |of: fn(&Resolved) -> usize| setup.as_ref().map_or(0.0, |setup| of(setup) as f64);
        let mean = |metric: &Metric| Some((*metric, self.at(series, *metric, at)?));
        Some(Point {
            name: at.map_or_else(|| series.to_owned(), |at| format!("{series} at {at}")),
            metrics: first.figures.metrics.keys().filter_map(mean).collect(),
            busiest: first.figures.busiest.clone(),
            loaded: setup.as_ref().and_then(loaded),
            key: bytes(|setup| setup.key_bytes),
            item: bytes(|setup| setup.key_bytes + setup.value_bytes),
        })
    }

    fn here(&self, series: &str, at: Option<f64>) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| {
            sample.panel == self.panel.name
                && sample.series == series
                && sample.at == at
                && self.seed.is_none_or(|seed| sample.seed == seed)
        })
    }

    fn at(&self, series: &str, metric: Metric, at: Option<f64>) -> Option<f64> {
        let figures = self
            .here(series, at)
            .map(|sample| sample.figures.metrics.get(&metric).copied());
        let figures: Vec<f64> = figures.collect::<Option<_>>()?;
        // A figure that is not finite, for example after a division by zero, counts as missing.
        Spread::of(&figures)
            .map(|spread| spread.mean)
            .filter(|figure| figure.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::Figures;
    use super::super::experiment::{Over, RunKind};
    use super::super::setup::{Dial, Setup};
    use super::*;

    fn sample(series: &str, at: f64, seed: u64, mops: f64, busy: f64) -> Sample {
        let p50 = if series == "fast" { at } else { 10.0 };
        Sample {
            panel: "a".to_owned(),
            series: series.to_owned(),
            at: Some(at),
            seed,
            figures: Figures {
                metrics: [(Metric::Mops, mops), (Metric::OfBound, busy), (Metric::P50, p50)]
                    .into_iter()
                    .collect(),
                busiest: Some("link out of memory node 0".to_owned()),
                ..Figures::default()
            },
        }
    }

    fn claim(text: &str) -> Claim {
        let base = "panel = \"a\"\nwhat = \"w\"\nmetric = \"mops\"\n";
        toml::from_str(&format!("{base}{text}")).unwrap()
    }

    /// Grades a claim on these samples. With seed 1, the series `slow` has 2 Mops at place 8 of the dial and 1 Mops at
    /// place 16, and the series `fast` has 4 and 6 Mops. With seed 2, all throughputs are a tenth higher. At 8, the
    /// busiest resource is busy all the time; at 16, for half of it. From 8 to 16, the median latency of `fast`
    /// doubles, and that of `slow` stays.
    fn outcome(text: &str) -> Outcome {
        outcome_of(text, &[])
    }

    fn outcome_of(text: &str, deviations: &[String]) -> Outcome {
        outcome_of_claim(claim(text), deviations)
    }

    fn outcome_of_claim(claim: Claim, deviations: &[String]) -> Outcome {
        outcomes_of(vec![claim], deviations).remove(0)
    }

    fn outcomes_of(claims: Vec<Claim>, deviations: &[String]) -> Vec<Outcome> {
        let panel = Panel {
            name: "a".to_owned(),
            title: String::new(),
            setup: Setup::default(),
            own: std::collections::BTreeMap::new(),
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
            kind: RunKind::Tree,
            differs: Vec::new(),
            setup: Setup::default(),
            panels: vec![panel],
            claims,
        };
        let mut samples = Vec::new();
        for (seed, by) in [(1, 1.0), (2, 1.1)] {
            for (series, at, mops) in [
                ("slow", 8.0, 2.0),
                ("slow", 16.0, 1.0),
                ("fast", 8.0, 4.0),
                ("fast", 16.0, 6.0),
            ] {
                let busy = if at == 8.0 { 100.0 } else { 50.0 };
                samples.push(sample(series, at, seed, mops * by, busy));
            }
        }
        grade(&experiment, &samples, deviations)
    }

    fn mean(text: &str) -> f64 {
        (outcome(text).model.unwrap().mean * 1e6).round() / 1e6
    }

    #[test]
    fn figures_are_taken_where_the_claim_says() {
        assert_eq!(mean("of = \"fast\"\nat = 16.0"), 6.3);
        assert_eq!(mean("of = \"slow\"\nat = \"peak\""), 2.1);
        assert_eq!(mean("of = \"fast\"\nat = \"inflection\""), 4.2);
        // Congestion raises the median latency of slow at no place.
        assert!(outcome("of = \"slow\"\nat = \"inflection\"").model.is_none());
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
    fn grades_know_both_sides_of_their_bounds() {
        let at_least = "sense = \"at-least\"";
        for (paper, more, expected) in [
            ("1.7", "", Grade::Reproduced), // 2 is 18 % above
            ("1.6", "", Grade::Missed),
            ("2.45", "", Grade::Reproduced),
            ("2.6", "", Grade::Missed),
            ("1.8", at_least, Grade::Reproduced),
            ("1.6", at_least, Grade::Exceeded),
            ("2.6", at_least, Grade::Missed),
            ("1.0", "kind = \"order\"", Grade::Direction),
            ("9.0", "kind = \"plot\"", Grade::NotGraded),
            ("2.0", "skip = \"no\"", Grade::NotGraded),
            ("2.0", "fitted = [\"wire_ns\"]", Grade::NotGraded),
        ] {
            let text = format!("of = \"fast\"\nover = \"slow\"\nat = 8.0\npaper = {paper}\n{more}");
            let outcome = outcome(&text);
            assert_eq!(outcome.grade, expected, "{paper} {more}");
            assert_eq!(
                outcome.reason.is_some(),
                expected == Grade::Missed,
                "{paper} {more}"
            );
        }
    }

    /// A larger number than the paper's counts as exceeded only if nothing but its busiest resource limits the
    /// baseline.
    #[test]
    fn an_excess_says_its_amount_and_needs_a_fair_baseline() {
        let at = |at: &str| {
            outcome(&format!(
                "of = \"fast\"\nover = \"slow\"\nat = {at}\npaper = 1.6\nsense = \"at-least\""
            ))
        };
        let fair = at("8.0");
        assert_eq!(fair.words(), "exceeded, 25 % above");
        assert!(
            fair.why()
                .unwrap()
                .contains("slow at 8 uses link out of memory node 0 for 100 %")
        );
        let unfair = at("16.0");
        assert_eq!(unfair.words(), "direction only, 275 % above");
        assert!(unfair.why().unwrap().contains("not shown to be fair"));
    }

    /// The baseline of a lower latency is the system whose latency is higher.
    #[test]
    fn a_lower_latency_is_fair_if_nothing_else_holds_the_slower_system_back() {
        let lower = |at: &str| {
            let base = "panel = \"a\"\nwhat = \"w\"\nmetric = \"p50\"\nsense = \"at-least\"\n";
            let text = format!("{base}of = \"slow\"\nover = \"fast\"\nat = {at}\npaper = 0.4");
            outcome_of_claim(toml::from_str(&text).unwrap(), &[])
        };
        let fair = lower("8.0");
        assert_eq!(fair.grade, Grade::Exceeded, "{fair:?}");
        assert!(
            fair.why().unwrap().contains("the baseline slow at 8 uses"),
            "{fair:?}"
        );
        let unfair = lower("16.0");
        assert_eq!(unfair.grade, Grade::Direction, "{unfair:?}");
        assert!(unfair.why().unwrap().contains("slow at 16"), "{unfair:?}");
    }

    /// A comparison of a point with itself always gives 1, so it is no evidence.
    #[test]
    fn identical_points_are_not_graded() {
        for text in [
            "of = \"fast\"\nover = \"fast\"\nat = 8.0\npaper = 1.0\nkind = \"order\"",
            "of = \"fast\"\nover = \"fast\"\nat = 8.0\npaper = 1.0",
            "rising = [\"fast\", \"fast\"]\nat = 8.0\npaper = 1.0\nkind = \"order\"",
        ] {
            let outcome = outcome(text);
            assert_eq!(outcome.grade, Grade::NotGraded, "{text}");
            assert!(outcome.why().unwrap().contains("identical"), "{text}");
        }
        let order = outcome("of = \"slow\"\nover = \"fast\"\nat = 8.0\npaper = 1.0\nkind = \"order\"");
        assert_eq!(order.grade, Grade::Missed);
    }

    /// The reason is computed from the rows of this run: at 8, the bound of the slower series covers the gap; at 16,
    /// nothing explains the gap.
    #[test]
    fn the_reason_of_a_miss_comes_from_the_rows() {
        let reason = |at: &str, paper: &str| {
            let text = format!("of = \"fast\"\nover = \"slow\"\nat = {at}\npaper = {paper}");
            outcome(&text).reason.unwrap()
        };
        let low = reason("8.0", "3.0");
        assert!(
            low.understood
                && low
                    .text
                    .starts_with("fast at 8: link out of memory node 0 is 100 % busy")
        );
        assert!(
            low.text
                .contains("1.50 times this throughput. With the same work for each operation, the resource would have to be busy 150 %"),
            "{low:?}"
        );
        let high = reason("8.0", "1.0");
        assert!(high.understood && high.text.starts_with("slow at 8"), "{high:?}");
        let unknown = reason("16.0", "9.0");
        assert!(!unknown.understood && unknown.text.starts_with("Not understood. fast at 16: 6.30 Mops"));
    }

    /// The median latency of `fast` is 8 µs at 8, and that of `slow` 10 µs; `fast` has twice the throughput of `slow`.
    /// So the median of `slow` is 0.625 times as large a multiple of its mean as that of `fast`.
    #[test]
    fn a_latency_is_related_to_the_throughput_at_the_same_points() {
        let latency = "of = \"slow\"\nover = \"fast\"\nat = 8.0\npaper = 2.4\nmetric = \"p50\"";
        let throughput =
            |more: &str| format!("of = \"fast\"\nover = \"slow\"\nat = 8.0\nmetric = \"mops\"\n{more}");
        let understood = |throughput: &str| {
            let claims = [latency, throughput]
                .map(|text| toml::from_str(&format!("panel = \"a\"\nwhat = \"w\"\n{text}")).unwrap());
            let outcomes = outcomes_of(claims.to_vec(), &[]);
            assert_eq!(outcomes[0].grade, Grade::Missed);
            outcomes[0].reason.clone().unwrap().understood
        };
        // Its bound makes the throughput impossible, so its miss is understood, and 1.25 / 2.4 is about 2 / 3.6.
        assert!(understood(&throughput("paper = 3.6")));
        assert!(
            !understood(&throughput("paper = 2.0")),
            "reproduced, but another multiple"
        );
        for other in [
            throughput("paper = 3.6\nfitted = [\"wire_ns\"]"),
            throughput("paper = 3.6\nkind = \"plot\""),
            throughput("paper = 3.6\nover-at = 16.0"),
            throughput("paper = 3.6\nskip = \"no\""),
        ] {
            assert!(!understood(&other), "{other}");
        }
    }

    /// A write has 72 bytes of an item of 96 bytes, and the paper's number is 105.6 bytes. The key has 32 bytes.
    #[test]
    fn bytes_are_explained_in_the_unit_of_the_metric() {
        let point = Point {
            name: "x".to_owned(),
            metrics: Default::default(),
            busiest: None,
            loaded: None,
            key: 32.0,
            item: 96.0,
        };
        let points = Points {
            of: Some(point),
            over: None,
        };
        assert!(miss(Metric::WriteAmplification, 0.75, 1.1, &points).understood);
        assert!(miss(Metric::WriteBytes, 72.0, 105.6, &points).understood);
        assert!(!miss(Metric::WriteBytes, 0.75, 1.1, &points).understood);
        assert!(!miss(Metric::ReadAmplification, 0.75, 1.1, &points).understood);
    }

    /// A number that was read off a plot is graded only if its error cannot change the grade.
    #[test]
    fn errors_of_reading_a_plot_count() {
        let grade = |paper: &str| {
            let text =
                format!("of = \"fast\"\nover = \"slow\"\nat = 8.0\npaper = {paper}\nreading-error = 0.1");
            outcome(&text)
        };
        assert_eq!(grade("2.0").grade, Grade::Reproduced);
        assert_eq!(grade("4.0").grade, Grade::Missed);
        let open = grade("2.4");
        assert_eq!(open.grade, Grade::NotGraded);
        assert!(open.why().unwrap().contains("may err by 10 %"));
    }

    #[test]
    fn a_run_at_another_setting_is_not_graded() {
        let text = "of = \"fast\"\nover = \"slow\"\nat = 8.0\npaper = 2.0";
        let outcome = outcome_of(text, &["20 k keys".to_owned()]);
        assert_eq!(outcome.grade, Grade::NotGraded);
        assert_eq!(outcome.words(), "not graded (at this setting: reproduced)");
        assert!(outcome.why().unwrap().contains("20 k keys"));
    }

    #[test]
    fn seeds_spread_and_may_disagree() {
        let figure = outcome("of = \"fast\"\nat = 8.0\npaper = 3.55");
        let spread = figure.model.unwrap();
        assert!((spread.low, spread.high) == (4.0, 4.4) && (spread.mean - 4.2).abs() < 1e-9);
        assert_eq!(figure.words(), "reproduced, the seeds disagree");
        assert_eq!(outcome("of = \"fast\"\nat = 9.0").grade, Grade::NotGraded);
    }
}
