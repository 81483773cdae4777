//! The content of an experiment file: the testbed, the panels, and the claims of the paper.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use dm_bench::Registry;
use serde::{Deserialize, Serialize};

use super::constants::others_for;
use super::metric::Metric;
use super::setup::{Dial, Resolved, Setup};

/// One figure or table of a paper.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Experiment {
    /// The experiment's name on the command line.
    pub(crate) name: String,
    /// The paper.
    pub(crate) paper: String,
    /// The number of the figure or table in the paper.
    pub(crate) figure: String,
    pub(crate) title: String,
    /// The content of the figure, in one or two sentences.
    pub(crate) about: String,
    /// The kind of run. Its key in a file is `world`, which stays because users have files of their own.
    #[serde(rename = "world")]
    pub(crate) kind: RunKind,
    /// The differences between this run and the paper's run.
    #[serde(default)]
    pub(crate) differs: Vec<String>,
    pub(crate) setup: Setup,
    #[serde(rename = "panel")]
    pub(crate) panels: Vec<Panel>,
    #[serde(rename = "claim", default)]
    pub(crate) claims: Vec<Claim>,
}

/// The kind of run that an experiment makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RunKind {
    /// A whole tree. Series are variants of an index.
    Tree,
    /// Locks without a tree. Series are kinds of locking.
    Locks,
    /// WRITEs only. Series are directions.
    Writes,
    /// READs only, or locked WRITEs. Series are the verbs of an access.
    Reads,
    /// Leaves in one process, without a network. Series are kinds of leaves.
    Leaves,
}

impl RunKind {
    /// Returns whether the run uses the simulated network, so that the constants of the cost model matter.
    pub(crate) fn has_network(self) -> bool {
        self != Self::Leaves
    }

    /// Returns whether the run depends on the setup's number of keys. In runs of READs, the keys are the blocks.
    pub(crate) fn has_keys(self) -> bool {
        matches!(self, Self::Tree | Self::Reads)
    }
}

/// A part of a figure, which compares several series, usually while one parameter varies.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Panel {
    /// `a`, `b`, … in the paper's figure.
    pub(crate) name: String,
    pub(crate) title: String,
    /// Changes to the experiment's setup.
    #[serde(default)]
    pub(crate) setup: Setup,
    /// Further changes to the setup of single series, by their names. A paper may give each index a cache of its own.
    #[serde(default)]
    pub(crate) own: BTreeMap<String, Setup>,
    /// The parameter that varies, or `None` if nothing does.
    pub(crate) over: Option<Over>,
    pub(crate) series: Vec<String>,
    /// Series that the paper's figure does not have. The charts mark them.
    #[serde(default)]
    pub(crate) extra: Vec<String>,
    #[serde(rename = "chart", default)]
    pub(crate) charts: Vec<Chart>,
}

/// The parameter of a setup that varies in a panel (its dial), and the values that it takes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Over {
    pub(crate) dial: Dial,
    pub(crate) at: Vec<f64>,
}

/// One drawing of a panel.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Chart {
    pub(crate) metric: Metric,
    /// The metric of the horizontal axis, if it is not the dial. The dial's values are then labels of the points.
    pub(crate) against: Option<Metric>,
    /// Whether the vertical axis is logarithmic. Bars are always linear.
    #[serde(default)]
    pub(crate) log: bool,
    /// Whether to draw the distribution of the round trips of write operations instead of a mean.
    #[serde(default)]
    pub(crate) cdf: bool,
}

/// A claim of the paper, or an additional claim of dmkit.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Claim {
    pub(crate) panel: String,
    /// The claim in words.
    pub(crate) what: String,
    #[serde(default)]
    pub(crate) kind: Kind,
    #[serde(default)]
    pub(crate) sense: Sense,
    pub(crate) metric: Metric,
    /// The series of the claim. It is empty if `rising` is set.
    #[serde(default)]
    pub(crate) of: String,
    /// The series by which the figure is divided, if any.
    pub(crate) over: Option<String>,
    /// A list of series that replaces `of`. Each series must have a larger figure than the previous one. The claim's
    /// value is the smallest quotient of a series and the previous one.
    #[serde(default)]
    pub(crate) rising: Vec<String>,
    /// The place on the panel's dial. It may be absent if the dial has only one place.
    pub(crate) at: Option<At>,
    /// The place of the divisor, if it differs from `at`.
    pub(crate) over_at: Option<At>,
    /// The panel of the divisor, if it is another panel. A paper's panels may have different dials.
    pub(crate) over_panel: Option<String>,
    /// The paper's number.
    pub(crate) paper: Option<f64>,
    /// The possible error of `paper`, as a share of it, if the number was read off a plot.
    pub(crate) reading_error: Option<f64>,
    /// The constants of the model that this very number determines: they were fitted to it, or it states them. If there
    /// are any, the result is no evidence.
    #[serde(default)]
    pub(crate) fitted: Vec<String>,
    /// The place of the number in the paper.
    pub(crate) source: Option<String>,
    /// The reason why the claim cannot be run.
    pub(crate) skip: Option<String>,
}

/// The strictness with which a claim can be graded on a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// The paper's text or a table gives the number, sometimes with the help of a plot (`reading_error`). It is graded.
    #[default]
    Graded,
    /// The paper gives only an order or a trend.
    Order,
    /// The number can only be read off a plot. It is shown, but never graded.
    Plot,
    /// The claim is dmkit's and not the paper's. It is shown, but never graded.
    Extra,
}

/// The deviations from the paper's number that count as a miss.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Sense {
    /// Deviations in both directions count.
    #[default]
    About,
    /// Only a number below the paper's counts.
    AtLeast,
    /// Only a number above the paper's counts. This is for bytes in use.
    AtMost,
}

/// The place on a dial at which a value is taken.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum At {
    Value(f64),
    Named(Place),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Place {
    /// The largest figure of each series.
    Peak,
    /// The largest quotient along the dial.
    Most,
    /// The smallest growth of the quotient between neighbouring places.
    Rising,
    /// The last place of each series before congestion: up to it, the median latency is at most 1.5 times the median
    /// latency at the first place.
    Inflection,
}

/// The errors of an experiment file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ExperimentError {
    /// The file does not have the form of an experiment.
    Form { file: String, why: String },
    /// The content is inconsistent.
    Content { name: String, why: String },
}

impl fmt::Display for ExperimentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form { file, why } => write!(f, "experiment file {file}: {why}"),
            Self::Content { name, why } => write!(f, "experiment {name}: {why}"),
        }
    }
}

impl std::error::Error for ExperimentError {}

macro_rules! files {
    ($($name:literal)*) => { [$((concat!($name, ".toml"), include_str!(concat!("../../experiments/", $name, ".toml")))),*] };
}

/// The files of the experiments of this program, in the papers' order.
const FILES: [(&str, &str); 59] = files![
    "sherman-table-1" "sherman-2" "sherman-3" "sherman-10" "sherman-11" "sherman-12" "sherman-13" "sherman-14"
    "sherman-15" "sherman-16" "smart-table-2" "smart-3a" "smart-3b" "smart-4ab" "smart-4c" "smart-4d" "smart-4ef"
    "smart-5a" "smart-5b" "smart-5cd" "smart-14" "smart-15" "smart-16" "smart-17" "smart-18" "smart-19" "smart-20"
    "smart-21" "smart-22a" "smart-22c" "smart-22d" "smart-22e" "smart-22f" "smart-22gh" "chime-3a" "chime-3bc"
    "chime-3d" "chime-4" "chime-12" "chime-13" "chime-14" "chime-15" "chime-15b" "chime-16" "chime-18a" "chime-18b"
    "chime-18c" "chime-18d" "chime-18e" "chime-18f" "chime-19ab" "chime-19-load" "chime-19c" "dolphin-6" "dolphin-7"
    "dolphin-8" "dolphin-9" "dolphin-table-2" "dmtree"
];

/// Returns all embedded experiments.
///
/// # Errors
/// Returns [`ExperimentError`] for the first file that is not a valid experiment.
pub(crate) fn all() -> Result<Vec<Experiment>, ExperimentError> {
    FILES.iter().map(|(file, text)| parse(file, text)).collect()
}

/// Returns whether an embedded experiment has this name.
pub(crate) fn is_embedded(name: &str) -> bool {
    FILES
        .iter()
        .any(|(file, _)| file.strip_suffix(super::FILE) == Some(name))
}

/// Reads one file.
///
/// # Errors
/// Returns [`ExperimentError`], which names the file or the experiment, if the text is not a valid experiment.
pub(crate) fn parse(file: &str, text: &str) -> Result<Experiment, ExperimentError> {
    let experiment: Experiment = toml::from_str(text).map_err(|e| ExperimentError::Form {
        file: file.to_owned(),
        why: e.to_string(),
    })?;
    experiment.check()?;
    Ok(experiment)
}

impl Experiment {
    /// Returns the experiment with only the panels that `keep` selects, and the claims that need no other panel.
    pub(crate) fn only(&self, keep: impl Fn(&str) -> bool) -> Self {
        let mut part = self.clone();
        part.panels.retain(|panel| keep(&panel.name));
        part.claims
            .retain(|claim| keep(&claim.panel) && claim.over_panel.as_deref().is_none_or(&keep));
        part
    }

    /// Returns the number of the figure in words, without its parts: "Figure 12".
    pub(crate) fn figure_name(&self) -> String {
        let words: Vec<&str> = self.figure.split(' ').take(2).collect();
        words.join(" ").replace("Fig.", "Figure")
    }

    /// Returns the paper's short name.
    pub(crate) fn paper(&self) -> &str {
        self.paper.split(' ').next().unwrap_or_default()
    }

    /// Returns whether the experiment can run without the fits to its own paper's figures: it has a network, and
    /// another paper gives a value for at least one of these fits.
    pub(crate) fn can_leave_out(&self) -> bool {
        self.kind.has_network() && !others_for(self.paper()).0.is_empty()
    }

    pub(crate) fn panel(&self, name: &str) -> Option<&Panel> {
        self.panels.iter().find(|panel| panel.name == name)
    }

    /// Returns the setup of a panel at a value of its dial, without the changes of single series.
    ///
    /// # Errors
    /// Returns [`ExperimentError::Content`] if a required setting is missing or invalid.
    pub(crate) fn resolve(&self, panel: &Panel, at: Option<f64>) -> Result<Resolved, ExperimentError> {
        self.resolve_over(panel, at, &Setup::default())
    }

    /// Returns the setup of a series in a panel at a value of its dial.
    ///
    /// # Errors
    /// Returns [`ExperimentError::Content`] if a required setting is missing or invalid.
    pub(crate) fn resolve_for(
        &self,
        panel: &Panel,
        at: Option<f64>,
        series: &str,
    ) -> Result<Resolved, ExperimentError> {
        match panel.own.get(series) {
            Some(own) => self.resolve_over(panel, at, own),
            None => self.resolve(panel, at),
        }
    }

    fn resolve_over(&self, panel: &Panel, at: Option<f64>, own: &Setup) -> Result<Resolved, ExperimentError> {
        let dial = panel.over.as_ref().map(|over| &over.dial);
        let base = match self.kind {
            RunKind::Leaves => Setup::without_network(),
            _ => Setup::default(),
        };
        let merged = base.overlaid(&self.setup).overlaid(&panel.setup).overlaid(own);
        merged
            .resolve(dial.zip(at))
            .map_err(|why| self.wrong(format!("panel {}: {why}", panel.name)))
    }

    fn wrong(&self, why: impl Into<String>) -> ExperimentError {
        ExperimentError::Content {
            name: self.name.clone(),
            why: why.into(),
        }
    }

    /// Checks that `registry` has every series.
    ///
    /// # Errors
    /// Returns [`ExperimentError::Content`], which names the series and lists the existing ones, if a series is
    /// missing.
    pub(crate) fn check_series(&self, registry: &Registry) -> Result<(), ExperimentError> {
        let mut all = self.panels.iter().flat_map(Panel::all_series);
        all.try_for_each(|series| {
            super::cases::check_series(registry, self.kind, series).map_err(|why| self.wrong(why))
        })
    }

    fn check(&self) -> Result<(), ExperimentError> {
        for panel in &self.panels {
            if panel.series.is_empty() {
                return Err(self.wrong(format!("panel {} has no series", panel.name)));
            }
            let bars = panel.over.is_none();
            if bars
                && panel
                    .charts
                    .iter()
                    .any(|chart| chart.log || chart.against.is_some())
            {
                let why = "bars are linear: `log` and `against` need `over`";
                return Err(self.wrong(format!("panel {}: {why}", panel.name)));
            }
            if let Some(series) = panel
                .own
                .keys()
                .find(|own| !panel.all_series().any(|s| s == *own))
            {
                let why = format!(
                    "panel {}: `own` names {series:?}, which is not a series",
                    panel.name
                );
                return Err(self.wrong(why));
            }
            for at in panel.places() {
                self.resolve(panel, at)?;
                for series in panel.own.keys() {
                    self.resolve_for(panel, at, series)?;
                }
            }
        }
        let mut named = HashSet::new();
        for claim in &self.claims {
            if !named.insert((&claim.panel, &claim.what)) {
                return Err(self.wrong(format!("panel {} claims {:?} twice", claim.panel, claim.what)));
            }
        }
        self.claims.iter().try_for_each(|claim| {
            self.check_claim(claim)
                .map_err(|why| self.wrong(format!("claim {:?}: {why}", claim.what)))
        })
    }

    fn check_claim(&self, claim: &Claim) -> Result<(), String> {
        let panel = self.panel(&claim.panel).ok_or("no such panel")?;
        let other = match &claim.over_panel {
            Some(name) => self.panel(name).ok_or("no such panel of the divisor")?,
            None => panel,
        };
        if let Some(series) = claim
            .over
            .iter()
            .find(|over| !other.all_series().any(|s| s == *over))
        {
            return Err(format!("panel {} has no series {series:?}", other.name));
        }
        let named = claim.rising.iter();
        for series in named.chain(Some(&claim.of).filter(|_| claim.rising.is_empty())) {
            if !panel.all_series().any(|s| s == series) {
                return Err(format!("panel {} has no series {series:?}", panel.name));
            }
        }
        for at in [claim.at, claim.over_at].into_iter().flatten() {
            if let At::Value(at) = at
                && claim.skip.is_none()
                && !panel.places().any(|place| place == Some(at))
            {
                return Err(format!("panel {} has no point at {at}", panel.name));
            }
        }
        if claim.at.is_none() && claim.skip.is_none() && panel.places().count() > 1 {
            return Err("`at` is missing: it names a point of the panel".to_owned());
        }
        match claim.kind {
            Kind::Graded | Kind::Order if claim.paper.is_none() => {
                return Err("`paper` is missing: it is the number that the paper gives".to_owned());
            }
            Kind::Graded if claim.source.is_none() => {
                return Err("`source` is missing: it names the place of the number in the paper".to_owned());
            }
            _ => {}
        }
        if claim.sense == Sense::AtMost && !claim.metric.is_memory() {
            let why =
                "`at-most` is for bytes in use: another figure may be lower because it means something else";
            return Err(why.to_owned());
        }
        for (at, panel) in [(claim.at, panel), (claim.over_at.or(claim.at), other)] {
            let one = panel.places().count() < 2;
            match at {
                Some(At::Named(Place::Peak)) if one => {
                    return Err(format!("panel {} has one point, so it has no peak", panel.name));
                }
                Some(At::Named(Place::Inflection)) if one => {
                    return Err(format!(
                        "panel {} has one point, so it has no inflection",
                        panel.name
                    ));
                }
                _ => {}
            }
        }
        if claim.kind == Kind::Order && claim.skip.is_none() {
            can_fail(claim, panel, other)?;
        }
        match claim.fitted.iter().find(|name| !super::constants::is_input(name)) {
            Some(name) => Err(format!("{name} is neither fitted nor taken from a paper")),
            None => Ok(()),
        }
    }
}

/// Checks that an order can fail.
fn can_fail(claim: &Claim, panel: &Panel, other: &Panel) -> Result<(), String> {
    let repeated = claim
        .rising
        .iter()
        .enumerate()
        .find(|(i, series)| claim.rising[..*i].contains(*series));
    if let Some((_, series)) = repeated {
        return Err(format!(
            "{series:?} is compared with itself, so the order cannot fail"
        ));
    }
    if claim.rising.is_empty() && claim.over.is_none() {
        return Err("an order compares two points, but `over` is missing".to_owned());
    }
    let peak = At::Named(Place::Peak);
    let over_at = claim.over_at.or(claim.at);
    if claim.over.as_ref() == Some(&claim.of)
        && other.name == panel.name
        && [claim.at, over_at].contains(&Some(peak))
    {
        return Err(
            "a peak is never below another point of its own series, so the order cannot fail".to_owned(),
        );
    }
    match claim.over.as_ref() == Some(&claim.of) && claim.at == over_at && other.name == panel.name {
        true => Err("the two points are one, so the order cannot fail".to_owned()),
        false => Ok(()),
    }
}

impl Panel {
    pub(crate) fn all_series(&self) -> impl Iterator<Item = &String> {
        self.series.iter().chain(&self.extra)
    }

    /// Returns the values of the dial, or a single `None` if nothing is varied.
    pub(crate) fn places(&self) -> impl Iterator<Item = Option<f64>> + use<'_> {
        let varied = self
            .over
            .iter()
            .flat_map(|over| over.at.iter().copied().map(Some));
        varied.chain(self.over.is_none().then_some(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_embedded_file_is_an_experiment_with_a_name_of_its_own() {
        let all = all().unwrap();
        let names: HashSet<&str> = all.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names.len(), FILES.len());
        for ((file, _), experiment) in FILES.iter().zip(&all) {
            assert_eq!(*file, format!("{}.toml", experiment.name));
            assert!(!experiment.claims.is_empty(), "{file} claims nothing");
            assert!(
                experiment.panels.iter().all(|panel| !panel.charts.is_empty()),
                "{file} has a panel that is not drawn"
            );
        }
    }

    /// Every graded claim has a number of the paper and the place of this number. A number without a place is not
    /// graded.
    #[test]
    fn every_number_of_a_paper_has_a_kind_and_a_source() {
        let mut graded = 0;
        for experiment in all().unwrap() {
            for claim in &experiment.claims {
                let what = format!("{}: {}", experiment.name, claim.what);
                match claim.kind {
                    Kind::Graded => {
                        graded += 1;
                        assert!(claim.paper.is_some_and(|p| p > 0.0), "{what}");
                        assert!(
                            claim
                                .source
                                .as_ref()
                                .is_some_and(|s| s.contains(['§', 'T']) || s.contains("Fig.")),
                            "{what}"
                        );
                    }
                    Kind::Order => assert_eq!(
                        claim.paper,
                        Some(1.0),
                        "{what}: an order is a quotient of at least 1"
                    ),
                    Kind::Plot | Kind::Extra => assert!(claim.fitted.is_empty(), "{what}"),
                }
                assert!(
                    claim
                        .reading_error
                        .is_none_or(|error| (0.0..0.5).contains(&error)),
                    "{what}"
                );
            }
        }
        assert!(graded >= 50, "{graded} graded numbers");
    }

    const SMALL: &str = r#"
        name = "x"
        paper = "p"
        figure = "Fig. 1"
        title = "t"
        about = "a"
        world = "locks"
        [setup]
        model = "cx5-ib"
        compute-nodes = 2
        memory-nodes = 1
        colocated = false
        clients = 4
        skew = 0.99
        locks = 64
        window-ms = 1.0
        [[panel]]
        name = "a"
        title = "t"
        series = ["host"]
        [[claim]]
        panel = "a"
        what = "w"
        metric = "mops"
        of = "host"
        paper = 1.0
        source = "§1"
    "#;

    /// Orders that hold whatever the run shows are refused.
    #[test]
    fn an_order_must_be_able_to_fail() {
        let order = |more: &str| {
            let over =
                "over = { dial = \"clients\", at = [4, 8] }\n        series = [\"host\", \"+on-chip\"]";
            let text = SMALL.replace("series = [\"host\"]", over);
            let claim = format!("kind = \"order\"\n        {more}\n        paper = 1.0");
            let text = text.replace("of = \"host\"\n        paper = 1.0", &claim);
            parse("x", &text).map(drop).map_err(|e| e.to_string())
        };
        assert_eq!(order("of = \"+on-chip\"\nover = \"host\"\nat = \"peak\""), Ok(()));
        assert_eq!(
            order("of = \"host\"\nover = \"host\"\nat = 4.0\nover-at = 8.0"),
            Ok(())
        );
        for (claim, why) in [
            (
                "of = \"host\"\nover = \"host\"\nat = \"peak\"\nover-at = 8.0",
                "a peak is never below",
            ),
            ("of = \"host\"\nover = \"host\"\nat = 8.0", "are one"),
            (
                "rising = [\"host\", \"+on-chip\", \"host\"]\nat = 8.0",
                "with itself",
            ),
            ("of = \"host\"\nat = 8.0", "`over` is missing"),
        ] {
            let wrong = order(claim).unwrap_err();
            assert!(wrong.contains(why), "{claim}: {wrong}");
        }
        let one = SMALL.replace(
            "of = \"host\"",
            "of = \"+on-chip\"\nover = \"host\"\nat = \"peak\"\nkind = \"order\"",
        );
        let one = one.replace("series = [\"host\"]", "series = [\"host\", \"+on-chip\"]");
        let wrong = parse("x", &one).unwrap_err().to_string();
        assert!(wrong.contains("it has no peak"), "{wrong}");
    }

    #[test]
    fn inconsistent_experiments_are_refused_with_a_reason() {
        assert!(parse("x", SMALL).is_ok());
        for (from, to, why) in [
            ("model = \"cx5-ib\"", "model = \"cx9\"", "cx9"),
            ("metric = \"mops\"", "metric = \"flops\"", "flops"),
            ("of = \"host\"", "of = \"hosts\"", "no series \"hosts\""),
            ("skew = 0.99", "skwe = 0.99", "skwe"),
            ("skew = 0.99", "", "skew"),
            ("paper = 1.0", "", "`paper` is missing"),
            ("source = \"§1\"", "", "`source` is missing"),
            (
                "paper = 1.0",
                "paper = 1.0\nfitted = [\"wire\"]",
                "wire is neither fitted nor taken from a paper",
            ),
        ] {
            let wrong = parse("x", &SMALL.replace(from, to)).unwrap_err().to_string();
            assert!(wrong.contains(why), "{from} -> {to}: {wrong}");
        }
    }
}
