//! Tests of `dmkit index check` and `dmkit index sweep`, over an index in the memory of the command's own process.

use std::process::{Command, Output};

fn dmkit(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dmkit"));
    command
        .args(words.split_whitespace())
        .output()
        .expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_shipped_index_is_checked_and_swept() {
    for index in ["sherman", "smart", "chime", "dolphin", "marlin", "rolex"] {
        for action in ["check", "sweep"] {
            let ended = dmkit(&format!(
                "index {action} --fabric loopback --index {index} --keys 3K"
            ));
            let (said, warned) = (text(&ended.stdout), text(&ended.stderr));
            assert!(ended.status.success(), "{index} {action}: {said}{warned}");
            assert!(
                said.contains("3000 keys") && said.contains("nothing is wrong"),
                "{said}"
            );
        }
    }
}

#[test]
fn a_report_is_one_json_object() {
    let ended = dmkit("index check --fabric loopback --index sherman --keys 2K --json");
    let report: serde_json::Value = serde_json::from_slice(&ended.stdout).expect("a JSON object");
    assert_eq!(report["clean"], true, "{report}");
    assert_eq!(report["keys"], 2000, "{report}");
    assert_eq!(report["levels"][0]["level"], 0, "{report}");
}

#[test]
fn a_simulated_testbed_has_no_index_to_check() {
    let ended = dmkit("index check --index sherman --keys 2K");
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        text(&ended.stderr).contains("--fabric ib:cluster.toml"),
        "{}",
        text(&ended.stderr)
    );
}
