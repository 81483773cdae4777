//! The list of all figures and tables of the papers, each with the experiment that runs it or the reason why there is
//! none.

use serde::Deserialize;

/// A figure or table of a paper.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figure {
    /// The paper's short name.
    pub(crate) paper: String,
    pub(crate) figure: String,
    pub(crate) shows: String,
    /// The name of the experiment that runs it.
    pub(crate) experiment: Option<String>,
    /// Number of statements of the paper's text (numbers, orders and trends) that no experiment claims.
    #[serde(default)]
    pub(crate) left: usize,
    /// The reason why there is no experiment, or why these statements are left out.
    pub(crate) why: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Catalogue {
    figure: Vec<Figure>,
}

/// Returns every figure, in the papers' order.
///
/// # Panics
/// Panics if the embedded file is invalid, which a test rules out.
pub(crate) fn all() -> Vec<Figure> {
    let catalogue: Catalogue =
        toml::from_str(include_str!("../../catalogue.toml")).expect("the embedded catalogue is valid");
    catalogue.figure
}

#[cfg(test)]
mod tests {
    use super::super::experiment;
    use super::*;

    /// Every figure of the list has an experiment or a reason why it has none, and every experiment belongs to a figure
    /// of the list.
    #[test]
    fn every_figure_runs_or_has_a_reason() {
        let (figures, experiments) = (all(), experiment::all().unwrap());
        for figure in &figures {
            let name = format!("{} {}", figure.paper, figure.figure);
            assert!(
                figure.experiment.is_some() || figure.why.is_some(),
                "{name} neither runs nor says why"
            );
            assert_eq!(figure.left > 0, figure.left > 0 && figure.why.is_some(), "{name}");
            if let Some(experiment) = &figure.experiment {
                let found = experiments.iter().find(|e| e.name == *experiment);
                let found = found.unwrap_or_else(|| panic!("{name}: no experiment {experiment}"));
                assert_eq!(found.paper(), figure.paper, "{name}");
            }
        }
        for experiment in &experiments {
            let listed = figures
                .iter()
                .any(|f| f.experiment.as_ref() == Some(&experiment.name));
            assert!(listed, "{} is not in the catalogue", experiment.name);
        }
        for paper in ["Sherman", "SMART", "CHIME", "Dolphin"] {
            assert!(figures.iter().any(|figure| figure.paper == paper), "{paper}");
        }
    }
}
