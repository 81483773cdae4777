//! Programs for the virtual machine: programs that cargo built, programs of this machine, and their libraries.

use crate::{Result, debian::output};
use serde::Deserialize;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A program that cargo built.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) is_test: bool,
}

#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Arguments of the cargo command that builds dm-ib's tests and the programs that they start.
pub(super) const TESTS: &[&str] = &[
    "test",
    "--package",
    "dm-ib",
    "--no-run",
    "--lib",
    "--bins",
    "--tests",
];
/// Arguments of the cargo command that builds the programs for the two hosts, in the tests' profile: `dmkit`, and
/// clients that survive faults.
pub(super) const TWO: &[&str] = &[
    "build",
    "--package",
    "dm-ib",
    "--package",
    "dmkit",
    "--features",
    "dmkit/ib",
    "--profile",
    "test",
    "--bin",
    "dmkit",
    "--example",
    "two_hosts",
];

/// Builds programs, and returns their paths.
pub(super) fn build(root: &Path, what: &[&str]) -> Result<Vec<Program>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(what)
        .arg("--message-format=json-render-diagnostics")
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()?;
    if !built.status.success() {
        return Err("the programs for soft-RoCE do not build; see cargo's messages above".into());
    }
    programs(&String::from_utf8(built.stdout)?)
}

/// Returns the executables in cargo's messages.
fn programs(messages: &str) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    for line in messages.lines() {
        let message: Message = serde_json::from_str(line)?;
        if let (Some(path), Some(target), Some(profile)) =
            (message.executable, message.target, message.profile)
        {
            programs.push(Program {
                name: target.name,
                path,
                is_test: profile.test,
            });
        }
    }
    Ok(programs)
}

/// Returns the bytes of a program without its debugging information.
pub(super) fn stripped(program: &Path, cache: &Path) -> Result<Vec<u8>> {
    let to = cache.join("stripped");
    output(
        Command::new("strip")
            .args(["--strip-debug", "-o"])
            .arg(&to)
            .arg(program),
    )?;
    let bytes = std::fs::read(&to)?;
    std::fs::remove_file(&to)?;
    Ok(bytes)
}

/// Returns every library that the programs load, and the loader.
pub(super) fn libraries(programs: &[PathBuf]) -> Result<BTreeSet<PathBuf>> {
    let mut all = BTreeSet::new();
    for program in programs {
        all.extend(linked(&output(Command::new("ldd").arg(program))?));
    }
    Ok(all)
}

/// Returns the paths in the output of `ldd`.
fn linked(printed: &str) -> impl Iterator<Item = PathBuf> {
    printed
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_and_programs_are_told_apart() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"dm_ib"},"profile":{"test":false},"executable":null}
{"reason":"compiler-artifact","target":{"name":"memory-node"},"profile":{"test":false},"executable":"/t/memory-node"}
{"reason":"compiler-artifact","target":{"name":"verbs"},"profile":{"test":true},"executable":"/t/verbs-1"}
{"reason":"build-finished","success":true}"#;
        let found = programs(messages).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|program| (program.name.as_str(), program.is_test))
            .collect();
        assert_eq!(found, [("memory-node", false), ("verbs", true)]);
        assert!(programs("not a message").is_err());
    }

    #[test]
    fn libraries_and_the_loader_are_found() {
        let printed = "\tlinux-vdso.so.1 (0x00007ffe)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x0)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x0)\n";
        let found: Vec<_> = linked(printed).collect();
        assert_eq!(
            found,
            [
                Path::new("/lib/x86_64-linux-gnu/libc.so.6"),
                Path::new("/lib64/ld-linux-x86-64.so.2")
            ]
        );
    }
}
