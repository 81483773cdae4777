//! The steps of `test` and `ci`. All steps run, each is timed, and the failed ones are named at the end.
//!
//! The steps that compile skip dm-ib, which needs RDMA packages. `cargo xtask rxe` tests it.

use crate::{Result, layout, outside, package, tidy, workspace};
use std::{
    ops::Range,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use xshell::{Shell, cmd};

/// Returns whether the environment says that this is a CI machine. Warnings are errors there.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// Checks formatting, tidy rules, byte pictures and the contents of packages. If `strict` is set, also runs clippy,
/// documentation, loom, shuttle, the check of the models' page, the crates outside of the workspace, and the attack on
/// the control plane. Then runs every test.
pub(crate) fn test(root: &Path, strict: bool) -> Result<()> {
    let shell = shell_in(root)?;
    let mut steps = Steps::default();
    check_and_test(&mut steps, &shell, root, strict);
    steps.verdict()
}

/// Runs the strict test, and checks that the fuzz targets compile.
pub(crate) fn ci(root: &Path) -> Result<()> {
    let shell = shell_in(root)?;
    let mut steps = Steps::default();
    check_and_test(&mut steps, &shell, root, true);
    if root.join("fuzz/Cargo.toml").is_file() {
        steps.run("fuzz targets compile", || {
            Ok(cmd!(shell, "cargo check --manifest-path fuzz/Cargo.toml").run()?)
        });
    }
    steps.verdict()
}

/// The packages and features of the steps that build the whole workspace in the usual way. If these steps had different
/// ones, cargo would build the crates once more. The feature `dmkit/eval` is needed because tests run the command's
/// figures and models.
const PACKAGES: [&str; 5] = ["--workspace", "--exclude", "dm-ib", "--features", "dmkit/eval"];

fn check_and_test(steps: &mut Steps, shell: &Shell, root: &Path, strict: bool) {
    steps.run("formatting", || Ok(cmd!(shell, "cargo fmt --all --check").run()?));
    steps.run("tidy", || tidy::run(root));
    steps.run("layout", || layout::run(root, true));
    steps.run("packages", || package::contents(root));
    if strict {
        steps.run("clippy", || {
            Ok(cmd!(
                shell,
                "cargo clippy {PACKAGES...} --all-targets --quiet -- -D warnings"
            )
            .run()?)
        });
        // This builds the crates as users build them, without flaws and models.
        steps.run("default features", || {
            Ok(cmd!(shell, "cargo clippy --package dmkit --quiet -- -D warnings").run()?)
        });
        steps.run("documentation", || {
            Ok(cmd!(shell, "cargo doc {PACKAGES...} --no-deps --quiet")
                .env("RUSTDOCFLAGS", "-D warnings")
                .run()?)
        });
        steps.run("loom", || loom(root, None));
        steps.run("shuttle", || shuttle(root, None, None));
        steps.run("models", || models(root, true, false, None));
        steps.run("outside", || outside::run(root));
        steps.run("hostile", || hostile(root));
    }
    // The tests run last, so that the reader sees cargo's summary of them last. They include doc tests and the
    // README's blocks, because tidy demands that a crate includes every Rust block of a Markdown file.
    steps.run("doc tests", || {
        Ok(cmd!(shell, "cargo test {PACKAGES...} --no-fail-fast --doc").run()?)
    });
    // `--tests` leaves out the examples that have no tests. Each of them would instantiate an index once more, which
    // takes minutes; clippy checks that they compile.
    steps.run("tests", || {
        Ok(cmd!(shell, "cargo test {PACKAGES...} --no-fail-fast --tests").run()?)
    });
}

/// Builds the command and the program that runs all models, both as the tests do, and returns their directory.
///
/// An example is among the targets because cargo otherwise does not resolve features as it does for tests.
pub(crate) fn programs(shell: &Shell, root: &Path) -> Result<PathBuf> {
    cmd!(
        shell,
        "cargo build --profile test {PACKAGES...} --bin dmkit --example models"
    )
    .run()?;
    Ok(workspace::target_directory(root)?.join("debug"))
}

/// Runs all models with the program that draws their page.
pub(crate) fn models(root: &Path, check: bool, nightly: bool, charts: Option<&Path>) -> Result<()> {
    let shell = shell_in(root)?;
    let flags = [(check, "--check"), (nightly, "--nightly")];
    let flags = flags
        .into_iter()
        .filter_map(|(on, flag)| on.then_some(Path::new(flag)));
    let charts = charts.into_iter().flat_map(|dir| [Path::new("--charts"), dir]);
    let flags: Vec<&Path> = flags.chain(charts).collect();
    if nightly {
        return Ok(cmd!(
            shell,
            "cargo run --release -p dm-models --example models -- docs/models.md {flags...}"
        )
        .run()?);
    }
    // Debug assertions cost seconds, but another build would cost minutes.
    let program = programs(&shell, root)?.join("examples/models");
    Ok(cmd!(shell, "{program} docs/models.md {flags...}").run()?)
}

/// The part that the names of all stress tests with kills of compute nodes contain.
pub(crate) const KILLS: &str = "full_kills";

/// Runs the tests that take too long for every check. Tests with kills run only if the filter contains [`KILLS`].
pub(crate) fn stress(root: &Path, filter: Option<&str>) -> Result<()> {
    let shell = shell_in(root)?;
    let skip: &[&str] = match filter.is_some_and(|filter| filter.contains(KILLS)) {
        true => &[],
        false => &["--skip", KILLS],
    };
    Ok(cmd!(
        shell,
        "cargo test {PACKAGES...} --test it --no-fail-fast -- --ignored --nocapture --test-threads 1 {skip...} {filter...}"
    )
    .run()?)
}

/// Attacks a control plane.
pub(crate) fn hostile(root: &Path) -> Result<()> {
    let shell = shell_in(root)?;
    Ok(cmd!(
        shell,
        "cargo test {PACKAGES...} --test hostile -- --ignored --nocapture"
    )
    .run()?)
}

/// Measures bytes per key after inserts in random order.
pub(crate) fn memory(root: &Path, index: &str, keys: u64) -> Result<()> {
    let shell = shell_in(root)?;
    let keys = keys.to_string();
    let (package, example) = (format!("dm-{index}"), format!("{index}_memory"));
    Ok(cmd!(
        shell,
        "cargo run --release -p {package} --example {example} -- --keys {keys}"
    )
    .run()?)
}

/// Runs every crate's loom models.
pub(crate) fn loom(root: &Path, filter: Option<&str>) -> Result<()> {
    under_checker(&shell_in(root)?, root, "loom", filter)
}

/// Number of batches of the hour-long run.
const LONG_BATCHES: u64 = 400_000;

/// Runs every crate's shuttle models, with the usual schedules or those of one batch.
pub(crate) fn shuttle(root: &Path, filter: Option<&str>, batch: Option<u64>) -> Result<()> {
    shuttle_batches(root, filter, batch.map(|batch| batch..batch + 1))
}

/// Runs the shuttle models for about an hour.
pub(crate) fn shuttle_stress(root: &Path, filter: Option<&str>, from: u64) -> Result<()> {
    shuttle_batches(root, filter, Some(from..from + LONG_BATCHES))
}

fn shuttle_batches(root: &Path, filter: Option<&str>, batches: Option<Range<u64>>) -> Result<()> {
    let shell = shell_in(root)?;
    if let Some(batches) = batches {
        shell.set_var("DM_SHUTTLE_FROM", batches.start.to_string());
        shell.set_var("DM_SHUTTLE_BATCHES", (batches.end - batches.start).to_string());
    }
    under_checker(&shell, root, "shuttle", filter)
}

/// Runs the test target named `checker` (loom or shuttle) in every crate that has such a target. The target is built
/// for this checker.
fn under_checker(shell: &Shell, root: &Path, checker: &str, filter: Option<&str>) -> Result<()> {
    let members = workspace::packages(root)?;
    let crates = crates_with(&members, checker);
    if crates.is_empty() {
        return Err(format!("no crate has a tests/{checker}.rs").into());
    }
    let packages = crates.iter().flat_map(|name| ["--package", name]);
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let flags = format!("{flags} --cfg dm_{checker}");
    Ok(cmd!(
        shell,
        "cargo test {packages...} --test {checker} --target-dir target/{checker} --no-fail-fast -- {filter...}"
    )
    .env("RUSTFLAGS", flags.trim())
    .run()?)
}

/// The crates whose unit tests Miri runs, because the soundness of other crates depends on them.
const UNDER_MIRI: [&str; 6] = [
    "dm-sync",
    "dm-layout",
    "dm-verbs",
    "dm-history",
    "dm-lock",
    "dm-cache",
];

/// Runs the unit tests of these crates under Miri.
pub(crate) fn miri(root: &Path, filter: Option<&str>) -> Result<()> {
    let shell = shell_in(root)?;
    let packages = UNDER_MIRI.iter().flat_map(|name| ["--package", name]);
    // Isolation would forbid reading the clock, which some tests do.
    Ok(cmd!(
        shell,
        "rustup run nightly cargo miri test {packages...} --lib --no-fail-fast -- {filter...}"
    )
    .env("MIRIFLAGS", "-Zmiri-disable-isolation")
    // Miri is a hundred times slower. A few cases reach all code paths, and the normal tests cover the inputs.
    .env("PROPTEST_CASES", "8")
    .run()?)
}

/// Returns the crates that have a test target of this name.
fn crates_with<'p>(packages: &'p [workspace::Package], test: &str) -> Vec<&'p str> {
    let has_models =
        |target: &workspace::Target| target.name == test && target.kind.iter().any(|kind| kind == "test");
    packages
        .iter()
        .filter(|package| package.targets.iter().any(has_models))
        .map(|package| package.name.as_str())
        .collect()
}

fn shell_in(root: &Path) -> Result<Shell> {
    let shell = Shell::new()?;
    shell.change_dir(root);
    Ok(shell)
}

#[derive(Debug, Default)]
struct Steps {
    done: Vec<Done>,
}

#[derive(Debug)]
struct Done {
    name: &'static str,
    took: Duration,
    error: Option<String>,
}

impl Steps {
    fn run(&mut self, name: &'static str, step: impl FnOnce() -> Result<()>) {
        eprintln!("== {name}");
        let start = Instant::now();
        let error = step().err().map(|error| error.to_string());
        if let Some(error) = &error {
            eprintln!("== {name} FAILED: {error}");
        }
        self.done.push(Done {
            name,
            took: start.elapsed(),
            error,
        });
    }

    /// Prints every step with its time, and fails if one of them failed.
    fn verdict(&self) -> Result<()> {
        let times: Vec<_> = self
            .done
            .iter()
            .map(|step| format!("{} {:.1} s", step.name, step.took.as_secs_f64()))
            .collect();
        eprintln!("== {}", times.join(", "));
        let failed: Vec<_> = self
            .done
            .iter()
            .filter(|step| step.error.is_some())
            .map(|step| step.name)
            .collect();
        if failed.is_empty() {
            Ok(())
        } else {
            Err(format!("failed: {}", failed.join(", ")).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_does_not_stop_the_next_and_fails_the_whole() {
        let mut steps = Steps::default();
        let mut second_ran = false;
        steps.run("first", || Err("broken".into()));
        steps.run("second", || {
            second_ran = true;
            Ok(())
        });
        assert!(second_ran);
        assert_eq!(steps.verdict().unwrap_err().to_string(), "failed: first");
    }

    #[test]
    fn no_failed_step_is_a_pass() {
        let mut steps = Steps::default();
        steps.run("only", || Ok(()));
        steps.verdict().unwrap();
    }

    #[test]
    fn a_crate_with_models_of_a_checker_is_not_left_out() {
        let package = |name: &str, target: &str, kind: &str| workspace::Package {
            name: name.to_owned(),
            version: "0.1.0".to_owned(),
            manifest_path: Path::new("/crates").join(name).join("Cargo.toml"),
            publish: None,
            rust_version: None,
            repository: None,
            targets: vec![workspace::Target {
                name: target.to_owned(),
                kind: vec![kind.to_owned()],
            }],
        };
        let packages = [
            package("dm-a", "loom", "test"),
            package("dm-b", "swarm", "test"),
            package("loom", "loom", "lib"),
            package("dm-c", "shuttle", "test"),
        ];
        assert_eq!(crates_with(&packages, "loom"), ["dm-a"]);
        assert_eq!(crates_with(&packages, "shuttle"), ["dm-c"]);
    }
}
