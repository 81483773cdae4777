//! Counts the claims of the papers by their result: the first table of the page, of the summary and of the evidence.

use super::catalogue::{self, Figure};
use super::experiment::{Experiment, Kind};
use super::grade::{Grade, Outcome};
use super::record::Record;

/// The headings of the columns of a [`Tally`], in their order.
pub(crate) const COLUMNS: [&str; 9] = [
    "claims",
    "reproduced",
    "exceeded",
    "direction only",
    "missed, with a reason",
    "missed, not understood",
    "fitted",
    "not modelled",
    "not graded",
];

/// The counts of one paper, or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) reproduced: usize,
    pub(crate) exceeded: usize,
    pub(crate) direction: usize,
    /// Misses whose rows contain a reason that covers the gap.
    pub(crate) understood: usize,
    /// Misses that nothing in the rows explains.
    pub(crate) unexplained: usize,
    pub(crate) fitted: usize,
    /// Claims that no run can test yet.
    pub(crate) not_modelled: usize,
    /// Claims that were not run, or not at the experiment's own setting, or whose grade is open.
    pub(crate) not_graded: usize,
}

impl Tally {
    /// Returns the counts under the headings of [`COLUMNS`].
    pub(crate) fn counts(self) -> [usize; 9] {
        let parts = [
            self.reproduced,
            self.exceeded,
            self.direction,
            self.understood,
            self.unexplained,
            self.fitted,
            self.not_modelled,
            self.not_graded,
        ];
        let mut counts = [0; 9];
        counts[0] = parts.iter().sum();
        counts[1..].copy_from_slice(&parts);
        counts
    }

    pub(crate) fn add(&mut self, outcome: &Outcome) {
        if !outcome.is_claim() {
            return;
        }
        let counter = if outcome.not_modelled {
            &mut self.not_modelled
        } else if outcome.is_fit() {
            &mut self.fitted
        } else {
            let understood = outcome.reason.as_ref().is_some_and(|reason| reason.understood);
            match outcome.grade {
                Grade::Reproduced => &mut self.reproduced,
                Grade::Exceeded => &mut self.exceeded,
                Grade::Direction => &mut self.direction,
                Grade::Missed if understood => &mut self.understood,
                Grade::Missed => &mut self.unexplained,
                Grade::NotGraded => &mut self.not_graded,
            }
        };
        *counter += 1;
    }

    fn and(self, other: Self) -> Self {
        Self {
            reproduced: self.reproduced + other.reproduced,
            exceeded: self.exceeded + other.exceeded,
            direction: self.direction + other.direction,
            understood: self.understood + other.understood,
            unexplained: self.unexplained + other.unexplained,
            fitted: self.fitted + other.fitted,
            not_modelled: self.not_modelled + other.not_modelled,
            not_graded: self.not_graded + other.not_graded,
        }
    }
}

/// Returns the counts of each paper, then of all papers together, then of experiments of the user's own. A claim of an
/// experiment without a record counts as not graded, unless it is fitted or cannot be run. The claims that the
/// catalogue leaves out count as not modelled.
pub(crate) fn papers(experiments: &[Experiment], records: &[Record]) -> Vec<(String, Tally)> {
    let figures = catalogue::all();
    let mut rows: Vec<(String, Tally)> = Vec::new();
    for Figure { paper, left, .. } in &figures {
        let tally = row(&mut rows, paper);
        tally.not_modelled += left;
    }
    let papers = rows.len();
    for experiment in experiments {
        let tally = row(&mut rows, experiment.paper());
        let record = records.iter().find(|record| record.name == experiment.name);
        let run = |panel: &str, what: &str| {
            let outcomes = record.iter().flat_map(|record| &record.outcomes);
            outcomes
                .into_iter()
                .find(|o| (o.panel.as_str(), o.what.as_str()) == (panel, what))
        };
        for claim in &experiment.claims {
            match run(&claim.panel, &claim.what) {
                Some(outcome) => tally.add(outcome),
                None if !matches!(claim.kind, Kind::Graded | Kind::Order) => {}
                None if claim.skip.is_some() => tally.not_modelled += 1,
                None if !claim.fitted.is_empty() => tally.fitted += 1,
                None => tally.not_graded += 1,
            }
        }
    }
    let all = rows[..papers]
        .iter()
        .fold(Tally::default(), |all, (_, tally)| all.and(*tally));
    rows.insert(papers, ("all".to_owned(), all));
    rows
}

/// The headings of the columns of [`without_fits`], in their order.
pub(crate) const WITHOUT_FITS: [&str; 4] = [
    "graded claims",
    "of these, the grade stands",
    "fitted claims",
    "of these, reproduced without the fit",
];

/// Counts the claims of each paper in the experiments that also ran with the fits to figures of this paper replaced.
/// Experiments that did not run at their own setting, and papers without any other such experiment, are left out.
pub(crate) fn without_fits(runs: &[(Experiment, Record)]) -> Vec<(String, [usize; 4])> {
    let mut papers: Vec<(String, [usize; 4])> = Vec::new();
    let replaced = |(experiment, record): &&(Experiment, Record)| {
        record.leaves_out() && record.effort.deviations(experiment.kind).is_empty()
    };
    for (experiment, record) in runs.iter().filter(replaced) {
        for outcome in record.outcomes.iter().filter(|outcome| outcome.is_claim()) {
            let other = record.left_out(outcome).map(|other| other.grade);
            let at = papers.iter().position(|(name, _)| name == experiment.paper());
            let at = at.unwrap_or_else(|| {
                papers.push((experiment.paper().to_owned(), [0; 4]));
                papers.len() - 1
            });
            let counts = &mut papers[at].1;
            if outcome.is_fit() && !outcome.not_modelled {
                counts[2] += 1;
                counts[3] += usize::from(other == Some(Grade::Reproduced));
            } else if outcome.grade != Grade::NotGraded {
                counts[0] += 1;
                counts[1] += usize::from(other == Some(outcome.grade));
            }
        }
    }
    papers
}

fn row<'a>(rows: &'a mut Vec<(String, Tally)>, paper: &str) -> &'a mut Tally {
    let at = rows
        .iter()
        .position(|(name, _)| name == paper)
        .unwrap_or_else(|| {
            rows.push((paper.to_owned(), Tally::default()));
            rows.len() - 1
        });
    &mut rows[at].1
}

#[cfg(test)]
mod tests {
    use super::super::experiment;
    use super::super::grade::grade;
    use super::*;
    use crate::reproduce::cases::Effort;

    /// Without any run, no claim is reproduced or missed, and none is lost from the sum.
    #[test]
    fn every_claim_is_counted_once() {
        let experiments = experiment::all().unwrap();
        let claims: usize = experiments
            .iter()
            .flat_map(|e| &e.claims)
            .filter(|claim| matches!(claim.kind, Kind::Graded | Kind::Order))
            .count();
        let left: usize = catalogue::all().iter().map(|figure| figure.left).sum();
        let nothing = papers(&experiments, &[]);
        let empty: Vec<Record> = experiments
            .iter()
            .map(|e| Record {
                name: e.name.clone(),
                command: String::new(),
                effort: Effort {
                    seeds: 3,
                    quick: false,
                    keys: None,
                },
                commit: String::new(),
                seconds: 0.0,
                panels: Vec::new(),
                samples: Vec::new(),
                outcomes: grade(e, &[], &[]),
                sensitivity: Vec::new(),
                left_out: Vec::new(),
            })
            .collect();
        assert_eq!(
            papers(&experiments, &empty),
            nothing,
            "a record without points changes nothing"
        );
        assert_eq!(nothing.len(), 6, "five papers, and all");
        let (name, all) = nothing.last().unwrap();
        assert_eq!((name.as_str(), all.counts()[0]), ("all", claims + left));
        assert_eq!(
            all.reproduced + all.exceeded + all.direction + all.understood + all.unexplained,
            0
        );
        assert!(all.fitted > 10 && all.not_modelled > left, "{all:?}");
    }
}
