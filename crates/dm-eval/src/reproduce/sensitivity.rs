//! Measures how much each graded figure depends on each fitted constant, by making each constant a fifth smaller and a
//! fifth larger.

use std::io;

use dm_bench::Registry;
use serde::{Deserialize, Serialize};

use super::cases::{Case, Effort, Memory, run_all};
use super::constants::{FITTED, turned};
use super::experiment::{Experiment, Kind};
use super::grade::{Verdict, grade};

/// The factors by which constants are varied.
const STEPS: [f64; 2] = [0.8, 1.2];

/// A graded figure of a run with one constant varied.
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
    pub(crate) plain_verdict: Verdict,
    pub(crate) turned_verdict: Verdict,
}

impl Turn {
    /// Returns the relative change of the figure.
    pub(crate) fn change(&self) -> f64 {
        self.turned / self.plain - 1.0
    }

    pub(crate) fn flips(&self) -> bool {
        self.plain_verdict != self.turned_verdict
    }
}

/// Runs the points that the graded claims of `experiment` need, with one seed, once for each constant and factor.
///
/// # Errors
/// Returns an error if a run fails.
pub(crate) fn study(
    experiment: &Experiment,
    quick: bool,
    registry: &Registry,
    memory: &Memory,
) -> io::Result<Vec<Turn>> {
    let effort = Effort {
        seeds: 1,
        quick,
        keys: None,
    };
    let mut cases = Case::all(experiment, effort).map_err(io::Error::other)?;
    cases.retain(|case| {
        experiment.claims.iter().any(|claim| {
            let series = claim.rising.iter().chain(&claim.over).chain([&claim.of]);
            claim.kind == Kind::Graded
                && claim.skip.is_none()
                && claim.panel == case.panel
                && series.into_iter().any(|series| *series == case.series)
        })
    });
    let plain = grade(experiment, &run_all(&experiment.name, &cases, registry, memory)?);
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
            let outcomes = grade(experiment, &run_all(&name, &changed, registry, memory)?);
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
                    plain_verdict: plain.verdict,
                    turned_verdict: turned.verdict,
                });
            }
        }
    }
    Ok(turns)
}
