//! Running cases, and judging what came out.

use dm_explore::{Counterexample, Search, Verdict};

use crate::entry::{Case, Entry, Expect, How, Variant};

/// A case, and what came of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Ran {
    /// The model.
    pub entry: &'static str,
    /// Which twin.
    pub variant: Variant,
    /// The number of the case among that twin's, from 0.
    pub number: usize,
    /// The case.
    pub case: Case,
    /// What came of it.
    pub verdict: Verdict,
}

/// The command that explores one case.
pub(crate) fn run_command(entry: &str, variant: Variant, number: usize) -> String {
    let twin = match variant {
        Variant::Ours => String::new(),
        Variant::Published => " --as-published".to_owned(),
        Variant::Mutant(name) => format!(" --mutant {name}"),
    };
    format!("dmkit explore {entry}{twin} --case {number}")
}

impl Ran {
    /// Whether the verdict is the one that the registry names.
    ///
    /// # Errors
    /// What came instead, with the whole story. A truncated search is never as expected, nor is a sample.
    pub fn judge(&self) -> Result<(), String> {
        let as_expected = match (self.case.expect, &self.verdict) {
            (Expect::Holds, Verdict::Pass(_)) => true,
            (Expect::Fails(how), Verdict::Counterexample(found)) => {
                let found = How::of(&found.failure);
                found.is_some_and(|found| found == how || self.case.or.contains(&found))
            }
            _ => false,
        };
        if as_expected {
            return Ok(());
        }
        Err(format!(
            "{} ({}, case {}): expected that it {}, but\n{}",
            self.entry, self.variant, self.number, self.case.expect, self.verdict
        ))
    }
}

impl Ran {
    /// The command that runs the counterexample of this case again.
    pub fn replay_command(&self, found: &Counterexample) -> String {
        let command = run_command(self.entry, self.variant, self.number);
        format!("{command} --trace \"{}\"", found.trace)
    }
}

impl Entry {
    /// Runs one case of a twin.
    ///
    /// # Panics
    /// When there is no such case.
    pub fn run(&self, variant: Variant, number: usize, search: Search) -> Ran {
        let case = self.cases_of(variant).swap_remove(number);
        let verdict = self.model(variant, &case).explore(&case.knobs, search);
        Ran {
            entry: self.name,
            variant,
            number,
            case,
            verdict,
        }
    }
}
