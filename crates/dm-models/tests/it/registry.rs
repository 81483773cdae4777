//! Tests that the registry is consistent and that every case has the verdict that its entry expects.

use std::collections::BTreeSet;

use dm_explore::{Cut, Search, Verdict};
use dm_models::{Case, Entry, Expect, Kind, Size, Variant, all, find};

fn check_cases(entry: &Entry, variant: Variant) -> Vec<(usize, Case)> {
    let cases = entry.cases_of(variant).into_iter().enumerate();
    cases.filter(|(_, c)| c.size == Size::Check).collect()
}

#[test]
fn names_are_unique_and_found() {
    let names: BTreeSet<String> = all().map(|e| e.name.to_lowercase()).collect();
    assert_eq!(names.len(), all().count());
    assert!(find("t-s3").is_some() && find("nothing").is_none());
}

#[test]
fn every_entry_has_something_that_fails_and_a_case_of_check_size() {
    for entry in all() {
        assert!(
            !check_cases(entry, Variant::Ours).is_empty(),
            "{} has no case of check size",
            entry.name
        );
        let fails = |v| {
            check_cases(entry, v)
                .iter()
                .any(|(_, c)| c.expect != Expect::Holds)
        };
        assert!(entry.variants().any(fails), "nothing of {} must fail", entry.name);
        for twin in entry.variants().filter(|v| *v != Variant::Ours) {
            assert!(fails(twin), "{}, {twin}: a twin must fail somewhere", entry.name);
        }
    }
}

/// Runs every case of check size of the selected entries, and checks its verdict.
fn judge(picked: impl Fn(&Entry) -> bool) {
    let mut wrong = Vec::new();
    for entry in all().filter(|e| picked(e)) {
        for variant in entry.variants() {
            for (number, _) in check_cases(entry, variant) {
                // Counterexamples are not shortened, because only people need short ones.
                let ran = entry.run(variant, number, Search::exhaustive().unshortened());
                assert!(!matches!(ran.verdict, Verdict::Pass(_)) || ran.verdict.report().states > 0);
                wrong.extend(ran.judge().err());
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn litmus_tests_are_as_the_registry_says() {
    judge(|e| e.kind == Kind::Litmus);
}

#[test]
fn locks_are_as_the_registry_says() {
    judge(|e| e.kind == Kind::Lock);
}

#[test]
fn sharing_is_as_the_registry_says() {
    judge(|e| e.kind == Kind::Combine);
}

#[test]
fn nodes_are_as_the_registry_says() {
    judge(|e| e.kind == Kind::Node);
}

#[test]
fn trees_are_as_the_registry_says() {
    judge(|e| e.kind == Kind::Tree);
}

#[test]
fn crashes_are_as_the_registry_says() {
    judge(|e| e.kind == Kind::Crash);
}

/// Explores the first states of one case of each shape, for `cargo xtask mutants`. This takes seconds, and all cases
/// of the kind would take a minute.
fn begin(kind: Kind) {
    for entry in all().filter(|e| e.kind == kind) {
        let mut shapes = BTreeSet::new();
        for (number, case) in check_cases(entry, Variant::Ours) {
            if case.expect == Expect::Holds && shapes.insert(case.shape) {
                let ran = entry.run(Variant::Ours, number, BEGINNING);
                let cut = matches!(ran.verdict, Verdict::Truncated { by: Cut::States, .. });
                assert_eq!(ran.judge().err().filter(|_| !cut), None);
            }
        }
    }
}

/// A search that is long enough to show most faults, and short enough that all shapes together take a few seconds.
const BEGINNING: Search = Search::exhaustive().unshortened().threads(1).states(10_000);

#[test]
fn locks_begin_well() {
    begin(Kind::Lock);
}

#[test]
fn sharing_begins_well() {
    begin(Kind::Combine);
}

#[test]
fn nodes_begin_well() {
    begin(Kind::Node);
}

#[test]
fn trees_begin_well() {
    begin(Kind::Tree);
}

#[test]
fn crashes_begin_well() {
    begin(Kind::Crash);
}

/// Sampled runs use no cache, so they detect a client that acts differently after the same observations.
#[test]
fn no_model_hides_state_from_the_explorer() {
    for entry in all() {
        for (number, case) in check_cases(entry, Variant::Ours) {
            if case.expect == Expect::Holds && number % 7 == 0 {
                let ran = entry.run(Variant::Ours, number, Search::pct(1, 20, 3));
                assert!(matches!(ran.verdict, Verdict::Sampled(_)), "{}", ran.verdict);
                let why = ran.judge().expect_err("a sample is never as expected");
                assert!(why.contains("not a pass"), "{why}");
            }
        }
    }
}
