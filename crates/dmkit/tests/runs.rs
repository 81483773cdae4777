//! Tests of `dmkit bench`, `plot` and `merge`: the files that they keep, the input that they refuse, and the exit
//! statuses. Also tests of commands that a build lacks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A small measurement, in which each point takes a fraction of a second.
const SMALL: &str = "bench --index sherman --cns 1 --mns 1 --keys 2K --workload c,a";

/// Returns the path of a directory for the runs of a test. The directory does not exist yet.
fn place(name: &str) -> PathBuf {
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("runs-{name}"));
    let _ = fs::remove_dir_all(&out);
    out
}

fn command(words: &str, out: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dmkit"));
    command.args(words.split_whitespace()).arg("--out").arg(out);
    command
}

fn dmkit(words: &str, out: &Path) -> Output {
    command(words, out).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the complete rows of the latest run, each a JSON object; none if there is no run yet.
fn rows(out: &Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(out.join("latest/rows.jsonl")).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole
        .map(|line| serde_json::from_str(line).expect("a row"))
        .collect()
}

#[test]
fn ctrl_c_keeps_the_rows_and_resume_runs_the_others() {
    let out = place("ctrl-c");
    let run = format!("{SMALL} --ops 30K --clients 1,2,3,4,5,6,7,8,9,10");
    let mut started = command(&run, &out);
    let started = started.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = started.spawn().expect("the command starts");
    while rows(&out).is_empty() {
        std::thread::yield_now();
    }
    let kill = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(kill.expect("kill runs").success());
    let ended = child.wait_with_output().expect("it ends");
    let (said, warned) = (text(&ended.stdout), text(&ended.stderr));
    assert_eq!(ended.status.code(), Some(130), "{said}{warned}");
    let kept = rows(&out);
    assert!((1..20).contains(&kept.len()), "{} rows", kept.len());
    assert!(
        warned.contains(&format!("interrupted after {} of 20 points", kept.len())),
        "{warned}"
    );
    // The table has a line for each row.
    let lines = said
        .lines()
        .filter(|line| line.contains("sherman (default)  "))
        .count();
    assert_eq!(lines, kept.len(), "{said}");
    assert!(out.join("latest/curves.svg").is_file() && out.join("latest/rows.csv").is_file());

    let resumed = dmkit(&format!("{run} --resume"), &out);
    assert_eq!(resumed.status.code(), Some(0), "{}", text(&resumed.stderr));
    assert!(
        text(&resumed.stdout).contains(&format!("20 points, {} of them from an earlier run", kept.len()))
    );
    let all = rows(&out);
    assert!(all.len() == 20 && all[..kept.len()] == kept, "{} rows", all.len());
    let other = dmkit(&format!("{run} --resume=latest --value-size 16"), &out);
    assert_eq!(other.status.code(), Some(1));
    assert!(
        text(&other.stderr).contains("`value_bytes` was 8 and is 16"),
        "{}",
        text(&other.stderr)
    );
}

/// A build without the feature `eval` says how to get it.
#[cfg(not(feature = "eval"))]
#[test]
fn explore_and_reproduce_name_the_command_that_has_them() {
    let out = place("no-eval");
    for words in [
        "explore --list",
        "explore T-S3 --svg x.svg",
        "reproduce --help",
        "reproduce",
    ] {
        let name = words.split(' ').next().expect("a command");
        let refused = dmkit(words, &out);
        let told = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{words}: {told}");
        assert!(
            told.contains(&format!("use `cargo eval {name}`")),
            "{words}: {told}"
        );
    }
}

/// A build without the feature `ib` says how to get it.
#[cfg(not(feature = "ib"))]
#[test]
fn serve_names_the_build_that_has_it() {
    let refused = dmkit("serve", &place("no-ib"));
    let told = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(told.contains("--features ib"), "{told}");
}

#[test]
fn a_full_disk_keeps_the_rows_that_fit() {
    let out = place("full");
    let run = format!("{SMALL} --ops 2K --clients 1,2,3,4 --no-plot");
    // The file may have at most 8 blocks of 512 bytes. SIGXFSZ is ignored, so a longer write fails with an error, as on
    // a full disk.
    let words = format!(
        "trap '' XFSZ; ulimit -f 8; exec {} {run} --out {}",
        env!("CARGO_BIN_EXE_dmkit"),
        out.display()
    );
    let full = Command::new("sh").args(["-c", &words]).output().expect("sh runs");
    let told = text(&full.stderr);
    assert_eq!(full.status.code(), Some(1), "{told}");
    assert!(
        told.contains("rows.jsonl: the row of sherman (default), ") && told.contains("--resume"),
        "{told}"
    );
    let kept = rows(&out);
    let bytes = fs::read(out.join("latest/rows.jsonl")).expect("the rows");
    assert!(
        !kept.is_empty() && kept.len() < 8 && bytes.ends_with(b"\n"),
        "{} rows",
        kept.len()
    );
    // The row that did not fit into the file was printed.
    let shown = text(&full.stdout)
        .lines()
        .filter(|line| line.contains("sherman (default)  "))
        .count();
    assert!(shown > kept.len(), "{}", text(&full.stdout));
    let resumed = dmkit(&format!("{run} --resume"), &out);
    assert_eq!(resumed.status.code(), Some(0), "{}", text(&resumed.stderr));
    assert_eq!(rows(&out).len(), 8);
}

#[test]
fn a_full_or_closed_standard_output_loses_no_file() {
    let out = place("stdout");
    let run = format!("{SMALL} --ops 2K --clients 1");
    for more in ["", " --json"] {
        let full = fs::File::create("/dev/full").expect("Linux has it");
        let full = command(&format!("{run}{more}"), &out).stdout(full).output();
        let full = full.expect("the command starts");
        let told = text(&full.stderr);
        assert_eq!(full.status.code(), Some(1), "{told}");
        assert!(told.contains("standard output: "), "{told}");
        assert_eq!(rows(&out).len(), 2);
        assert!(out.join("latest/index.html").is_file());
        // The reader has closed the pipe, as in `dmkit … | head -1`.
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let closed = command(&format!("{run}{more}"), &out).stdout(writer).output();
        let closed = closed.expect("the command starts");
        assert_eq!(closed.status.code(), Some(0), "{}", text(&closed.stderr));
        assert!(out.join("latest/index.html").is_file());
    }
}

#[test]
fn rows_name_the_commit_of_the_checkout() {
    let out = place("commit");
    let run = dmkit(&format!("{SMALL} --ops 2K --clients 1 --no-plot"), &out);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let mut git = Command::new("git");
    let git = git
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["rev-parse", "HEAD"]);
    // Without git, or outside of a checkout, the commit is unknown.
    let head = git.output().ok().filter(|head| head.status.success());
    let head = head.map_or_else(
        || "unknown".to_owned(),
        |head| text(&head.stdout).trim().to_owned(),
    );
    let head = std::env::var("DMKIT_COMMIT").unwrap_or(head);
    for row in rows(&out) {
        let commit = row["commit"].as_str().expect("text");
        assert_eq!(commit.trim_end_matches("-dirty"), head.trim_end_matches("-dirty"));
    }
}

#[test]
fn invalid_settings_are_refused_before_the_run() {
    let out = place("refused");
    for (words, told) in [
        ("--keys 1000G", "ask for at most about"),
        ("--keys 1000g", "GB of memory and roughly"),
        ("--ops 0", "at least one operation (--ops)"),
        ("--clients 0", "at least one client thread (--clients)"),
        ("--mns 0", "at least one memory node (--mns)"),
        ("--cns 0", "at least one compute node (--cns)"),
        ("--value-size 4", "at least 8 bytes (--value-size)"),
        ("--duration 0ms", "at least one nanosecond (--duration)"),
        ("--clients 1,1", "are the same point"),
        ("--index shermann", "did you mean \"sherman\"?"),
    ] {
        let refused = dmkit(&format!("bench {words}"), &out);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{words}: {said}");
        assert!(
            said.starts_with("dmkit: ") && said.contains(told),
            "{words}: {said}"
        );
        assert!(!out.exists(), "{words}: something was written");
    }
    let resumed = dmkit("model --resume", &out);
    assert!(text(&resumed.stderr).contains("--resume is for bench and the main job"));
}

#[test]
fn rows_of_two_settings_are_not_drawn_as_one_curve() {
    let (out, one, other) = (place("plot"), place("one"), place("other"));
    let run = |more: &str, out: &Path| dmkit(&format!("{SMALL} --ops 2K {more} --no-plot"), out);
    let seeds = run("--clients 1 --seeds 3 --json", &one);
    let json: Vec<serde_json::Value> = text(&seeds.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("a row"))
        .collect();
    assert_eq!((json.len(), rows(&one).len()), (2, 6), "{}", text(&seeds.stderr));
    assert!(
        json.iter()
            .all(|row| row["seeds"] == 3 && row["mops_ci95"].as_f64().is_some_and(|half| half > 0.0))
    );
    assert!(run("--clients 2 --value-size 16", &other).status.success());

    let (one, other) = (one.join("latest"), other.join("latest"));
    let plot = |files: &[&Path]| {
        let mut plot = command("plot", &out);
        plot.args(files).output().expect("the command starts")
    };
    let refused = plot(&[&one, &other]);
    let told = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{told}");
    // Rows are in the order in which their points ended, which differs between runs.
    assert!(
        told.contains(" 1 clients, cache 500 MB, seed ")
            && told.contains(" 2 clients, cache 500 MB, seed 1) are not points of one curve: ")
            && told.contains("`value_bytes` is 8 in the first and 16 in the second"),
        "{told}"
    );
    assert!(!out.exists());
    let drawn = plot(&[&one]);
    assert!(
        drawn.status.success() && text(&drawn.stdout).contains('±'),
        "{}",
        text(&drawn.stderr)
    );
    assert!(
        !out.join("latest").exists(),
        "a picture of earlier rows is no run"
    );
    let merged = command("merge", &out)
        .arg(&one)
        .output()
        .expect("the command starts");
    assert!(
        text(&merged.stderr).contains("was not measured by a client machine"),
        "{}",
        text(&merged.stderr)
    );
}
