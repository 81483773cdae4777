//! Runs every example, and checks what it prints and that it stays short enough to copy.

use std::process::{Command, Output};

fn run(program: &str) -> String {
    let output = Command::new(program).output().expect("the program starts");
    said(&output)
}

/// Returns the standard output of a program that succeeded.
fn said(output: &Output) -> String {
    let [out, err] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{out}{err}");
    out
}

#[test]
fn first_index() {
    let out = run(env!("CARGO_BIN_EXE_first_index"));
    assert!(
        out.contains("key 30 has the value 10; 1 round trip") && out.contains("Key8(102)"),
        "{out}"
    );
}

#[test]
fn own_index() {
    let out = run(env!("CARGO_BIN_EXE_own_index"));
    assert_eq!(out, "key 7 has the value \"assemble\"; 1 round trip\n");
}

#[test]
fn own_lock() {
    let out = run(env!("CARGO_BIN_EXE_own_lock"));
    assert!(
        out.starts_with("unlock by CAS: passes, exhaustive")
            && out.contains("\nunlock by WRITE: spin lock: stuck"),
        "{out}"
    );
}

#[test]
fn what_if() {
    let out = run(env!("CARGO_BIN_EXE_what_if"));
    assert_eq!(out.lines().count(), 4, "{out}");
}

#[test]
fn lock_table() {
    let out = run(env!("CARGO_BIN_EXE_lock_table"));
    // Without contention, a transfer takes eight verbs: two CASes, two READs, two WRITEs and two unlocks.
    let verbs = out.split_whitespace().nth(3).and_then(|word| word.parse().ok());
    assert!(
        verbs.is_some_and(|verbs: f64| (8.0..20.0).contains(&verbs)),
        "{out}"
    );
}

/// A measurement with two columns more than the program reads, because it must find its columns by name.
const ROWS: &str = "\
index,variant,workload,clients,cache_limit_bytes,mops,bound_by,limit,p99_us,wrong_values,extra
sherman,fg+,c,16,1000000,2.5,the link,the link,9.0,0,x
chime,default,c,16,1000000,4.25,the link,lock waits 61 %,7.5,0,y
chime,default,a,16,1000000,1.0,,,20.0,0,z
";

fn read_rows(name: &str, rows: &str) -> Output {
    let path = format!("{}/{name}.csv", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&path, rows).expect("the directory is cargo's");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/read_rows.py");
    let output = Command::new("python3").args([script, &path]).output();
    output.expect("python3 is installed")
}

#[test]
fn read_rows_names_the_fastest_index_of_each_panel() {
    let out = said(&read_rows("rows", ROWS));
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.len(), 2, "{out}");
    assert!(
        lines[0].contains(
            "16 clients, caches of 1 MB: chime (default) with 4.25 Mops, p99 7.5 us; the limit is lock waits 61 %"
        ),
        "{out}"
    );
    assert!(lines[1].ends_with("the limit is unknown"));
}

#[test]
fn read_rows_refuses_wrong_values() {
    let output = read_rows("wrong", &ROWS.replace(",0,y", ",3,y"));
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("3 rows, of which 1 read wrong values"), "{told}");
}

#[test]
fn every_example_is_short_and_listed() {
    let readme = include_str!("../README.md");
    let mut count = 0;
    for entry in std::fs::read_dir(env!("CARGO_MANIFEST_DIR")).expect("this directory") {
        let path = entry.expect("a file").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name.ends_with(".rs") || name.ends_with(".py") {
            let lines = std::fs::read_to_string(&path).expect("a text").lines().count();
            assert!(lines <= 60, "{name} has {lines} lines");
            assert!(readme.contains(&name), "{name} is not in the README");
            count += 1;
        }
    }
    assert_eq!(count, 6);
}
