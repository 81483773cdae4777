//! The reasons why some mutants may survive, from `xtask/mutants/CRATE.toml`.

use super::list::Mutant;
use crate::Result;
use serde::Deserialize;
use std::{collections::BTreeMap, fs, path::Path};

/// A crate's reasons by the keys of the mutants.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Reasons {
    /// Mutants that behave like the original code.
    equivalent: BTreeMap<String, String>,
    /// Mutants with the same results but a different cost.
    cost: BTreeMap<String, String>,
}

impl Reasons {
    /// Reads the crate's file. If the file is missing, there are no reasons.
    pub(crate) fn read(root: &Path, package: &str) -> Result<Self> {
        let path = root.join("xtask/mutants").join(format!("{package}.toml"));
        if !path.exists() {
            return Ok(Self::default());
        }
        let parsed = toml::from_str(&fs::read_to_string(&path)?);
        parsed.map_err(|error| format!("{}: {error}", path.display()).into())
    }

    /// Returns the mutant's reason, if it has one.
    pub(crate) fn of(&self, key: &str) -> Option<&str> {
        let found = self.equivalent.get(key).or_else(|| self.cost.get(key));
        found.map(String::as_str)
    }

    /// Returns the errors of the file: reasons for mutants that no longer exist, and reasons of fewer than 10 bytes.
    pub(crate) fn stale(&self, mutants: &[Mutant]) -> Vec<String> {
        let mut problems = Vec::new();
        for (key, reason) in self.equivalent.iter().chain(&self.cost) {
            if !mutants.iter().any(|m| m.key == *key) {
                problems.push(format!("a reason for a mutant that there is not: {key}"));
            }
            if reason.trim().len() < 10 {
                problems.push(format!("no reason is given: {key}"));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{mutants::stages::SUBJECTS, workspace};

    #[test]
    fn a_reason_needs_a_mutant_and_words() {
        let text = "[equivalent]\n\"a\" = \"it does the same\"\n\"b\" = \"it does the same\"\n[cost]\n\"c\" = \" \"\n";
        let reasons: Reasons = toml::from_str(text).unwrap();
        let mutant = |key: &str| Mutant {
            id: 1,
            key: key.to_owned(),
            file: String::new(),
            span: 0..0,
            replacement: String::new(),
            function: None,
        };
        assert_eq!(
            reasons.stale(&[mutant("a"), mutant("c")]),
            [
                "a reason for a mutant that there is not: b",
                "no reason is given: c"
            ]
        );
        assert_eq!(reasons.of("a"), Some("it does the same"));
        assert_eq!(reasons.of("d"), None);
    }

    #[test]
    fn every_file_of_reasons_is_some_crates_and_can_be_read() {
        let root = workspace::root().unwrap();
        for file in fs::read_dir(root.join("xtask/mutants")).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            let package = name.strip_suffix(".toml").unwrap();
            assert!(SUBJECTS.iter().any(|s| s.name == package), "{name}");
            Reasons::read(&root, package).unwrap();
        }
    }
}
