//! The raw data of a run of an experiment: one JSON file, from which tables and charts can be made at any time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cases::{Effort, Sample};
use super::experiment::Experiment;
use super::grade::Outcome;
use super::sensitivity::{LeftOut, Turn};

/// One run of one experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The experiment's name.
    pub(crate) name: String,
    /// The command that repeats the run, without `--sensitivity`.
    pub(crate) command: String,
    #[serde(flatten)]
    pub(crate) effort: Effort,
    /// The commit of the program that made the run, or `unknown`.
    pub(crate) commit: String,
    /// Seconds that the run took by the machine's clock, including earlier runs of other panels.
    pub(crate) seconds: f64,
    /// The panels that were run.
    pub(crate) panels: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) samples: Vec<Sample>,
    pub(crate) outcomes: Vec<Outcome>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) sensitivity: Vec<Turn>,
    /// The graded claims with the fits to the same paper's figures replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) left_out: Vec<LeftOut>,
}

/// The option for a second run, without the fits to the experiment's own paper.
pub(crate) const LEAVE_ONE_OUT: &str = " --leave-one-out";

fn path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.json"))
}

impl Record {
    /// Returns the experiment with only the panels that were run.
    pub(crate) fn part(&self, experiment: &Experiment) -> Experiment {
        experiment.only(|panel| self.panels.iter().any(|name| name == panel))
    }

    /// Returns the record without its raw data: what the table of claims needs.
    pub(crate) fn results(&self) -> Self {
        Self {
            samples: Vec::new(),
            sensitivity: Vec::new(),
            ..self.clone()
        }
    }

    /// Returns whether the experiment also ran without the fits to its own paper's figures. Such a run may leave all
    /// claims open, so `left_out` may be empty then.
    pub(crate) fn leaves_out(&self) -> bool {
        self.command.contains(LEAVE_ONE_OUT)
    }

    /// Returns a claim's result without the fits to its own paper's figures.
    pub(crate) fn left_out(&self, outcome: &Outcome) -> Option<&LeftOut> {
        self.left_out
            .iter()
            .find(|other| (&other.panel, &other.what) == (&outcome.panel, &outcome.what))
    }

    /// Writes the record to `directory`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(crate) fn write(&self, directory: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(directory)?;
        let path = path(directory, &self.name);
        let mut text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        text.push('\n');
        fs::write(&path, text)?;
        Ok(path)
    }

    /// Reads the record of experiment `name`. Returns `None` if there is none.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or is not a record.
    pub(crate) fn read(directory: &Path, name: &str) -> io::Result<Option<Self>> {
        let path = path(directory, name);
        match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text)
                .map(Some)
                .map_err(|e| io::Error::other(format!("{}: {e}", path.display()))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
}
