//! The cluster file: the memory nodes, and how this machine reaches them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use dm_verbs::Capability;

mod file;

pub use file::ClusterFile;

/// The error message for uses of real queue pairs in a build without the feature `ib`.
#[cfg(not(feature = "ib"))]
pub const MISSING: &str = "this dmkit was built without RDMA: \
    `cargo run --release --package dmkit --features ib -- …` has it, and `dmkit doctor` says what that needs";

/// The capabilities that a user can tell dmkit to assume, by their names in files and flags.
const ASSUMABLE: [(&str, Capability); 5] = [
    ("lines", Capability::LineAtomicity),
    ("cas-read", Capability::CasThenReadInOrder),
    ("atomic-write", Capability::AtomicVsWriteSerialised),
    ("write-lines", Capability::WriteLinesIncreasing),
    ("host-before-chip", Capability::HostBeforeChip),
];

/// Returns the capability with this name.
///
/// # Errors
/// Returns a message that lists the known names if `name` is not one of them.
pub fn capability(name: &str) -> Result<Capability, String> {
    let found = ASSUMABLE.iter().find(|(known, _)| *known == name);
    found.map(|(_, capability)| *capability).ok_or_else(|| {
        let names = ASSUMABLE.map(|(known, _)| known).join(", ");
        format!("nothing called {} can be assumed; there are {names}", shown(name))
    })
}

/// Returns the first 60 characters of a word, in quotes. `…` follows if there are more.
fn shown(word: &str) -> String {
    match word.char_indices().nth(60) {
        Some((end, _)) => format!("{:?}…", word.get(..end).unwrap_or_default()),
        None => format!("{word:?}"),
    }
}

/// A client machine of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// The machine's number, from 0.
    pub number: u16,
    /// The number of machines.
    pub of: u16,
}

impl Machine {
    /// A single machine.
    pub const ALONE: Self = Self { number: 0, of: 1 };
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Machine {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let parsed = s
            .split_once('/')
            .and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match parsed {
            Some((number, of)) if number < of => Ok(Self { number, of }),
            _ => Err(format!(
                "{s:?} is not a machine's number: 0/2 is the first of two, 1/2 the second"
            )),
        }
    }
}

/// A cluster, and how this run uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterRun {
    /// The path as the user gave it.
    pub path: PathBuf,
    /// The content of the file.
    pub file: ClusterFile,
    /// The client machine on which this program runs.
    pub machine: Machine,
    /// Whether the index exists already, loaded with the same keys.
    pub existing: bool,
    /// Maximum time for which the machines wait for each other at each stage.
    pub patience: Duration,
}

impl ClusterRun {
    /// Reads the cluster file at `path`. The run is that of a single client machine, which loads a new index.
    ///
    /// # Errors
    /// Returns a message that names the file and the problem if the file cannot be read or is invalid.
    pub fn read(path: &str) -> Result<Self, String> {
        Ok(Self {
            path: path.into(),
            file: ClusterFile::read(Path::new(path))?,
            machine: Machine::ALONE,
            existing: false,
            patience: Duration::from_secs(60),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_counted_from_zero() {
        assert_eq!("1/2".parse(), Ok(Machine { number: 1, of: 2 }));
        for wrong in ["2/2", "1", "a/b", "1/0"] {
            assert!(wrong.parse::<Machine>().is_err(), "{wrong}");
        }
    }
}
