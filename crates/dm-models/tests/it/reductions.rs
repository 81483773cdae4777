//! Tests that sleep sets and threads change no verdict and lose no states or ends. Small cases of the registry are
//! compared with a search that uses neither.

use std::collections::BTreeSet;

use dm_explore::{Report, Search, Verdict};
use dm_models::{Case, Entry, How, Kind, Size, Variant, all};

/// The maximum number of states of a model that is searched without any reduction.
const SMALL: u64 = 20_000;
/// One in this number of cases of each variant is used, because many cases differ only in their knobs.
const ONE_IN: usize = 7;

fn cases() -> impl Iterator<Item = (&'static Entry, Variant, usize, Case)> {
    all().flat_map(|entry| {
        entry.variants().flat_map(move |variant| {
            let cases = entry.cases_of(variant).into_iter().enumerate();
            let cases = cases.filter(|(i, case)| i % ONE_IN == 0 && case.size == Size::Check);
            cases.map(move |(number, case)| (entry, variant, number, case))
        })
    })
}

/// Returns the part of a verdict that must not change: the failure, or else the number of states and the set of ends.
fn outcome(verdict: &Verdict) -> Result<(u64, u64, (u64, u64)), Option<How>> {
    match verdict {
        Verdict::Pass(report) => {
            let Report {
                states,
                ends,
                ends_hash,
                ..
            } = **report;
            Ok((states, ends, ends_hash))
        }
        Verdict::Counterexample(found) => Err(How::of(&found.failure)),
        other => panic!("{other}"),
    }
}

/// Compares the searches on all selected entries. Returns the number of small cases, and how many of them fail.
fn compare(picked: impl Fn(&Entry) -> bool) -> (u32, u32) {
    let (mut small, mut failing, mut wrong) = (0, 0, BTreeSet::new());
    for (entry, variant, number, case) in cases().filter(|c| picked(c.0)) {
        let run = |search: Search| entry.run(variant, number, search.unshortened()).verdict;
        let whole = run(Search::cached().threads(1).states(SMALL));
        if matches!(whole, Verdict::Truncated { .. }) {
            continue;
        }
        small += 1;
        failing += u32::from(!whole.is_pass());
        let reduced = [
            ("sleep sets", Search::exhaustive().threads(1)),
            ("three threads", Search::exhaustive().threads(3).alone(10)),
            (
                "three threads without sleep sets",
                Search::cached().threads(3).alone(100),
            ),
        ];
        let allowed = |how: Option<How>| how.is_some_and(|how| case.or.contains(&how));
        for (name, search) in reduced {
            let same = match (outcome(&whole), outcome(&run(search))) {
                // If several failures are possible, the search determines which one is found first; the registry lists
                // all of them.
                (Err(a), Err(b)) => a == b || allowed(a) || allowed(b),
                (a, b) => a == b,
            };
            if !same {
                wrong.insert(format!("{} ({variant}, case {number}): {name}", entry.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    (small, failing)
}

#[test]
fn reductions_change_nothing_in_locks_and_litmus_tests() {
    let (small, failing) = compare(|e| matches!(e.kind, Kind::Lock | Kind::Litmus));
    assert!(
        small > 50 && failing > 10,
        "{small} small cases, {failing} failing"
    );
}

#[test]
fn reductions_change_nothing_in_nodes_and_sharing() {
    let (small, failing) = compare(|e| matches!(e.kind, Kind::Node | Kind::Combine));
    assert!(
        small > 20 && failing > 5,
        "{small} small cases, {failing} failing"
    );
}

#[test]
fn reductions_change_nothing_in_trees_and_crashes() {
    let (small, failing) = compare(|e| matches!(e.kind, Kind::Tree | Kind::Crash));
    assert!(
        small > 20 && failing > 5,
        "{small} small cases, {failing} failing"
    );
}
