//! Tests that the pages report the results of the runs.

use dm_explore::Search;
use dm_models::{Entry, Ran, find, page, stories, timeless};

/// Runs all cases of these models, each with its shortest counterexample.
fn run(names: &[&str]) -> (Vec<&'static Entry>, Vec<Ran>) {
    let entries: Vec<&Entry> = names.iter().filter_map(|n| find(n)).collect();
    let mut ran = Vec::new();
    for entry in &entries {
        for variant in entry.variants() {
            for number in 0..entry.cases_of(variant).len() {
                ran.push(entry.run(variant, number, Search::exhaustive()));
            }
        }
    }
    (entries, ran)
}

#[test]
fn a_row_for_every_model_and_a_story_for_every_flaw() {
    let (entries, ran) = run(&["L8", "T-S3"]);
    let stories = stories(entries.clone(), &ran);
    let names: Vec<&str> = stories.keys().map(String::as_str).collect();
    assert_eq!(names, ["L8.md", "L8.svg", "T-S3.md", "T-S3.svg"]);
    let table = page(entries, &ran);
    let row = |name: &str| {
        table
            .lines()
            .find(|l| l.starts_with(&format!("| **{name}**")))
            .expect("a row")
    };
    assert!(
        row("L8").contains("never seen in 3 cases; shown in 1"),
        "{}",
        row("L8")
    );
    assert!(
        row("T-S3").contains("| fails: not linearizable | holds |"),
        "{}",
        row("T-S3")
    );
    let story = &stories["T-S3.md"];
    assert!(
        story.contains("==> not linearizable")
            && story.contains("dmkit explore T-S3 --as-published --case 0 --trace")
    );
}

#[test]
fn but_for_times_the_same_runs_draw_the_same_page() {
    let (entries, ran) = run(&["T-S13"]);
    let again = run(&["T-S13"]).1;
    assert_ne!(ran, again, "their times differ");
    let (one, other) = (page(entries.clone(), &ran), page(entries, &again));
    assert_eq!(timeless(&one), timeless(&other));
    assert!(
        timeless(&one).len() < one.len(),
        "the column of seconds is still there"
    );
}

#[test]
fn a_truncated_search_is_never_as_expected() {
    let entry = find("hocl").expect("a model");
    let ran = entry.run(dm_models::Variant::Ours, 0, Search::exhaustive().steps(3));
    let why = ran.judge().expect_err("it was cut short");
    assert!(why.contains("TRUNCATED"), "{why}");
    assert!(page([entry], &[ran]).contains("**truncated** in 1 of 1"));
}
