//! The runs of an experiment, and their parallel execution.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
// The results belong to threads of std, because no model runs them.
use std::sync::{Mutex, MutexGuard};

use dm_bench::{Events, Measured, Place, Point, Registry, RunError, Runs};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::{Deserialize, Serialize};

use super::experiment::{Experiment, ExperimentError, RunKind};
use super::leaves::LeafKind;
use super::locks::LockWay;
use super::metric::Metric;
use super::reads::Access;
use super::setup::Resolved;
use super::window::Window;
use super::writes::Direction;
use super::{leaves, locks, reads, tree, writes};

/// The least number of seeds for which claims are graded.
pub(crate) const SEEDS: u64 = 3;

/// The amount of work of a reproduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Effort {
    /// The number of seeds. The seeds are 1, 2, and so on.
    pub(crate) seeds: u64,
    /// Whether runs are shortened: to a sixth of the operations and, in experiments that do not run a whole tree, to a
    /// quarter of the time.
    pub(crate) quick: bool,
    /// The number of keys, if it replaces the number in the file.
    pub(crate) keys: Option<u64>,
}

impl Effort {
    /// Returns the setup of a run with this effort.
    pub(crate) fn applied(self, kind: RunKind, mut setup: Resolved) -> Resolved {
        if self.quick {
            setup.operations /= 6;
            // A tree's queues need the whole time to fill, so its time is not shortened.
            if kind != RunKind::Tree {
                setup.window_ns /= 4;
            }
        }
        if let Some(keys) = self.keys.filter(|_| kind.has_keys() && setup.keys > 0) {
            setup.load(keys);
        }
        setup
    }

    /// Returns the differences from the setting of the experiment's file.
    pub(crate) fn deviations(self, kind: RunKind) -> Vec<String> {
        let mut deviations = Vec::new();
        if self.quick {
            deviations.push(match kind {
                RunKind::Tree => "a sixth of the operations".to_owned(),
                RunKind::Locks | RunKind::Writes | RunKind::Reads => "a quarter of the time".to_owned(),
                RunKind::Leaves => "a sixth of the tables".to_owned(),
            });
        }
        if let Some(keys) = self.keys.filter(|_| kind.has_keys()) {
            let name = if kind == RunKind::Reads { "blocks" } else { "keys" };
            deviations.push(format!("{} {name}", super::facts::count(keys)));
        }
        if self.seeds < SEEDS {
            let plural = if self.seeds == 1 { "" } else { "s" };
            deviations.push(format!("{} seed{plural} instead of {SEEDS}", self.seeds));
        }
        deviations
    }
}

/// One run.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) kind: RunKind,
    pub(crate) panel: String,
    pub(crate) series: String,
    /// The value of the panel's dial.
    pub(crate) at: Option<f64>,
    pub(crate) seed: u64,
    pub(crate) setup: Resolved,
}

/// The result of one run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) metrics: BTreeMap<Metric, f64>,
    /// The distribution of the round trips of write operations. Each entry is a number of round trips, and the share of
    /// operations with at most this many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) round_trips: Vec<(u64, f64)>,
    /// The busiest resource of the simulated testbed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) busiest: Option<String>,
}

impl Figures {
    /// Adds the resource of the testbed that is busiest while operations are counted, and the bound that it sets.
    /// Without a counted operation, there is no such bound.
    pub(crate) fn with_busiest(mut self, window: &Window) -> Self {
        let mops = self.metrics.get(&Metric::Mops).copied();
        if let (Some((busy, share)), Some(mops)) = (window.busiest(), mops.filter(|mops| *mops > 0.0)) {
            self.metrics.insert(Metric::BoundMops, mops / share);
            self.metrics.insert(Metric::OfBound, 100.0 * share);
            self.busiest = Some(busy.to_string());
        }
        self
    }
}

/// The figures of one run by metric: the raw data of a chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) panel: String,
    pub(crate) series: String,
    pub(crate) at: Option<f64>,
    pub(crate) seed: u64,
    #[serde(flatten)]
    pub(crate) figures: Figures,
}

/// Checks that a kind of run has this series.
///
/// # Errors
/// Returns a message that names the series if the kind of run does not have it.
pub(crate) fn check_series(registry: &Registry, kind: RunKind, series: &str) -> Result<(), String> {
    match kind {
        RunKind::Tree => registry.series(series).map(drop).map_err(|e| e.to_string()),
        RunKind::Locks => series.parse::<LockWay>().map(drop),
        RunKind::Writes => series.parse::<Direction>().map(drop),
        RunKind::Reads => series.parse::<Access>().map(drop),
        RunKind::Leaves => series.parse::<LeafKind>().map(drop),
    }
}

impl Case {
    /// Returns all runs of an experiment.
    ///
    /// # Errors
    /// Returns [`ExperimentError`] if the setup of a run is incomplete.
    pub(crate) fn all(experiment: &Experiment, effort: Effort) -> Result<Vec<Self>, ExperimentError> {
        let mut cases = Vec::new();
        for panel in &experiment.panels {
            for at in panel.places() {
                for series in panel.all_series() {
                    let setup = experiment.resolve_for(panel, at, series)?;
                    let setup = effort.applied(experiment.kind, setup);
                    cases.extend((1..=effort.seeds).map(|seed| Self {
                        kind: experiment.kind,
                        panel: panel.name.clone(),
                        series: series.clone(),
                        at,
                        seed,
                        setup: setup.clone(),
                    }));
                }
            }
        }
        Ok(cases)
    }

    /// Returns the point that measures the case, if the case has a tree.
    ///
    /// # Errors
    /// Returns [`RunError`] if no index has this series, or if the setup is incomplete or does not suit the index.
    fn point(&self, registry: &Registry) -> Result<Option<Point>, RunError> {
        match self.kind {
            RunKind::Tree => tree::point(registry, &self.series, &self.setup, self.seed).map(Some),
            RunKind::Locks | RunKind::Writes | RunKind::Reads | RunKind::Leaves => Ok(None),
        }
    }

    /// Runs a case without a tree.
    ///
    /// # Errors
    /// Returns [`RunError`] if the case has a tree, or if the run fails.
    fn without_tree(&self) -> Result<Figures, RunError> {
        match self.kind {
            RunKind::Tree => Err(RunError::Bad("a tree was not measured".to_owned())),
            RunKind::Locks => locks::run(&self.series, &self.setup, self.seed),
            RunKind::Writes => writes::run(&self.series, &self.setup, self.seed),
            RunKind::Reads => reads::run(&self.series, &self.setup, self.seed),
            RunKind::Leaves => leaves::run(&self.series, &self.setup, self.seed),
        }
    }

    /// Returns a key that is equal for runs that do the same, even if they belong to different figures. Such runs have
    /// equal results.
    fn key(&self) -> String {
        format!("{:?} {} {} {:?}", self.kind, self.series, self.seed, self.setup)
    }

    fn sample(&self, figures: Figures) -> Sample {
        Sample {
            panel: self.panel.clone(),
            series: self.series.clone(),
            at: self.at,
            seed: self.seed,
            figures,
        }
    }
}

/// The results of the runs so far, by key. Figures share points, so a result may be used several times. With a file,
/// results of earlier processes are used too, so a run that was stopped continues with its missing points. Results of
/// another commit are not used.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    figures: HashMap<String, Figures>,
    /// The file, and the commit of this program.
    file: Option<(File, String)>,
}

/// A line of the file of results.
#[derive(Serialize, Deserialize)]
struct Line {
    /// The commit of the program, because another program may give other results.
    commit: String,
    key: String,
    figures: Figures,
}

impl Memory {
    /// Opens the file of results in `directory`, and takes over the results of the program of this commit.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be created, or if the file cannot be read, opened or written.
    pub(crate) fn open(directory: &Path, commit: &str) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let path = directory.join("points.jsonl");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(e),
        };
        // The last line is incomplete if the process was killed while it wrote.
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Line>(line).ok());
        let figures = lines
            .filter(|line| line.commit == commit)
            .map(|line| (line.key, line.figures))
            .collect();
        let mut file = File::options().create(true).append(true).open(&path)?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n")?;
        }
        Ok(Self(Mutex::new(Known {
            figures,
            file: Some((file, commit.to_owned())),
        })))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().expect("no thread panics while it holds this")
    }

    fn get(&self, key: &str) -> Option<Figures> {
        self.known().figures.get(key).cloned()
    }

    fn put(&self, key: String, figures: Figures) -> io::Result<()> {
        let mut known = self.known();
        if let Some((file, commit)) = &mut known.file {
            let line = Line {
                commit: commit.clone(),
                key: key.clone(),
                figures: figures.clone(),
            };
            let mut text = serde_json::to_string(&line).map_err(io::Error::other)?;
            text.push('\n');
            file.write_all(text.as_bytes())?;
        }
        known.figures.insert(key, figures);
        Ok(())
    }
}

/// The cases whose results are not known yet.
struct Left<'a> {
    cases: Vec<(usize, &'a Case)>,
    /// The point of each case with a tree.
    points: Vec<Option<Point>>,
    memory: &'a Memory,
    bar: &'a ProgressBar,
    /// The results of all cases.
    results: Mutex<Vec<Option<Result<Figures, RunError>>>>,
}

impl Runs for Left<'_> {
    type Result = Figures;

    fn count(&self) -> usize {
        self.cases.len()
    }

    fn point(&self, number: usize) -> Option<&Point> {
        self.points[number].as_ref()
    }

    fn result(&self, number: usize, measured: Option<Measured>) -> Result<Figures, RunError> {
        match (&self.points[number], measured) {
            (Some(point), Some(measured)) => tree::figures(point, &measured),
            _ => self.cases[number].1.without_tree(),
        }
    }
}

impl Events<Figures> for Left<'_> {
    fn stops(&self) -> bool {
        false
    }

    fn begins(&self, _number: usize) -> ProgressBar {
        ProgressBar::hidden()
    }

    fn ended(&self, number: usize, result: Result<Figures, RunError>) {
        let (at, case) = self.cases[number];
        let result = result.and_then(|figures| {
            let kept = self.memory.put(case.key(), figures.clone());
            kept.map(|()| figures).map_err(|e| RunError::Bad(e.to_string()))
        });
        self.bar.inc(1);
        self.results.lock().expect("no thread panics while it holds this")[at] = Some(result);
    }
}

/// Runs those of `cases` whose results `memory` does not have, as many in parallel as cores and memory allow. Returns
/// the results of all cases in order.
///
/// # Errors
/// Returns an error with the name of the first case that failed.
pub(crate) fn run_all(
    name: &str,
    cases: &[Case],
    registry: &Registry,
    memory: &Memory,
    place: Place,
) -> io::Result<Vec<Sample>> {
    let bar = ProgressBar::new(cases.len() as u64);
    if !io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style =
        ProgressStyle::with_template("{bar:30} {pos}/{len} runs {elapsed_precise}, {eta_precise} left {msg}");
    bar.set_style(style.expect("a valid template"));
    bar.set_message(name.to_owned());
    let keys: Vec<String> = cases.iter().map(Case::key).collect();
    let mut results: Vec<_> = keys.iter().map(|key| memory.get(key).map(Ok)).collect();
    let (mut left, mut points) = (Vec::new(), Vec::new());
    let mut first = HashMap::new();
    for (at, case) in cases.iter().enumerate() {
        // Cases of different panels may be one run.
        if results[at].is_some() || *first.entry(&keys[at]).or_insert(at) != at {
            bar.inc(1);
            continue;
        }
        match case.point(registry) {
            Ok(point) => {
                left.push((at, case));
                points.push(point);
            }
            Err(e) => results[at] = Some(Err(e)),
        }
    }
    let left = Left {
        cases: left,
        points,
        memory,
        bar: &bar,
        results: Mutex::new(results),
    };
    dm_bench::run_all(&left, place, &left, drop);
    let results = left
        .results
        .into_inner()
        .expect("no thread panics while it holds this");
    bar.finish_and_clear();
    let outcome = |(at, case): (usize, &Case)| {
        let result = results[at]
            .as_ref()
            .or_else(|| results[first[&keys[at]]].as_ref());
        let figures = result.expect("every case was run").as_ref().map_err(|e| {
            let at = case.at.map(|at| format!(" at {at}")).unwrap_or_default();
            io::Error::other(format!(
                "{name} {}, {}{at}, seed {}: {e}",
                case.panel, case.series, case.seed
            ))
        })?;
        Ok(case.sample(figures.clone()))
    };
    cases.iter().enumerate().map(outcome).collect()
}
