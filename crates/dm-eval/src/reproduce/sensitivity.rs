//! Measures how much graded figures depend on fitted constants: by making each constant a fifth smaller and a fifth
//! larger, and by replacing all fits to figures of the claim's own paper.

use std::io;

use dm_bench::{Place, Registry};
use serde::{Deserialize, Serialize};

use super::cases::{Case, Effort, Memory, run_all};
use super::constants::{FITTED, others_for, replaced, turned};
use super::experiment::{Experiment, Kind};
use super::grade::{Grade, Outcome, grade};

/// The factors by which constants are varied.
const STEPS: [f64; 2] = [0.8, 1.2];

/// The figure of a claim of [`Kind::Graded`] in a run with one constant varied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Turn {
    pub(crate) constant: String,
    /// The factor by which the constant was multiplied.
    pub(crate) factor: f64,
    pub(crate) panel: String,
    /// The claim.
    pub(crate) what: String,
    /// The figure with the preset's constant and the same seed.
    pub(crate) plain: f64,
    pub(crate) turned: f64,
    pub(crate) plain_grade: Grade,
    pub(crate) turned_grade: Grade,
}

impl Turn {
    /// Returns the relative change of the figure.
    pub(crate) fn change(&self) -> f64 {
        self.turned / self.plain - 1.0
    }

    pub(crate) fn flips(&self) -> bool {
        self.plain_grade != self.turned_grade
    }

    /// Returns whether the figure changes by at least 5 %.
    pub(crate) fn moves(&self) -> bool {
        self.change().abs() >= 0.05
    }
}

/// A graded figure without the fits to its own paper's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LeftOut {
    pub(crate) panel: String,
    /// The claim.
    pub(crate) what: String,
    pub(crate) figure: f64,
    pub(crate) grade: Grade,
}

/// Returns the runs that the graded claims of `experiment` need, with one seed.
fn graded_cases(experiment: &Experiment, effort: Effort) -> io::Result<Vec<Case>> {
    let one = Effort { seeds: 1, ..effort };
    let mut cases = Case::all(experiment, one).map_err(io::Error::other)?;
    cases.retain(|case| {
        experiment.claims.iter().any(|claim| {
            let series = claim.rising.iter().chain(&claim.over).chain([&claim.of]);
            let panels = claim.over_panel.iter().chain([&claim.panel]);
            matches!(claim.kind, Kind::Graded | Kind::Order)
                && claim.skip.is_none()
                && panels.into_iter().any(|panel| *panel == case.panel)
                && series.into_iter().any(|series| *series == case.series)
        })
    });
    Ok(cases)
}

/// Runs the points of the graded claims with one seed, with the fits to figures of the experiment's paper replaced by
/// values from other papers.
///
/// # Errors
/// Returns an error if a run fails.
pub(crate) fn leave_out(
    experiment: &Experiment,
    effort: Effort,
    registry: &Registry,
    memory: &Memory,
    place: Place,
) -> io::Result<Vec<LeftOut>> {
    let (others, _) = others_for(experiment.paper());
    // A number is a prediction if every constant that was fitted to it has its value from another paper.
    let mut experiment = experiment.clone();
    for claim in &mut experiment.claims {
        claim
            .fitted
            .retain(|name| others.iter().all(|other| other.constant != name));
    }
    let experiment = &experiment;
    let cases: Vec<Case> = graded_cases(experiment, effort)?
        .into_iter()
        .map(|case| Case {
            setup: replaced(&case.setup, &others),
            ..case
        })
        .collect();
    let name = format!("{}, without the fits to its paper", experiment.name);
    let outcomes = grade(experiment, &run_all(&name, &cases, registry, memory, place)?, &[]);
    let left_out = |outcome: Outcome| {
        outcome
            .model
            .filter(|_| outcome.grade != Grade::NotGraded)
            .map(|model| LeftOut {
                panel: outcome.panel,
                what: outcome.what,
                figure: model.mean,
                grade: outcome.grade,
            })
    };
    Ok(outcomes.into_iter().filter_map(left_out).collect())
}

/// Runs the points of the graded claims with one seed: once unchanged, and once for each constant and factor.
///
/// # Errors
/// Returns an error if a run fails.
pub(crate) fn study(
    experiment: &Experiment,
    effort: Effort,
    registry: &Registry,
    memory: &Memory,
    place: Place,
) -> io::Result<Vec<Turn>> {
    let cases = graded_cases(experiment, effort)?;
    let plain = grade(
        experiment,
        &run_all(&experiment.name, &cases, registry, memory, place)?,
        &[],
    );
    let mut turns = Vec::new();
    for constant in FITTED {
        for factor in STEPS {
            let changed: Vec<Case> = cases
                .iter()
                .map(|case| Case {
                    setup: turned(&case.setup, constant, factor),
                    ..case.clone()
                })
                .collect();
            let name = format!("{}, {constant} × {factor}", experiment.name);
            let outcomes = grade(
                experiment,
                &run_all(&name, &changed, registry, memory, place)?,
                &[],
            );
            for (plain, turned) in plain.iter().zip(outcomes) {
                if plain.kind != Kind::Graded {
                    continue;
                }
                let (Some(before), Some(after)) = (plain.model, turned.model) else {
                    continue;
                };
                turns.push(Turn {
                    constant: constant.to_owned(),
                    factor,
                    panel: plain.panel.clone(),
                    what: plain.what.clone(),
                    plain: before.mean,
                    turned: after.mean,
                    plain_grade: plain.grade,
                    turned_grade: turned.grade,
                });
            }
        }
    }
    Ok(turns)
}
