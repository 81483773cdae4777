//! Runs cases and checks their verdicts.

use dm_explore::{Counterexample, Search, Verdict};

use crate::entry::{Case, Entry, Expect, How, Variant};

/// A case that was run, and its verdict.
#[derive(Clone, PartialEq, Debug)]
pub struct Ran {
    /// The name of the entry.
    pub entry: &'static str,
    /// The variant of the model.
    pub variant: Variant,
    /// The number of the case among the variant's cases, from 0.
    pub number: usize,
    /// The case, with its knobs and its expected verdict.
    pub case: Case,
    /// The verdict that the search returned.
    pub verdict: Verdict,
}

/// Returns the command that explores a case.
pub(crate) fn run_command(entry: &str, variant: Variant, number: usize) -> String {
    let twin = match variant {
        Variant::Ours => String::new(),
        Variant::Published => " --as-published".to_owned(),
        Variant::Mutant(name) => format!(" --mutant {name}"),
    };
    format!("dmkit explore {entry}{twin} --case {number}")
}

impl Ran {
    /// Checks that the case has the expected verdict.
    ///
    /// # Errors
    /// Returns the actual verdict, with the whole counterexample, if it is not the expected one. A truncated search or
    /// a sample is never the expected verdict.
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
    /// Returns the command that runs this counterexample again.
    pub fn replay_command(&self, found: &Counterexample) -> String {
        let command = run_command(self.entry, self.variant, self.number);
        format!("{command} --trace \"{}\"", found.trace)
    }
}

impl Entry {
    /// Runs one case of a variant.
    ///
    /// # Panics
    /// Panics if there is no such case.
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
