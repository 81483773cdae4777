//! The outcomes of mutants. They are stored under `target/mutants` as they occur, and counted at the end.

use super::{list::Mutant, reasons::Reasons, stages::Subject};
use crate::Result;
use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

/// The outcome of a mutant in one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The mutant does not compile.
    Unviable,
    /// This test failed, or this program ended with an error.
    Killed(String),
    /// This program exceeded its limit of CPU time, or three times as much wall time. The limit is three times its time
    /// without a mutant plus 10 seconds, or 120 seconds if the mutant has a build of its own.
    Hung(String),
    /// Every test passed.
    Survived,
}

impl Outcome {
    /// Returns whether a test noticed the mutant.
    pub(crate) fn is_kill(&self) -> bool {
        matches!(self, Self::Killed(_) | Self::Hung(_))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unviable => write!(f, "does not compile"),
            Self::Killed(by) => write!(f, "killed by {by}"),
            Self::Hung(by) => write!(f, "hung in {by}"),
            Self::Survived => write!(f, "SURVIVED"),
        }
    }
}

/// One line of a crate's file.
#[derive(Debug)]
struct Record {
    stage: String,
    outcome: Outcome,
    /// The time at which the newest of this outcome's programs was built; 0 if they did not compile.
    stamp: u128,
}

/// All known outcomes.
#[derive(Debug)]
pub(crate) struct Outcomes {
    dir: PathBuf,
    known: BTreeMap<(String, String), Vec<Record>>,
}

/// The heading of the table.
pub(crate) const HEADING: &str = "\
| crate | mutants | do not compile | killed by own tests | killed above | hung | have a reason | survive | not run |
|---|---|---|---|---|---|---|---|---|";

/// The summary of a crate's mutants.
#[derive(Debug)]
pub(crate) struct Tally {
    /// The crate's row.
    pub(crate) row: String,
    /// The problems, one line each.
    pub(crate) problems: Vec<String>,
}

impl Outcomes {
    /// Starts without outcomes, or continues from the files of these crates.
    pub(crate) fn open<'a>(
        root: &Path,
        packages: impl Iterator<Item = &'a str>,
        resume: bool,
    ) -> Result<Self> {
        let dir = root.join("target/mutants/outcomes");
        fs::create_dir_all(&dir)?;
        let mut all = Self {
            dir,
            known: BTreeMap::new(),
        };
        for package in packages {
            let path = all.path(package);
            if !resume {
                fs::write(&path, "")?;
            } else if path.exists() {
                for line in fs::read_to_string(&path)?.lines() {
                    all.learn(package, line);
                }
            }
        }
        Ok(all)
    }

    fn path(&self, package: &str) -> PathBuf {
        self.dir.join(format!("{package}.tsv"))
    }

    fn learn(&mut self, package: &str, line: &str) {
        let parts: Vec<&str> = line.split('\t').collect();
        let [stage, outcome, stamp, key, by] = parts[..] else {
            return;
        };
        let outcome = match outcome {
            "unviable" => Outcome::Unviable,
            "killed" => Outcome::Killed(by.to_owned()),
            "hung" => Outcome::Hung(by.to_owned()),
            "survived" => Outcome::Survived,
            // The run that wrote this line was interrupted, so the line is incomplete.
            _ => return,
        };
        let record = Record {
            stage: stage.to_owned(),
            outcome,
            stamp: stamp.parse().unwrap_or(0),
        };
        self.known
            .entry((package.to_owned(), key.to_owned()))
            .or_default()
            .push(record);
    }

    /// Stores an outcome of programs that were built at time `stamp`.
    pub(crate) fn record(
        &mut self,
        package: &str,
        stage: &str,
        key: &str,
        outcome: &Outcome,
        stamp: u128,
    ) -> Result<()> {
        let (word, by) = match outcome {
            Outcome::Unviable => ("unviable", ""),
            Outcome::Killed(by) => ("killed", by.as_str()),
            Outcome::Hung(by) => ("hung", by.as_str()),
            Outcome::Survived => ("survived", ""),
        };
        let line = format!("{stage}\t{word}\t{stamp}\t{key}\t{by}");
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path(package))?;
        writeln!(file, "{line}")?;
        self.learn(package, &line);
        Ok(())
    }

    fn of(&self, package: &str, key: &str) -> &[Record] {
        let key = (package.to_owned(), key.to_owned());
        self.known.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Returns whether the mutant does not compile.
    pub(crate) fn is_unviable(&self, package: &str, key: &str) -> bool {
        self.of(package, key)
            .iter()
            .any(|r| r.outcome == Outcome::Unviable)
    }

    /// Returns whether the mutant's outcome is final.
    pub(crate) fn is_settled(&self, package: &str, key: &str) -> bool {
        self.of(package, key)
            .iter()
            .any(|r| r.outcome != Outcome::Survived)
    }

    /// Returns whether the mutant survived this stage. If `stamp` is given, counts only the build of that time.
    pub(crate) fn survived(&self, package: &str, stage: &str, key: &str, stamp: Option<u128>) -> bool {
        self.of(package, key).iter().any(|r| {
            r.stage == stage && r.outcome == Outcome::Survived && stamp.is_none_or(|at| at == r.stamp)
        })
    }

    /// Returns whether the crate's own tests noticed the mutant.
    pub(crate) fn killed_by_own(&self, subject: &Subject, key: &str) -> bool {
        let own = |stage: &str| subject.stages.iter().any(|s| s.name == stage && s.is_own());
        self.of(subject.name, key)
            .iter()
            .any(|r| r.outcome.is_kill() && own(&r.stage))
    }

    /// Counts a crate's mutants.
    pub(crate) fn tally(&self, subject: &Subject, mutants: &[Mutant], reasons: &Reasons) -> Tally {
        let [
            mut unviable,
            mut own,
            mut above,
            mut hung,
            mut reasoned,
            mut survive,
            mut not_run,
        ] = [0; 7];
        let mut problems = Vec::new();
        for mutant in mutants {
            let (name, key) = (subject.name, &mutant.key);
            let records = self.of(name, key);
            let reason = reasons.of(key);
            if records.iter().any(|r| r.outcome == Outcome::Unviable) {
                unviable += 1;
            } else if let Some(kill) = records.iter().find(|r| r.outcome.is_kill()) {
                match kill.outcome {
                    Outcome::Hung(_) => hung += 1,
                    _ if self.killed_by_own(subject, key) => own += 1,
                    _ => above += 1,
                }
                if reason.is_some() {
                    problems.push(format!("{name}: {}, so its reason is wrong: {key}", kill.outcome));
                }
            } else if reason.is_some() {
                reasoned += 1;
            } else if subject
                .stages
                .iter()
                .all(|stage| self.survived(name, stage.name, key, None))
            {
                survive += 1;
                problems.push(format!("{name}: survives without a reason: {key}"));
            } else {
                not_run += 1;
            }
        }
        if not_run > 0 {
            problems.push(format!(
                "{}: {not_run} mutants were not run through every stage",
                subject.name
            ));
        }
        let row = format!(
            "| {} | {} | {unviable} | {own} | {above} | {hung} | {reasoned} | {survive} | {not_run} |",
            subject.name,
            mutants.len()
        );
        Tally { row, problems }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::stages::SUBJECTS, *};

    #[test]
    fn a_crate_passes_when_all_its_mutants_are_accounted_for() {
        let root = std::env::temp_dir().join(format!("xtask-outcomes-{}", std::process::id()));
        let subject = &SUBJECTS[0];
        let name = subject.name;
        let mutant = |key: &str| Mutant {
            id: 1,
            key: key.to_owned(),
            file: String::new(),
            span: 0..0,
            replacement: String::new(),
            function: None,
        };
        let mutants = ["a", "b", "c", "d", "e"].map(mutant);
        let reasons: Reasons = toml::from_str("[cost]\n\"d\" = \"only slower\"\n").unwrap();
        let mut all = Outcomes::open(&root, [name].into_iter(), false).unwrap();
        let killed = Outcome::Killed("some test".to_owned());
        all.record(name, "own", "a", &killed, 1).unwrap();
        all.record(name, "own", "b", &Outcome::Survived, 1).unwrap();
        all.record(name, "models: locks", "b", &killed, 1).unwrap();
        all.record(name, "compiler", "c", &Outcome::Unviable, 0).unwrap();
        all.record(name, "own", "e", &Outcome::Survived, 1).unwrap();
        let tally = all.tally(subject, &mutants, &reasons);
        assert_eq!(tally.row, "| dm-lock | 5 | 1 | 1 | 1 | 0 | 1 | 0 | 1 |");
        assert_eq!(
            tally.problems,
            ["dm-lock: 1 mutants were not run through every stage"]
        );

        // The next run continues from these outcomes.
        let mut all = Outcomes::open(&root, [name].into_iter(), true).unwrap();
        assert!(
            all.is_settled(name, "a") && all.killed_by_own(subject, "a") && !all.killed_by_own(subject, "b")
        );
        assert!(all.survived(name, "own", "e", Some(1)) && !all.survived(name, "own", "e", Some(2)));
        for stage in subject.stages {
            all.record(name, stage.name, "e", &Outcome::Survived, 1).unwrap();
        }
        all.record(name, "own", "d", &killed, 2).unwrap();
        assert_eq!(
            all.tally(subject, &mutants, &reasons).problems,
            [
                "dm-lock: killed by some test, so its reason is wrong: d",
                "dm-lock: survives without a reason: e"
            ]
        );
        fs::remove_dir_all(root).unwrap();
    }
}
