//! Finds the commit of the checkout, so that rows can contain it.

use std::path::Path;
use std::process::Command;

/// The variable with the commit. A build outside of a checkout can set it; the command reads it.
const COMMIT: &str = "DMKIT_COMMIT";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={COMMIT}");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if std::env::var_os(COMMIT).is_some() || !is_checkout(&root) {
        return;
    }
    // Every commit and every checkout of another commit adds a line to this log.
    if let Some(log) = git(
        &root,
        &["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"],
    ) && Path::new(&log).exists()
    {
        println!("cargo::rerun-if-changed={log}");
    }
    // A change in the code of any crate may make the checkout dirty. Tests and pages are not part of this program.
    for krate in std::fs::read_dir(root.join("crates"))
        .into_iter()
        .flatten()
        .flatten()
    {
        println!("cargo::rerun-if-changed={}", krate.path().join("src").display());
    }
    let describe = ["describe", "--always", "--exclude=*", "--abbrev=40", "--dirty"];
    if let Some(commit) = git(&root, &describe) {
        println!("cargo::rustc-env={COMMIT}={commit}");
    }
}

/// Returns whether `root` is the top directory of a checkout, and not a copy inside another checkout.
fn is_checkout(root: &Path) -> bool {
    let top =
        git(root, &["rev-parse", "--show-toplevel"]).and_then(|top| Path::new(&top).canonicalize().ok());
    top.is_some() && top == root.canonicalize().ok()
}

/// Returns the output of git, or `None` if there is no git or the command fails.
fn git(root: &Path, words: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    // The command only reads, so it must not take locks for which another git might wait.
    git.arg("-C").arg(root).args(words).env("GIT_OPTIONAL_LOCKS", "0");
    let output = git.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
