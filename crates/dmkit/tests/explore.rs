//! Tests of `dmkit explore`: its output and its exit statuses.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn explore(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dmkit"));
    command.arg("explore").args(args);
    command.output().expect("the command starts")
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("no signal")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_model_that_holds_ends_with_0_and_says_what_it_rests_on() {
    let output = explore(&["T-S3"]);
    let text = text(&output);
    assert_eq!(status(&output), 0, "{text}");
    assert!(
        text.contains("holds")
            && text.contains("states")
            && text.contains("knobs: read any")
            && text.contains("assuming:"),
        "{text}"
    );
}

#[test]
fn many_cases_are_told_by_shape() {
    let output = explore(&["hocl-flat"]);
    let text = text(&output);
    let lines = text.lines().count();
    assert!(
        status(&output) == 0 && lines < 40 && text.contains("2x1: 36 cases, "),
        "{lines} lines: {text}"
    );
}

#[test]
fn an_expected_counterexample_ends_with_0_is_drawn_and_replays_from_the_printed_command() {
    let svg = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("t-s3.svg");
    let output = explore(&[
        "t-s3",
        "--as-published",
        "--case",
        "0",
        "--svg",
        &svg.display().to_string(),
    ]);
    let story = text(&output);
    assert_eq!(status(&output), 0, "{story}");
    assert!(
        story.contains("as expected: the registry says that it fails"),
        "{story}"
    );
    assert!(std::fs::read_to_string(&svg).expect("drawn").starts_with("<svg"));
    let command = story
        .lines()
        .find_map(|l| l.strip_prefix("replay: dmkit explore "))
        .expect("a command");
    let args: Vec<&str> = command.split(' ').map(|a| a.trim_matches('"')).collect();
    let again = explore(&args);
    assert_eq!(status(&again), 0);
    let lines = |s: &str| {
        s.lines()
            .filter(|l| l.contains("returns Add"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert!(!lines(&story).is_empty());
    assert_eq!(lines(&story), lines(&text(&again)), "the same run");
}

#[test]
fn every_way_of_searching_finds_the_mutant() {
    for how in [
        &["--bfs"][..],
        &["--seed", "1"],
        &["--seed", "1", "--uniform", "--runs", "20000"],
    ] {
        let args = [&["hocl", "--mutant", "read-first"][..], how].concat();
        let output = explore(&args);
        assert_eq!(status(&output), 0, "{how:?}: {}", text(&output));
        assert!(
            text(&output).contains("as expected"),
            "{how:?}: {}",
            text(&output)
        );
    }
}

#[test]
fn a_search_that_is_cut_short_or_sampled_ends_with_2() {
    let cases = dm_models::find("hocl")
        .expect("a model")
        .cases_of(dm_models::Variant::Ours);
    let large = cases
        .iter()
        .position(|c| c.size == dm_models::Size::Nightly)
        .expect("a large one");
    let cut = explore(&["hocl", "--case", &large.to_string(), "--time", "0"]);
    assert!(
        status(&cut) == 2 && text(&cut).contains("truncated"),
        "{}",
        text(&cut)
    );
    let sampled = explore(&["T-S3", "--case", "0", "--seed", "1", "--runs", "10"]);
    assert!(
        status(&sampled) == 2 && text(&sampled).contains("nothing found"),
        "{}",
        text(&sampled)
    );
}

#[test]
fn a_crash_leaves_the_lock_held() {
    let output = explore(&["T-S3", "--case", "0", "--crash"]);
    assert!(
        status(&output) == 1 && text(&output).contains("--crash"),
        "{}",
        text(&output)
    );
}

#[test]
fn the_list_is_for_people_and_for_programs() {
    let people = explore(&["--list"]);
    assert!(status(&people) == 0 && text(&people).contains("--as-published"));
    let programs = explore(&["--list", "--json"]);
    let names: Vec<String> = text(&programs)
        .lines()
        .map(|line| {
            let entry: serde_json::Value = serde_json::from_str(line).expect("JSON");
            for field in ["source", "kind", "expected", "knobs"] {
                assert!(entry[field].is_string(), "{field} of {line}");
            }
            entry["name"].as_str().expect("a name").to_owned()
        })
        .collect();
    assert!(names.iter().any(|n| n == "T-S13") && names.iter().any(|n| n == "L15"));
    let ran = explore(&["L8", "--json"]);
    let verdicts: Vec<String> = text(&ran)
        .lines()
        .map(|l| serde_json::from_str::<serde_json::Value>(l).expect("JSON")["verdict"].to_string())
        .collect();
    assert_eq!(
        verdicts,
        ["\"holds\"", "\"counterexample\"", "\"holds\"", "\"holds\""]
    );
}

#[test]
fn unknown_models_twins_and_cases_are_refused() {
    for (args, says) in [
        (&["T-S99"][..], "no model"),
        (&["hocl", "--as-published"], "not published otherwise"),
        (&["hocl", "--mutant", "none"], "read-first"),
        (&["hocl", "--case", "99999"], "no such case"),
        (&["hocl", "--case", "0", "--trace", "!"], "not a trace"),
        (&["hocl", "--case", "0", "--trace", "0"], "does not fail"),
    ] {
        let output = explore(args);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            status(&output) == 3 && stderr.contains(says),
            "{args:?}: {stderr}"
        );
    }
}

#[test]
fn a_counterexample_written_as_json_has_every_event_and_replays_from_its_file() {
    let first = explore(&["T-S3", "--as-published", "--case", "0", "--json"]);
    assert_eq!(status(&first), 0);
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("t-s3.json");
    std::fs::write(&file, &first.stdout).expect("written");
    let line: serde_json::Value = serde_json::from_slice(&first.stdout).expect("one line of JSON");
    let trace = &line["counterexample"]["trace"];
    assert_eq!(
        (trace["schema"].as_str(), trace["unit"].as_str()),
        (Some("dmkit-trace-1"), Some("step"))
    );
    let events = trace["events"].as_array().expect("events");
    for kind in ["posts", "effect", "completes", "begins", "returns"] {
        assert!(events.iter().any(|e| e["event"] == kind), "no event {kind}");
    }
    // Every chain that completes was posted before by the same client.
    let mut posted = Vec::new();
    for e in events {
        let chain = (e["client"].clone(), e["chain"].clone());
        match e["event"].as_str() {
            Some("posts") => posted.push(chain),
            Some("completes") => assert!(posted.contains(&chain), "{e}"),
            _ => {}
        }
    }
    let again = explore(&["--replay", &file.display().to_string(), "--json"]);
    let again: serde_json::Value = serde_json::from_slice(&again.stdout).expect("one line of JSON");
    assert_eq!(again["counterexample"]["trace"], *trace);
}

/// If the reader closes the pipe, as in `dmkit explore … | head -1`, the exit status stays the same.
#[test]
fn a_reader_that_goes_away_changes_no_exit_status() {
    for (args, expected) in [
        (&["T-S3", "--case", "0"][..], 0),
        (&["T-S3", "--case", "0", "--crash"], 1),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dmkit"));
        command.arg("explore").args(args).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        drop(child.stdout.take());
        assert_eq!(child.wait().expect("it ends").code(), Some(expected), "{args:?}");
    }
}
